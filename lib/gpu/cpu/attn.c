/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions and attention.  A row of attention is two passes over its
 * keys in order (scores and their maximum; weights and the sum of values),
 * whoever computes it: a prompt, a step of decoding or a training step.
 */
#include <math.h>
#include <stdlib.h>

#include "gpu/cpu/level.h"
#include "gpu/cpu/vec.h"

#define SMALL 16384

/* One head: norm (w or NULL), then rotation. */
static void rotate_head(float *out, const float *in, const float *cosine,
			const float *w, int d, float eps)
{
	const float *sine = cosine + d / 2;
	float r = w ? 1 / sqrtf(vec_dot(in, in, d) / (float)d + eps) : 1;

	for (int i = 0; i < d / 2; i++) {
		float a = in[i], b = in[i + d / 2];

		if (w) {
			a *= r * w[i];
			b *= r * w[i + d / 2];
		}
		out[i] = a * cosine[i] - b * sine[i];
		out[i + d / 2] = b * cosine[i] + a * sine[i];
	}
}

void CPU_OP(rope)(struct gpu *g, const struct gpu_rope *a)
{
	const int32_t *pos = a->pos, *slot = a->slot;
	int d = a->dim, h = a->heads, kv = a->kv_heads;
	size_t row = (size_t)(h + 2 * kv) * (size_t)d;

	(void)g;
#pragma omp parallel for schedule(static) if ((double)a->t * row > SMALL)
	for (int t = 0; t < a->t; t++) {
		const float *in = (const float *)a->qkv + (size_t)t * row;
		const float *cosine = (const float *)a->table +
				      (size_t)pos[t] * (size_t)d;
		float *q = (float *)a->q + (size_t)t * (size_t)(h * d);
		size_t at = (size_t)slot[t] * (size_t)(kv * d);
		float *k = (float *)a->k + at, *v = (float *)a->v + at;

		for (int i = 0; i < h; i++, in += d, q += d)
			rotate_head(q, in, cosine, a->qn, d, a->eps);
		for (int i = 0; i < kv; i++, in += d, k += d)
			rotate_head(k, in, cosine, a->kn, d, a->eps);
		memcpy(v, in, (size_t)(kv * d) * sizeof *v);
	}
}

/* Back through the rotation; then through the norm, if there is one, whose
 * gradient is added to `dw` by the caller's thread. */
static void rotate_back(float *out, const float *dy, const float *in,
			const float *cosine, const float *w, float *dw, int d,
			float eps)
{
	const float *sine = cosine + d / 2;
	float r, mean = 0;

	for (int i = 0; i < d / 2; i++) {
		float a = dy[i], b = dy[i + d / 2];

		out[i] = a * cosine[i] + b * sine[i];
		out[i + d / 2] = b * cosine[i] - a * sine[i];
	}
	if (!w)
		return;
	r = 1 / sqrtf(vec_dot(in, in, d) / (float)d + eps);
	for (int i = 0; i < d; i++) {
		mean += out[i] * w[i] * in[i] * r;
		dw[i] += out[i] * in[i] * r;
	}
	mean /= (float)d;
	for (int i = 0; i < d; i++)
		out[i] = r * (out[i] * w[i] - in[i] * r * mean);
}

/* Norms of heads have one gradient for all tokens and heads: in order, so in
 * one thread; without them tokens are independent. */
void CPU_OP(rope_back)(struct gpu *g, const struct gpu_rope_back *a)
{
	const int32_t *pos = a->pos;
	int d = a->dim, h = a->heads, kv = a->kv_heads;
	size_t row = (size_t)(h + 2 * kv) * (size_t)d;

	(void)g;
#pragma omp parallel for schedule(static) if (!a->qn)
	for (int t = 0; t < a->t; t++) {
		const float *in = (const float *)a->qkv + (size_t)t * row;
		float *out = (float *)a->dqkv + (size_t)t * row;
		const float *cosine = (const float *)a->table +
				      (size_t)pos[t] * (size_t)d;
		const float *dq = (const float *)a->dq +
				  (size_t)t * (size_t)(h * d);
		size_t at = (size_t)t * (size_t)(kv * d);
		const float *dk = (const float *)a->dk + at;

		for (int i = 0; i < h; i++, in += d, out += d, dq += d)
			rotate_back(out, dq, in, cosine, a->qn, a->dqn, d,
				    a->eps);
		for (int i = 0; i < kv; i++, in += d, out += d, dk += d)
			rotate_back(out, dk, in, cosine, a->kn, a->dkn, d,
				    a->eps);
		memcpy(out, (const float *)a->dv + at,
		       (size_t)(kv * d) * sizeof *out);
	}
}

INLINE size_t key_row(const struct gpu_attn *a, int s, int j)
{
	const int32_t *pages = a->pages;

	if (!pages)
		return (size_t)((const int32_t *)a->first)[s] + (size_t)j;
	return (size_t)pages[(size_t)s * (size_t)a->stride +
			     (size_t)(j / GPU_PAGE)] * GPU_PAGE +
	       (size_t)(j % GPU_PAGE);
}

/* Scores to weights in place; returns the sum, *most the maximum. */
static float weights(float *score, int n, float *most)
{
	float max = score[0], tail = 0;
	vec x, sum = { 0 };
	int i;

	for (i = 1; i < n; i++)
		max = score[i] > max ? score[i] : max;
	for (i = 0; i + LANES <= n; i += LANES) {
		vec_load(&x, score + i);
		x -= max;
		vec_exp(&x);
		sum += x;
		vec_store(score + i, &x);
	}
	for (; i < n; i++) {
		score[i] = expf(score[i] - max);
		tail += score[i];
	}
	*most = max;
	return vec_sum(&sum) + tail;
}

#define QUERIES 4		/* rows and heads that share a pass over keys */
#define KEYS    4		/* side by side */

/* A head of a row; it sees the first n keys. */
struct query {
	size_t at;			/* row times heads + head */
	int n;
	const float *q;
	float *out, *score;
};

/* Scores of m queries, which all see n keys of sequence s from `k` on, with
 * these.  A score is vec_dot's, whatever it is computed beside. */
INLINE void scores(const struct gpu_attn *a, int s, const struct query *q,
		   int m, const float *k, int n)
{
	size_t kv = (size_t)(a->kv_heads * a->dim);
	int j = 0, d = a->dim;

	for (; j + KEYS <= n && d % LANES == 0; j += KEYS) {
		const float *at = k + key_row(a, s, j) * kv;

		for (int i = 0; i < m; i++) {
			vec sum[KEYS] = { { 0 } }, x, y;
			vec4 four;

			for (int c = 0; c < d; c += LANES) {
				vec_load(&x, q[i].q + c);
				for (int l = 0; l < KEYS; l++) {
					vec_load(&y, at + (size_t)l * kv + c);
					sum[l] += x * y;
				}
			}
			vec_sums(&four, sum);
			four *= a->scale;
			memcpy(q[i].score + j, &four, sizeof four);
		}
	}
	for (int i = 0; i < m; i++)
		for (int l = j; l < q[i].n; l++)
			q[i].score[l] = a->scale * vec_dot(q[i].q, k +
				key_row(a, s, l) * kv, d);
}

/* Sums of values by the scores of m queries, in the order of the keys. */
INLINE void values(const struct gpu_attn *a, int s, const struct query *q,
		   int m, const float *v, int n)
{
	size_t kv = (size_t)(a->kv_heads * a->dim);

	for (int c = 0; c < a->dim; c += 2 * LANES) {
		vec sum[QUERIES][2] = { { { 0 } } }, x, y;

		for (int j = 0; j < n; j++) {
			const float *at = v + key_row(a, s, j) * kv + c;

			vec_load(&x, at);
			vec_load(&y, at + LANES);
			for (int i = 0; i < m; i++) {
				sum[i][0] += x * q[i].score[j];
				sum[i][1] += y * q[i].score[j];
			}
		}
		for (int i = 0; i < m; i++) {
			vec_store(q[i].out + c, &sum[i][0]);
			vec_store(q[i].out + c + LANES, &sum[i][1]);
		}
	}
}

/* What m queries make of values, whose first n they all see; heads of an odd
 * size one by one. */
INLINE void add_values(const struct gpu_attn *a, int s, const struct query *q,
		       int m, const float *v, int n)
{
	size_t kv = (size_t)(a->kv_heads * a->dim);
	int d = a->dim, fast = d % (2 * LANES) == 0;

	if (fast)
		values(a, s, q, m, v, n);
	for (int i = 0; i < m; i++) {
		if (!fast)
			memset(q[i].out, 0, (size_t)d * sizeof *q[i].out);
		for (int j = fast ? n : 0; j < q[i].n; j++)
			vec_axpy(q[i].out, q[i].score[j],
				 v + key_row(a, s, j) * kv, d);
	}
}

/* m queries of sequence s with one head of keys. */
INLINE void attend(const struct gpu_attn *a, int s, const struct query *q,
		   int m, int group)
{
	const float *k = (const float *)a->k + group * a->dim;
	const float *v = (const float *)a->v + group * a->dim;
	float sum[QUERIES], max[QUERIES];
	int n = q[0].n;

	for (int i = 1; i < m; i++)
		n = q[i].n < n ? q[i].n : n;
	scores(a, s, q, m, k, n);
	for (int i = 0; i < m; i++)
		sum[i] = weights(q[i].score, q[i].n, &max[i]);
	add_values(a, s, q, m, v, n);
	for (int i = 0; i < m; i++) {
		for (int c = 0; c < a->dim; c++)
			q[i].out[c] /= sum[i];
		if (a->lse)
			((float *)a->lse)[q[i].at] = max[i] + logf(sum[i]);
	}
}

static void attend_some(const struct gpu_attn *a, int s,
			const struct query *q, int m, int group)
{
	switch (m) {
	case 0: break;
	case 1: attend(a, s, q, 1, group); break;
	case 2: attend(a, s, q, 2, group); break;
	case 3: attend(a, s, q, 3, group); break;
	default: attend(a, s, q, QUERIES, group);
	}
}

static int sequence_of(const int32_t *first, int nseq, int row)
{
	int low = 0, high = nseq;

	while (high - low > 1) {
		int mid = (low + high) / 2;

		if (first[mid] <= row)
			low = mid;
		else
			high = mid;
	}
	return low;
}

static void out_of_memory(struct gpu *g)
{
	err_set(&g->failed, CA_UNAVAILABLE, "no memory for scores");
}

/* The query heads of some rows that share a head of keys; together as far as
 * they are of one sequence. */
static void attend_rows(const struct gpu_attn *a, int from, int rows,
			int group, float *room)
{
	const int32_t *first = a->first, *len = a->len;
	int per = a->heads / a->kv_heads, m = 0, was = -1;
	struct query q[QUERIES];

	for (int i = 0; i < rows * per; i++) {
		int t = from + i / per, s = sequence_of(first, a->nseq, t);
		size_t at = (size_t)t * (size_t)a->heads +
			    (size_t)(group * per + i % per);

		if (m == QUERIES || (m && s != was)) {
			attend_some(a, was, q, m, group);
			m = 0;
		}
		was = s;
		q[m] = (struct query){ .at = at,
			.n = len[s] - (first[s + 1] - 1 - t),
			.q = (const float *)a->q + at * (size_t)a->dim,
			.out = (float *)a->out + at * (size_t)a->dim,
			.score = room + (size_t)m * (size_t)a->max_len };
		m++;
	}
	attend_some(a, was, q, m, group);
}

void CPU_OP(attn)(struct gpu *g, const struct gpu_attn *a)
{
	int per = a->heads / a->kv_heads, failed = 0;
	int block = per < QUERIES ? QUERIES / per : 1;
	int tasks = (a->rows + block - 1) / block * a->kv_heads;

#pragma omp parallel if ((double)a->rows * a->heads * a->max_len > SMALL)
	{
		float *room = malloc(QUERIES * (size_t)a->max_len *
				     sizeof *room);

		if (!room)
#pragma omp atomic write
			failed = 1;
#pragma omp for schedule(dynamic, 2)
		for (int i = 0; i < tasks; i++) {
			int from = i / a->kv_heads * block;
			int rows = a->rows - from;

			if (room)
				attend_rows(a, from, rows < block ? rows :
					    block, i % a->kv_heads, room);
		}
		free(room);
	}
	if (failed)
		out_of_memory(g);
}

/* With p the weights and delta = sum(dout out):
 * dv += p dout;  ds = p (dout . v - delta) scale;  dq += ds k;  dk += ds q.
 * All rows and query heads of one sequence and one head of keys. */
static void attend_back(const struct gpu_attn_back *a, int s, int group)
{
	const int32_t *first = a->first;
	int per = a->heads / a->kv_heads, d = a->dim;
	size_t kvrow = (size_t)(a->kv_heads * d);
	size_t base = (size_t)first[s] * kvrow + (size_t)(group * d);
	const float *k = (const float *)a->k + base;
	const float *v = (const float *)a->v + base;
	float *dk = (float *)a->dk + base, *dv = (float *)a->dv + base;

	for (int t = first[s]; t < first[s + 1]; t++)
		for (int h = group * per; h < (group + 1) * per; h++) {
			size_t at = (size_t)t * (size_t)a->heads + (size_t)h;
			const float *q = (const float *)a->q + at * (size_t)d;
			const float *o = (const float *)a->out +
					 at * (size_t)d;
			const float *dout = (const float *)a->dout +
					    at * (size_t)d;
			float *dq = (float *)a->dq + at * (size_t)d;
			float lse = ((const float *)a->lse)[at];
			float delta = vec_dot(dout, o, d);

			for (int j = 0; j <= t - first[s]; j++) {
				size_t row = (size_t)j * kvrow;
				float p, ds;

				p = expf(a->scale * vec_dot(q, k + row, d) -
					 lse);
				ds = p * a->scale *
				     (vec_dot(dout, v + row, d) - delta);
				vec_axpy(dv + row, p, dout, d);
				vec_axpy(dq, ds, k + row, d);
				vec_axpy(dk + row, ds, q, d);
			}
		}
}

void CPU_OP(attn_back)(struct gpu *g, const struct gpu_attn_back *a)
{
	size_t rows = (size_t)a->rows, d = (size_t)a->dim;
	size_t kv = rows * (size_t)a->kv_heads * d * sizeof(float);

	(void)g;
	memset(a->dq, 0, rows * (size_t)a->heads * d * sizeof(float));
	memset(a->dk, 0, kv);
	memset(a->dv, 0, kv);
#pragma omp parallel for schedule(dynamic)
	for (int i = 0; i < a->nseq * a->kv_heads; i++)
		attend_back(a, i / a->kv_heads, i % a->kv_heads);
}
