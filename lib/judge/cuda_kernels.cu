/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge's kernels on CUDA, compiled by NVRTC when a device is opened.
 * Reveal and capture are kernels and not copies: a copy engine runs beside
 * another context's kernels, an SM kernel never does.
 */
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
	u64 from, to;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
	do {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(to));
	} while (to - from < ns);
	if (!threadIdx.x && !blockIdx.x)
		*sink = (u32)(to - from);
}
