// SPDX-License-Identifier: Apache-2.0
//
// From logits to log-probabilities and tokens; a block of 1024 works on a row,
// and sampling and training sum it alike.

__device__ inline float log_sum(const float *x, int v, float inv_temp)
{
	float top = -INF, sum = 0;

	for (int i = threadIdx.x; i < v; i += blockDim.x)
		top = fmaxf(top, x[i]);
	top = block_max(top);
	for (int i = threadIdx.x; i < v; i += blockDim.x)
		sum += __expf((x[i] - top) * inv_temp);
	return top * inv_temp + logf(block_sum(sum));
}

extern "C" __global__ void k_pick(float *lp, float *ent, float *lse, const float *logits,
				  const int *target, int v, float inv_temp)
{
	int r = blockIdx.x;
	const float *x = logits + (u64)r * v;
	float l = log_sum(x, v, inv_temp), sum = 0;

	if (ent) {
		for (int i = threadIdx.x; i < v; i += blockDim.x) {
			float z = x[i] * inv_temp - l;

			sum += __expf(z) * z;
		}
		sum = block_sum(sum);
	}
	if (threadIdx.x)
		return;
	lse[r] = l;
	lp[r] = x[target[r]] * inv_temp - l;
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

	for (int i = threadIdx.x; i < v; i += blockDim.x) {
		float z = logits[at + i] * inv_temp - l;
		float d = -__expf(z) * (g + e * (z + h));

		if (i == target[r])
			d += g;
		dlogits[at + i] = narrow<act>(d * inv_temp);
	}
}

// The index of the largest, the first of equals; every thread gets it.
__device__ inline int largest(const float *x, int v)
{
	__shared__ float top[1024];
	__shared__ int at[1024];
	float best = -INF;
	int where = v;

	for (int i = threadIdx.x; i < v; i += blockDim.x)
		if (x[i] > best || where == v) {
			best = x[i];
			where = i;
		}
	top[threadIdx.x] = best;
	at[threadIdx.x] = where;
	for (int d = blockDim.x / 2; d; d /= 2) {
		__syncthreads();
		int o = threadIdx.x + d;

		if (threadIdx.x < d && (top[o] > top[threadIdx.x] ||
		    (top[o] == top[threadIdx.x] && at[o] < at[threadIdx.x]))) {
			top[threadIdx.x] = top[o];
			at[threadIdx.x] = at[o];
		}
	}
	__syncthreads();
	return at[0];
}

// Number and mass of the words with logit >= cut.
__device__ inline void above(const float *x, int v, float inv, float lse, float cut, float *count,
			     float *mass)
{
	float n = 0, p = 0;

	for (int i = threadIdx.x; i < v; i += blockDim.x)
		if (x[i] >= cut) {
			n += 1;
			p += __expf(x[i] * inv - lse);
		}
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

// What rounding leaves over: the word behind the drawn run, else the last one.
__device__ inline int draw_on(const float *x, int v, float cut, int from)
{
	for (int i = from; i < v; i++)
		if (x[i] >= cut)
			return i;
	for (int i = v - 1; i > 0; i--)
		if (x[i] >= cut)
			return i;
	return 0;
}

// Words are drawn in runs: each thread sums its run; then the threads look at the words of the
// run in which the goal lies.
__device__ inline int draw(const float *x, int v, float inv, float lse, float cut, float u)
{
	__shared__ double upto[1024];
	__shared__ int run, answer;
	int per = (v + blockDim.x - 1) / blockDim.x, last = blockDim.x - 1;
	int from = threadIdx.x * per, to = min(v, from + per);
	double sum = 0, goal;

	for (int i = from; i < to; i++)
		if (x[i] >= cut)
			sum += __expf(x[i] * inv - lse);
	upto[threadIdx.x] = sum_up_to(sum);
	if (threadIdx.x == 0) {
		run = last;
		answer = v;
	}
	__syncthreads();
	goal = u * upto[last];
	if (upto[threadIdx.x] > goal)
		atomicMin(&run, (int)threadIdx.x);
	__syncthreads();
	sum = run ? upto[run - 1] : 0;
	// More than a word for each thread: one after the other.
	for (int i = run * per; i < min(v, (run + 1) * per); i += blockDim.x) {
		int mine = i + threadIdx.x;
		bool is = mine < min(v, (run + 1) * per) && x[mine] >= cut;
		double here = sum_up_to(is ? __expf(x[mine] * inv - lse) : 0);

		if (is && sum + here > goal)
			atomicMin(&answer, mine);
		__syncthreads();
		upto[threadIdx.x] = here;
		__syncthreads();
		sum += upto[last];
	}
	__syncthreads();
	if (threadIdx.x == 0 && answer == v)
		answer = draw_on(x, v, cut, min(v, (run + 1) * per));
	__syncthreads();
	return answer;
}

extern "C" __global__ void k_sample(int *id, float *lp, const float *logits, const float *temp,
				    const float *top_p, const int *top_k, const float *min_p,
				    const float *u, int v)
{
	int r = blockIdx.x, best;
	const float *x = logits + (u64)r * v;
	float inv = temp[r] > 0 ? 1 / temp[r] : 1, l = log_sum(x, v, inv), cut = -INF, n, m;

	best = largest(x, v);
	if (temp[r] > 0) {
		if (top_k[r] > 0 && top_k[r] < v)
			cut = find_cut(x, v, inv, l, top_k[r], 0, x[best]);
		if (top_p[r] < 1) {
			above(x, v, inv, l, cut, &n, &m);
			cut = fmaxf(cut, find_cut(x, v, inv, l, 1, top_p[r] * m, x[best]));
		}
		if (min_p[r] > 0)
			cut = fmaxf(cut, x[best] + logf(min_p[r]) / inv);
		best = draw(x, v, inv, l, cut, u[r]);
	}
	if (threadIdx.x == 0) {
		id[r] = best;
		lp[r] = x[best] * inv - l;
	}
}
