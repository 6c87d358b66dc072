// SPDX-License-Identifier: Apache-2.0
//
// Products whose rows do not depend on their neighbours: y = x w^T + bias
// + add.  An element is one chain of sums along k, whatever the tile.

__device__ inline void put(const product &p, int row, int col, float v)
{
	u64 at = (u64)row * p.n + col;

	if (row >= p.m || col >= p.n)
		return;
	if (p.bias)
		v += p.bias[col];
	if (p.wide)
		((float *)p.y)[at] = v + (p.add ? ((const float *)p.add)[at] : 0);
	else
		((act *)p.y)[at] = narrow<act>(v + (p.add ? widen(((const act *)p.add)[at]) : 0));
}

#if ACT_BF16
#define GEMM_K  64
#define GEMM_LD (GEMM_K + 8)

__device__ inline void gemm_load(bf16 *to, const bf16 *from, int row, int rows, int k, int at)
{
	for (int i = threadIdx.x; i < 64 * (GEMM_K / 8); i += 128) {
		int r = i / (GEMM_K / 8), c = i % (GEMM_K / 8) * 8;
		bool there = row + r < rows && at + c < k;

		copy16(to + r * GEMM_LD + c, from + (there ? (u64)(row + r) * k + at + c : 0),
		       there);
	}
}

// 64 x 64 elements by 128 threads; k is a multiple of 8.
extern "C" __global__ void __launch_bounds__(128) k_gemm(product p)
{
	__shared__ __align__(16) bf16 a[2][64 * GEMM_LD], b[2][64 * GEMM_LD];
	int row = blockIdx.y * 64, col = blockIdx.x * 64, warp = threadIdx.x / WARP;
	int lane = threadIdx.x % WARP, steps = (p.k + GEMM_K - 1) / GEMM_K;
	const bf16 *w = (const bf16 *)p.w;
	float c[8][4] = {};

	gemm_load(a[0], p.x, row, p.m, p.k, 0);
	gemm_load(b[0], w, col, p.n, p.k, 0);
	copy_commit();
	for (int s = 0; s < steps; s++) {
		if (s + 1 < steps) {
			gemm_load(a[(s + 1) & 1], p.x, row, p.m, p.k, (s + 1) * GEMM_K);
			gemm_load(b[(s + 1) & 1], w, col, p.n, p.k, (s + 1) * GEMM_K);
		}
		copy_commit();
		copy_wait<1>();
		__syncthreads();
		mul_nt<GEMM_K, 8>(c, a[s & 1] + warp * 16 * GEMM_LD, b[s & 1], GEMM_LD);
		__syncthreads();
	}
	for (int n = 0; n < 8; n++)
		for (int i = 0; i < 4; i++)
			put(p, row + warp * 16 + lane / 4 + (i >> 1) * 8,
			    col + n * 8 + lane % 4 * 2 + (i & 1), c[n][i]);
}

// Few rows: a warp per column, which reads its weights once for all of them.
template <int M> __device__ inline void gemv(const product &p)
{
	int col = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
	int lane = threadIdx.x % WARP;
	float sum[M] = {};

	if (col >= p.n)
		return;
	for (int i = lane * 8; i < p.k; i += WARP * 8) {
		uint4 w = *(const uint4 *)((const bf16 *)p.w + (u64)col * p.k + i);
		const u32 *ws = &w.x;

#pragma unroll
		for (int r = 0; r < M; r++) {
			uint4 x = *(const uint4 *)(p.x + (u64)min(r, p.m - 1) * p.k + i);
			const u32 *xs = &x.x;

#pragma unroll
			for (int j = 0; j < 4; j++) {
				sum[r] += __uint_as_float(xs[j] << 16) *
					  __uint_as_float(ws[j] << 16);
				sum[r] += __uint_as_float(xs[j] & 0xffff0000) *
					  __uint_as_float(ws[j] & 0xffff0000);
			}
		}
	}
#pragma unroll
	for (int r = 0; r < M; r++) {
		float all = warp_sum(sum[r]);

		if (lane == 0)
			put(p, r, col, all);
	}
}

extern "C" __global__ void k_gemv1(product p) { gemv<1>(p); }
extern "C" __global__ void k_gemv2(product p) { gemv<2>(p); }
extern "C" __global__ void k_gemv4(product p) { gemv<4>(p); }
extern "C" __global__ void k_gemv8(product p) { gemv<8>(p); }
#endif

// Any shape, slowly: a thread per element.
extern "C" __global__ void k_gemm_plain(product p)
{
	int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
	float sum = 0;

	if (col >= p.n)
		return;
	for (int i = 0; i < p.k; i++)
		sum += widen(p.x[(u64)row * p.k + i]) *
		       widen(((const act *)p.w)[(u64)col * p.k + i]);
	put(p, row, col, sum);
}
