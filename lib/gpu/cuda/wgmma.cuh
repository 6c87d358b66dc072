// SPDX-License-Identifier: Apache-2.0
//
// Products of bf16 tiles on Hopper's tensor cores (wgmma).  A group of four
// warps owns 64 rows; warp w of it has rows 16 w on, and its accumulators lie
// in a thread as mma.cuh's do.
//
// A tile of R rows of D elements lies in shared memory in panels of 64
// columns: rows of 128 bytes, whose 16-byte pieces are permuted by the row
// (piece c of row r is at c ^ r % 8).  Panels begin at multiples of 1,024
// bytes.  What is written by others than the tensor cores needs wg_publish
// and a barrier before they read it.
#if ACT_BF16 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PANEL 64

__device__ inline void wg_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void wg_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wg_commit()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> __device__ inline void wg_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Keeps the compiler from moving uses of accumulators over what is before.
template <int NT> __device__ inline void wg_hold(float (&c)[NT][4])
{
#pragma unroll
	for (int i = 0; i < NT; i++)
		asm volatile(""
			     : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
			     :: "memory");
}

// A matrix at shared address `at` (descriptor of PTX): 8 rows are 1,024 bytes; where its columns
// run along the product's sum, `panel` is not used, else it is the bytes of a panel.
__device__ inline u64 wg_matrix(u32 at, u32 panel)
{
	return (u64)((at & 0x3ffff) >> 4) | (u64)(panel >> 4) << 16 | (u64)(1024 >> 4) << 32 |
	       (u64)1 << 62;
}

#define WG_C4(s, c, i) s "f"(c[i][0]), s "f"(c[i][1]), s "f"(c[i][2]), s "f"(c[i][3])
#define WG_C16(s, c, i) \
	WG_C4(s, c, i), WG_C4(s, c, i + 1), WG_C4(s, c, i + 2), WG_C4(s, c, i + 3)
#define WG_C32(s, c) WG_C16(s, c, 0), WG_C16(s, c, 4)
#define WG_C64(s, c) WG_C32(s, c), WG_C16(s, c, 8), WG_C16(s, c, 12)
#define WG_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
	      "%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WG_64 WG_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49," \
		    "%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// c (64, 8 NT) = a b^T, or += with ADD, both in shared memory with columns along the sum; and
// c += a b, a in registers, b (16, 8 NT) in shared memory with columns along its rows.
#define WG_PRODUCTS(NT, n, regs, list, r0, r1, r2, r3, r4) \
	template <int ADD> __device__ inline void wg_nt(float (&c)[NT][4], u64 a, u64 b) \
	{ \
		asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" list \
			     "}, %" #r0 ", %" #r1 ", %" #r2 ", 1, 1, 0, 0;" \
			     : regs("+", c) : "l"(a), "l"(b), "n"(ADD)); \
	} \
	__device__ inline void wg_nn(float (&c)[NT][4], const u32 (&a)[4], u64 b) \
	{ \
		asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" list \
			     "}, {%" #r0 ",%" #r1 ",%" #r2 ",%" #r3 "}, %" #r4 ", 1, 1, 1, 1;" \
			     : regs("+", c) \
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
	}
WG_PRODUCTS(8, 64, WG_C32, WG_32, 32, 33, 34, 35, 36)
WG_PRODUCTS(16, 128, WG_C64, WG_64, 64, 65, 66, 67, 68)

// c (64, 8 NT) = a b^T: 64 rows at `a` of a tile of AR rows, all 8 NT rows of the tile at `b`.
template <int D, int AR, int NT> __device__ inline void wg_mul_nt(float (&c)[NT][4], u32 a, u32 b)
{
#pragma unroll
	for (int k = 0; k < D / 16; k++) {
		u32 panel = k / 4, in = k % 4 * 32;

		u64 ma = wg_matrix(a + panel * AR * 128 + in, 16);
		u64 mb = wg_matrix(b + panel * NT * 8 * 128 + in, 16);

		if (k)
			wg_nt<1>(c, ma, mb);
		else
			wg_nt<0>(c, ma, mb);
	}
}

// c (64, 8 NT) += p (64, 16 KT) b, the tile at b of 16 KT rows.
template <int KT, int NT>
__device__ inline void wg_mul_nn(float (&c)[NT][4], const u32 (&p)[KT][4], u32 b)
{
#pragma unroll
	for (int k = 0; k < KT; k++)
		wg_nn(c, p[k], wg_matrix(b + k * 2048, KT * 16 * 128));
}

__device__ inline float exp2_fast(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

__device__ inline void copy16_to(u32 to, const void *from, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
		     "r"(there ? 16 : 0) : "memory");
}

__device__ inline void copy4_to(u32 to, const void *from, bool there)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
		     "r"(there ? 4 : 0) : "memory");
}

// The first `rows` of R rows into the tile at `to`, zeroes behind them; row r begins at
// from[at(r)].  A thread has the same piece of every STEP-th row.
template <int D, int R, int THREADS, class F>
__device__ inline void wg_load(u32 to, const bf16 *from, int rows, F at)
{
	constexpr int STEP = THREADS / (D / 8);
	int thread = threadIdx.x % THREADS, r = thread / (D / 8), c = thread % (D / 8);

	static_assert(STEP % 8 == 0, "pieces of a thread's rows are permuted alike");
	to += c / 8 * R * 128 + r * 128 + ((c ^ r) & 7) * 16;
	from += c * 8;
#pragma unroll
	for (int i = 0; i < R; i += STEP)
		if (R % STEP == 0 || i + r < R)
			copy16_to(to + i * 128, i + r < rows ? from + at(i + r) : from,
				  i + r < rows);
}
#endif
