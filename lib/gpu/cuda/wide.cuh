// SPDX-License-Identifier: Apache-2.0
//
// Operations on rows of bf16 that are read and written 16 bytes at a time:
// what models have, rows and heads of whole pieces of eight.  Others take the
// kernels of rows.cuh and attn.cuh.
#if ACT_BF16
struct alignas(16) eight {
	u32 w[4];
};

__device__ inline void unpack(float (&x)[8], const eight &e)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		x[2 * i] = __uint_as_float(e.w[i] << 16);
		x[2 * i + 1] = __uint_as_float(e.w[i] & 0xffff0000);
	}
}

__device__ inline eight pack(const float (&x)[8])
{
	eight e;

#pragma unroll
	for (int i = 0; i < 4; i++)
		e.w[i] = bf16_pair(x[2 * i], x[2 * i + 1]);
	return e;
}

// What a kernel in front may have written while this one was already there.
__device__ inline eight load_fresh(const act *p)
{
	eight e;

	asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(e.w[0]), "=r"(e.w[1]), "=r"(e.w[2]), "=r"(e.w[3]) : "l"(p) : "memory");
	return e;
}

__device__ inline void load8(float (&x)[8], const act *p) { unpack(x, *(const eight *)p); }

__device__ inline void load8(float (&x)[8], const float *p)
{
	float4 a = ((const float4 *)p)[0], b = ((const float4 *)p)[1];

	x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
	x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

__device__ inline void store8(act *p, const float (&x)[8]) { *(eight *)p = pack(x); }

// A row's pieces in the registers of a warp, at most N a lane; 1 / its root mean square.
template <int N> struct wide_row {
	eight e[N];
	float r;

	__device__ inline wide_row(const act *x, int c, float eps)
	{
		int lane = threadIdx.x % WARP;
		float sum = 0, v[8];

#pragma unroll
		for (int i = 0; i < N; i++)
			e[i] = (i * WARP + lane) * 8 < c ?
				       *(const eight *)(x + (i * WARP + lane) * 8) : eight{};
#pragma unroll
		for (int i = 0; i < N; i++) {
			unpack(v, e[i]);
#pragma unroll
			for (int k = 0; k < 8; k++)
				sum += v[k] * v[k];
		}
		r = rsqrtf(warp_sum(sum) / c + eps);
	}
};

// A warp per row.
template <int N>
__device__ inline void wide_norm(act *y, const act *x, const float *w, int t, int c, float eps)
{
	int row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;

	follow();
	if (row >= t)
		return;
	wide_row<N> in(x + (u64)row * c, c, eps);

#pragma unroll
	for (int i = 0; i < N; i++) {
		int at = (i * WARP + lane) * 8;
		float v[8], s[8];

		if (at >= c)
			break;
		unpack(v, in.e[i]);
		load8(s, w + at);
#pragma unroll
		for (int k = 0; k < 8; k++)
			v[k] = v[k] * in.r * s[k];
		store8(y + (u64)row * c + at, v);
	}
}

// dx as k_rmsnorm_dx makes it, and sums over rows of dy x / rms into part (blocks, c): a warp has
// every so manieth row, and a block adds its warps' sums in their order.
template <int N>
__device__ inline void wide_norm_back(act *dx, float *part, const act *dy, const act *x,
				      const float *w, int t, int c, float eps)
{
	extern __shared__ float columns[];
	int warps = blockDim.x / WARP, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	float sum[N][8] = {};

	for (int row = blockIdx.x * warps + warp; row < t; row += gridDim.x * warps) {
		u64 from = (u64)row * c;
		float mean = 0, v[8], d[8], s[8];
		// There are not enough registers for all of a long row.
		constexpr int KEPT = N > 8 ? 1 : N;
		eight g[KEPT];

#pragma unroll
		for (int i = 0; i < KEPT; i++) {
			int at = (i * WARP + lane) * 8;

			g[i] = at < c ? *(const eight *)(dy + from + at) : eight{};
		}
		auto gradient = [&](float (&to)[8], int i) {
			if (KEPT == N)
				unpack(to, g[i % KEPT]);
			else
				load8(to, dy + from + (i * WARP + lane) * 8);
		};
		wide_row<N> in(x + from, c, eps);

#pragma unroll
		for (int i = 0; i < N; i++) {
			int at = (i * WARP + lane) * 8;

			if (at >= c)
				break;
			gradient(d, i);
			unpack(v, in.e[i]);
			load8(s, w + at);
#pragma unroll
			for (int k = 0; k < 8; k++) {
				v[k] *= in.r;
				sum[i][k] += d[k] * v[k];
				mean += d[k] * s[k] * v[k];
			}
		}
		mean = warp_sum(mean) / c;
#pragma unroll
		for (int i = 0; i < N; i++) {
			int at = (i * WARP + lane) * 8;
			float old[8];

			if (at >= c)
				break;
			gradient(d, i);
			unpack(v, in.e[i]);
			load8(s, w + at);
			load8(old, dx + from + at);
#pragma unroll
			for (int k = 0; k < 8; k++)
				old[k] += in.r * (d[k] * s[k] - v[k] * in.r * mean);
			store8(dx + from + at, old);
		}
	}
	for (int k = 0; k < warps; k++) {
#pragma unroll
		for (int i = 0; i < N; i++) {
			int at = (i * WARP + lane) * 8;

			if (k != warp || at >= c)
				continue;
#pragma unroll
			for (int j = 0; j < 8; j++)
				columns[at + j] = (k ? columns[at + j] : 0) + sum[i][j];
		}
		__syncthreads();
	}
	for (int i = threadIdx.x; i < c; i += blockDim.x)
		part[(u64)blockIdx.x * c + i] = columns[i];
}

#define WIDE_NORM(n) \
	extern "C" __global__ void k_wide_norm_##n(act *y, const act *x, const float *w, int t, \
						   int c, float eps) \
	{ \
		wide_norm<n>(y, x, w, t, c, eps); \
	} \
	extern "C" __global__ void __launch_bounds__(256) \
		k_wide_norm_back_##n(act *dx, float *part, const act *dy, const act *x, \
				     const float *w, int t, int c, float eps) \
	{ \
		wide_norm_back<n>(dx, part, dy, x, w, t, c, eps); \
	}
WIDE_NORM(4)
WIDE_NORM(8)
WIDE_NORM(16)

// As k_column_parts, a thread two columns.
extern "C" __global__ void k_wide_parts(float *part, const act *dy, const act *x,
					const float *inv, int t, int c, int per)
{
	int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
	int from = blockIdx.y * per, to = min(t, from + per);
	float a = 0, b = 0;

	if (i >= c)
		return;
#pragma unroll 8
	for (int k = from; k < to; k++) {
		u32 d = *(const u32 *)(dy + (u64)k * c + i), v = 0;
		float low = __uint_as_float(d << 16), high = __uint_as_float(d & 0xffff0000);

		if (x) {
			v = *(const u32 *)(x + (u64)k * c + i);
			low *= __uint_as_float(v << 16) * inv[k];
			high *= __uint_as_float(v & 0xffff0000) * inv[k];
		}
		a += low;
		b += high;
	}
	*(float2 *)(part + (u64)blockIdx.y * c + i) = make_float2(a, b);
}

// As k_rope; dim / 16 threads, a power of two, work on a head, each on two pieces.
extern "C" __global__ void k_wide_rope(rotation a, int t)
{
	int all = a.heads + 2 * a.kv_heads, half = a.dim / 2, per = half / 8;
	u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
	int j = at % per * 8, i = at / per, row = i / all, h = i % all, kv = h - a.heads;
	bool there = row < t;

	follow();
	if (!there)
		row = h = kv = j = i = 0;
	const act *in = a.qkv + (u64)i * a.dim;
	const float *cosine = a.table + (u64)a.pos[row] * a.dim + j, *w = kv < 0 ? a.qn : a.kn;
	act *out = a.q + ((u64)row * a.heads + h) * a.dim;
	float x[8], y[8], c[8], s[8], sum = 0;

	if (kv >= 0)
		out = (kv < a.kv_heads ? a.k : a.v) +
		      ((u64)a.slot[row] * a.kv_heads + kv % a.kv_heads) * a.dim;
	load8(x, in + j);
	load8(y, in + j + half);
	load8(c, cosine);
	load8(s, cosine + half);
	if (a.qn) {
#pragma unroll
		for (int k = 0; k < 8; k++)
			sum += x[k] * x[k] + y[k] * y[k];
		for (int d = per / 2; d; d /= 2)
			sum += __shfl_xor_sync(~0u, sum, d);
		float r = rsqrtf(sum / a.dim + a.eps);

#pragma unroll
		for (int k = 0; w && kv < a.kv_heads && k < 8; k++) {
			x[k] *= r * w[j + k];
			y[k] *= r * w[j + half + k];
		}
	}
	if (!there)
		return;
#pragma unroll
	for (int k = 0; k < 8; k++) {
		float turned = x[k] * c[k] - y[k] * s[k], other = y[k] * c[k] + x[k] * s[k];

		x[k] = kv < a.kv_heads ? turned : x[k];
		y[k] = kv < a.kv_heads ? other : y[k];
	}
	store8(out + j, x);
	store8(out + j + half, y);
}

// As k_rope_back without norms.
extern "C" __global__ void k_wide_rope_back(rotation_back a)
{
	int all = a.heads + 2 * a.kv_heads, half = a.dim / 2, per = half / 8;
	u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
	int j = at % per * 8, i = at / per, row = i / all, h = i % all, kv = h - a.heads;

	if (row >= a.t)
		return;
	u64 key = ((u64)row * a.kv_heads + (kv < 0 ? 0 : kv % a.kv_heads)) * a.dim;
	const act *dy = kv < 0 ? a.dq + ((u64)row * a.heads + h) * a.dim :
			kv < a.kv_heads ? a.dk + key : a.dv + key;
	const float *cosine = a.table + (u64)a.pos[row] * a.dim + j;
	act *out = a.dqkv + (u64)i * a.dim + j;
	float x[8], y[8], c[8], s[8];

	load8(x, dy + j);
	load8(y, dy + j + half);
	load8(c, cosine);
	load8(s, cosine + half);
#pragma unroll
	for (int k = 0; k < 8; k++) {
		float dx = x[k] * c[k] + y[k] * s[k], dz = y[k] * c[k] - x[k] * s[k];

		x[k] = kv < a.kv_heads ? dx : x[k];
		y[k] = kv < a.kv_heads ? dz : y[k];
	}
	store8(out, x);
	store8(out + half, y);
}

// As k_attn_delta; dim / 8 threads, a power of two and at most a warp, work on a head.
extern "C" __global__ void k_wide_delta(attention_back a)
{
	int per = a.dim / 8, n = a.rows * a.heads;
	u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
	u64 i = min(at / per, (u64)n - 1);
	float x[8], y[8], sum = 0;

	load8(x, a.dout + i * a.dim + at % per * 8);
	load8(y, a.out + i * a.dim + at % per * 8);
#pragma unroll
	for (int k = 0; k < 8; k++)
		sum += x[k] * y[k];
	for (int d = per / 2; d; d /= 2)
		sum += __shfl_xor_sync(~0u, sum, d);
	if (at % per == 0 && at / per < n)
		a.delta[i] = sum;
}
#endif
