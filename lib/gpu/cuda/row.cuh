// SPDX-License-Identifier: Apache-2.0
//
// Products of one row, as of decoding by itself: bound by reading the weights.
//
// A block a multiprocessor.  Its warps go over pairs of columns, and each has
// what it will read next on its way into a ring of its own in shared memory,
// where a lane reads only what it asked for itself.  The rings are filled
// while the kernels in front are at work (weights are nobody's result), so
// memory is busy while the row is waited for.  Two of these kernels fit on a
// multiprocessor.
#if ACT_BF16
#define ROW_WARPS 16
#define ROW_PIECE (2 * WARP * 8)	// elements of each of the two columns at a time
#define ROW_SLOT  (2 * ROW_PIECE * 2)	// bytes

// x (K), fp32, in shared memory: of 256 elements the first halves of the lanes' eights come first.
__device__ inline int row_at(int i) { return (i & ~255) + (i & 4) * 32 + (i >> 3 & 31) * 4; }

// The pair q of columns.
__device__ inline void row_pair(const row_product &a, int q, int *one, int *two)
{
	int half = a.rope ? a.r.dim / 2 : 1;

	if (a.p.gated) {
		*one = q;
		*two = a.p.n / 2 + q;
	} else {
		*one = q / half * 2 * half + q % half;
		*two = *one + half;
	}
}

// Sums of a pair, with everything that follows the product.
__device__ inline void row_put(const row_product &a, int q, float x, float y)
{
	const product &p = a.p;
	int one, two;

	row_pair(a, q, &one, &two);
	if (!p.gated && !a.rope) {
		put(p, 0, one, x);
		if (two < p.n)
			put(p, 0, two, y);
		return;
	}
	x = widen(narrow<act>(x + (p.bias ? p.bias[one] : 0)));
	y = widen(narrow<act>(y + (p.bias ? p.bias[two] : 0)));
	if (p.gated) {
		((act *)p.y)[q] = narrow<act>(x / (1 + __expf(-x)) * y);
		return;
	}
	const rotation &r = a.r;
	int h = one / r.dim, j = one % r.dim, kv = h - r.heads, half = r.dim / 2;
	act *out = kv < 0 ? r.q + one :
		   (kv < r.kv_heads ? r.k : r.v) +
			   ((u64)r.slot[0] * r.kv_heads + kv % r.kv_heads) * r.dim + j;
	const float *table = r.table + (u64)r.pos[0] * r.dim + j;
	bool turned = kv < r.kv_heads;
	float c = turned ? table[0] : 1, s = turned ? table[half] : 0;

	// Not times 0 and 1: an infinity in v is to leave its partner alone.
	out[0] = narrow<act>(turned ? x * c - y * s : x);
	out[half] = narrow<act>(turned ? y * c + x * s : y);
}

// The row into shared memory, times the norm's weights; the sum of the squares of this thread's.
__device__ inline float row_load(float *to, const product &p)
{
	float square = 0;

	for (int i = threadIdx.x * 8; i < p.k; i += ROW_WARPS * WARP * 8) {
		float v[8];

		unpack(v, load_fresh(p.x + i));
		if (p.norm) {
#pragma unroll
			for (int k = 0; k < 8; k++) {
				square += v[k] * v[k];
				v[k] *= p.norm[i + k];
			}
		}
		*(float4 *)(to + row_at(i)) = make_float4(v[0], v[1], v[2], v[3]);
		*(float4 *)(to + row_at(i + 4)) = make_float4(v[4], v[5], v[6], v[7]);
	}
	return square;
}

// `share` warps work on a pair, each on every share-th piece.
template <int SLOTS> __device__ inline void gemv_row(const row_product &a)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ float squares[ROW_WARPS];
	const product &p = a.p;
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, slice = warp % a.share;
	int groups = ROW_WARPS / a.share, pairs = (p.n + 1) / 2, stride = groups * gridDim.x;
	int turns = (pairs + stride - 1) / stride, pieces = (p.k + ROW_PIECE - 1) / ROW_PIECE;
	int steps = (pieces + a.share - 1) / a.share, next = 0, slot = 0;
	int pair = warp / a.share * gridDim.x + blockIdx.x;	// of the next piece
	char *ring = shared + (warp * SLOTS * ROW_SLOT + lane * 16);
	float *x = (float *)(shared + ROW_WARPS * SLOTS * ROW_SLOT);
	float *sums = x + pieces * ROW_PIECE;
	const bf16 *w1 = nullptr, *w2 = nullptr;
	bool second = false;
	auto fetch = [&](int to) {
		int at = (next * a.share + slice) * ROW_PIECE + lane * 8;

		if (next == 0 && pair < pairs) {
			int one, two;

			row_pair(a, pair, &one, &two);
			second = two < p.n;
			w1 = (const bf16 *)p.w + (u64)one * p.k;
			w2 = second ? (const bf16 *)p.w + (u64)two * p.k : w1;
		}
#pragma unroll
		for (int u = 0; u < 2; u++, at += WARP * 8) {
			bool there = pair < pairs && at < p.k;

			if (there) {
				copy16(ring + to * ROW_SLOT + u * 1024, w1 + at, true);
				copy16(ring + to * ROW_SLOT + u * 1024 + 512, w2 + at, true);
			}
		}
		copy_commit();
		if (++next == steps) {
			next = 0;
			pair += stride;
		}
	};

#pragma unroll
	for (int i = 0; i < SLOTS; i++)
		fetch(i);
	follow();
	float square = row_load(x, p);

	if (p.norm) {
		square = warp_sum(square);
		if (lane == 0)
			squares[warp] = square;
	}
	__syncthreads();
	for (int t = 0; t < turns; t++) {
		float sum1 = 0, sum2 = 0;

		for (int s = 0; s < steps; s++) {
			const char *piece = ring + slot * ROW_SLOT;
			int at = (s * a.share + slice) * ROW_PIECE;

			copy_wait<SLOTS - 1>();
			asm volatile("" ::: "memory");
#pragma unroll
			for (int u = 0; u < 2; u++, at += WARP * 8) {
				// Behind the row's end is what was there before.
				if (at + lane * 8 >= p.k)
					continue;
				float4 low = *(const float4 *)(x + at + lane * 4);
				float4 high = *(const float4 *)(x + at + 128 + lane * 4);
				float v[8], f[8] = { low.x, low.y, low.z, low.w,
						     high.x, high.y, high.z, high.w };

				unpack(v, *(const eight *)(piece + u * 1024));
#pragma unroll
				for (int k = 0; k < 8; k++)
					sum1 += v[k] * f[k];
				unpack(v, *(const eight *)(piece + u * 1024 + 512));
#pragma unroll
				for (int k = 0; k < 8; k++)
					sum2 += v[k] * f[k];
			}
			asm volatile("" : "+f"(sum1), "+f"(sum2)::"memory");
			fetch(slot);
			slot = slot + 1 == SLOTS ? 0 : slot + 1;
		}
		sum1 = warp_sum(sum1);
		sum2 = warp_sum(sum2);
		if (lane == 0)
			*(float2 *)(sums + 2 * (t * ROW_WARPS + warp)) = make_float2(sum1, sum2);
	}
	__syncthreads();
	float r = 1;

	if (p.norm) {
		square = 0;
		for (int i = 0; i < ROW_WARPS; i++)
			square += squares[i];
		r = rsqrtf(square / p.k + p.eps);
	}
	for (int i = threadIdx.x; i < turns * groups; i += ROW_WARPS * WARP) {
		int q = i * gridDim.x + blockIdx.x;
		float one = 0, two = 0;

		if (q >= pairs)
			break;
		for (int k = 0; k < a.share; k++) {
			one += sums[2 * (i * a.share + k)];
			two += sums[2 * (i * a.share + k) + 1];
		}
		row_put(a, q, one * r, two * r);
	}
}

#define GEMV_ROW(slots) \
	extern "C" __global__ void __launch_bounds__(ROW_WARPS * WARP, 2) \
		k_gemv_row_##slots(const __grid_constant__ row_product a) \
	{ \
		gemv_row<slots>(a); \
	}
GEMV_ROW(2)
GEMV_ROW(3)
#endif
