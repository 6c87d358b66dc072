// SPDX-License-Identifier: Apache-2.0
//
// Types and sums.  ACT_BF16 says what activations are.  NVRTC compiles this
// without any toolkit header.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INF __int_as_float(0x7f800000)
#define WARP 32

struct bf16 {
	u16 bits;
};

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

__device__ inline u16 bf16_bits(float x)
{
	u16 r;

	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
	return r;
}

// Two floats as two bf16, the first in the low half.
__device__ inline u32 bf16_pair(float low, float high)
{
	u32 r;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
	return r;
}

template <class T> __device__ inline T narrow(float x);
template <> __device__ inline float narrow<float>(float x) { return x; }
template <> __device__ inline bf16 narrow<bf16>(float x) { return bf16{ bf16_bits(x) }; }

#if ACT_BF16
typedef bf16 act;
#else
typedef float act;
#endif
#define ACT act
#include "args.h"

// A kernel may be started before the one in front of it has ended (cuda_launch_early): it then
// touches nothing that others write before this, and lets the next one do alike.
__device__ inline void follow()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Sum over the warp, the same tree for every caller; all lanes get it.
__device__ inline float warp_sum(float x)
{
	for (int d = 16; d; d >>= 1)
		x += __shfl_xor_sync(~0u, x, d);
	return x;
}

__device__ inline float warp_max(float x)
{
	for (int d = 16; d; d >>= 1)
		x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
	return x;
}

// Sum over a block of whole warps, at most 1024 threads.  Ends with everybody
// past the use of `part` only at the next call's first barrier.
__device__ inline float block_sum(float x)
{
	__shared__ float part[32];
	int warps = blockDim.x / WARP, lane = threadIdx.x % WARP;

	x = warp_sum(x);
	__syncthreads();
	if (lane == 0)
		part[threadIdx.x / WARP] = x;
	__syncthreads();
	return warp_sum(lane < warps ? part[lane] : 0);
}

__device__ inline float block_max(float x)
{
	__shared__ float part[32];
	int warps = blockDim.x / WARP, lane = threadIdx.x % WARP;

	x = warp_max(x);
	__syncthreads();
	if (lane == 0)
		part[threadIdx.x / WARP] = x;
	__syncthreads();
	return warp_max(lane < warps ? part[lane] : -INF);
}
