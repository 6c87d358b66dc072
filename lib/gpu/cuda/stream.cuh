// SPDX-License-Identifier: Apache-2.0
//
// Attention as in hopper.cuh, where keys and values stream: a group of warps
// does nothing but fetch tiles of them into a ring, and the groups that
// compute wait for a tile, not for each other, so that one multiplies while
// another takes exponentials.  Results are those of hopper.cuh, bit for bit
// where the keys are not divided into parts.
#if ACT_BF16 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <int N> __device__ inline void more_registers()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ inline void fewer_registers()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// A place in a ring of S slots.
template <int S> struct place {
	u32 slot = 0, parity = 0;

	__device__ inline void next()
	{
		parity ^= ++slot == S;
		slot = slot == S ? 0 : slot;
	}
};

// A ring of S tiles of `bytes`: what is full, what is free again.
template <int S> struct ring {
	u32 tiles, bytes, full, free;

	// By one thread.  A warp is what arrives.
	__device__ inline void init(int writers, int readers) const
	{
		for (int i = 0; i < S; i++) {
			bar_init(full + 8 * i, writers);
			bar_init(free + 8 * i, readers);
		}
	}
	__device__ inline u32 tile(place<S> at) const { return tiles + at.slot * bytes; }
	__device__ inline void wait_full(place<S> at) const
	{
		bar_wait(full + 8 * at.slot, at.parity);
	}
	__device__ inline void wait_free(place<S> at) const
	{
		bar_wait(free + 8 * at.slot, at.parity ^ 1);
	}
	// All of the warp is done.
	__device__ inline void tell(u32 which, place<S> at) const
	{
		__syncwarp();
		if (threadIdx.x % WARP == 0)
			bar_arrive(which + 8 * at.slot);
	}
};

// Where the rows of a tile's page begin, of lane % 8; behind the last key they are not read.
__device__ inline int find_rows(const attention &a, int s, int k, int n)
{
	int page = min(k * (KEYS / PAGE) + (int)threadIdx.x % (KEYS / PAGE), (n - 1) / PAGE);

	return a.pages ? a.pages[(u64)s * a.stride + page] * PAGE : a.first[s] + page * PAGE;
}

// A tile of `keys` keys by 128 threads; each has the same piece of every STEP-th row.
template <int D>
__device__ inline void load_rows(u32 to, const bf16 *from, int rows, int keys, int step)
{
	constexpr int STEP = 128 / (D / 8);
	int r = threadIdx.x / (D / 8), c = threadIdx.x % (D / 8);

	static_assert(STEP % 8 == 0 && PAGE % STEP == 0, "a thread's rows are alike");
	to += c / 8 * KEYS * 128 + r * 128 + ((c ^ r) & 7) * 16;
	from += c * 8;
#pragma unroll
	for (int i = 0; i < KEYS; i += STEP) {
		int row = __shfl_sync(~0u, rows, i / PAGE) + i % PAGE + r;
		u64 at = (u64)(u32)row * (u32)step;

		copy16_to(to + i * 128, i + r < keys ? from + at : from, i + r < keys);
	}
	copy_commit();
}

// The group that fetches.  A tile is told of when two more loads are on their way.
template <int D, int S>
__device__ inline void fetch_tiles(const attention &a, const ring<S> &ks, const ring<S> &vs, int s,
				   int kv, int n, int from, int end)
{
	int row = find_rows(a, s, from, n), ahead, step = a.kv_heads * D;
	place<S> at, old;
	auto tell = [&](const ring<S> &of) {
		wg_publish();
		of.tell(of.full, old);
	};

	for (int k = from; k < end; k++) {
		ahead = find_rows(a, s, k + 1, n);
		ks.wait_free(at);
		load_rows<D>(ks.tile(at), a.k + kv * D, row, n - k * KEYS, step);
		if (k > from) {
			copy_wait<2>();
			tell(ks);
		}
		vs.wait_free(at);
		load_rows<D>(vs.tile(at), a.v + kv * D, row, n - k * KEYS, step);
		if (k > from) {
			copy_wait<2>();
			tell(vs);
		}
		old = at;
		at.next();
		row = ahead;
	}
	copy_wait<1>();
	tell(ks);
	copy_wait<0>();
	tell(vs);
}

// Blocks as in wg_forward, with a group in front that fetches; FEW and MORE: registers.
template <int D, int G, int S, int FEW, int MORE>
__device__ inline void wg_stream(const attention &a)
{
	extern __shared__ __align__(16) char shared[];
	constexpr int ROWS = 64 * G;
	constexpr u32 QB = 64 * D * 2, KB = KEYS * D * 2;
	u32 qs = (shared_at(shared) + 1023) & ~1023u, bars = qs + G * QB + 2 * S * KB;
	const ring<S> ks = { qs + G * QB, KB, bars, bars + 8 * S };
	const ring<S> vs = { ks.tiles + S * KB, KB, bars + 16 * S, bars + 24 * S };
	int s = blockIdx.y / a.parts, part = blockIdx.y % a.parts, kv = blockIdx.x;

	follow();
	int first = a.first[s], tokens = a.first[s + 1] - first;
	packed q(first, a.heads, a.kv_heads, kv);
	int per = q.per, t = (gridDim.z - 1 - blockIdx.z) * ROWS;
	int rows = min(ROWS, tokens * per - t), lane = threadIdx.x % WARP;

	if (rows <= 0)
		return;
	if (threadIdx.x == 0) {
		ks.init(4, (rows + 63) / 64 * 4);
		vs.init(4, (rows + 63) / 64 * 4);
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	__syncthreads();

	int before = a.len[s] - tokens, n = before + (t + rows - 1) / per + 1;
	int tiles = (n + KEYS - 1) / KEYS, share = (tiles + a.parts - 1) / a.parts;
	int from = min(tiles, part * share), end = min(tiles, from + share);
	// Told to be the same for all of a warp: products must not diverge.
	int group = __shfl_sync(~0u, (int)threadIdx.x / 128, 0) - 1;

	if (group < 0) {
		fewer_registers<FEW>();
		if (from < end)
			fetch_tiles<D>(a, ks, vs, s, kv, n, from, end);
		return;
	}
	more_registers<MORE>();
	if (group * 64 >= rows)
		return;
	t += group * 64;
	rows = min(64, rows - group * 64);
	qs += group * QB;
	int row = t + threadIdx.x / WARP % 4 * 16 + lane / 4, least = before + t / per;
	int most = min(n, before + (t + 63) / per + 1);
	int mine = max(from, min(end, (most + KEYS - 1) / KEYS));
	const int last[2] = { before + row / per - lane % 4 * 2,
			      before + (row + 8) / per - lane % 4 * 2 };
	float x[KEYS / 8][4], o[D / 8][4] = {}, c = a.scale * LOG2E;
	u32 p[KEYS / 16][4];
	softmax f = { { -INF, -INF } };
	place<S> k_at, v_at;
	auto soften = [&](int k) {
		const int at[2] = { last[0] - k * KEYS, last[1] - k * KEYS };

		f.add(x, at, k * KEYS + KEYS - 1 > least, c);
	};

	if (from < mine) {
		wg_load<D, 64, 128>(qs, a.q, rows, [&](int r) { return (u64)q.at(t + r) * D; });
		copy_commit();
		copy_wait<0>();
		wg_publish();
		asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
		ks.wait_full(k_at);
		wg_begin();
		wg_mul_nt<D, 64>(x, qs, ks.tile(k_at));
		wg_commit();
		wg_wait<0>();
		wg_hold(x);
		ks.tell(ks.free, k_at);
		k_at.next();
		soften(from);
		to_frags<KEYS / 16>(p, x);
	}
	for (int k = from; k + 1 < mine; k++) {
		ks.wait_full(k_at);
		wg_hold(x);
		wg_hold(o);
		wg_begin();
		wg_mul_nt<D, 64>(x, qs, ks.tile(k_at));
		wg_commit();
		vs.wait_full(v_at);
		wg_begin();
		wg_mul_nn(o, p, vs.tile(v_at));
		wg_commit();
		wg_wait<1>();
		wg_hold(x);
		ks.tell(ks.free, k_at);
		k_at.next();
		soften(k + 1);
		wg_wait<0>();
		wg_hold(o);
		vs.tell(vs.free, v_at);
		v_at.next();
#pragma unroll
		for (int j = 0; j < D / 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				o[j][i] *= f.old[i >> 1];
		to_frags<KEYS / 16>(p, x);
	}
	if (from < mine) {
		vs.wait_full(v_at);
		wg_hold(o);
		wg_begin();
		wg_mul_nn(o, p, vs.tile(v_at));
		wg_commit();
		wg_wait<0>();
		wg_hold(o);
		vs.tell(vs.free, v_at);
		v_at.next();
	}
	// What others of the block still want.
	for (int k = mine; k < end; k++, k_at.next(), v_at.next()) {
		ks.wait_full(k_at);
		ks.tell(ks.free, k_at);
		vs.wait_full(v_at);
		vs.tell(vs.free, v_at);
	}
	put_out<D>(a, o, f, row, t + rows, q, part);
}

#define WG_STREAM(d, g, s, few, more) \
	extern "C" __global__ void __launch_bounds__(128 * g + 128, 1) \
		k_stream_##d(const __grid_constant__ attention a) \
	{ \
		wg_stream<d, g, s, few, more>(a); \
	}
WG_STREAM(64, 3, 4, 32, 160)
WG_STREAM(128, 2, 3, 40, 232)

// What dK/dV of a tile of keys reads: a ring of tiles of q and of dout, and of lse and delta.
template <int D, int NQ> struct back_ring {
	static constexpr int S = 4;
	static constexpr u32 QB = NQ * D * 2;
	ring<S> of;
	u32 os, stats;

	__device__ inline back_ring(u32 at)
	{
		u32 bars = at + 2 * S * QB + S * 2 * NQ * 4;

		of = { at, QB, bars, bars + 8 * S };
		os = at + S * QB;
		stats = os + S * QB;
	}
	__device__ inline u32 dout(place<S> at) const { return os + at.slot * QB; }
	__device__ inline u32 numbers(place<S> at) const { return stats + at.slot * 2 * NQ * 4; }
};

// The group that fetches: the keys' tiles with the first step, told of with it.
template <int D, int COLS, int NQ>
__device__ inline void fetch_back(const attention_back &a, const back_ring<D, NQ> &in, u32 ks,
				  const packed &q, int k0, int keys, int kv, int r0, int end)
{
	constexpr int STEP = 128 / (D / 8), S = in.S;
	int thread = threadIdx.x, r = thread / (D / 8), c = thread % (D / 8), steps;
	u32 to = c / 8 * NQ * 128 + r * 128 + ((c ^ r) & 7) * 16;
	auto key_of = [&](int i) { return ((u64)(q.first + k0 + i) * a.kv_heads + kv) * D; };
	place<S> at, old;
	auto tell = [&]() {
		wg_publish();
		in.of.tell(in.of.full, old);
		old.next();
	};

	wg_load<D, COLS, 128>(ks, a.k, keys, key_of);
	wg_load<D, COLS, 128>(ks + COLS * D * 2, a.v, keys, key_of);
	steps = (end - r0 + NQ - 1) / NQ;
#pragma unroll 1
	for (int k = 0; k < steps; k++, at.next()) {
		int row = r0 + k * NQ, rows = min(NQ, end - row);

		in.of.wait_free(at);
#pragma unroll
		for (int i = 0; i < NQ; i += STEP) {
			bool there = i + r < rows;
			u64 from = there ? (u64)q.at(row + i + r) * D + c * 8 : 0;

			copy16_to(in.of.tile(at) + to + i * 128, a.q + from, there);
			copy16_to(in.dout(at) + to + i * 128, a.dout + from, there);
		}
#pragma unroll
		for (int i = thread; i < 2 * NQ; i += 128) {
			bool there = i % NQ < rows;

			copy4_to(in.numbers(at) + i * 4, (i < NQ ? a.lse : a.delta) +
				 (there ? q.at(row + i % NQ) : 0), there);
		}
		copy_commit();
		if (k > 1) {
			copy_wait<2>();
			tell();
		}
	}
	copy_wait<1>();
	if (steps > 1)
		tell();
	copy_wait<0>();
	tell();
}

// Blocks as in wg_dkdv, with a group in front that fetches; FEW and MORE: registers.
template <int D, int G, int NQ, int FEW, int MORE>
__device__ inline void wg_stream_dkdv(const attention_back &a)
{
	extern __shared__ __align__(16) char shared[];
	constexpr int COLS = 64 * G;
	constexpr u32 KB = COLS * D * 2;
	u32 ks = (shared_at(shared) + 1023) & ~1023u, vs = ks + KB;
	const back_ring<D, NQ> in(vs + KB);
	int s = blockIdx.y, kv = blockIdx.x, first = a.first[s];
	packed q(first, a.heads, a.kv_heads, kv);
	int per = q.per, n = a.first[s + 1] - first;
	int k0 = blockIdx.z * COLS, keys = min(COLS, n - k0), lane = threadIdx.x % WARP;

	if (keys <= 0)
		return;
	if (threadIdx.x == 0) {
		in.of.init(4, (keys + 63) / 64 * 4);
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	__syncthreads();

	int r0 = k0 * per, steps = (n * per - r0 + NQ - 1) / NQ;
	int group = __shfl_sync(~0u, (int)threadIdx.x / 128, 0) - 1;

	if (group < 0) {
		fewer_registers<FEW>();
		fetch_back<D, COLS, NQ>(a, in, ks, q, k0, keys, kv, r0, n * per);
		return;
	}
	more_registers<MORE>();
	if (group * 64 >= keys)
		return;
	int key = k0 + group * 64 + threadIdx.x / WARP % 4 * 16 + lane / 4;
	int high = (k0 + group * 64 + 63) * per, begin = min(group * 64 * per / NQ, steps);
	float dk[D / 8][4] = {}, dv[D / 8][4] = {}, c = a.scale * LOG2E;
	u32 p[NQ / 16][4], ds[NQ / 16][4];
	const char *base = shared - shared_at(shared);
	place<4> at, old;

	ks += group * 8192;
	vs += group * 8192;
	// The group's keys are not seen by what is before.
#pragma unroll 1
	for (int k = 0; k < begin; k++, at.next()) {
		in.of.wait_full(at);
		in.of.tell(in.of.free, at);
	}
	old = at;
	// Here, or the compiler sets them while they are in use.
	wg_hold(dk);
	wg_hold(dv);
#pragma unroll 1
	for (int k = begin; k < steps; k++) {
		int r = r0 + k * NQ;
		u32 qa = in.of.tile(at), oa = in.dout(at);
		const float *lse = (const float *)(base + in.numbers(at)) + lane % 4 * 2;
		const float *delta = lse + NQ;
		float x[NQ / 8][4], y[NQ / 8][4];

		in.of.wait_full(at);
		wg_begin();
		wg_mul_nt<D, COLS>(x, ks, qa);
		wg_commit();
		wg_mul_nt<D, COLS>(y, vs, oa);
		wg_commit();
		wg_wait<1>();
		wg_hold(x);
		// The products of the step before are done, too.
		if (k > begin) {
			in.of.tell(in.of.free, old);
			old.next();
		}
#pragma unroll
		for (int j = 0; j < NQ / 8; j++) {
			float2 l = *(const float2 *)(lse + j * 8);

#pragma unroll
			for (int i = 0; i < 4; i++)
				x[j][i] = exp2_fast(x[j][i] * c - (i & 1 ? l.y : l.x) * LOG2E);
		}
		if (r < high) {
			int to[2] = { key * per - r - lane % 4 * 2,
				      (key + 8) * per - r - lane % 4 * 2 };

#pragma unroll
			for (int j = 0; j < NQ / 8; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					if (to[i >> 1] > j * 8 + (i & 1))
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
		at.next();
	}
	wg_wait<0>();
	wg_hold(dk);
	wg_hold(dv);
#pragma unroll
	for (int i = 0; i < 2; i++) {
		u64 out = ((u64)(first + min(key + i * 8, n - 1)) * a.kv_heads + kv) * D +
			  lane % 4 * 2;

#pragma unroll
		for (int j = 0; j < D / 8; j++)
			if (key + i * 8 < n) {
				*(u32 *)(a.dk + out + j * 8) =
					bf16_pair(dk[j][2 * i] * a.scale,
						  dk[j][2 * i + 1] * a.scale);
				*(u32 *)(a.dv + out + j * 8) =
					bf16_pair(dv[j][2 * i], dv[j][2 * i + 1]);
			}
	}
}

// The group that fetches keys and values for dq, in tiles of NK.
template <int D, int NK, int S>
__device__ inline void fetch_keys(const attention_back &a, const ring<S> &in, int first, int kv,
				  int n)
{
	constexpr int STEP = 128 / (D / 8);
	int r = threadIdx.x / (D / 8), c = threadIdx.x % (D / 8), step = a.kv_heads * D;
	u32 to = c / 8 * NK * 128 + r * 128 + ((c ^ r) & 7) * 16;
	u64 from = (u64)(first + r) * step + kv * D + c * 8;
	place<S> at, old;
	auto tell = [&]() {
		wg_publish();
		in.tell(in.full, old);
		old.next();
	};

#pragma unroll 1
	for (int k = 0; k < n; k += NK, from += (u64)NK * step, at.next()) {
		in.wait_free(at);
#pragma unroll
		for (int i = 0; i < NK; i += STEP) {
			bool there = k + i + r < n;
			u64 row = there ? from + (u64)i * step : 0;

			copy16_to(in.tile(at) + to + i * 128, a.k + row, there);
			copy16_to(in.tile(at) + NK * D * 2 + to + i * 128, a.v + row, there);
		}
		copy_commit();
		if (k > NK) {
			copy_wait<2>();
			tell();
		}
	}
	copy_wait<1>();
	if (n > NK)
		tell();
	copy_wait<0>();
	tell();
}

// Blocks as in wg_dq, with a group in front that fetches.
template <int D, int G, int NK, int FEW, int MORE>
__device__ inline void wg_stream_dq(const attention_back &a)
{
	extern __shared__ __align__(16) char shared[];
	constexpr int ROWS = 64 * G, S = 4;
	constexpr u32 QB = 64 * D * 2, KB = 2 * NK * D * 2;
	u32 qs = (shared_at(shared) + 1023) & ~1023u, os = qs + G * QB, ks = os + G * QB;
	const ring<S> in = { ks, KB, ks + S * KB, ks + S * KB + 8 * S };
	int s = blockIdx.y, kv = blockIdx.x, first = a.first[s], lane = threadIdx.x % WARP;
	packed q(first, a.heads, a.kv_heads, kv);
	int per = q.per, all = (a.first[s + 1] - first) * per;
	int t = (gridDim.z - 1 - blockIdx.z) * ROWS, rows = min(ROWS, all - t);

	if (rows <= 0)
		return;
	if (threadIdx.x == 0) {
		in.init(4, (rows + 63) / 64 * 4);
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	__syncthreads();

	int n = (t + rows - 1) / per + 1, tiles = (n + NK - 1) / NK;
	int group = __shfl_sync(~0u, (int)threadIdx.x / 128, 0) - 1;

	if (group < 0) {
		fewer_registers<FEW>();
		fetch_keys<D, NK, S>(a, in, first, kv, n);
		return;
	}
	more_registers<MORE>();
	if (group * 64 >= rows)
		return;
	t += group * 64;
	rows = min(64, rows - group * 64);
	qs += group * QB;
	os += group * QB;
	int row = t + threadIdx.x / WARP % 4 * 16 + lane / 4, least = t / per;
	int mine = (min(n, (t + 63) / per + 1) + NK - 1) / NK;
	float dq[D / 8][4] = {}, x[NK / 8][4], y[NK / 8][4], lse[2], delta[2];
	float c = a.scale * LOG2E;
	u32 p[NK / 16][4];
	place<S> at, old;
	auto query = [&](int r) { return (u64)q.at(t + r) * D; };

	wg_load<D, 64, 128>(qs, a.q, rows, query);
	wg_load<D, 64, 128>(os, a.dout, rows, query);
	copy_commit();
#pragma unroll
	for (int i = 0; i < 2; i++) {
		u64 here = q.at(min(row + i * 8, all - 1));

		lse[i] = a.lse[here] * LOG2E;
		delta[i] = a.delta[here];
	}
	copy_wait<0>();
	wg_publish();
	asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
	wg_hold(dq);
#pragma unroll 1
	for (int k = 0; k < mine; k++) {
		u32 tile = in.tile(at);

		in.wait_full(at);
		wg_hold(x);
		wg_hold(y);
		wg_begin();
		wg_mul_nt<D, 64>(x, qs, tile);
		wg_commit();
		wg_mul_nt<D, 64>(y, os, tile + NK * D * 2);
		wg_commit();
		wg_wait<1>();
		wg_hold(x);
		// The product of the step before is done, too.
		if (k) {
			in.tell(in.free, old);
			old.next();
		}
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
		wg_mul_nn(dq, p, tile);
		wg_commit();
		at.next();
	}
	wg_wait<0>();
	wg_hold(dq);
	// What others of the block still want.
	in.tell(in.free, old);
#pragma unroll 1
	for (int k = mine; k < tiles; k++, at.next()) {
		in.wait_full(at);
		in.tell(in.free, at);
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		u64 out = q.at(min(row + i * 8, all - 1));

#pragma unroll
		for (int j = 0; j < D / 8; j++)
			if (row + i * 8 < t + rows)
				*(u32 *)(a.dq + out * D + j * 8 + lane % 4 * 2) =
					bf16_pair(dq[j][2 * i] * a.scale,
						  dq[j][2 * i + 1] * a.scale);
	}
}

#define WG_STREAM_BACK(d, gk, nq, few, more, g, nk, fewer, most) \
	extern "C" __global__ void __launch_bounds__(128 * gk + 128, 1) \
		k_stream_dkdv_##d(const __grid_constant__ attention_back a) \
	{ \
		wg_stream_dkdv<d, gk, nq, few, more>(a); \
	} \
	extern "C" __global__ void __launch_bounds__(128 * g + 128, 1) \
		k_stream_dq_##d(const __grid_constant__ attention_back a) \
	{ \
		wg_stream_dq<d, g, nk, fewer, most>(a); \
	}
WG_STREAM_BACK(64, 2, 64, 40, 232, 3, 64, 32, 160)

// Out of parts, at most 64; a warp per row and head, 4 channels a lane.
extern "C" __global__ void __launch_bounds__(256) k_stream_join(const __grid_constant__ attention a)
{
	__shared__ float weight[8][64];
	int i = blockIdx.x * 8 + threadIdx.x / WARP, lane = threadIdx.x % WARP;
	int all = a.rows * a.heads, lanes = a.dim / 4, side = lane / lanes, sides = WARP / lanes;
	float *w = weight[threadIdx.x / WARP], top = -INF, sum = 0, e[2], o[4] = {};

	follow();
	if (i >= all)
		return;
#pragma unroll
	for (int h = 0; h < 2; h++) {
		int k = lane + h * WARP;

		e[h] = k < a.parts ? a.part_lse[(u64)k * all + i] : -INF;
		top = fmaxf(top, e[h]);
	}
	top = warp_max(top);
#pragma unroll
	for (int h = 0; h < 2; h++) {
		e[h] = __expf(e[h] - top);
		w[lane + h * WARP] = e[h];
		sum += e[h];
	}
	sum = 1 / warp_sum(sum);
	__syncwarp();
	// Loads do not depend on weights, so that many are on their way at once.
#pragma unroll 8
	for (int k = side; k < a.parts; k += sides) {
		float4 v = *(const float4 *)(a.part + ((u64)k * all + i) * a.dim +
					     lane % lanes * 4);
		float share = w[k] * sum;

		o[0] += share * v.x;
		o[1] += share * v.y;
		o[2] += share * v.z;
		o[3] += share * v.w;
	}
	if (sides > 1)
#pragma unroll
		for (int j = 0; j < 4; j++)
			o[j] += __shfl_xor_sync(~0u, o[j], 16);
	if (side == 0)
		*(uint2 *)(a.out + (u64)i * a.dim + lane * 4) =
			make_uint2(bf16_pair(o[0], o[1]), bf16_pair(o[2], o[3]));
}
#endif
