// SPDX-License-Identifier: Apache-2.0
//
// Attention on Hopper's tensor cores, for heads of 64 and 128 dimensions.
//
// The `per` heads that share keys are rows of one tile: packed row r of a
// sequence is head r % per of its token r / per.  Tiles of keys begin at
// multiples of 128 from the sequence's first, so that a row's sums depend on
// nothing but its keys.  A key j is seen by packed row r where
// (j - before) per <= r, `before` being the keys before the first token.
#if ACT_BF16 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KEYS 128			// of a tile

// What a block is for: by default the tiles of a head come one behind the other.
#if HEAVY_FIRST
#define AT_TILE	 blockIdx.z
#define AT_HEAD	 blockIdx.x
#define AT_SEQ	 blockIdx.y
#define ALL_TILES gridDim.z
#else
#define AT_TILE	 blockIdx.x
#define AT_HEAD	 blockIdx.y
#define AT_SEQ	 blockIdx.z
#define ALL_TILES gridDim.x
#endif

// Where the packed rows of a sequence lie, in heads, and whose tokens they are.
struct packed {
	int first, base, per, more;
	u32 inverse;		// 2^32 / per, more than exactly

	__device__ inline packed(int first, int heads, int kv_heads, int kv)
		: first(first), per(heads / kv_heads)
	{
		base = first * heads + kv * per;
		more = heads - per;
		inverse = per > 1 ? 0xffffffffu / per + 1 : 0;
	}
	__device__ inline int token(int r) const
	{
		return per > 1 ? (int)__umulhi(r, inverse) : r;
	}
	__device__ inline u32 at(int r) const { return base + r + token(r) * more; }
};

// Running softmax of a thread's two rows; x (64, 8 NT) becomes exponentials, `old` what sums so
// far are to be multiplied by.
struct softmax {
	float m[2], l[2], old[2];

	template <int NT>
	__device__ inline void add(float (&x)[NT][4], const int last[2], bool cut, float c)
	{
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float top = m[i];

			if (cut) {
#pragma unroll
				for (int j = 0; j < NT; j++) {
					if (j * 8 > last[i])
						x[j][2 * i] = -INF;
					if (j * 8 + 1 > last[i])
						x[j][2 * i + 1] = -INF;
				}
			}
#pragma unroll
			for (int j = 0; j < NT; j++)
				top = fmaxf(top, fmaxf(x[j][2 * i], x[j][2 * i + 1]));
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
			// A part of the keys may hide all of them from a row.
			float less = top == -INF ? 0 : top * c;

			old[i] = exp2_fast(m[i] * c - less);
			m[i] = top;
			l[i] *= old[i];
#pragma unroll
			for (int j = 0; j < NT; j++) {
				x[j][2 * i] = exp2_fast(x[j][2 * i] * c - less);
				x[j][2 * i + 1] = exp2_fast(x[j][2 * i + 1] * c - less);
				l[i] += x[j][2 * i] + x[j][2 * i + 1];
			}
		}
	}
};

// Out of the accumulators of a group; `part`: fp32 sums and logarithms of a part of the keys.
template <int D>
__device__ inline void put_out(const attention &a, float (&o)[D / 8][4], softmax &f, int row,
			       int rows, const packed &q, int part)
{
	int lane = threadIdx.x % WARP;

#pragma unroll
	for (int i = 0; i < 2; i++) {
		float l = f.l[i];

		l += __shfl_xor_sync(~0u, l, 1);
		l += __shfl_xor_sync(~0u, l, 2);
		if (row + i * 8 >= rows)
			continue;
		u64 at = q.at(row + i * 8);
		float inv = l > 0 ? 1 / l : 0, lse = f.m[i] * a.scale + logf(l);

		if (a.parts > 1) {
			at += (u64)part * a.rows * a.heads;
			for (int j = 0; j < D / 8; j++)
				*(float2 *)(a.part + at * D + j * 8 + lane % 4 * 2) =
					make_float2(o[j][2 * i] * inv, o[j][2 * i + 1] * inv);
			if (lane % 4 == 0)
				a.part_lse[at] = l > 0 ? lse : -INF;
			continue;
		}
#pragma unroll
		for (int j = 0; j < D / 8; j++)
			*(u32 *)(a.out + at * D + j * 8 + lane % 4 * 2) =
				bf16_pair(o[j][2 * i] * inv, o[j][2 * i + 1] * inv);
		if (a.lse && lane % 4 == 0)
			a.lse[at] = lse;
	}
}

// Makes what was asked for there, for all of the block.
__device__ inline void wg_turn()
{
	copy_wait<0>();
	wg_publish();
	__syncthreads();
}

// 64 G packed rows by G groups; block (x: tile of rows, y: head of keys, z: sequence and part of
// its keys).
template <int D, int G> __device__ inline void wg_forward(const attention &a)
{
	extern __shared__ __align__(16) char shared[];
	constexpr int ROWS = 64 * G, THREADS = 128 * G;
	constexpr u32 QB = ROWS * D * 2, KB = KEYS * D * 2;
	u32 qs = (shared_at(shared) + 1023) & ~1023u, ks = qs + QB, vs = ks + 2 * KB;
	int s = AT_SEQ / a.parts, part = AT_SEQ % a.parts, kv = AT_HEAD;

	follow();
	int first = a.first[s], tokens = a.first[s + 1] - first;
	packed q(first, a.heads, a.kv_heads, kv);
	int per = q.per, t = (ALL_TILES - 1 - AT_TILE) * ROWS;
	int rows = min(ROWS, tokens * per - t);
	int group = threadIdx.x / 128, lane = threadIdx.x % WARP;
	int row = t + group * 64 + threadIdx.x / WARP % 4 * 16 + lane / 4;

	if (rows <= 0)
		return;
	int before = a.len[s] - tokens, n = before + (t + rows - 1) / per + 1;
	int tiles = (n + KEYS - 1) / KEYS, share = (tiles + a.parts - 1) / a.parts;
	int from = part * share, end = min(tiles, from + share);
	int least = before + (t + group * 64) / per;	// last key of the group's first row
	int most = min(n, before + (t + group * 64 + 63) / per + 1);
	int mine = group * 64 < rows ? min(end, (most + KEYS - 1) / KEYS) : from;
	const int last[2] = { before + row / per - lane % 4 * 2,
			      before + (row + 8) / per - lane % 4 * 2 };
	float x[KEYS / 8][4], o[D / 8][4] = {}, c = a.scale * LOG2E;
	u32 p[KEYS / 16][4];
	softmax f = { { -INF, -INF } };
	auto load = [&](u32 to, const bf16 *of, int k) {
		int keys = min(KEYS, n - k * KEYS), step = a.kv_heads * D;

		to += (k & 1) * KB;
		of += kv * D;
		if (a.pages) {
			const int *page = a.pages + (u64)s * a.stride + k * (KEYS / PAGE);

			wg_load<D, KEYS, THREADS>(to, of, keys, [&](int r) {
				return (u64)(u32)(page[r / PAGE] * PAGE + r % PAGE) * step;
			});
		} else {
			wg_load<D, KEYS, THREADS>(to, of + (u64)(first + k * KEYS) * step, keys,
						  [&](int r) { return r * step; });
		}
	};
	auto load_behind = [&](int k) {
		if (k + 2 < end)
			load(ks, a.k, k + 2);
		if (k + 1 < end)
			load(vs, a.v, k + 1);
		copy_commit();
	};
	auto soften = [&](int k) {
		const int at[2] = { last[0] - k * KEYS, last[1] - k * KEYS };

		f.add(x, at, k * KEYS + KEYS - 1 > least, c);
	};

	if (from < end) {
		wg_load<D, ROWS, THREADS>(qs, a.q, rows, [&](int r) {
			return (u64)q.at(t + r) * D;
		});
		load(ks, a.k, from);
		copy_commit();
		if (from + 1 < end)
			load(ks, a.k, from + 1);
		load(vs, a.v, from);
		copy_commit();
		copy_wait<1>();
		wg_publish();
		__syncthreads();
	}
	if (from < mine) {
		wg_begin();
		wg_mul_nt<D, ROWS>(x, qs + group * 8192, ks + (from & 1) * KB);
		wg_commit();
		wg_wait<0>();
		wg_hold(x);
		soften(from);
		to_frags<KEYS / 16>(p, x);
	}
	for (int k = from; k + 1 < mine; k++) {
		wg_turn();
		wg_hold(x);
		wg_hold(o);
		wg_begin();
		wg_mul_nt<D, ROWS>(x, qs + group * 8192, ks + ((k + 1) & 1) * KB);
		wg_commit();
		wg_mul_nn(o, p, vs + (k & 1) * KB);
		wg_commit();
		load_behind(k);
		wg_wait<1>();
		wg_hold(x);
		soften(k + 1);
		wg_wait<0>();
		wg_hold(o);
#pragma unroll
		for (int j = 0; j < D / 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				o[j][i] *= f.old[i >> 1];
		to_frags<KEYS / 16>(p, x);
	}
	if (from < mine) {
		wg_turn();
		wg_hold(o);
		wg_begin();
		wg_mul_nn(o, p, vs + ((mine - 1) & 1) * KB);
		wg_commit();
		load_behind(mine - 1);
		wg_wait<0>();
		wg_hold(o);
	}
	for (int k = max(mine, from); k < end; k++) {
		wg_turn();
		load_behind(k);
	}
	put_out<D>(a, o, f, row, t + rows, q, part);
}

#define WG_FORWARD(d, g) \
	extern "C" __global__ void __launch_bounds__(128 * g, 1) \
		k_wg_##d##_##g(const __grid_constant__ attention a) { wg_forward<d, g>(a); }
WG_FORWARD(64, 1)
WG_FORWARD(64, 3)
WG_FORWARD(128, 1)
WG_FORWARD(128, 2)

// Out of parts; a warp per row and head.
extern "C" __global__ void k_wg_merge(const __grid_constant__ attention a)
{
	int i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
	int all = a.rows * a.heads;

	follow();
	if (i >= all)
		return;
	float mine = lane < a.parts ? a.part_lse[(u64)lane * all + i] : -INF;
	float top = warp_max(mine), w = __expf(mine - top), sum = warp_sum(w);

	w /= sum;
	for (int j = lane * 2; j < a.dim; j += 2 * WARP) {
		float x = 0, y = 0;

		for (int k = 0; k < a.parts; k++) {
			float share = __shfl_sync(~0u, w, k);
			float2 v = share > 0 ? *(const float2 *)(a.part +
						((u64)k * all + i) * a.dim + j) :
					       make_float2(0, 0);

			x += share * v.x;
			y += share * v.y;
		}
		*(u32 *)(a.out + (u64)i * a.dim + j) = bf16_pair(x, y);
	}
}

// dq of 64 G packed rows: ds = p (dout v^T - delta); dq = scale ds k.
template <int D, int G, int NK> __device__ inline void wg_dq(const attention_back &a)
{
	extern __shared__ __align__(16) char shared[];
	constexpr int ROWS = 64 * G, THREADS = 128 * G;
	constexpr u32 QB = ROWS * D * 2, KB = NK * D * 2;
	u32 qs = (shared_at(shared) + 1023) & ~1023u, os = qs + QB, ks = os + QB, vs = ks + 3 * KB;
	int s = AT_SEQ, kv = AT_HEAD, first = a.first[s];
	packed q(first, a.heads, a.kv_heads, kv);
	int per = q.per, all = (a.first[s + 1] - first) * per;
	int t = (ALL_TILES - 1 - AT_TILE) * ROWS;
	int rows = min(ROWS, all - t), group = threadIdx.x / 128, lane = threadIdx.x % WARP;
	int row = t + group * 64 + threadIdx.x / WARP % 4 * 16 + lane / 4;

	if (rows <= 0)
		return;
	int n = (t + rows - 1) / per + 1, tiles = (n + NK - 1) / NK;
	int least = (t + group * 64) / per, most = min(n, (t + group * 64 + 63) / per + 1);
	int mine = group * 64 < rows ? (most + NK - 1) / NK : 0;
	float dq[D / 8][4] = {}, x[NK / 8][4], y[NK / 8][4], lse[2], delta[2];
	float c = a.scale * LOG2E;
	u32 p[NK / 16][4];
	auto query = [&](int r) { return (u64)q.at(t + r) * D; };
	auto load = [&](int k) {
		if (k < tiles) {
			int keys = min(NK, n - k * NK), step = a.kv_heads * D, stage = k % 3 * KB;
			u64 from = (u64)(first + k * NK) * step + kv * D;
			auto key = [&](int r) { return r * step; };

			wg_load<D, NK, THREADS>(ks + stage, a.k + from, keys, key);
			wg_load<D, NK, THREADS>(vs + stage, a.v + from, keys, key);
		}
		copy_commit();
	};

	wg_load<D, ROWS, THREADS>(qs, a.q, rows, query);
	wg_load<D, ROWS, THREADS>(os, a.dout, rows, query);
	load(0);
#pragma unroll
	for (int i = 0; i < 2; i++) {
		u64 at = q.at(min(row + i * 8, all - 1));

		lse[i] = a.lse[at] * LOG2E;
		delta[i] = a.delta[at];
	}
	for (int k = 0; k < mine; k++) {
		u32 at = k % 3 * KB;

		wg_turn();
		wg_hold(x);
		wg_hold(y);
		wg_begin();
		wg_mul_nt<D, ROWS>(x, qs + group * 8192, ks + at);
		wg_commit();
		wg_mul_nt<D, ROWS>(y, os + group * 8192, vs + at);
		wg_commit();
		load(k + 1);
		wg_wait<1>();
		wg_hold(x);
#pragma unroll
		for (int j = 0; j < NK / 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				x[j][i] = exp2_fast(x[j][i] * c - lse[i >> 1]);
		if (k * NK + NK - 1 > least) {
			int to[2] = { row / per - k * NK - lane % 4 * 2,
				      (row + 8) / per - k * NK - lane % 4 * 2 };

#pragma unroll
			for (int j = 0; j < NK / 8; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					if (j * 8 + (i & 1) > to[i >> 1])
						x[j][i] = 0;
		}
		wg_wait<0>();
		wg_hold(y);
#pragma unroll
		for (int j = 0; j < NK / 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				x[j][i] *= y[j][i] - delta[i >> 1];
		to_frags<NK / 16>(p, x);
		wg_begin();
		wg_mul_nn(dq, p, ks + at);
		wg_commit();
	}
	wg_wait<0>();
	wg_hold(dq);
	for (int k = mine; k < tiles; k++) {
		wg_turn();
		load(k + 1);
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		u64 at = q.at(min(row + i * 8, all - 1));

#pragma unroll
		for (int j = 0; j < D / 8; j++)
			if (row + i * 8 < t + rows)
				*(u32 *)(a.dq + at * D + j * 8 + lane % 4 * 2) =
					bf16_pair(dq[j][2 * i] * a.scale,
						  dq[j][2 * i + 1] * a.scale);
	}
}

// dk and dv of 64 G keys, over the packed rows that see them, NQ at a time, transposed so that a
// group owns 64 keys: dv = p^T dout; dk = scale ds^T q.
//
// A group goes on as soon as all have what it reads next, so that one has the tensor cores while
// the other computes exponentials; rows are asked for two steps ahead, in four stages.
template <int D, int G, int NQ> __device__ inline void wg_dkdv(const attention_back &a)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ __align__(8) u64 bars[4];
	constexpr int COLS = 64 * G, THREADS = 128 * G;
	constexpr u32 KB = COLS * D * 2, QB = NQ * D * 2;
	u32 ks = (shared_at(shared) + 1023) & ~1023u, vs = ks + KB, qs = vs + KB, os = qs + 4 * QB;
	u32 ls = os + 4 * QB;		// of each stage NQ lse, then NQ delta
	const float *stats = (const float *)(shared + (ls - shared_at(shared)));
	int s = AT_SEQ, kv = AT_HEAD, first = a.first[s];
	packed q(first, a.heads, a.kv_heads, kv);
	int per = q.per, n = a.first[s + 1] - first;
	int k0 = AT_TILE * COLS, keys = min(COLS, n - k0);
	int group = threadIdx.x / 128, lane = threadIdx.x % WARP;
	int key = k0 + group * 64 + threadIdx.x / WARP % 4 * 16 + lane / 4;

	if (keys <= 0)
		return;
	int r0 = k0 * per, steps = (n * per - r0 + NQ - 1) / NQ;
	int high = (k0 + group * 64 + 63) * per;
	float dk[D / 8][4] = {}, dv[D / 8][4] = {};
	float c = a.scale * LOG2E;
	u32 p[NQ / 16][4], ds[NQ / 16][4];
	auto key_of = [&](int r) { return ((u64)(first + k0 + r) * a.kv_heads + kv) * D; };
	auto load = [&](int k) {
		int r = r0 + k * NQ, rows = min(NQ, n * per - r), st = k % 4;
		auto query = [&](int i) { return (u64)q.at(r + i) * D; };

		if (k < steps) {
			wg_load<D, NQ, THREADS>(qs + st * QB, a.q, rows, query);
			wg_load<D, NQ, THREADS>(os + st * QB, a.dout, rows, query);
		}
		for (int i = threadIdx.x; k < steps && i < 2 * NQ; i += THREADS) {
			bool there = i % NQ < rows;

			copy4_to(ls + (st * 2 * NQ + i) * 4, (i < NQ ? a.lse : a.delta) +
				 (there ? q.at(r + i % NQ) : 0), there);
		}
		copy_commit();
	};

	auto full = [&](int k) { return shared_at(bars) + k % 4 * 8; };
	// What is for step k is there.
	auto tell = [&](int k) {
		copy_wait<1>();
		wg_publish();
		bar_arrive(full(k));
	};

	if (threadIdx.x < 4)
		bar_init(full(threadIdx.x), THREADS);
	__syncthreads();
	wg_load<D, COLS, THREADS>(ks, a.k, keys, key_of);
	wg_load<D, COLS, THREADS>(vs, a.v, keys, key_of);
	load(0);
	load(1);
	tell(0);

	// The group's keys are not seen by what is before.
	int begin = group * 64 < keys ? group * 64 * per / NQ : steps;

	for (int k = 0; k < min(begin, steps); k++) {
		bar_wait(full(k), k / 4 & 1);
		load(k + 2);
		tell(k + 1);
	}
	// Here, or the compiler sets them while they are in use.
	wg_hold(dk);
	wg_hold(dv);
#pragma unroll 1
	for (int k = begin; k < steps; k++) {
		int r = r0 + k * NQ;
		u32 qa = qs + k % 4 * QB, oa = os + k % 4 * QB;
		const float *lse = stats + k % 4 * 2 * NQ + lane % 4 * 2, *delta = lse + NQ;

		float x[NQ / 8][4], y[NQ / 8][4];

		bar_wait(full(k), k / 4 & 1);
		wg_begin();
		wg_mul_nt<D, COLS>(x, ks + group * 8192, qa);
		wg_commit();
		wg_mul_nt<D, COLS>(y, vs + group * 8192, oa);
		wg_commit();
		load(k + 2);
		wg_wait<1>();
		wg_hold(x);
		tell(k + 1);
#pragma unroll
		for (int j = 0; j < NQ / 8; j++) {
			float2 l = *(const float2 *)(lse + j * 8);

#pragma unroll
			for (int i = 0; i < 4; i++)
				x[j][i] = exp2_fast(x[j][i] * c - (i & 1 ? l.y : l.x) * LOG2E);
		}
		if (r < high) {
			int at[2] = { key * per - r - lane % 4 * 2,
				      (key + 8) * per - r - lane % 4 * 2 };

#pragma unroll
			for (int j = 0; j < NQ / 8; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					if (at[i >> 1] > j * 8 + (i & 1))
						x[j][i] = 0;
		}
		to_frags<NQ / 16>(p, x);
		wg_wait<0>();
		wg_hold(y);
		wg_begin();
		wg_mul_nn(dv, p, oa);
		wg_commit();
#pragma unroll
		for (int j = 0; j < NQ / 8; j++) {
			float2 d = *(const float2 *)(delta + j * 8);

#pragma unroll
			for (int i = 0; i < 4; i++)
				x[j][i] *= y[j][i] - (i & 1 ? d.y : d.x);
		}
		to_frags<NQ / 16>(ds, x);
		wg_begin();
		wg_mul_nn(dk, ds, qa);
		wg_commit();
	}
	wg_wait<0>();
	wg_hold(dk);
	wg_hold(dv);
#pragma unroll
	for (int i = 0; i < 2; i++) {
		u64 at = key_of(min(key + i * 8, n - 1) - k0) + lane % 4 * 2;

#pragma unroll
		for (int j = 0; j < D / 8; j++)
			if (key + i * 8 < n) {
				*(u32 *)(a.dk + at + j * 8) =
					bf16_pair(dk[j][2 * i] * a.scale,
						  dk[j][2 * i + 1] * a.scale);
				*(u32 *)(a.dv + at + j * 8) =
					bf16_pair(dv[j][2 * i], dv[j][2 * i + 1]);
			}
	}
}

// A multiprocessor has `blocks` blocks of dq.
#define WG_BACK(d, g, nk, blocks, gk, nq) \
	extern "C" __global__ void __launch_bounds__(128 * g, blocks) \
		k_wg_dq_##d(const __grid_constant__ attention_back a) { wg_dq<d, g, nk>(a); } \
	extern "C" __global__ void __launch_bounds__(128 * gk, 1) \
		k_wg_dkdv_##d(const __grid_constant__ attention_back a) { wg_dkdv<d, gk, nq>(a); }
WG_BACK(64, 1, 64, 3, 2, 64)
WG_BACK(128, 2, 64, 1, 2, 64)
#endif
