/* SPDX-License-Identifier: Apache-2.0
 *
 * From logits to log-probabilities and tokens.
 */
#include <math.h>
#include <stdlib.h>

#include "gpu/cpu/level.h"
#include "gpu/cpu/vec.h"

/* Logarithm of the sum of e^(x / temperature). */
static float log_sum(const float *x, int v, float inv_temp)
{
	float max = x[0], tail = 0;
	vec y, sum = { 0 };
	int i;

	for (i = 1; i < v; i++)
		max = x[i] > max ? x[i] : max;
	for (i = 0; i + LANES <= v; i += LANES) {
		vec_load(&y, x + i);
		y = (y - max) * inv_temp;
		vec_exp(&y);
		sum += y;
	}
	for (; i < v; i++)
		tail += expf((x[i] - max) * inv_temp);
	return max * inv_temp + logf(vec_sum(&sum) + tail);
}

/* Rounding may carry a logarithm of a probability past zero; a value that is
 * none stays so. */
static float at_most_0(float x)
{
	return x > 0 ? 0 : x;
}

/* -sum p log p = lse - sum p x / temperature. */
static float entropy(const float *x, int v, float inv_temp, float lse)
{
	float tail = 0;
	vec y, z, sum = { 0 };
	int i;

	for (i = 0; i + LANES <= v; i += LANES) {
		vec_load(&y, x + i);
		z = y * inv_temp - lse;
		y = z;
		vec_exp(&y);
		sum += y * z;
	}
	for (; i < v; i++) {
		float l = x[i] * inv_temp - lse;

		tail += expf(l) * l;
	}
	return -(vec_sum(&sum) + tail);
}

void CPU_OP(pick)(struct gpu *g, const struct gpu_pick *a)
{
	const int32_t *target = a->target;
	float *lp = a->logprob, *lse = a->lse, *ent = a->entropy;

	(void)g;
#pragma omp parallel for schedule(static)
	for (int i = 0; i < a->m; i++) {
		const float *x = (const float *)a->logits +
				 (size_t)i * (size_t)a->v;

		lse[i] = log_sum(x, a->v, a->inv_temp);
		lp[i] = at_most_0(x[target[i]] * a->inv_temp - lse[i]);
		if (ent)
			ent[i] = entropy(x, a->v, a->inv_temp, lse[i]);
	}
}

/* d log p(target) / dx_j = (1[j = target] - p_j) / temperature;
 * d entropy / dx_j = -p_j (log p_j + entropy) / temperature. */
void CPU_OP(pick_back)(struct gpu *g, const struct gpu_pick_back *a)
{
	const int32_t *target = a->target;
	const float *dlp = a->dlp, *dent = a->dent, *lse = a->lse;

	(void)g;
#pragma omp parallel for schedule(static)
	for (int i = 0; i < a->m; i++) {
		size_t row = (size_t)i * (size_t)a->v;
		const float *x = (const float *)a->logits + row;
		float *d = (float *)a->dlogits + row;
		float e = dent ? dent[i] : 0;
		float h = e != 0 ? ((const float *)a->entropy)[i] : 0;

		for (int j = 0; j < a->v; j++) {
			float l = x[j] * a->inv_temp - lse[i];

			d[j] = -expf(l) * a->inv_temp *
			       (dlp[i] + e * (l + h));
		}
		d[target[i]] += dlp[i] * a->inv_temp;
	}
}

struct word {
	float p;
	int32_t id;
};

static int likelier(const void *a, const void *b)
{
	const struct word *x = a, *y = b;

	if (x->p != y->p)
		return x->p < y->p ? 1 : -1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static int by_id(const void *a, const void *b)
{
	const struct word *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int32_t largest(const float *x, int v)
{
	int32_t best = 0;

	for (int32_t i = 1; i < v; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

/* The first word whose running sum exceeds u times the sum. */
static int32_t draw(const struct word *w, int n, double sum, float u)
{
	double run = 0;

	for (int i = 0; i < n - 1; i++) {
		run += (double)w[i].p;
		if (run > (double)u * sum)
			return w[i].id;
	}
	return w[n - 1].id;
}

/* What a row's words have to be to be drawn. */
struct fit {
	float top_p, min_p, u;
	int top_k;
};

/* Cuts the sorted words to the top_k likeliest, then to the fewest that make
 * up top_p of what is left, then to those with min_p of the first. */
static int cut(struct word *w, int v, const struct fit *f, double *sum)
{
	float top_p = f->top_p, least = f->min_p * w[0].p;
	int top_k = f->top_k;
	int n = top_k > 0 && top_k < v ? top_k : v, kept;
	double run = 0;

	*sum = 0;
	for (int i = 0; i < n; i++)
		*sum += (double)w[i].p;
	for (kept = 0; kept < n; ) {
		run += (double)w[kept++].p;
		if (top_p < 1 && run >= (double)top_p * *sum)
			break;
	}
	while (kept > 1 && w[kept - 1].p < least)
		run -= (double)w[--kept].p;
	*sum = run;
	return kept;
}

static int32_t sample_row(const float *x, int v, float inv_temp, float lse,
			  const struct fit *f, struct word *w)
{
	double sum = 0;
	int n = v;

	for (int i = 0; i < v; i++) {
		w[i].p = expf(x[i] * inv_temp - lse);
		w[i].id = i;
		sum += (double)w[i].p;
	}
	if (f->top_p < 1 || f->min_p > 0 || (f->top_k > 0 && f->top_k < v)) {
		qsort(w, (size_t)v, sizeof *w, likelier);
		n = cut(w, v, f, &sum);
		qsort(w, (size_t)n, sizeof *w, by_id);
	}
	return draw(w, n, sum, f->u);
}

void CPU_OP(sample)(struct gpu *g, const struct gpu_sample *a)
{
	const float *temp = a->temp, *top_p = a->top_p, *u = a->u;
	const float *min_p = a->min_p;
	const int32_t *top_k = a->top_k;
	int failed = 0;

#pragma omp parallel for schedule(dynamic)
	for (int i = 0; i < a->m; i++) {
		const float *x = (const float *)a->logits +
				 (size_t)i * (size_t)a->v;
		float inv = temp[i] > 0 ? 1 / temp[i] : 1;
		float lse = log_sum(x, a->v, inv);
		struct word *w = temp[i] > 0 ?
			malloc((size_t)a->v * sizeof *w) : NULL;
		int32_t id;

		if (temp[i] > 0 && !w)
#pragma omp atomic write
			failed = 1;
		id = w ? sample_row(x, a->v, inv, lse, &(struct fit){
				    top_p[i], min_p[i], u[i], top_k[i] }, w) :
			 largest(x, a->v);
		free(w);
		((int32_t *)a->id)[i] = id;
		((float *)a->logprob)[i] = at_most_0(x[id] * inv - lse);
	}
	if (failed)
		err_set(&g->failed, CA_UNAVAILABLE, "no memory to sample");
}
