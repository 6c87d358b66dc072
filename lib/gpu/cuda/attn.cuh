// SPDX-License-Identifier: Apache-2.0
//
// Rotation, and causal attention without tensor cores: one row and head at a
// time, for any width of heads.  Decoding uses it, since there a row is all
// there is.

// A warp per token and head (queries, keys, then values).
extern "C" __global__ void k_rope(rotation a, int t)
{
	int all = a.heads + 2 * a.kv_heads, lane = threadIdx.x % WARP, half = a.dim / 2;
	int i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
	int row = i / all, h = i % all, kv = h - a.heads;

	if (row >= t)
		return;
	const act *in = a.qkv + (u64)i * a.dim;
	const float *cosine = a.table + (u64)a.pos[row] * a.dim, *sine = cosine + half;
	const float *w = kv < 0 ? a.qn : a.kn;
	act *out = a.q + ((u64)row * a.heads + h) * a.dim;

	if (kv >= 0)
		out = (kv < a.kv_heads ? a.k : a.v) +
		      ((u64)a.slot[row] * a.kv_heads + kv % a.kv_heads) * a.dim;
	if (kv >= a.kv_heads) {
		for (int j = lane; j < a.dim; j += WARP)
			out[j] = in[j];
		return;
	}
	float r = 1;

	if (w) {
		float sum = 0;

		for (int j = lane; j < a.dim; j += WARP)
			sum += widen(in[j]) * widen(in[j]);
		r = rsqrtf(warp_sum(sum) / a.dim + a.eps);
	}
	for (int j = lane; j < half; j += WARP) {
		float x = widen(in[j]), y = widen(in[j + half]);

		if (w) {
			x *= r * w[j];
			y *= r * w[j + half];
		}
		out[j] = narrow<act>(x * cosine[j] - y * sine[j]);
		out[j + half] = narrow<act>(y * cosine[j] + x * sine[j]);
	}
}

// Block: `per` tokens, one warp a head in turn; dim <= 256.  A thread keeps the norms' gradients
// of its channels in registers, warps add theirs in order.
extern "C" __global__ void __launch_bounds__(128) k_rope_back(rotation_back a)
{
	__shared__ float sums[4][2][256];
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, half = a.dim / 2;
	int all = a.heads + 2 * a.kv_heads, rows = min(a.per, a.t - (int)blockIdx.x * a.per);

	for (int i = lane; i < 512; i += WARP)
		sums[warp][i / 256][i % 256] = 0;
	__syncwarp();
	for (int i = warp; i < rows * all; i += 4) {
		int row = blockIdx.x * a.per + i / all, h = i % all, kv = h - a.heads;
		const act *in = a.qkv + ((u64)row * all + h) * a.dim;
		act *out = a.dqkv + ((u64)row * all + h) * a.dim;
		u64 at = ((u64)row * a.kv_heads + kv % a.kv_heads) * a.dim;
		const act *dy = kv < 0 ? a.dq + ((u64)row * a.heads + h) * a.dim :
				kv < a.kv_heads ? a.dk + at : a.dv + at;
		const float *cosine = a.table + (u64)a.pos[row] * a.dim, *sine = cosine + half;
		const float *w = kv < 0 ? a.qn : a.kn;
		float *sum = sums[warp][kv < 0 ? 0 : 1], r = 0, mean = 0;

		if (kv >= a.kv_heads) {
			for (int j = lane; j < a.dim; j += WARP)
				out[j] = dy[j];
			continue;
		}
		if (w) {
			for (int j = lane; j < a.dim; j += WARP)
				r += widen(in[j]) * widen(in[j]);
			r = rsqrtf(warp_sum(r) / a.dim + a.eps);
		}
		for (int j = lane; w && j < half; j += WARP) {
			float x = widen(dy[j]), y = widen(dy[j + half]);
			float dx = x * cosine[j] + y * sine[j];
			float dz = y * cosine[j] - x * sine[j];

			sum[j] += dx * widen(in[j]) * r;
			sum[j + half] += dz * widen(in[j + half]) * r;
			mean += dx * w[j] * widen(in[j]) * r;
			mean += dz * w[j + half] * widen(in[j + half]) * r;
		}
		mean = warp_sum(mean) / a.dim;
		for (int j = lane; j < half; j += WARP) {
			float x = widen(dy[j]), y = widen(dy[j + half]);
			float dx = x * cosine[j] + y * sine[j];
			float dz = y * cosine[j] - x * sine[j];

			if (w) {
				dx = r * (dx * w[j] - widen(in[j]) * r * mean);
				dz = r * (dz * w[j + half] - widen(in[j + half]) * r * mean);
			}
			out[j] = narrow<act>(dx);
			out[j + half] = narrow<act>(dz);
		}
	}
	__syncthreads();
	for (int i = threadIdx.x; a.part && i < 2 * a.dim; i += blockDim.x) {
		int k = i / a.dim, j = i % a.dim;

		a.part[(u64)blockIdx.x * 2 * a.dim + i] =
			sums[0][k][j] + sums[1][k][j] + sums[2][k][j] + sums[3][k][j];
	}
}

#define PAGE 16

__device__ inline u64 key_at(const attention &a, int s, int j)
{
	u64 row = a.pages ? (u64)a.pages[(u64)s * a.stride + j / PAGE] * PAGE + j % PAGE :
			    (u64)a.first[s] + j;

	return row * a.kv_heads * a.dim;
}

__device__ inline int sequence_of(const int *first, int nseq, int row)
{
	int low = 0, high = nseq;

	while (high - low > 1) {
		int mid = (low + high) / 2;

		if (first[mid] <= row)
			low = mid;
		else
			high = mid;
	}
	return low;
}

// E elements from p, of which the first n are there.
template <int E> __device__ inline void load_part(float *x, const act *p, int n)
{
#if ACT_BF16
	if (n == E && ((u64)p & 15) == 0) {
#pragma unroll
		for (int i = 0; i < E; i += 8) {
			uint4 u = *(const uint4 *)(p + i);
			const u32 *w = &u.x;

#pragma unroll
			for (int j = 0; j < 4; j++) {
				x[i + 2 * j] = __uint_as_float(w[j] << 16);
				x[i + 2 * j + 1] = __uint_as_float(w[j] & 0xffff0000);
			}
		}
		return;
	}
#endif
#pragma unroll
	for (int i = 0; i < E; i++)
		x[i] = i < n ? widen(p[i]) : 0;
}

// Block of 256: row blockIdx.x, head blockIdx.y.  Groups of 8 threads take keys in turn, each
// thread E dimensions; 32 running softmaxes are merged at the end.
template <int E> __device__ inline void attend(const attention &a)
{
	__shared__ float top[32], sum[32], all[32 * 8 * E];
	int row = blockIdx.x, h = blockIdx.y, group = threadIdx.x / 8, sub = threadIdx.x % 8;
	int s = sequence_of(a.first, a.nseq, row), n = a.len[s] - (a.first[s + 1] - 1 - row);
	int kv = h / (a.heads / a.kv_heads), from = sub * E, there = min(max(a.dim - from, 0), E);
	u64 at = ((u64)row * a.heads + h) * a.dim;
	float q[E], x[E], o[E] = {}, m = -INF, l = 0;

	load_part<E>(q, a.q + at + from, there);
	for (int j0 = 0; j0 < n; j0 += 32) {
		int j = j0 + group;
		u64 key = key_at(a, s, min(j, n - 1)) + (u64)kv * a.dim + from;
		float dot = 0;

		load_part<E>(x, a.k + key, there);
#pragma unroll
		for (int i = 0; i < E; i++)
			dot += q[i] * x[i];
		for (int d = 4; d; d >>= 1)
			dot += __shfl_xor_sync(~0u, dot, d);
		if (j >= n)
			continue;
		dot *= a.scale;
		float next = fmaxf(m, dot), old = __expf(m - next), p = __expf(dot - next);

		m = next;
		l = l * old + p;
		load_part<E>(x, a.v + key, there);
#pragma unroll
		for (int i = 0; i < E; i++)
			o[i] = o[i] * old + p * x[i];
	}
	if (sub == 0) {
		top[group] = m;
		sum[group] = l;
	}
	for (int i = 0; i < E; i++)
		all[group * 8 * E + from + i] = o[i];
	__syncthreads();
	m = -INF;
	l = 0;
	for (int g = 0; g < 32; g++)
		m = fmaxf(m, top[g]);
	for (int g = 0; g < 32; g++)
		l += sum[g] * __expf(top[g] - m);
	for (int i = threadIdx.x; i < a.dim; i += blockDim.x) {
		float v = 0;

		for (int g = 0; g < 32; g++)
			v += all[g * 8 * E + i] * __expf(top[g] - m);
		a.out[at + i] = narrow<act>(v / l);
	}
	if (threadIdx.x == 0 && a.lse)
		a.lse[(u64)row * a.heads + h] = m + logf(l);
}

extern "C" __global__ void k_attn_8(attention a) { attend<8>(a); }
extern "C" __global__ void k_attn_16(attention a) { attend<16>(a); }
extern "C" __global__ void k_attn_32(attention a) { attend<32>(a); }

__device__ inline float warp_dot(const act *x, const act *y, int n)
{
	float sum = 0;

	for (int i = threadIdx.x % WARP; i < n; i += WARP)
		sum += widen(x[i]) * widen(y[i]);
	return warp_sum(sum);
}

// delta = sum(dout out); a warp per row and head.
extern "C" __global__ void k_attn_delta(attention_back a)
{
	int i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;

	if (i >= a.rows * a.heads)
		return;
	float d = warp_dot(a.dout + (u64)i * a.dim, a.out + (u64)i * a.dim, a.dim);

	if (threadIdx.x % WARP == 0)
		a.delta[i] = d;
}

// A warp per row and head; dim <= 256.
extern "C" __global__ void k_attn_dq(attention_back a)
{
	int i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;

	if (i >= a.rows * a.heads)
		return;
	int row = i / a.heads, h = i % a.heads, s = sequence_of(a.first, a.nseq, row);
	int kv = h / (a.heads / a.kv_heads);
	u64 at = (u64)i * a.dim;
	float sum[8] = {};

	for (int j = a.first[s]; j <= row; j++) {
		u64 key = ((u64)j * a.kv_heads + kv) * a.dim;
		float p = __expf(a.scale * warp_dot(a.q + at, a.k + key, a.dim) - a.lse[i]);
		float ds = p * a.scale * (warp_dot(a.dout + at, a.v + key, a.dim) - a.delta[i]);

		for (int e = 0, c = lane; c < a.dim; c += WARP, e++)
			sum[e] += ds * widen(a.k[key + c]);
	}
	for (int e = 0, c = lane; c < a.dim; c += WARP, e++)
		a.dq[at + c] = narrow<act>(sum[e]);
}

// A warp per key and head of keys.
extern "C" __global__ void k_attn_dkdv(attention_back a)
{
	int i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;

	if (i >= a.rows * a.kv_heads)
		return;
	int row = i / a.kv_heads, kv = i % a.kv_heads, per = a.heads / a.kv_heads;
	int end = a.first[sequence_of(a.first, a.nseq, row) + 1];
	u64 key = (u64)i * a.dim;
	float dk[8] = {}, dv[8] = {};

	for (int t = row; t < end; t++)
		for (int h = kv * per; h < (kv + 1) * per; h++) {
			u64 r = (u64)t * a.heads + h, at = r * a.dim;
			float p = __expf(a.scale * warp_dot(a.q + at, a.k + key, a.dim) - a.lse[r]);
			float ds = p * a.scale *
				   (warp_dot(a.dout + at, a.v + key, a.dim) - a.delta[r]);

			for (int e = 0, c = lane; c < a.dim; c += WARP, e++) {
				dv[e] += p * widen(a.dout[at + c]);
				dk[e] += ds * widen(a.q[at + c]);
			}
		}
	for (int e = 0, c = lane; c < a.dim; c += WARP, e++) {
		a.dk[key + c] = narrow<act>(dk[e]);
		a.dv[key + c] = narrow<act>(dv[e]);
	}
}
