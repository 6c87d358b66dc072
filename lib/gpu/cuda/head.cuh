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

// Words are drawn in runs: each thread sums its run, thread 0 finds the run, then the word.
__device__ inline int draw(const float *x, int v, float inv, float lse, float cut, float u)
{
	__shared__ float run[1024];
	__shared__ int answer;
	int per = (v + blockDim.x - 1) / blockDim.x;
	int from = threadIdx.x * per, to = min(v, from + per);
	float sum = 0;

	for (int i = from; i < to; i++)
		if (x[i] >= cut)
			sum += __expf(x[i] * inv - lse);
	run[threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.x == 0) {
		double all = 0, goal, so_far = 0;
		int b = 0, last = -1;

		for (int i = 0; i < blockDim.x; i++)
			all += run[i];
		goal = u * all;
		while (b < blockDim.x - 1 && so_far + run[b] <= goal)
			so_far += run[b++];
		answer = -1;
		for (int i = b * per; i < v && answer < 0; i++) {
			if (x[i] < cut)
				continue;
			last = i;
			so_far += __expf(x[i] * inv - lse);
			if (so_far > goal)
				answer = i;
		}
		for (int i = v - 1; i >= 0 && last < 0; i--)
			if (x[i] >= cut)
				last = i;
		if (answer < 0)
			answer = last;
	}
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
