// SPDX-License-Identifier: Apache-2.0
//
// One token through all of a model, as when one sequence is decoded: bound by
// reading the weights, so their stream is not to stop.
//
// A block a multiprocessor, which stays.  A warp of it does nothing but ask
// for weights, which are nobody's result: what each of the others reads next
// is on its way into a ring of its own in shared memory all the time, whatever
// they wait for and into the next layers.  A warp works on a pair of rows of
// the weights at a time, or `share` warps do, each on every share-th piece.
//
// Blocks never meet.  What one computes for all lies in words that say which
// layer it is of, and whoever needs it reads until they do.  Nobody writes a
// word anew before all have read it: to be a layer further takes results of
// everybody who works on this one.
#if ACT_BF16 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#define STEP_PIECE 1024		// elements of each of two rows at a time
#define STEP_WARPS 8		// that compute
#define STEP_THREADS (STEP_WARPS * WARP)
#define STEP_SLOT  (2 * STEP_PIECE * 2)		// bytes
#define STEP_AHEAD 4		// keys that a lane asks for at once

// Lets the barrier wait for so many bytes, of this and of what is copied after it.
__device__ inline void bar_expect(u32 bar, u32 bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
		     : "memory");
}

__device__ inline bool bar_over(u32 bar, u32 parity)
{
	u32 over;

	asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; "
		     "selp.u32 %0, 1, 0, p; }" : "=r"(over) : "r"(bar), "r"(parity) : "memory");
	return over;
}

__device__ inline void copy_bulk(u32 to, const void *from, u32 bytes, u32 bar)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
		     "[%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}

// The warps that compute.
__device__ inline void step_sync()
{
	asm volatile("bar.sync 1, %0;" ::"n"(STEP_THREADS) : "memory");
}

// Words that blocks hand each other: a bf16 above, the layer's tag below; or a float and the tag.
__device__ inline uint2 ask2(const u32 *p)
{
	uint2 v;

	asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1}, [%2];"
		     : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
	return v;
}

__device__ inline uint4 ask4(const u32 *p)
{
	uint4 v;

	asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
	return v;
}

__device__ inline void tell(u32 *p, u32 v)
{
	asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

__device__ inline void tell2(u32 *p, u32 v, u32 w)
{
	asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(v), "r"(w)
		     : "memory");
}

__device__ inline u32 tagged(float x, u32 tag) { return (u32)bf16_bits(x) << 16 | (tag & 0xffff); }
__device__ inline float told(u32 word) { return __uint_as_float(word & 0xffff0000); }

// Whether all of them are of this layer.
__device__ inline bool all_of(const uint2 &v, u32 tag)
{
	return !(((v.x ^ tag) | (v.y ^ tag)) & 0xffff);
}

__device__ inline bool all_of(const uint4 &v, u32 tag)
{
	return !(((v.x ^ tag) | (v.y ^ tag) | (v.z ^ tag) | (v.w ^ tag)) & 0xffff);
}

// A float with its tag, in one piece.
struct step_word {
	float x;
	u32 tag;
};

__device__ inline void ask_words(step_word &a, step_word &b, const u64 *p)
{
	u64 v, w;

	asm volatile("ld.relaxed.gpu.global.v2.b64 {%0,%1}, [%2];"
		     : "=l"(v), "=l"(w) : "l"(p) : "memory");
	a = { __uint_as_float((u32)v), (u32)(v >> 32) };
	b = { __uint_as_float((u32)w), (u32)(w >> 32) };
}

__device__ inline void tell_word(u64 *p, float x, u32 tag)
{
	asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(p),
		     "l"((u64)tag << 32 | __float_as_uint(x)) : "memory");
}

// What does not change during a step: where layers lie, the token and how many keys it has, in
// how many parts.
struct step_fixed {
	const step_layer *layer;
	const float *table;		// of its position
	int id, slot, len, parts;
	u32 before;			// tag of what was there before layer 0
};

// This block's and this warp's part of product i: four a layer, then the head.
struct step_part {
	int kind, n, k, share, from, pairs, turns, steps, start, stride;

	__device__ inline void begin(const step &a, int i, int warp)
	{
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

// What a warp's ring is filled with, in the order of all products.
struct step_ring {
	step_part next;
	const bf16 *one, *two;
	int warp, product, turn, done, at;

	__device__ inline bool over() const { return turn == next.turns; }
	__device__ inline void begin(const step &a, int i)
	{
		product = i;
		next.begin(a, i, warp);
		turn = done = 0;
	}
	// The next pair, if there is one.
	__device__ inline void seek(const step &a, const step_fixed &f)
	{
		int r1, r2;

		while (over() && product < 4 * a.layers)
			begin(a, product + 1);
		if (over())
			return;
		const bf16 *w = (const bf16 *)(next.kind == 4 ? a.head :
					       f.layer[product / 4].w[next.kind]);

		next.row(next.from + ((turn * STEP_WARPS + warp) >> next.share), &r1, &r2);
		one = w + (u64)r1 * next.k;
		two = r2 < next.n ? w + (u64)r2 * next.k : one;
		at = next.start;
	}
	__device__ inline void fetch(const step &a, const step_fixed &f, u32 to, u32 bar)
	{
		u32 bytes = min(STEP_PIECE, next.k - at) * 2;

		bar_expect(bar, 2 * bytes);
		copy_bulk(to, one + at, bytes, bar);
		copy_bulk(to + STEP_SLOT / 2, two + at, bytes, bar);
		at += next.stride;
		if (++done < next.steps)
			return;
		done = 0;
		turn++;
		seek(a, f);
	}
};

// A lane fills the ring of one warp, which says in `used` how many pieces it is done with.  At
// most `window` pieces are on their way: more would only wait in front of what blocks tell.
__device__ inline void step_feed(const step &a, const step_fixed &f, u32 data, u32 bars,
				 const u32 *used)
{
	int warp = threadIdx.x % WARP, slot = 0, old = 0;
	u32 asked = 0, parity = 0;
	step_ring ring;

	if (warp >= STEP_WARPS)
		return;
	data += warp * a.slots * STEP_SLOT;
	bars += warp * a.slots * 8;
	ring.warp = warp;
	ring.begin(a, 0);
	ring.seek(a, f);
#pragma unroll 1
	while (!ring.over()) {
		u32 done;

		asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];"
			     : "=r"(done) : "r"(shared_at(used + warp)) : "memory");
		if (asked - done >= (u32)a.slots)
			continue;
		if (asked >= (u32)a.window) {
			if (!bar_over(bars + old * 8, parity))
				continue;
			if (++old == a.slots) {
				old = 0;
				parity ^= 1;
			}
		}
		ring.fetch(a, f, data + slot * STEP_SLOT, bars + slot * 8);
		asked++;
		slot = slot + 1 == a.slots ? 0 : slot + 1;
	}
}

// Eight elements of what attention leaves, out of parts of the keys; the words of a part: sums,
// then their largest exponent and how much they weigh.
__device__ inline void step_merge(float (&v)[8], const step &a, int parts, int i, u32 tag)
{
	const u64 *from = a.told.att + (u64)(i / a.dim * parts) * (a.dim + 2);
	float top = -INF, all = 0;

#pragma unroll
	for (int k = 0; k < 8; k++)
		v[k] = 0;
	// Two at a time are on their way.
#pragma unroll 1
	for (int part = 0; part < parts; part += 2) {
		step_word w[2][8], s[2][2];
		bool there;
		float was = top;

		do {
			there = true;
#pragma unroll
			for (int j = 0; j < 2; j++) {
				const u64 *p = from + min(part + j, parts - 1) * (a.dim + 2);

#pragma unroll
				for (int k = 0; k < 8; k += 2)
					ask_words(w[j][k], w[j][k + 1], p + i % a.dim + k);
				ask_words(s[j][0], s[j][1], p + a.dim);
			}
#pragma unroll
			for (int j = 0; j < 2; j++) {
				there &= s[j][0].tag == tag && s[j][1].tag == tag;
#pragma unroll
				for (int k = 0; k < 8; k++)
					there &= w[j][k].tag == tag;
			}
		} while (!there);
		top = fmaxf(top, fmaxf(s[0][0].x, s[1][0].x));
		was = exp2f(was - top);
		all *= was;
#pragma unroll
		for (int k = 0; k < 8; k++)
			v[k] *= was;
#pragma unroll
		for (int j = 0; j < 2; j++) {
			float share = part + j < parts ? exp2f(s[j][0].x - top) : 0;

			all += share * s[j][1].x;
#pragma unroll
			for (int k = 0; k < 8; k++)
				v[k] += share * w[j][k].x;
		}
	}
#pragma unroll
	for (int k = 0; k < 8; k++)
		v[k] = widen(narrow<act>(v[k] / all));
}

// Eight elements of the row into shared memory, times the norm's weights; their squares.
__device__ inline float step_store(float *to, float (&v)[8], const float *norm, int at,
				   const float (&first)[8])
{
	float square = 0;

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
	return square;
}

// The row that a product takes, out of words, as soon as they are there.
__device__ inline float step_words(float *to, const u32 *words, u32 tag, int k, const float *norm,
				   const float (&first)[8])
{
	constexpr int STRIDE = STEP_THREADS * 8, AT_ONCE = 4;
	float square = 0;

#pragma unroll 1
	for (int from = threadIdx.x * 8; from < k; from += AT_ONCE * STRIDE) {
		uint4 w[AT_ONCE][2];
		bool there;

		// Not all of them again and again.
		do {
			w[0][0] = ask4(words + from);
			w[0][1] = ask4(words + from + 4);
		} while (!all_of(w[0][0], tag) || !all_of(w[0][1], tag));
		there = from + STRIDE >= k;
		while (!there) {
			there = true;
#pragma unroll
			for (int u = 1; u < AT_ONCE; u++) {
				const u32 *p = words + min(from + u * STRIDE, k - 8);

				w[u][0] = ask4(p);
				w[u][1] = ask4(p + 4);
			}
#pragma unroll
			for (int u = 1; u < AT_ONCE; u++)
				there &= all_of(w[u][0], tag) && all_of(w[u][1], tag);
		}
#pragma unroll
		for (int u = 0; u < AT_ONCE; u++) {
			float v[8] = { told(w[u][0].x), told(w[u][0].y), told(w[u][0].z),
				       told(w[u][0].w), told(w[u][1].x), told(w[u][1].y),
				       told(w[u][1].z), told(w[u][1].w) };

			if (from + u * STRIDE < k)
				square += step_store(to, v, norm, from + u * STRIDE, first);
		}
	}
	return square;
}

// The row that product i takes; the sum of squares of this thread's.
__device__ inline float step_load(float *to, const step &a, const step_fixed &f, int i,
				  const step_part &p, const float *norm, const float (&first)[8])
{
	u32 tag = f.before + 1 + i / 4;
	float square = 0;

	if (i > 0 && p.kind != 1)
		return step_words(to, p.kind == 2 ? a.told.mid : p.kind == 3 ? a.told.act :
				  a.told.x, tag - (p.kind == 0 || p.kind == 4), p.k, norm, first);
#pragma unroll 1
	for (int at = threadIdx.x * 8; at < p.k; at += STEP_THREADS * 8) {
		float v[8];

		if (i)
			step_merge(v, a, f.parts, at, tag);
		else
			load8(v, a.embed + (u64)f.id * p.k + at);
		square += step_store(to, v, norm, at, first);
	}
	return square;
}

// Sums of pair q; `old` is what is there of a row that is added to.
__device__ inline void step_put(const step &a, const step_part &p, int q, float x, float y,
				float2 bias, float2 old, u32 tag)
{
	int one, two;

	p.row(q, &one, &two);
	if (p.kind == 4) {
		a.logits[one] = x;
		if (two < p.n)
			a.logits[two] = y;
		return;
	}
	x += bias.x + old.x;
	y += bias.y + old.y;
	if (p.kind == 2) {
		x = widen(narrow<act>(x));
		y = widen(narrow<act>(y));
		tell(a.told.act + q, tagged(x / (1 + __expf(-x)) * y, tag));
	} else {
		tell2((p.kind == 0 ? a.told.qkv : p.kind == 1 ? a.told.mid : a.told.x) + one,
		      tagged(x, tag), tagged(y, tag));
	}
}

// Norm and rotation of one head by a warp, rounded; a lane has two elements of either half.
template <int D>
__device__ inline void step_turn(float *to, const step &a, const step_fixed &f, const u32 *in,
				 u32 tag, const float *norm)
{
	int half = D / 2, j = threadIdx.x % WARP * 2, at = min(j, half - 2);
	uint2 low, high;

	do {
		low = ask2(in + at);
		high = ask2(in + half + at);
	} while (!all_of(low, tag) || !all_of(high, tag));
	float in_it = j < half ? 1 : 0;
	float x[2] = { in_it * told(low.x), in_it * told(low.y) };
	float y[2] = { in_it * told(high.x), in_it * told(high.y) };
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
				   step_keys<D> &s, int unit, u32 tag, float *x)
{
	constexpr int LANES = step_keys<D>::LANES;
	float *q = x, *key = q + D, *value = key + D, *sums = value + D;
	float2 *stats = (float2 *)(sums + STEP_WARPS * D);
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, mine = lane % LANES * 8;
	bool last = s.part == f.parts - 1, writes = s.head % (a.heads / a.kv_heads) == 0;
	u64 own = ((u64)f.slot * a.kv_heads + s.kv) * D;
	float m = -INF, sum = 0, o[8] = {}, qs[8];

	if (warp == 0) {
		step_turn<D>(q, a, f, a.told.qkv + s.head * D, tag, w.qn);
	} else if (warp == 1 && last) {
		step_turn<D>(key, a, f, a.told.qkv + (a.heads + s.kv) * D, tag, w.kn);
		__syncwarp();
#pragma unroll
		for (int j = lane; j < D; j += WARP)
			if (writes)
				((act *)w.k)[own + j] = narrow<act>(key[j]);
	} else if (warp == 2 && last) {
		const u32 *in = a.told.qkv + (a.heads + a.kv_heads + s.kv) * D;

#pragma unroll
		for (int j = lane * 2; j < D; j += 2 * WARP) {
			uint2 two;

			do
				two = ask2(in + j);
			while (!all_of(two, tag));
			value[j] = told(two.x);
			value[j + 1] = told(two.y);
			if (writes)
				*(u32 *)((act *)w.v + own + j) = two.x >> 16 | (two.y & 0xffff0000);
		}
	}
	step_sync();
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
	step_sync();
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
		u64 *to = a.told.att + (u64)unit * (D + 2);

		tell_word(to + j, out, tag);
		if (j < 2)
			tell_word(to + D + j, j ? all : high, tag);
	}
}

// This block's heads and parts, if it has any.
template <int D>
__device__ inline void step_attention(const step &a, const step_fixed &f, int layer, float *x)
{
	const step_layer &l = f.layer[layer];
	int units = a.heads * f.parts;
	step_keys<D> s;

#pragma unroll 1
	for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
		s.at(a, f, unit);
		s.ask(a, l, s.from);
		step_attend(a, f, l, s, unit, f.before + 1 + layer, x);
		step_sync();
	}
}

// A warp's end of its ring.
struct step_source {
	const char *data;
	u32 bars, used, done;
	int slot;
	u32 parity;

	__device__ inline void next(int slots)
	{
		__syncwarp();
		done++;
		if (threadIdx.x % WARP == 0)
			asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(used),
				     "r"(done) : "memory");
		if (++slot == slots) {
			slot = 0;
			parity ^= 1;
		}
	}
};

// One product of this block's pairs; sums by turn and warp.
__device__ inline void step_multiply(const step &a, const step_part &p, step_source &in,
				     const float *x, float2 *sums)
{
	int lane = threadIdx.x % WARP;

#pragma unroll 1
	for (int t = 0; t < p.turns; t++) {
		float one[2] = {}, two[2] = {};
		int at = p.start + lane * 8;

#pragma unroll 1
		for (int s = 0; s < p.steps; s++, at += p.stride) {
			const char *piece = in.data + in.slot * STEP_SLOT + lane * 16;
			const float *part = x + at - lane * 4;

			bar_wait(in.bars + in.slot * 8, in.parity);
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
			in.next(a.slots);
		}
		float sum1 = warp_sum(one[0] + one[1]), sum2 = warp_sum(two[0] + two[1]);

		if (lane == 0)
			sums[t * STEP_WARPS + threadIdx.x / WARP] = make_float2(sum1, sum2);
	}
}

// All products, by the warps that compute.
__device__ inline void step_compute(const step &a, const step_fixed &f, step_source &in, float *x,
				    float2 *sums)
{
	__shared__ float squares[2][STEP_WARPS];
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	step_part p;

#pragma unroll 1
	for (int i = 0; i <= 4 * a.layers; i++) {
		p.begin(a, i, warp);
		const step_layer &l = f.layer[min(i / 4, a.layers - 1)];
		const float *norm = p.kind == 4 ? a.norm : p.kind == 0 ? l.norm[0] :
				    p.kind == 2 ? l.norm[1] : nullptr;
		const float *bias = p.kind == 4 ? nullptr : l.bias[p.kind];
		float first[8] = {}, square, r = 1;
		float2 offset = {}, old = {};
		u32 tag = f.before + 1 + i / 4;
		int one, two, mine = p.from + min((int)threadIdx.x, p.pairs - 1);

		if (norm && threadIdx.x * 8 < p.k)
			load8(first, norm + threadIdx.x * 8);
		if (p.kind == 1) {
			if (a.dim == 64)
				step_attention<64>(a, f, i / 4, x);
			else
				step_attention<128>(a, f, i / 4, x);
		}
		// Nobody waits for it, so that it may not wait for others either.
		if (!p.pairs)
			continue;
		p.row(mine, &one, &two);
		if (bias)
			offset = make_float2(bias[one], bias[two]);
		if (i == 1) {
			const act *e = a.embed + (u64)f.id * a.hidden;

			old = make_float2(widen(e[one]), widen(e[two]));
		} else if (p.kind == 1 || p.kind == 3) {
			const u32 *from = (p.kind == 1 ? a.told.x : a.told.mid) + one;
			uint2 words;

			do
				words = ask2(from);
			while (!all_of(words, tag - (p.kind == 1)));
			old = make_float2(told(words.x), told(words.y));
		}
		square = step_load(x, a, f, i, p, norm, first);
		if (norm) {
			square = warp_sum(square);
			if (lane == 0)
				squares[i & 1][warp] = square;
		}
		step_sync();
		step_multiply(a, p, in, x, sums);
		step_sync();
		if (norm) {
			square = 0;
#pragma unroll
			for (int k = 0; k < STEP_WARPS; k++)
				square += squares[i & 1][k];
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
			if (bias && j >= STEP_THREADS) {
				p.row(p.from + j, &one, &two);
				offset = make_float2(bias[one], bias[two]);
			}
			step_put(a, p, p.from + j, sum1 * r, sum2 * r, offset, old, tag);
		}
	}
}

extern "C" __global__ void __launch_bounds__(STEP_THREADS + WARP, 1)
	k_step(const __grid_constant__ step a)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ u32 used[STEP_WARPS];
	int warp = threadIdx.x / WARP;
	u32 bars = shared_at(shared) + STEP_WARPS * a.slots * STEP_SLOT;
	float *x = (float *)(shared + STEP_WARPS * a.slots * (STEP_SLOT + 8));
	u64 *layers = (u64 *)(x + a.row);
	float *table = (float *)(layers + a.layers * (sizeof(step_layer) / 8));
	float2 *sums = (float2 *)(table + a.dim);
	step_fixed f = { (const step_layer *)layers, table, a.ids[0], a.slot[0], a.len[0], 0,
			 a.met[blockIdx.x] };
	const float *here = a.table + (u64)a.pos[0] * a.dim;

	f.parts = max(1, min((f.len + 127) / 128, min((int)gridDim.x / a.heads, STEP_PARTS)));
#pragma unroll 1
	for (int i = threadIdx.x; i < a.layers * (sizeof(step_layer) / 8);
	     i += STEP_THREADS + WARP)
		layers[i] = ((const u64 *)a.layer)[i];
#pragma unroll 1
	for (int i = threadIdx.x; i < a.dim; i += STEP_THREADS + WARP)
		table[i] = here[i];
	if (threadIdx.x < STEP_WARPS)
		used[threadIdx.x] = 0;
#pragma unroll 1
	for (int i = threadIdx.x; i < STEP_WARPS * a.slots; i += STEP_THREADS + WARP)
		bar_init(bars + i * 8, 1);
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	__syncthreads();
	if (warp == STEP_WARPS) {
		step_feed(a, f, shared_at(shared), bars, used);
		return;
	}
	step_source in = { shared + warp * a.slots * STEP_SLOT, bars + warp * a.slots * 8,
			   shared_at(used + warp), 0, 0, 0 };

	step_compute(a, f, in, x, sums);
	if (threadIdx.x == 0)
		a.met[blockIdx.x] = f.before + a.layers;
}
#endif
