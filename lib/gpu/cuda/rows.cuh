// SPDX-License-Identifier: Apache-2.0
//
// Operations on rows of activations and on flat arrays of weights.  Unless
// said otherwise a block works on a row.

extern "C" __global__ void k_embed(act *out, const void *w, const int *ids, int c, int wide)
{
	u64 from = (u64)ids[blockIdx.x] * c, to = (u64)blockIdx.x * c;

	for (int i = threadIdx.x; i < c; i += blockDim.x)
		out[to + i] = wide ? narrow<act>(((const float *)w)[from + i]) :
				     narrow<act>(widen(((const bf16 *)w)[from + i]));
}

// The block of an id's first row, in `order`, adds all of them in order; the others leave.
extern "C" __global__ void k_embed_back(float *dw, const act *dout, const int *ids,
					const int *order, int t, int c)
{
	int at = blockIdx.x, id = ids[order[at]], i = blockIdx.y * blockDim.x + threadIdx.x;
	float sum = 0;

	if (i >= c || (at > 0 && ids[order[at - 1]] == id))
		return;
	for (; at < t && ids[order[at]] == id; at++)
		sum += widen(dout[(u64)order[at] * c + i]);
	dw[(u64)id * c + i] += sum;
}

__device__ inline float inverse_rms(const act *x, int c, float eps)
{
	float sum = 0;

#pragma unroll 8
	for (int i = threadIdx.x; i < c; i += blockDim.x) {
		float v = widen(x[i]);

		sum += v * v;
	}
	return rsqrtf(block_sum(sum) / c + eps);
}

extern "C" __global__ void k_rmsnorm(act *y, const act *x, const float *w, int c, float eps)
{
	x += (u64)blockIdx.x * c;
	y += (u64)blockIdx.x * c;
	float r = inverse_rms(x, c, eps);

	for (int i = threadIdx.x; i < c; i += blockDim.x)
		y[i] = narrow<act>(widen(x[i]) * r * w[i]);
}

// dx += s (dy w - n mean(dy w n)), n = x s; keeps s for k_rmsnorm_dw.
extern "C" __global__ void k_rmsnorm_dx(act *dx, float *inv, const act *dy, const act *x,
					const float *w, int c, float eps)
{
	u64 at = (u64)blockIdx.x * c;
	float r = inverse_rms(x + at, c, eps), mean = 0;

	for (int i = threadIdx.x; i < c; i += blockDim.x)
		mean += widen(dy[at + i]) * w[i] * widen(x[at + i]) * r;
	mean = block_sum(mean) / c;
	for (int i = threadIdx.x; i < c; i += blockDim.x) {
		float d = widen(dy[at + i]) * w[i] - widen(x[at + i]) * r * mean;

		dx[at + i] = narrow<act>(widen(dx[at + i]) + r * d);
	}
	if (threadIdx.x == 0)
		inv[blockIdx.x] = r;
}

// Sums over rows in two steps: block (x: channels, y: part of the rows) into part (parts, c);
// k_add_parts adds the parts in order.  With x, terms are dy x inv (of a norm), else dy.
extern "C" __global__ void k_column_parts(float *part, const act *dy, const act *x,
					  const float *inv, int t, int c, int per)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	int from = blockIdx.y * per, to = min(t, from + per);
	float sum = 0;

	if (i >= c)
		return;
	for (int k = from; k < to; k++) {
		float d = widen(dy[(u64)k * c + i]);

		sum += x ? d * widen(x[(u64)k * c + i]) * inv[k] : d;
	}
	part[(u64)blockIdx.y * c + i] = sum;
}

extern "C" __global__ void k_add_parts(float *out, const float *part, int parts, int c)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float sum = 0;

	if (i >= c)
		return;
	for (int k = 0; k < parts; k++)
		sum += part[(u64)k * c + i];
	out[i] += sum;
}

// Before a product is added to y: sets it to the bias, and `add` if not NULL.
extern "C" __global__ void k_bias(void *y, const float *bias, u64 n, int c, const void *add,
				  int wide)
{
	u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
	float b = i < n ? bias[i % c] : 0;

	if (i >= n)
		return;
	if (wide)
		((float *)y)[i] = add ? ((const float *)add)[i] + b : b;
	else
		((act *)y)[i] = narrow<act>(add ? widen(((const act *)add)[i]) + b : b);
}

// Rows of whole quads, as models have them, are read and written as such, with one division
// for four: alone, it takes longer than the memory does.
struct alignas(4 * sizeof(act)) quad {
	act v[4];
};

__device__ inline act swiglu(act gate, act up)
{
	float x = widen(gate);

	return narrow<act>(x / (1 + __expf(-x)) * widen(up));
}

extern "C" __global__ void k_swiglu(act *out, const act *gu, u64 n, int f)
{
	u64 i = 4 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);

	if (i < n && f % 4 == 0) {
		u64 at = i + i / f * f;
		quad x = *(const quad *)(gu + at), up = *(const quad *)(gu + at + f), y;

		for (int k = 0; k < 4; k++)
			y.v[k] = swiglu(x.v[k], up.v[k]);
		*(quad *)(out + i) = y;
		return;
	}
	for (u64 end = min(i + 4, n); i < end; i++) {
		u64 at = i + i / f * f;

		out[i] = swiglu(gu[at], gu[at + f]);
	}
}

__device__ inline void swiglu_back(act *dgate, act *dup, act dout, act gate, act up)
{
	float x = widen(gate), d = widen(dout), s = 1 / (1 + __expf(-x));

	*dup = narrow<act>(d * x * s);
	*dgate = narrow<act>(d * widen(up) * s * (1 + x * (1 - s)));
}

// `out`, if not NULL, gets what k_swiglu made.
extern "C" __global__ void k_swiglu_back(act *dgu, act *out, const act *dout, const act *gu, u64 n,
					 int f)
{
	u64 i = 4 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);

	if (i < n && f % 4 == 0) {
		u64 at = i + i / f * f;
		quad x = *(const quad *)(gu + at), up = *(const quad *)(gu + at + f);
		quad d = *(const quad *)(dout + i), y, dx, dup;

		for (int k = 0; k < 4; k++) {
			y.v[k] = swiglu(x.v[k], up.v[k]);
			swiglu_back(&dx.v[k], &dup.v[k], d.v[k], x.v[k], up.v[k]);
		}
		if (out)
			*(quad *)(out + i) = y;
		*(quad *)(dgu + at) = dx;
		*(quad *)(dgu + at + f) = dup;
		return;
	}
	for (u64 end = min(i + 4, n); i < end; i++) {
		u64 at = i + i / f * f;

		if (out)
			out[i] = swiglu(gu[at], gu[at + f]);
		swiglu_back(&dgu[at], &dgu[at + f], dout[i], gu[at], gu[at + f]);
	}
}

extern "C" __global__ void k_rows(act *out, const act *x, const int *index, int c, int back)
{
	u64 far = (u64)index[blockIdx.x] * c, near = (u64)blockIdx.x * c;

	for (int i = threadIdx.x; i < c; i += blockDim.x)
		if (back)
			out[far + i] = x[near + i];
		else
			out[near + i] = x[far + i];
}

// The critic's head: y = x w + b; a block per row.
extern "C" __global__ void k_score(float *y, const act *x, const float *w, const float *b, int k)
{
	float sum = 0;

	x += (u64)blockIdx.x * k;
	for (int i = threadIdx.x; i < k; i += blockDim.x)
		sum += widen(x[i]) * w[i];
	sum = block_sum(sum);
	if (threadIdx.x == 0)
		y[blockIdx.x] = sum + (b ? b[0] : 0);
}

extern "C" __global__ void k_score_dx(act *dx, const float *dy, const float *w, int k)
{
	for (int i = threadIdx.x; i < k; i += blockDim.x)
		dx[(u64)blockIdx.x * k + i] = narrow<act>(dy[blockIdx.x] * w[i]);
}

// Thread per channel; channel k is the bias.
extern "C" __global__ void k_score_dw(float *dw, float *db, const float *dy, const act *x, int m,
				      int k)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float sum = 0;

	if (i > k)
		return;
	for (int r = 0; r < m; r++)
		sum += i < k ? dy[r] * widen(x[(u64)r * k + i]) : dy[r];
	if (i < k)
		dw[i] += sum;
	else
		db[0] += sum;
}

extern "C" __global__ void k_adamw(float *w, float *m, float *v, const float *g, bf16 *out,
				   u64 n, float lr, float b1, float b2, float eps, float decay,
				   float c1, float c2, float scale)
{
	u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	float d = g[i] * scale;
	float m1 = b1 * m[i] + (1 - b1) * d, v1 = b2 * v[i] + (1 - b2) * d * d;
	float x = w[i] - lr * decay * w[i];

	x -= lr * (m1 / c1) / (sqrtf(v1 / c2) + eps);
	m[i] = m1;
	v[i] = v1;
	w[i] = x;
	if (out)
		out[i] = narrow<bf16>(x);
}

__device__ inline double block_sum_double(double x)
{
	__shared__ double part[1024];

	part[threadIdx.x] = x;
	for (int d = blockDim.x / 2; d; d /= 2) {
		__syncthreads();
		if (threadIdx.x < d)
			part[threadIdx.x] += part[threadIdx.x + d];
	}
	__syncthreads();
	return part[0];
}

// Block b sums every gridDim.x-th run; then one block sums the parts.
extern "C" __global__ void k_sumsq(double *part, const float *x, u64 n)
{
	double sum = 0;

	for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
	     i += (u64)gridDim.x * blockDim.x)
		sum += (double)x[i] * x[i];
	sum = block_sum_double(sum);
	if (threadIdx.x == 0)
		part[blockIdx.x] = sum;
}

extern "C" __global__ void k_sum_double(double *out, const double *part, int n)
{
	double sum = 0;

	for (int i = threadIdx.x; i < n; i += blockDim.x)
		sum += part[i];
	sum = block_sum_double(sum);
	if (threadIdx.x == 0)
		*out = sum;
}
