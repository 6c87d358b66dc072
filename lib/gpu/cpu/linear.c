/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products.  y = x w^T reads rows of both along k, so an element is a
 * dot product: 16 partial sums in steps of 32, then their sum, then the rest.
 * The tiles below only decide which of them are computed together, never how
 * one is summed.  BLAS would not promise that: its order depends on the
 * number of rows, and a token would get another log-probability in a prompt
 * than it had when it was sampled.
 */
#include "gpu/cpu/level.h"
#include "gpu/cpu/vec.h"

#define BLOCK 64		/* columns of one task */
#define SMALL 65536		/* products not worth a second thread */

struct job {
	float *y;
	const float *x;
	const char *w;		/* float or bf16 */
	const float *bias, *add;
	int m, n, k, bf16;
};

#define STEP 32			/* elements along k at once: two vectors */

/* Elements at to at + STEP.  Of bf16, which lie two to a word, `e` has the
 * even ones and `o` the odd ones; of fp32, the first and the second half. */
INLINE void load_w(vec *e, vec *o, const char *w, size_t at, int bf16)
{
	const float *f = (const float *)(const void *)w + at;
	uvec u, v;

	if (!bf16) {
		vec_load(e, f);
		vec_load(o, f + LANES);
		return;
	}
	memcpy(&u, (const uint16_t *)(const void *)w + at, sizeof u);
	v = u << 16;
	memcpy(e, &v, sizeof v);
	v = u & 0xffff0000;
	memcpy(o, &v, sizeof v);
}

/* The activations that go with them. */
INLINE void load_x(vec *e, vec *o, const float *x, int bf16)
{
	vec a, b;

	vec_load(&a, x);
	vec_load(&b, x + LANES);
	*e = a;
	*o = b;
	if (!bf16)
		return;
	*e = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18,
				     20, 22, 24, 26, 28, 30);
	*o = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19,
				     21, 23, 25, 27, 29, 31);
}

INLINE float one_w(const char *w, size_t at, int bf16)
{
	if (bf16)
		return bf16_float(((const uint16_t *)(const void *)w)[at]);
	return ((const float *)(const void *)w)[at];
}

INLINE void put(const struct job *j, int row, int col, float sum)
{
	size_t at = (size_t)row * (size_t)j->n + (size_t)col;

	if (j->bias)
		sum += j->bias[col];
	j->y[at] = j->add ? j->add[at] + sum : sum;
}

/* What is left of a dot product behind its whole vectors. */
INLINE float rest(const struct job *j, int row, int col, int bf16)
{
	size_t k = (size_t)j->k;
	const float *x = j->x + (size_t)row * k;
	float sum = 0;

	for (size_t i = k / STEP * STEP; i < k; i++)
		sum += x[i] * one_w(j->w, (size_t)col * k + i, bf16);
	return sum;
}

#define PUT(r, c) \
	put(j, row + r, col + c, \
	    vec_sum(&s##r##c) + rest(j, row + r, col + c, bf16))
#define FOUR(macro, r) macro(r, 0); macro(r, 1); macro(r, 2); macro(r, 3)
#define ADD(r, c) \
	s##r##c += a##r * b##c; \
	s##r##c += o##r * p##c
#define LOAD_W(c) load_w(&b##c, &p##c, j->w, w + c * k + i, bf16)
#define LOAD_X(r) load_x(&a##r, &o##r, x + r * k + i, bf16)

/* Four rows, four columns.  Spelt out, since compilers keep arrays of
 * vectors in memory. */
INLINE void tile_4x4(const struct job *j, int row, int col, int bf16)
{
	size_t k = (size_t)j->k, w = (size_t)col * k;
	const float *x = j->x + (size_t)row * k;
	vec s00 = { 0 }, s01 = { 0 }, s02 = { 0 }, s03 = { 0 };
	vec s10 = { 0 }, s11 = { 0 }, s12 = { 0 }, s13 = { 0 };
	vec s20 = { 0 }, s21 = { 0 }, s22 = { 0 }, s23 = { 0 };
	vec s30 = { 0 }, s31 = { 0 }, s32 = { 0 }, s33 = { 0 };
	vec a0, a1, a2, a3, b0, b1, b2, b3;
	vec o0, o1, o2, o3, p0, p1, p2, p3;

	for (size_t i = 0; i + STEP <= k; i += STEP) {
		LOAD_W(0);
		LOAD_W(1);
		LOAD_W(2);
		LOAD_W(3);
		LOAD_X(0);
		FOUR(ADD, 0);
		LOAD_X(1);
		FOUR(ADD, 1);
		LOAD_X(2);
		FOUR(ADD, 2);
		LOAD_X(3);
		FOUR(ADD, 3);
	}
	FOUR(PUT, 0);
	FOUR(PUT, 1);
	FOUR(PUT, 2);
	FOUR(PUT, 3);
}

/* One row waits for memory: what the next columns need is asked for early,
 * since rows of weights are too short for the hardware to see a pattern. */
INLINE void tile_1x4(const struct job *j, int row, int col, int bf16)
{
	size_t k = (size_t)j->k, w = (size_t)col * k, size = bf16 ? 2 : 4;
	const char *soon = j->w + (w + 4 * k) * size;
	const float *x = j->x + (size_t)row * k;
	vec s00 = { 0 }, s01 = { 0 }, s02 = { 0 }, s03 = { 0 };
	vec a0, b0, b1, b2, b3, o0, p0, p1, p2, p3;

	for (size_t i = 0; i + STEP <= k; i += STEP) {
		for (size_t b = 0; b < 4 * STEP * size; b += 64)
			__builtin_prefetch(soon + 4 * i * size + b);
		LOAD_X(0);
		LOAD_W(0);
		LOAD_W(1);
		LOAD_W(2);
		LOAD_W(3);
		FOUR(ADD, 0);
	}
	FOUR(PUT, 0);
}

INLINE void tile_1x1(const struct job *j, int row, int col, int bf16)
{
	size_t k = (size_t)j->k, w = (size_t)col * k;
	const float *x = j->x + (size_t)row * k;
	vec s00 = { 0 }, a0, b0, o0, p0;

	for (size_t i = 0; i + STEP <= k; i += STEP) {
		LOAD_X(0);
		LOAD_W(0);
		ADD(0, 0);
	}
	PUT(0, 0);
}

INLINE void block(const struct job *j, int first, int end, int bf16)
{
	int row = 0, col;

	for (; row + 4 <= j->m; row += 4)
		for (col = first; col + 4 <= end; col += 4)
			tile_4x4(j, row, col, bf16);
	for (; row < j->m; row++)
		for (col = first; col + 4 <= end; col += 4)
			tile_1x4(j, row, col, bf16);
	for (row = 0; row < j->m; row++)
		for (col = end - (end - first) % 4; col < end; col++)
			tile_1x1(j, row, col, bf16);
}

static void run(const struct job *j)
{
	int blocks = (j->n + BLOCK - 1) / BLOCK;
	double work = (double)j->m * j->n * j->k;

#pragma omp parallel for schedule(static) if (work > SMALL)
	for (int i = 0; i < blocks; i++) {
		int col = i * BLOCK;
		int end = col + BLOCK < j->n ? col + BLOCK : j->n;

		if (j->bf16)
			block(j, col, end, 1);
		else
			block(j, col, end, 0);
	}
}

void CPU_OP(linear)(struct gpu *g, const struct gpu_linear *a)
{
	const struct job j = {
		a->y, a->norm ? a->normed : a->x, a->w, a->bias, a->add,
		a->m, a->n, a->k, a->wtype == GPU_BF16
	};

	if (a->norm)
		CPU_OP(rmsnorm)(g, &(struct gpu_rmsnorm){
			a->normed, a->x, a->norm, a->m, a->k, a->eps });
	run(&j);
	if (a->act)
		CPU_OP(swiglu)(g, &(struct gpu_swiglu){
			a->act, a->y, a->m, a->n / 2 });
	if (a->rope)
		CPU_OP(rope)(g, a->rope);
}

/* out (n, m) = in (m, n)^T. */
static void transpose(float *out, const float *in, int m, int n)
{
#pragma omp parallel for schedule(static) if ((double)m * n > SMALL)
	for (int j0 = 0; j0 < n; j0 += 16)
		for (int i0 = 0; i0 < m; i0 += 16)
			for (int j = j0; j < n && j < j0 + 16; j++)
				for (int i = i0; i < m && i < i0 + 16; i++)
					out[(size_t)j * (size_t)m + (size_t)i] =
						in[(size_t)i * (size_t)n +
						   (size_t)j];
}

static void bias_back(float *db, const float *dy, int m, int n)
{
#pragma omp parallel for schedule(static) if ((double)m * n > SMALL)
	for (int j = 0; j < n; j++) {
		float sum = 0;

		for (int i = 0; i < m; i++)
			sum += dy[(size_t)i * (size_t)n + (size_t)j];
		db[j] += sum;
	}
}

void CPU_OP(linear_back)(struct gpu *g, const struct gpu_linear_back *a)
{
	float *work = g->work, *xt = work + (size_t)a->m * (size_t)a->n;
	struct job dx = { a->dx, a->dy, g->work, NULL, NULL, a->m, a->k,
			  a->n, 0 };
	struct job dw = { a->dw, work, (const char *)xt, NULL, a->dw, a->n,
			  a->k, a->m, 0 };

	if (a->dx) {
		transpose(work, a->w, a->n, a->k);
		run(&dx);
	}
	if (a->dw) {
		transpose(work, a->dy, a->m, a->n);
		transpose(xt, a->x, a->m, a->k);
		run(&dw);
	}
	if (a->db)
		bias_back(a->db, a->dy, a->m, a->n);
}
