/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge's kernels on CUDA, compiled by NVRTC when a device is opened.
 * Reveal and capture are kernels and not copies: a copy engine runs beside
 * another context's kernels, an SM kernel never does.
 */
#include "cuda_cmp.h"
#include "cuda_move.h"

typedef unsigned long long u64;
typedef unsigned int u32;

/* A finaliser of 64 bits (as in splitmix64): poison at word i of a run. */
static __device__ u64 mix(u64 x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static __device__ void copy_chunk(char *dst, const char *src, u32 n)
{
	u64 both = (u64)dst | (u64)src;
	u32 done = 0;

	if (!(both & 15)) {
		const uint4 *s = (const uint4 *)src;
		uint4 *d = (uint4 *)dst;
		u32 words = n / 16;
#pragma unroll 4
		for (u32 i = threadIdx.x; i < words; i += MOVE_THREADS)
			d[i] = s[i];
		done = words * 16;
	} else if (!(both & 3)) {
		u32 words = n / 4;
#pragma unroll 4
		for (u32 i = threadIdx.x; i < words; i += MOVE_THREADS)
			((u32 *)dst)[i] = ((const u32 *)src)[i];
		done = words * 4;
	}
	for (u32 i = done + threadIdx.x; i < n; i += MOVE_THREADS)
		dst[i] = src[i];
}

/* `at` is the chunk's place in its run, a multiple of MOVE_CHUNK. */
static __device__ void poison_chunk(char *dst, u32 n, u64 seed, u64 at)
{
	if (!((u64)dst & 7)) {
		u32 words = n / 8;

		for (u32 i = threadIdx.x; i < words; i += MOVE_THREADS)
			((u64 *)dst)[i] = mix(seed ^ (at / 8 + i));
		for (u32 i = words * 8 + threadIdx.x; i < n;
		     i += MOVE_THREADS)
			dst[i] = (char)mix(~seed ^ (at + i));
		return;
	}
	for (u32 i = threadIdx.x; i < n; i += MOVE_THREADS)
		dst[i] = (char)mix(~seed ^ (at + i));
}

/* All moves of a table.  Any grid; MOVE_THREADS threads a block. */
extern "C" __global__ void __launch_bounds__(MOVE_THREADS)
move(const __grid_constant__ struct moves t)
{
	for (u64 c = blockIdx.x; c < t.chunks; c += gridDim.x) {
		u32 lo = 0, hi = (u32)t.n;

		while (hi - lo > 1) {	/* last move whose first is <= c */
			u32 mid = (lo + hi) / 2;

			if (t.m[mid].first <= c)
				lo = mid;
			else
				hi = mid;
		}
		u64 at = (c - t.m[lo].first) * MOVE_CHUNK;
		u64 left = t.m[lo].bytes - at;
		u32 n = left < MOVE_CHUNK ? (u32)left : MOVE_CHUNK;
		char *dst = (char *)t.m[lo].dst + at;

		if (t.m[lo].src)
			copy_chunk(dst, (const char *)t.m[lo].src + at, n);
		else
			poison_chunk(dst, n, mix(t.seed + lo), at);
	}
}

/* Reads `n` 16-byte words, so that nothing else stays in the L2 cache. */
extern "C" __global__ void sweep(const uint4 *p, u64 n, u32 *sink)
{
	u64 step = (u64)gridDim.x * blockDim.x;
	u32 x = 0;

	for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
	     i += step) {
		uint4 v = __ldcg(&p[i]);

		x ^= v.x ^ v.y ^ v.z ^ v.w;
	}
	if (x == 0x5eed0bad)	/* keeps the loads alive */
		*sink = x;
}

static __device__ u64 gpu_ns(void)
{
	u64 t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

/* Tells the host, which polls, when the GPU got here: the time, then which
 * stamp it is. */
extern "C" __global__ void stamp(volatile u64 *out, u64 seq)
{
	out[0] = gpu_ns();
	__threadfence_system();
	out[1] = seq;
}

/*
 * Keeps the GPU for `ns`, so that what a runner launches meanwhile queues up
 * behind the judge's stream.  Tells the host at once that it runs, and in the
 * end the longest time for which it did not: another context's turn.
 */
extern "C" __global__ void hold(volatile u64 *out, u64 seq, u64 ns)
{
	u64 from = gpu_ns(), last = from, now, gap = 0;

	out[1] = seq;
	__threadfence_system();
	do {
		now = gpu_ns();
		gap = now - last > gap ? now - last : gap;
		last = now;
	} while (now - from < ns);
	out[0] = gap;
	__threadfence_system();
}

extern "C" __global__ void probe(u32 *p)
{
	if (!threadIdx.x)
		*p += 1;
}

/* Sets *count when a byte differs. */
extern "C" __global__ void differs(const unsigned char *a,
				   const unsigned char *b, u64 n, u32 *count)
{
	u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
	u64 step = (u64)gridDim.x * blockDim.x;
	u32 found = 0;

	if (!(((u64)a | (u64)b) & 7)) {
		u64 words = n / 8;

		for (u64 k = i; k < words; k += step)
			found |= ((const u64 *)a)[k] != ((const u64 *)b)[k];
		i += words * 8;
	}
	for (; i < n; i += step)
		found |= a[i] != b[i];
	if (found)
		atomicOr(count, 1u);
}

/* A kernel that takes `ns` nanoseconds by the GPU's clock: the self-test's
 * stand-in for work of known length. */
extern "C" __global__ void spin(u64 ns, u32 *sink)
{
	u64 from = gpu_ns(), to;

	do {
		to = gpu_ns();
	} while (to - from < ns);
	if (!threadIdx.x && !blockIdx.x)
		*sink = (u32)(to - from);
}

/* `size` bytes at any address, as the low bits of a word. */
static __device__ u64 bits_at(const char *p, int size)
{
	u64 x = 0;

	if (!((u64)p & (u64)(size - 1)))
		switch (size) {
		case 1: return *(const unsigned char *)p;
		case 2: return *(const unsigned short *)p;
		case 4: return *(const u32 *)p;
		default: return *(const u64 *)p;
		}
	for (int i = 0; i < size; i++)
		x |= (u64)(unsigned char)p[i] << (8 * i);
	return x;
}

static __device__ double value_of(u64 x, int load)
{
	switch (load) {
	case LOAD_BOOL: return x != 0;
	case LOAD_I8: return (signed char)x;
	case LOAD_I16: return (short)x;
	case LOAD_I32: return (int)x;
	case LOAD_I64: return (double)(long long)x;
	case LOAD_F16: return cmp_of_f16((u32)x);
	case LOAD_BF16: return cmp_of_bf16((u32)x);
	case LOAD_F8E4M3: return cmp_of_f8e4m3((u32)x);
	case LOAD_F8E5M2: return cmp_of_f8e5m2((u32)x);
	case LOAD_F32: case LOAD_C64: return cmp_float_of((u32)x);
	case LOAD_F64: case LOAD_C128: return __longlong_as_double(x);
	default: return (double)x;	/* unsigned */
	}
}

static __device__ void compare_complex(struct cmp_acc *a, u64 i,
				       const struct cmp_args &t)
{
	int half = t.size / 2;
	double got[2], ref[2], fp64[2] = { 0, 0 };

	for (int part = 0; part < 2; part++) {
		u64 at = i * t.size + part * half;

		got[part] = value_of(bits_at((char *)t.got + at, half),
				     t.load);
		ref[part] = value_of(bits_at((char *)t.ref + at, half),
				     t.load);
		if (t.fp64)
			fp64[part] = __longlong_as_double(
				bits_at((char *)t.fp64 + i * 16 + part * 8,
					8));
	}
	cmp_complex(a, i, got, ref, fp64, &t.rule);
}

static __device__ void compare_one(struct cmp_acc *a, u64 i,
				   const struct cmp_args &t)
{
	u64 x, y;
	double got, ref, fp64 = 0;

	if (t.load == LOAD_C64 || t.load == LOAD_C128) {
		compare_complex(a, i, t);
		return;
	}
	x = bits_at((char *)t.got + i * t.size, t.size);
	y = bits_at((char *)t.ref + i * t.size, t.size);
	got = value_of(x, t.load);
	ref = value_of(y, t.load);
	switch (t.load) {
	case LOAD_F16: case LOAD_BF16: case LOAD_F32: case LOAD_F64:
	case LOAD_F8E4M3: case LOAD_F8E5M2:
		if (t.fp64)
			fp64 = __longlong_as_double(
				bits_at((char *)t.fp64 + i * 8, 8));
		cmp_real(a, i, got, ref, fp64, &t.rule);
		return;
	case LOAD_BOOL:
		cmp_exact(a, i, got == ref, got, ref);
		return;
	default:
		cmp_exact(a, i, x == y, got, ref);
	}
}

#define ACC_WORDS (sizeof(struct cmp_acc) / 8)

/* Merges the accumulators of a warp into its first lane's, always in the
 * same order, so that sums come out the same every time. */
static __device__ void merge_warp(struct cmp_acc *a)
{
	for (int off = 1; off < 32; off *= 2) {
		struct cmp_acc other;

		for (u32 w = 0; w < ACC_WORDS; w++)
			((u64 *)&other)[w] = __shfl_down_sync(
				~0u, ((u64 *)a)[w], off);
		if ((threadIdx.x & 31) + off < 32)
			cmp_acc_merge(a, &other);
	}
}

/* CMP_THREADS threads a block; each block takes one run of elements. */
extern "C" __global__ void __launch_bounds__(CMP_THREADS)
compare(const __grid_constant__ struct cmp_args t)
{
	__shared__ struct cmp_acc warp[CMP_THREADS / 32];
	u64 run = (t.n + gridDim.x - 1) / gridDim.x;
	u64 from = run * blockIdx.x;
	u64 to = from + run < t.n ? from + run : t.n;
	struct cmp_acc a;

	cmp_acc_init(&a);
	for (u64 i = from + threadIdx.x; i < to; i += CMP_THREADS)
		compare_one(&a, i, t);
	merge_warp(&a);
	if (!(threadIdx.x & 31))
		warp[threadIdx.x / 32] = a;
	__syncthreads();
	if (threadIdx.x)
		return;
	for (int w = 1; w < CMP_THREADS / 32; w++)
		cmp_acc_merge(&a, &warp[w]);
	((struct cmp_acc *)t.out)[blockIdx.x] = a;
}
