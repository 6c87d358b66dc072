// SPDX-License-Identifier: Apache-2.0
//
// One token through all of a model, as when one sequence is decoded: bound by
// reading the weights, so their stream is not to stop.
//
// A block a multiprocessor, which stays.  Blocks meet between products, but
// what a warp reads next is on its way into a ring of its own in shared
// memory all the time, through the meetings, the attention and into the next
// layers (weights are nobody's result).  A warp works on a pair of rows of
// the weights at a time, or `share` warps do, each on every share-th piece.
//
// Between meetings a block does little, so what it waits for counts: what
// does not depend on other blocks is asked for before it waits for them.
#if ACT_BF16 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#ifndef STEP_WARPS
#define STEP_WARPS 8
#define STEP_PIECE 1024		// elements of each of two rows at a time
#endif
#define STEP_THREADS (STEP_WARPS * WARP)
#define STEP_SLOT  (2 * STEP_PIECE * 2)		// bytes
#define STEP_AHEAD 4		// keys that a lane asks for at once

// Lets the barrier wait for so many bytes, of this and of what is copied after it.
__device__ inline void bar_expect(u32 bar, u32 bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
		     : "memory");
}

__device__ inline void copy_bulk(u32 to, const void *from, u32 bytes, u32 bar)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
		     "[%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}

__device__ inline float2 load_fresh2(const float2 *p)
{
	float2 v;

	asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];"
		     : "=f"(v.x), "=f"(v.y) : "l"(p) : "memory");
	return v;
}

__device__ inline float4 load_fresh4(const float *p)
{
	float4 v;

	asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
		     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
	return v;
}

__device__ inline u32 load_fresh_pair(const act *p)
{
	u32 v;

	asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

// What does not change during a step: where layers lie, the token and how many keys it has, in
// how many parts.
struct step_fixed {
	const step_layer *layer;
	const float *table;		// of its position
	int id, slot, len, parts;
	u32 goal;			// of the next meeting
};

// This block has come to the meeting: what it wrote is there.
__device__ inline void step_arrive(const step &a, step_fixed &f)
{
	__syncthreads();
	f.goal++;
	if (threadIdx.x == 0)
		asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(a.met + blockIdx.x),
			     "r"(f.goal) : "memory");
}

// All blocks have.
__device__ inline void step_meet(const step &a, const step_fixed &f)
{
#pragma unroll 1
	for (int i = threadIdx.x; i < gridDim.x; i += STEP_THREADS) {
		u32 there;

#ifdef STEP_ALONE
		break;
#endif
		do
			asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
				     : "=r"(there) : "l"(a.met + i) : "memory");
		while ((int)(there - f.goal) < 0);
	}
	__syncthreads();
}

// This block's and this warp's part of product i: four a layer, then the head.
struct step_part {
	int kind, n, k, share, from, pairs, turns, steps, start, stride;

	__device__ inline void begin(const step &a, int i)
	{
		int warp = threadIdx.x / WARP;

		kind = i == 4 * a.layers ? 4 : i % 4;
		n = kind == 0 ? (a.heads + 2 * a.kv_heads) * a.dim : kind == 2 ? 2 * a.inter :
		    kind == 4 ? a.vocab : a.hidden;
		k = kind == 1 ? a.heads * a.dim : kind == 3 ? a.inter : a.hidden;
		share = a.share[kind];

		// Who has one pair more than others is another block each time.
		u32 all = (n + 1) / 2, block = (blockIdx.x + 37u * i) % gridDim.x;
		int groups = STEP_WARPS >> share, group = warp >> share;
		int slice = warp & ((1 << share) - 1), pieces = (k + STEP_PIECE - 1) / STEP_PIECE;

		from = all * block / gridDim.x;
		pairs = all * (block + 1) / gridDim.x - from;
		turns = group < pairs ? (pairs - group - 1) / groups + 1 : 0;
		steps = (pieces - slice + (1 << share) - 1) >> share;
		start = slice * STEP_PIECE;
		stride = STEP_PIECE << share;
	}
	__device__ inline void row(int q, int *first, int *second) const
	{
		*first = kind == 2 ? q : 2 * q;
		*second = kind == 2 ? n / 2 + q : 2 * q + 1;
	}
};

// A warp's ring, filled in the order of all products.
struct step_ring {
	step_part next;
	const bf16 *one, *two;
	int product, turn, done, at;
	u32 data, bars;

	__device__ inline void begin(const step &a, int i)
	{
		product = i;
		next.begin(a, i);
		turn = done = 0;
	}
	// The next pair, if there is one.
	__device__ inline void seek(const step &a, const step_fixed &f)
	{
		int r1, r2;

		while (turn == next.turns && product < 4 * a.layers)
			begin(a, product + 1);
		if (turn == next.turns)
			return;
		const bf16 *w = (const bf16 *)(next.kind == 4 ? a.head :
					       f.layer[product / 4].w[next.kind]);

		next.row(next.from + ((turn * STEP_WARPS + (int)threadIdx.x / WARP) >> next.share),
			 &r1, &r2);
		one = w + (u64)r1 * next.k;
		two = r2 < next.n ? w + (u64)r2 * next.k : one;
		at = next.start;
	}
	__device__ inline void start(const step &a, const step_fixed &f, u32 ring, u32 bar)
	{
		data = ring + threadIdx.x / WARP * a.slots * STEP_SLOT;
		bars = bar + threadIdx.x / WARP * a.slots * 8;
		begin(a, 0);
		seek(a, f);
#pragma unroll 1
		for (int i = 0; i < a.slots; i++)
			fetch(a, f, i);
	}
	__device__ inline void fetch(const step &a, const step_fixed &f, int slot)
	{
		if (turn == next.turns)
			return;
		if (threadIdx.x % WARP == 0) {
			u32 bytes = min(STEP_PIECE, next.k - at) * 2, to = data + slot * STEP_SLOT;

			bar_expect(bars + slot * 8, 2 * bytes);
			copy_bulk(to, one + at, bytes, bars + slot * 8);
			copy_bulk(to + STEP_SLOT / 2, two + at, bytes, bars + slot * 8);
		}
		at += next.stride;
		if (++done < next.steps)
			return;
		done = 0;
		turn++;
		seek(a, f);
	}
};

// Eight elements of what attention leaves, out of parts of the keys.
__device__ inline void step_merge(float (&v)[8], const step &a, int parts, int i)
{
	int h = i / a.dim;
	const float2 *stats = (const float2 *)a.stats + h * parts;
	const float *sums = a.sums + h * parts * a.dim + i % a.dim;
	float top = -INF, all = 0;

#pragma unroll
	for (int k = 0; k < 8; k++)
		v[k] = 0;
	// Four at a time are on their way.
#pragma unroll 1
	for (int from = 0; from < parts; from += 4) {
		float2 s[4];
		float4 low[4], high[4];
		float was = top;

#pragma unroll
		for (int j = 0; j < 4; j++) {
			int p = min(from + j, parts - 1);

			s[j] = load_fresh2(stats + p);
			low[j] = load_fresh4(sums + p * a.dim);
			high[j] = load_fresh4(sums + p * a.dim + 4);
		}
#pragma unroll
		for (int j = 0; j < 4; j++)
			top = fmaxf(top, s[j].x);
		was = exp2f(was - top);
		all *= was;
#pragma unroll
		for (int k = 0; k < 8; k++)
			v[k] *= was;
#pragma unroll
		for (int j = 0; j < 4; j++) {
			float w = from + j < parts ? exp2f(s[j].x - top) : 0;
			const float x[8] = { low[j].x, low[j].y, low[j].z, low[j].w,
					     high[j].x, high[j].y, high[j].z, high[j].w };

			all += w * s[j].y;
#pragma unroll
			for (int k = 0; k < 8; k++)
				v[k] += w * x[k];
		}
	}
#pragma unroll
	for (int k = 0; k < 8; k++)
		v[k] = widen(narrow<act>(v[k] / all));
}

// The row that a product takes, times its norm's weights, of which this thread has the first ones;
// the sum of squares of this thread's.
__device__ inline float step_load(float *to, const step &a, const step_fixed &f, int i,
				  const step_part &p, const float *norm, const float (&first)[8])
{
	const act *in = p.kind == 3 ? a.act : i == 0 ? a.embed + (u64)f.id * p.k :
			p.kind == 1 ? (const act *)a.sums : a.x;
	float square = 0;

#pragma unroll 1
	for (int at = threadIdx.x * 8; at < p.k; at += STEP_THREADS * 8) {
		float v[8];

		if (p.kind == 1 && f.parts > 1)
			step_merge(v, a, f.parts, at);
		else
			unpack(v, load_fresh(in + at));
		if (norm) {
			float w[8];

			if (at >= STEP_THREADS * 8)
				load8(w, norm + at);
#pragma unroll
			for (int j = 0; j < 8; j++) {
				square += v[j] * v[j];
				v[j] *= at < STEP_THREADS * 8 ? first[j] : w[j];
			}
		}
		*(float4 *)(to + row_at(at)) = make_float4(v[0], v[1], v[2], v[3]);
		*(float4 *)(to + row_at(at + 4)) = make_float4(v[4], v[5], v[6], v[7]);
	}
	return square;
}

// Sums of pair q; `old` is what is there of a row that is added to.
__device__ inline void step_put(const step &a, const step_part &p, int q, float x, float y,
				const float *bias, u32 old)
{
	int one, two;

	p.row(q, &one, &two);
	if (p.kind == 4) {
		a.logits[one] = x;
		if (two < p.n)
			a.logits[two] = y;
		return;
	}
	if (bias) {
		x += bias[one];
		y += bias[two];
	}
	if (p.kind == 0) {
		*(u32 *)(a.qkv + one) = bf16_pair(x, y);
	} else if (p.kind == 2) {
		x = widen(narrow<act>(x));
		y = widen(narrow<act>(y));
		a.act[q] = narrow<act>(x / (1 + __expf(-x)) * y);
	} else {
		*(u32 *)(a.x + one) = bf16_pair(x + __uint_as_float(old << 16),
						y + __uint_as_float(old & 0xffff0000));
	}
}

// Norm and rotation of one head by a warp, rounded; a lane has two elements of either half.
template <int D>
__device__ inline void step_turn(float *to, const step &a, const step_fixed &f, const act *in,
				 const float *norm)
{
	int j = threadIdx.x % WARP * 2, half = D / 2;
	u32 low = j < half ? load_fresh_pair(in + j) : 0;
	u32 high = j < half ? load_fresh_pair(in + half + j) : 0;
	float x[2] = { __uint_as_float(low << 16), __uint_as_float(low & 0xffff0000) };
	float y[2] = { __uint_as_float(high << 16), __uint_as_float(high & 0xffff0000) };
	float r = 1;

	if (norm)
		r = rsqrtf(warp_sum(x[0] * x[0] + x[1] * x[1] + y[0] * y[0] + y[1] * y[1]) / D +
			   a.eps);
	if (j >= half)
		return;
#pragma unroll
	for (int e = 0; e < 2; e++) {
		float c = f.table[j + e], s = f.table[j + e + half];

		if (norm) {
			x[e] *= r * norm[j + e];
			y[e] *= r * norm[j + e + half];
		}
		to[j + e] = widen(narrow<act>(x[e] * c - y[e] * s));
		to[j + e + half] = widen(narrow<act>(y[e] * c + x[e] * s));
	}
}

// The keys of a head by parts, a block each; a lane has eight dimensions of a key.
template <int D> struct step_keys {
	static constexpr int LANES = D / 8, AT_ONCE = WARP / LANES;
	static constexpr int ROUND = STEP_WARPS * AT_ONCE * STEP_AHEAD;

	eight k[STEP_AHEAD], v[STEP_AHEAD];
	int head, part, kv, from, to;	// of the last part all but the token's own

	__device__ inline void at(const step &a, const step_fixed &f, int unit)
	{
		head = unit / f.parts;
		part = unit % f.parts;
		kv = head / (a.heads / a.kv_heads);
		from = f.len * part / f.parts;
		to = min(f.len * (part + 1) / f.parts, f.len - 1);
	}
	__device__ inline int key(int j, int u) const
	{
		return j + (u * STEP_WARPS + (int)threadIdx.x / WARP) * AT_ONCE +
		       (int)threadIdx.x % WARP / LANES;
	}
	__device__ inline void ask(const step &a, const step_layer &l, int j)
	{
		int mine = kv * D + (int)threadIdx.x % LANES * 8;

#pragma unroll
		for (int u = 0; u < STEP_AHEAD; u++) {
			int i = key(j, u);
			u64 row = 0;

			if (i < to)
				row = (u64)(u32)(a.pages[i / PAGE] * PAGE + i % PAGE) *
				      a.kv_heads * D;
			k[u] = i < to ? *(const eight *)((const act *)l.k + row + mine) : eight{};
			v[u] = i < to ? *(const eight *)((const act *)l.v + row + mine) : eight{};
		}
	}
};

// One head's part of the keys, of which the first round has been asked for.
template <int D>
__device__ inline void step_attend(const step &a, const step_fixed &f, const step_layer &w,
				   step_keys<D> &s, int unit, float *x)
{
	constexpr int LANES = step_keys<D>::LANES;
	float *q = x, *key = q + D, *value = key + D, *sums = value + D;
	float2 *stats = (float2 *)(sums + STEP_WARPS * D);
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, mine = lane % LANES * 8;
	bool last = s.part == f.parts - 1, writes = s.head % (a.heads / a.kv_heads) == 0;
	u64 own = ((u64)f.slot * a.kv_heads + s.kv) * D;
	float m = -INF, sum = 0, o[8] = {}, qs[8];

	if (warp == 0) {
		step_turn<D>(q, a, f, a.qkv + s.head * D, w.qn);
	} else if (warp == 1 && last) {
		step_turn<D>(key, a, f, a.qkv + (a.heads + s.kv) * D, w.kn);
		__syncwarp();
#pragma unroll
		for (int j = lane; j < D; j += WARP)
			if (writes)
				((act *)w.k)[own + j] = narrow<act>(key[j]);
	} else if (warp == 2 && last) {
		const act *in = a.qkv + (a.heads + a.kv_heads + s.kv) * D;

#pragma unroll
		for (int j = lane * 2; j < D; j += 2 * WARP) {
			u32 two = load_fresh_pair(in + j);

			value[j] = __uint_as_float(two << 16);
			value[j + 1] = __uint_as_float(two & 0xffff0000);
			if (writes)
				*(u32 *)((act *)w.v + own + j) = two;
		}
	}
	__syncthreads();
#pragma unroll
	for (int e = 0; e < 8; e++)
		qs[e] = q[mine + e] * a.scale * LOG2E;
	auto look = [&](const float (&ks)[8]) {
		float r = 0;

#pragma unroll
		for (int e = 0; e < 8; e++)
			r += qs[e] * ks[e];
#pragma unroll
		for (int d = LANES / 2; d; d /= 2)
			r += __shfl_xor_sync(~0u, r, d);
		return r;
	};
#pragma unroll 1
	for (int j = s.from; j < s.to; j += s.ROUND) {
		float r[STEP_AHEAD], ks[8], vs[8], top = m;

		if (j > s.from)
			s.ask(a, w, j);
#pragma unroll
		for (int u = 0; u < STEP_AHEAD; u++) {
			unpack(ks, s.k[u]);
			r[u] = look(ks);
			if (s.key(j, u) >= s.to)
				r[u] = -INF;
			top = fmaxf(top, r[u]);
		}
		float less = top > -INF ? top : 0, old = exp2f(m - less);

		m = top;
		sum *= old;
#pragma unroll
		for (int e = 0; e < 8; e++)
			o[e] *= old;
#pragma unroll
		for (int u = 0; u < STEP_AHEAD; u++) {
			float share = exp2f(r[u] - less);

			unpack(vs, s.v[u]);
			sum += share;
#pragma unroll
			for (int e = 0; e < 8; e++)
				o[e] += share * vs[e];
		}
	}
	if (last && warp == 0) {
		float ks[8];

#pragma unroll
		for (int e = 0; e < 8; e++)
			ks[e] = key[mine + e];
		float r = look(ks);

		if (lane < LANES) {
			float top = fmaxf(m, r), old = exp2f(m - top), share = exp2f(r - top);

			m = top;
			sum = sum * old + share;
#pragma unroll
			for (int e = 0; e < 8; e++)
				o[e] = o[e] * old + share * value[mine + e];
		}
	}
	// Keys of a warp, then warps.
	float top = m;
#pragma unroll
	for (int d = LANES; d < WARP; d *= 2)
		top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
	float share = top > -INF ? exp2f(m - top) : 0;

	sum *= share;
#pragma unroll
	for (int d = LANES; d < WARP; d *= 2)
		sum += __shfl_xor_sync(~0u, sum, d);
#pragma unroll
	for (int e = 0; e < 8; e++) {
		o[e] *= share;
#pragma unroll
		for (int d = LANES; d < WARP; d *= 2)
			o[e] += __shfl_xor_sync(~0u, o[e], d);
		if (lane < LANES)
			sums[warp * D + mine + e] = o[e];
	}
	if (lane == 0)
		stats[warp] = make_float2(top, sum);
	__syncthreads();
	if (threadIdx.x < D) {
		int j = threadIdx.x;
		float high = -INF, all = 0, out = 0;

#pragma unroll
		for (int i = 0; i < STEP_WARPS; i++)
			high = fmaxf(high, stats[i].x);
#pragma unroll
		for (int i = 0; i < STEP_WARPS; i++) {
			float c = exp2f(stats[i].x - high);

			all += c * stats[i].y;
			out += c * sums[i * D + j];
		}
		if (f.parts == 1) {
			((act *)a.sums)[unit * D + j] = narrow<act>(out / all);
			return;
		}
		a.sums[unit * D + j] = out;
		if (j == 0)
			((float2 *)a.stats)[unit] = make_float2(high, all);
	}
}

template <int D>
__device__ inline void step_attention(const step &a, step_fixed &f, int layer, float *x)
{
	const step_layer &l = f.layer[layer];
	int unit = blockIdx.x, units = a.heads * f.parts;
	step_keys<D> s;

	if (unit < units) {
		s.at(a, f, unit);
		s.ask(a, l, s.from);
	}
	step_meet(a, f);
#pragma unroll 1
	for (; unit < units; unit += gridDim.x) {
		if (unit != blockIdx.x) {
			s.at(a, f, unit);
			s.ask(a, l, s.from);
			__syncthreads();
		}
		step_attend(a, f, l, s, unit, x);
	}
	step_arrive(a, f);
}

// One product of this block's pairs from the ring at `slot`; sums by turn and warp.
__device__ inline void step_multiply(const step &a, const step_fixed &f, const step_part &p,
				     step_ring &ring, const char *data, int &slot, u32 &parity,
				     const float *x, float2 *sums)
{
	int lane = threadIdx.x % WARP;

#pragma unroll 1
	for (int t = 0; t < p.turns; t++) {
		float one[2] = {}, two[2] = {};
		int at = p.start + lane * 8;

#pragma unroll 1
		for (int s = 0; s < p.steps; s++, at += p.stride) {
			const char *piece = data + slot * STEP_SLOT + lane * 16;
			const float *part = x + at - lane * 4;

			bar_wait(ring.bars + slot * 8, parity);
#pragma unroll
			for (int u = 0; u < STEP_PIECE / 256; u++) {
				if (at + u * 256 >= p.k)
					continue;
				float4 low = *(const float4 *)(part + u * 256);
				float4 high = *(const float4 *)(part + u * 256 + 128);
				float v[8], g[8] = { low.x, low.y, low.z, low.w,
						     high.x, high.y, high.z, high.w };

				unpack(v, *(const eight *)(piece + u * 512));
#pragma unroll
				for (int k = 0; k < 8; k++)
					one[k & 1] += v[k] * g[k];
				unpack(v, *(const eight *)(piece + STEP_SLOT / 2 + u * 512));
#pragma unroll
				for (int k = 0; k < 8; k++)
					two[k & 1] += v[k] * g[k];
			}
			__syncwarp();
			ring.fetch(a, f, slot);
			if (++slot == a.slots) {
				slot = 0;
				parity ^= 1;
			}
		}
		float sum1 = warp_sum(one[0] + one[1]), sum2 = warp_sum(two[0] + two[1]);

		if (lane == 0)
			sums[t * STEP_WARPS + threadIdx.x / WARP] = make_float2(sum1, sum2);
	}
}

extern "C" __global__ void __launch_bounds__(STEP_THREADS, 1)
	k_step(const __grid_constant__ step a)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ float squares[STEP_WARPS];
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, slot = 0;
	u32 parity = 0, bars = shared_at(shared) + STEP_WARPS * a.slots * STEP_SLOT;
	const char *data = shared + warp * a.slots * STEP_SLOT;
	float *x = (float *)(shared + STEP_WARPS * a.slots * (STEP_SLOT + 8));
	u64 *layers = (u64 *)(x + a.row);
	float *table = (float *)(layers + a.layers * (sizeof(step_layer) / 8));
	float2 *sums = (float2 *)(table + a.dim);
	step_fixed f = { (const step_layer *)layers, table, a.ids[0], a.slot[0], a.len[0], 0,
			 a.met[blockIdx.x] };
	const float *here = a.table + (u64)a.pos[0] * a.dim;
	step_ring ring;
	step_part p;

	f.parts = max(1, min((f.len + 127) / 128, min((int)gridDim.x / a.heads, STEP_PARTS)));
#pragma unroll 1
	for (int i = threadIdx.x; i < a.layers * (sizeof(step_layer) / 8); i += STEP_THREADS)
		layers[i] = ((const u64 *)a.layer)[i];
#pragma unroll 1
	for (int i = threadIdx.x; i < a.dim; i += STEP_THREADS)
		table[i] = here[i];
	if (threadIdx.x < STEP_WARPS * a.slots)
		bar_init(bars + threadIdx.x * 8, 1);
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	__syncthreads();
	ring.start(a, f, shared_at(shared), bars);
#pragma unroll 1
	for (int i = 0; i <= 4 * a.layers; i++) {
		p.begin(a, i);
		const step_layer &l = f.layer[min(i / 4, a.layers - 1)];
		const float *norm = p.kind == 4 ? a.norm : p.kind == 0 ? l.norm[0] :
				    p.kind == 2 ? l.norm[1] : nullptr;
		const float *bias = p.kind == 4 ? nullptr : l.bias[p.kind];
		const act *add = i == 1 ? a.embed + (u64)f.id * a.hidden : a.x;
		float first[8] = {}, square, r = 1;
		u32 old = 0;

		if (norm && threadIdx.x * 8 < p.k)
			load8(first, norm + threadIdx.x * 8);
		if (p.kind == 1) {
			if (a.dim == 64)
				step_attention<64>(a, f, i / 4, x);
			else
				step_attention<128>(a, f, i / 4, x);
		}
		if ((p.kind == 1 || p.kind == 3) && threadIdx.x < p.pairs)
			old = load_fresh_pair(add + 2 * (p.from + threadIdx.x));
		if (i > 0)
			step_meet(a, f);
		square = step_load(x, a, f, i, p, norm, first);
		if (norm) {
			square = warp_sum(square);
			if (lane == 0)
				squares[warp] = square;
		}
		__syncthreads();
		step_multiply(a, f, p, ring, data, slot, parity, x, sums);
		__syncthreads();
		if (norm) {
			square = 0;
#pragma unroll
			for (int k = 0; k < STEP_WARPS; k++)
				square += squares[k];
			r = rsqrtf(square / p.k + a.eps);
		}
#pragma unroll 1
		for (int j = threadIdx.x; j < p.pairs; j += STEP_THREADS) {
			float sum1 = 0, sum2 = 0;

#pragma unroll 1
			for (int k = 0; k < 1 << p.share; k++) {
				float2 s = sums[(j << p.share) + k];

				sum1 += s.x;
				sum2 += s.y;
			}
			step_put(a, p, p.from + j, sum1 * r, sum2 * r, bias, old);
		}
		step_arrive(a, f);
	}
}
#endif
