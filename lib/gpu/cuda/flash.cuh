// SPDX-License-Identifier: Apache-2.0
//
// Attention in tiles of 64 rows and 64 keys on tensor cores, for heads of 64
// and 128 dimensions.  128 threads; a warp owns 16 rows.  Tiles of keys begin
// at multiples of 64 from the sequence's first, so that a row's sums do not
// depend on where its tile begins.
#if ACT_BF16
#define LOG2E 1.4426950408889634f

template <int D> __device__ inline void flash(const attention &a)
{
	extern __shared__ __align__(16) char shared[];
	constexpr int LD = D + 8, TILE = 64 * LD;
	bf16 *qs = (bf16 *)shared, *ks = qs + TILE, *vs = ks + 2 * TILE;
	int s = blockIdx.z, h = blockIdx.y, t0 = a.first[s] + blockIdx.x * 64;
	int rows = min(64, a.first[s + 1] - t0), lane = threadIdx.x % WARP;
	int warp = threadIdx.x / WARP, kv = h / (a.heads / a.kv_heads);
	// Row r of the tile sees keys 0 to seen + r.
	int seen = a.len[s] - (a.first[s + 1] - t0), n = seen + rows;
	int tiles = (n + 63) / 64;

	if (rows <= 0)
		return;
	auto load = [&](int k) {
		auto row_of = [&](int r) { return key_at(a, s, k * 64 + r) + (u64)kv * D; };

		copy_tile<D>(ks + (k & 1) * TILE, a.k, min(64, n - k * 64), row_of);
		copy_tile<D>(vs + (k & 1) * TILE, a.v, min(64, n - k * 64), row_of);
	};
	copy_tile<D>(qs, a.q, rows, [&](int r) { return ((u64)(t0 + r) * a.heads + h) * D; });
	load(0);
	copy_commit();
	float o[D / 8][4] = {}, m[2] = { -INF, -INF }, l[2] = {}, c = a.scale * LOG2E;

	for (int k = 0; k < tiles; k++) {
		float x[8][4] = {};
		u32 p[4][4];

		if (k + 1 < tiles)
			load(k + 1);
		copy_commit();
		copy_wait<1>();
		__syncthreads();
		mul_nt<D, 8>(x, qs + warp * 16 * LD, ks + (k & 1) * TILE, LD);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			int last = seen + warp * 16 + lane / 4 + i * 8 - k * 64 - lane % 4 * 2;
			float top = m[i];

#pragma unroll
			for (int j = 0; j < 8; j++) {
				if (j * 8 > last)
					x[j][2 * i] = -INF;
				if (j * 8 + 1 > last)
					x[j][2 * i + 1] = -INF;
				top = fmaxf(top, fmaxf(x[j][2 * i], x[j][2 * i + 1]));
			}
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
			float old = exp2f((m[i] - top) * c);

			m[i] = top;
			l[i] *= old;
#pragma unroll
			for (int j = 0; j < 8; j++) {
				x[j][2 * i] = exp2f((x[j][2 * i] - top) * c);
				x[j][2 * i + 1] = exp2f((x[j][2 * i + 1] - top) * c);
				l[i] += x[j][2 * i] + x[j][2 * i + 1];
			}
#pragma unroll
			for (int j = 0; j < D / 8; j++) {
				o[j][2 * i] *= old;
				o[j][2 * i + 1] *= old;
			}
		}
		to_frags<4>(p, x);
		mul_nn<4, D / 8>(o, p, vs + (k & 1) * TILE, LD);
		__syncthreads();
	}
	for (int i = 0; i < 2; i++) {
		int r = warp * 16 + lane / 4 + i * 8;
		u64 at = ((u64)(t0 + r) * a.heads + h);

		l[i] += __shfl_xor_sync(~0u, l[i], 1);
		l[i] += __shfl_xor_sync(~0u, l[i], 2);
		if (r >= rows)
			continue;
		for (int j = 0; j < D / 8; j++)
			*(u32 *)(a.out + at * D + j * 8 + lane % 4 * 2) =
				bf16_pair(o[j][2 * i] / l[i], o[j][2 * i + 1] / l[i]);
		if (a.lse && lane % 4 == 0)
			a.lse[at] = m[i] * a.scale + logf(l[i]);
	}
}

extern "C" __global__ void __launch_bounds__(128) k_flash_64(attention a) { flash<64>(a); }
extern "C" __global__ void __launch_bounds__(128) k_flash_128(attention a) { flash<128>(a); }

template <int D> __device__ inline void store_rows(act *to, float (*c)[4], int rows, u64 stride)
{
	int lane = threadIdx.x % WARP, r0 = threadIdx.x / WARP * 16 + lane / 4;

	for (int i = 0; i < 2; i++)
		if (r0 + i * 8 < rows)
			for (int j = 0; j < D / 8; j++)
				*(u32 *)(to + (r0 + i * 8) * stride + j * 8 + lane % 4 * 2) =
					bf16_pair(c[j][2 * i], c[j][2 * i + 1]);
}

// dq of 64 rows: over their keys, ds = p (dout v^T - delta) scale; dq += ds k.
template <int D> __device__ inline void flash_dq(const attention_back &a)
{
	extern __shared__ __align__(16) char shared[];
	constexpr int LD = D + 8, TILE = 64 * LD;
	bf16 *qs = (bf16 *)shared, *os = qs + TILE, *ks = os + TILE, *vs = ks + TILE;
	int s = blockIdx.z, h = blockIdx.y, first = a.first[s], t0 = first + blockIdx.x * 64;
	int rows = min(64, a.first[s + 1] - t0), lane = threadIdx.x % WARP;
	int warp = threadIdx.x / WARP, kv = h / (a.heads / a.kv_heads);
	auto query = [&](int r) { return ((u64)(t0 + r) * a.heads + h) * D; };
	float dq[D / 8][4] = {}, lse[2], delta[2], c = a.scale * LOG2E;

	if (rows <= 0)
		return;
	copy_tile<D>(qs, a.q, rows, query);
	copy_tile<D>(os, a.dout, rows, query);
	for (int i = 0; i < 2; i++) {
		int r = min(warp * 16 + lane / 4 + i * 8, rows - 1);

		lse[i] = a.lse[(u64)(t0 + r) * a.heads + h] * LOG2E;
		delta[i] = a.delta[(u64)(t0 + r) * a.heads + h];
	}
	for (int k = 0; k <= blockIdx.x; k++) {
		auto key = [&](int r) { return ((u64)(first + k * 64 + r) * a.kv_heads + kv) * D; };
		int keys = min(64, a.first[s + 1] - first - k * 64);
		float x[8][4] = {}, y[8][4] = {};
		u32 p[4][4];

		copy_tile<D>(ks, a.k, keys, key);
		copy_tile<D>(vs, a.v, keys, key);
		copy_commit();
		copy_wait<0>();
		__syncthreads();
		mul_nt<D, 8>(x, qs + warp * 16 * LD, ks, LD);
		mul_nt<D, 8>(y, os + warp * 16 * LD, vs, LD);
#pragma unroll
		for (int j = 0; j < 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++) {
				int r = blockIdx.x * 64 + warp * 16 + lane / 4 + (i >> 1) * 8;
				int at = k * 64 + j * 8 + lane % 4 * 2 + (i & 1);
				float w = exp2f(x[j][i] * c - lse[i >> 1]);

				x[j][i] = at > r ? 0 : w * (y[j][i] - delta[i >> 1]) * a.scale;
			}
		to_frags<4>(p, x);
		mul_nn<4, D / 8>(dq, p, ks, LD);
		__syncthreads();
	}
	store_rows<D>(a.dq + query(0), dq, rows, (u64)a.heads * D);
}

// dk and dv of 64 keys: over the rows that see them and all their heads, transposed, so that a
// warp owns 16 keys: dv += p^T dout; dk += ds^T q.
template <int D> __device__ inline void flash_dkdv(const attention_back &a)
{
	extern __shared__ __align__(16) char shared[];
	constexpr int LD = D + 8, TILE = 64 * LD;
	bf16 *ks = (bf16 *)shared, *vs = ks + TILE, *qs = vs + TILE, *os = qs + TILE;
	float *lse = (float *)(os + TILE), *delta = lse + 64;
	int s = blockIdx.z, kv = blockIdx.y, first = a.first[s], n = a.first[s + 1] - first;
	int k0 = blockIdx.x * 64, keys = min(64, n - k0), lane = threadIdx.x % WARP;
	int warp = threadIdx.x / WARP, per = a.heads / a.kv_heads;
	auto key = [&](int r) { return ((u64)(first + k0 + r) * a.kv_heads + kv) * D; };
	float dk[D / 8][4] = {}, dv[D / 8][4] = {}, c = a.scale * LOG2E;

	if (keys <= 0)
		return;
	copy_tile<D>(ks, a.k, keys, key);
	copy_tile<D>(vs, a.v, keys, key);
	for (int step = 0; step < per * ((n - k0 + 63) / 64); step++) {
		int h = kv * per + step % per, t = k0 + step / per * 64, rows = min(64, n - t);
		auto query = [&](int r) { return ((u64)(first + t + r) * a.heads + h) * D; };
		float x[8][4] = {}, y[8][4] = {};
		u32 p[4][4];

		copy_tile<D>(qs, a.q, rows, query);
		copy_tile<D>(os, a.dout, rows, query);
		copy_commit();
		for (int i = threadIdx.x; i < 64; i += 128) {
			u64 at = (u64)(first + t + min(i, rows - 1)) * a.heads + h;

			lse[i] = a.lse[at] * LOG2E;
			delta[i] = a.delta[at];
		}
		copy_wait<0>();
		__syncthreads();
		mul_nt<D, 8>(x, ks + warp * 16 * LD, qs, LD);
		mul_nt<D, 8>(y, vs + warp * 16 * LD, os, LD);
#pragma unroll
		for (int j = 0; j < 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++) {
				int q = j * 8 + lane % 4 * 2 + (i & 1);
				int r = k0 + warp * 16 + lane / 4 + (i >> 1) * 8;
				float w = exp2f(x[j][i] * c - lse[q]);

				if (r > t + q || q >= rows)
					w = 0;
				x[j][i] = w;
				y[j][i] = w * (y[j][i] - delta[q]) * a.scale;
			}
		to_frags<4>(p, x);
		mul_nn<4, D / 8>(dv, p, os, LD);
		to_frags<4>(p, y);
		mul_nn<4, D / 8>(dk, p, qs, LD);
		__syncthreads();
	}
	store_rows<D>(a.dk + key(0), dk, keys, (u64)a.kv_heads * D);
	store_rows<D>(a.dv + key(0), dv, keys, (u64)a.kv_heads * D);
}

extern "C" __global__ void __launch_bounds__(128) k_flash_dq_64(attention_back a)
{
	flash_dq<64>(a);
}
extern "C" __global__ void __launch_bounds__(128) k_flash_dq_128(attention_back a)
{
	flash_dq<128>(a);
}
extern "C" __global__ void __launch_bounds__(128) k_flash_dkdv_64(attention_back a)
{
	flash_dkdv<64>(a);
}
extern "C" __global__ void __launch_bounds__(128) k_flash_dkdv_128(attention_back a)
{
	flash_dkdv<128>(a);
}
#endif
