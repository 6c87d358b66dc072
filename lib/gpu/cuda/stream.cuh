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
	int s = AT_SEQ / a.parts, part = AT_SEQ % a.parts, kv = AT_HEAD;

	follow();
	int first = a.first[s], tokens = a.first[s + 1] - first;
	packed q(first, a.heads, a.kv_heads, kv);
	int per = q.per, t = (ALL_TILES - 1 - AT_TILE) * ROWS;
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
