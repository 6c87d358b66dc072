// SPDX-License-Identifier: Apache-2.0
//
// From logits to log-probabilities and tokens; a block of 1024 works on a row,
// and sampling and training sum it alike.

// Calls use(word, logit) for the words of a row from `from` on, up to `to`: a thread's in rising
// order, four after each other where rows begin at multiples of 16 bytes.
template <class F>
__device__ inline void each_word(const float *x, int from, int to, int stride, int mine, F use)
{
	int i = from + 4 * mine;

	if (((u64)(x + from) & 15) == 0) {
#pragma unroll 4
		for (; i + 3 < to; i += 4 * stride) {
			float4 f = *(const float4 *)(x + i);

			use(i, f.x);
			use(i + 1, f.y);
			use(i + 2, f.z);
			use(i + 3, f.w);
		}
	}
	for (; i < to; i += 4 * stride)
		for (int k = i; k < min(i + 4, to); k++)
			use(k, x[k]);
}

// As each_word, four at a time; -INF stands for words behind the last one.
template <class F>
__device__ inline void each_four(const float *x, int from, int to, int stride, int mine, F use)
{
	bool even = ((u64)(x + from) & 15) == 0;

#pragma unroll 4
	for (int i = from + 4 * mine; i < to; i += 4 * stride)
		use(even && i + 3 < to ? *(const float4 *)(x + i) :
		    make_float4(x[i], i + 1 < to ? x[i + 1] : -INF, i + 2 < to ? x[i + 2] : -INF,
				i + 3 < to ? x[i + 3] : -INF));
}

// A warp's run of the words of a row, whole pieces of four.
__device__ inline int run_of(int v)
{
	int warps = blockDim.x / WARP;

	return ((v + warps - 1) / warps + 3) / 4 * 4;
}

// In one pass, a warp a run; every thread gets it.  mass[w], if not NULL, becomes the sum of run w
// of exponentials less the largest, which `most` gets.
__device__ inline float log_sum(const float *x, int v, float inv_temp, float *most = nullptr,
				float *mass = nullptr)
{
	__shared__ float tops[32], sums[32];
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, run = run_of(v);
	float top = -INF, sum = 0, all;

	each_four(x, warp * run, min(v, (warp + 1) * run), WARP, lane, [&](float4 f) {
		float high = fmaxf(fmaxf(f.x, f.y), fmaxf(f.z, f.w)), less;

		if (high > top) {
			sum *= __expf((top - high) * inv_temp);
			top = high;
		}
		less = top > -INF ? top : 0;
		sum += __expf((f.x - less) * inv_temp) + __expf((f.y - less) * inv_temp) +
		       (__expf((f.z - less) * inv_temp) + __expf((f.w - less) * inv_temp));
	});
	all = warp_max(top);
	sum = warp_sum(top > -INF ? sum * __expf((top - all) * inv_temp) : 0);
	__syncthreads();
	if (lane == 0) {
		tops[warp] = all;
		sums[warp] = sum;
	}
	__syncthreads();
	bool there = lane < blockDim.x / WARP;

	all = there ? tops[lane] : -INF;
	top = warp_max(all);
	sum = there && all > -INF ? sums[lane] * __expf((all - top) * inv_temp) : 0;
	if (mass && warp == 0)
		mass[lane] = sum;
	if (most)
		*most = top;
	return top * inv_temp + logf(warp_sum(sum));
}

// Rounding may carry a logarithm of a probability past zero; a value that is none stays so.
__device__ inline float at_most_0(float x)
{
	return x > 0 ? 0 : x;
}

extern "C" __global__ void k_pick(float *lp, float *ent, float *lse, const float *logits,
				  const int *target, int v, float inv_temp)
{
	int r = blockIdx.x;
	const float *x = logits + (u64)r * v;
	float l = log_sum(x, v, inv_temp), sum = 0;

	if (ent) {
		each_word(x, 0, v, blockDim.x, threadIdx.x, [&](int, float f) {
			float z = f * inv_temp - l;

			sum += __expf(z) * z;
		});
		sum = block_sum(sum);
	}
	if (threadIdx.x)
		return;
	lse[r] = l;
	lp[r] = at_most_0(x[target[r]] * inv_temp - l);
	if (ent)
		ent[r] = -sum;
}

extern "C" __global__ void k_pick_back(act *dlogits, const float *logits, const int *target,
				       const float *lse, const float *ent, const float *dlp,
				       const float *dent, int v, float inv_temp)
{
	int r = blockIdx.x;
	float l = lse[r], g = dlp[r], e = dent ? dent[r] : 0, h = dent ? ent[r] : 0;
	u64 at = (u64)r * v;

	auto word = [&](int i, float x) {
		float z = x * inv_temp - l, d = -__expf(z) * (g + e * (z + h));

		return (i == target[r] ? d + g : d) * inv_temp;
	};
#if ACT_BF16
	if (v % 8 == 0) {
		for (int i = 8 * threadIdx.x; i < v; i += 8 * blockDim.x) {
			float x[8];

			load8(x, logits + at + i);
#pragma unroll
			for (int k = 0; k < 8; k++)
				x[k] = word(i + k, x[k]);
			store8(dlogits + at + i, x);
		}
		return;
	}
#endif
	for (int i = threadIdx.x; i < v; i += blockDim.x)
		dlogits[at + i] = narrow<act>(word(i, logits[at + i]));
}

// The first word with logit `top`; every thread gets it.
__device__ inline int first_of(const float *x, int v, float top)
{
	__shared__ int at;

	if (threadIdx.x == 0)
		at = v - 1;
	__syncthreads();
	each_word(x, 0, v, blockDim.x, threadIdx.x, [&](int i, float f) {
		if (f == top)
			atomicMin(&at, i);
	});
	__syncthreads();
	return at;
}

// Number and mass of the words with logit >= cut.
__device__ inline void above(const float *x, int v, float inv, float lse, float cut, float *count,
			     float *mass)
{
	float n = 0, p = 0;

	each_word(x, 0, v, blockDim.x, threadIdx.x, [&](int, float f) {
		if (f >= cut) {
			n += 1;
			p += __expf(f * inv - lse);
		}
	});
	*count = block_sum(n);
	*mass = block_sum(p);
}

// The highest cut with at least k words and mass p above it, by bisection of logits: what
// remains is the top_k or top_p set, with words that equal its last one.
__device__ inline float find_cut(const float *x, int v, float inv, float lse, float k, float p,
				 float high)
{
	float low = high - 200 / inv, n, m;

	for (int i = 0; i < 32; i++) {
		float mid = 0.5f * (low + high);

		above(x, v, inv, lse, mid, &n, &m);
		if (n >= k && m >= p)
			low = mid;
		else
			high = mid;
	}
	return low;
}

// The sum of x of the threads up to this one, the same for every call.
__device__ inline double sum_up_to(double x)
{
	__shared__ double part[32];
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	double before = 0;

	for (int d = 1; d < WARP; d *= 2) {
		double y = __shfl_up_sync(~0u, x, d);

		if (lane >= d)
			x += y;
	}
	__syncthreads();
	if (lane == WARP - 1)
		part[warp] = x;
	__syncthreads();
	for (int i = 0; i < warp; i++)
		before += part[i];
	return before + x;
}

// What rounding leaves over: the word at `from` or behind it, else the last one; of those that can
// be drawn, as the likeliest can.
__device__ inline int draw_on(const float *x, int v, float inv, float top, float cut, int from)
{
	auto can = [&](int i) { return x[i] >= cut && __expf((x[i] - top) * inv) > 0; };

	for (int i = from; i < v; i++)
		if (can(i))
			return i;
	for (int i = v - 1; i > 0; i--)
		if (can(i))
			return i;
	return 0;
}

// Each warp sums a run of words; then the threads divide the run in which the goal lies, and who
// has the goal looks for its word.
// Without a cut, `run` has the runs' sums already.
__device__ inline int draw(const float *x, int v, float inv, float top, float cut, float u,
			   float *run)
{
	__shared__ int answer;
	int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP, k = 0;
	int run_len = run_of(v), from = warp * run_len;
	double sum = 0, goal = 0, before = 0;

	if (cut > -INF) {
		float part = 0;

		each_word(x, from, min(v, from + run_len), WARP, lane, [&](int, float f) {
			if (f >= cut)
				part += __expf((f - top) * inv);
		});
		part = warp_sum(part);
		__syncthreads();
		if (lane == 0)
			run[warp] = part;
	}
	if (threadIdx.x == 0)
		answer = v;
	__syncthreads();
	for (int i = 0; i < warps; i++)
		goal += run[i];
	goal *= u;
	while (k < warps - 1 && before + run[k] <= goal)
		before += run[k++];
	int per = (run_len + blockDim.x - 1) / blockDim.x, end = min(v, (k + 1) * run_len);
	int mine = k * run_len + threadIdx.x * per, to = min(end, mine + per);

	for (int i = mine; i < to; i++)
		if (x[i] >= cut)
			sum += __expf((x[i] - top) * inv);
	double upto = before + sum_up_to(sum), so_far = upto - sum;

	if (upto > goal && so_far <= goal)
		for (int i = mine; i < to; i++) {
			if (x[i] < cut)
				continue;
			so_far += __expf((x[i] - top) * inv);
			if (so_far > goal) {
				atomicMin(&answer, i);
				break;
			}
		}
	__syncthreads();
	if (threadIdx.x == 0 && answer == v)
		answer = draw_on(x, v, inv, top, cut, end);
	__syncthreads();
	return answer;
}

extern "C" __global__ void k_sample(int *id, float *lp, const float *logits, const float *temp,
				    const float *top_p, const int *top_k, const float *min_p,
				    const float *u, int v)
{
	__shared__ float mass[32];
	int r = blockIdx.x, best;

	follow();
	const float *x = logits + (u64)r * v;
	float inv = temp[r] > 0 ? 1 / temp[r] : 1, top, cut = -INF, n, m;
	float l = log_sum(x, v, inv, &top, mass);

	if (temp[r] > 0) {
		if (top_k[r] > 0 && top_k[r] < v)
			cut = find_cut(x, v, inv, l, top_k[r], 0, top);
		if (top_p[r] < 1) {
			above(x, v, inv, l, cut, &n, &m);
			cut = fmaxf(cut, find_cut(x, v, inv, l, 1, top_p[r] * m, top));
		}
		if (min_p[r] > 0)
			cut = fmaxf(cut, top + logf(min_p[r]) / inv);
		best = draw(x, v, inv, top, cut, u[r], mass);
	} else {
		best = first_of(x, v, top);
	}
	if (threadIdx.x == 0) {
		id[r] = best;
		lp[r] = at_most_0(x[best] * inv - l);
	}
}
