// SPDX-License-Identifier: Apache-2.0
//
// Products of bf16 tiles in shared memory on tensor cores (m16n8k16).  A warp
// owns 16 rows.  With g = lane / 4 and t = lane % 4, accumulator c of an 8
// columns wide tile holds (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1).

__device__ inline u32 shared_at(const void *p)
{
	return (u32)__cvta_generic_to_shared(p);
}

__device__ inline void load_frag(u32 r[4], const bf16 *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_at(p)));
}

__device__ inline void load_frag_t(u32 r[4], const bf16 *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_at(p)));
}

__device__ inline void mma(float c[4], const u32 a[4], u32 b0, u32 b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes to shared memory; zeroes where !there.
__device__ inline void copy16(void *to, const void *from, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(to)),
		     "l"(from), "r"(there ? 16 : 0));
}

__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ inline void copy_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(N));
}

// From Hopper on, barriers in shared memory: `n` arrivals end a phase; phases alternate in parity.
__device__ inline void bar_init(u32 at, int n)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(n) : "memory");
}

__device__ inline void bar_arrive(u32 at)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

__device__ inline void bar_wait(u32 at, u32 parity)
{
	u32 over;

	do {
		asm volatile("{\n.reg .pred p;\n"
			     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
			     "selp.u32 %0, 1, 0, p;\n}"
			     : "=r"(over) : "r"(at), "r"(parity) : "memory");
	} while (!over);
}

// c (16, 8 NT) += a (16, K) b (8 NT, K)^T; a is the warp's first row; both of ld elements a row.
template <int K, int NT>
__device__ inline void mul_nt(float (*c)[4], const bf16 *a, const bf16 *b, int ld)
{
	int lane = threadIdx.x % WARP;
	const bf16 *pa = a + (lane & 15) * ld + (lane >> 4) * 8;
	const bf16 *pb = b + ((lane & 7) + (lane >> 4) * 8) * ld + ((lane >> 3) & 1) * 8;

#pragma unroll
	for (int k = 0; k < K; k += 16) {
		u32 fa[4], fb[4];

		load_frag(fa, pa + k);
#pragma unroll
		for (int n = 0; n < NT; n += 2) {
			load_frag(fb, pb + n * 8 * ld + k);
			mma(c[n], fa, fb[0], fb[1]);
			mma(c[n + 1], fa, fb[2], fb[3]);
		}
	}
}

// Accumulators (16, 16 KT) as the left side of a product.
template <int KT> __device__ inline void to_frags(u32 (*p)[4], float (*c)[4])
{
#pragma unroll
	for (int k = 0; k < KT; k++) {
		p[k][0] = bf16_pair(c[2 * k][0], c[2 * k][1]);
		p[k][1] = bf16_pair(c[2 * k][2], c[2 * k][3]);
		p[k][2] = bf16_pair(c[2 * k + 1][0], c[2 * k + 1][1]);
		p[k][3] = bf16_pair(c[2 * k + 1][2], c[2 * k + 1][3]);
	}
}

// c (16, 8 NT) += p (16, 16 KT) b (16 KT, 8 NT).
template <int KT, int NT>
__device__ inline void mul_nn(float (*c)[4], u32 (*p)[4], const bf16 *b, int ld)
{
	int lane = threadIdx.x % WARP;
	const bf16 *pb = b + ((lane & 7) + ((lane >> 3) & 1) * 8) * ld + (lane >> 4) * 8;

#pragma unroll
	for (int k = 0; k < KT; k++)
#pragma unroll
		for (int n = 0; n < NT; n += 2) {
			u32 fb[4];

			load_frag_t(fb, pb + k * 16 * ld + n * 8);
			mma(c[n], p[k], fb[0], fb[1]);
			mma(c[n + 1], p[k], fb[2], fb[3]);
		}
}

// 64 rows of D elements into shared memory, by 128 threads; row r comes from row_of(r).
template <int D, class F>
__device__ inline void copy_tile(bf16 *to, const bf16 *from, int rows, F row_of)
{
	for (int i = threadIdx.x; i < 64 * (D / 8); i += 128) {
		int r = i / (D / 8), c = i % (D / 8) * 8;
		bool there = r < rows;

		copy16(to + r * (D + 8) + c, from + (there ? row_of(r) : 0) + c, there);
	}
}
