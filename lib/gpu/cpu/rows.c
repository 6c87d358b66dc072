/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on rows of activations and on flat arrays of weights.
 */
#include <math.h>

#include "gpu/cpu/level.h"
#include "gpu/cpu/vec.h"

#define SMALL 16384

void CPU_OP(embed)(struct gpu *g, const struct gpu_embed *a)
{
	const int32_t *ids = a->ids;
	size_t c = (size_t)a->c;

	(void)g;
	for (int t = 0; t < a->t; t++)
		gpu_widen((float *)a->out + (size_t)t * c,
			  (const char *)a->w + (size_t)ids[t] * c *
			  gpu_type_size(a->wtype), a->wtype, c);
}

/* Threads share columns, so each sum runs over tokens in order. */
void CPU_OP(embed_back)(struct gpu *g, const struct gpu_embed_back *a)
{
	const int32_t *ids = a->ids;
	const float *dout = a->dout;
	float *dw = a->dw;
	size_t c = (size_t)a->c;

	(void)g;
#pragma omp parallel for schedule(static) if ((double)a->t * a->c > SMALL)
	for (int j = 0; j < a->c; j += LANES) {
		int n = a->c - j < LANES ? a->c - j : LANES;

		for (int t = 0; t < a->t; t++)
			vec_axpy(dw + (size_t)ids[t] * c + (size_t)j, 1,
				 dout + (size_t)t * c + (size_t)j, n);
	}
}

INLINE float inverse_rms(const float *x, int c, float eps)
{
	return 1 / sqrtf(vec_dot(x, x, c) / (float)c + eps);
}

void CPU_OP(rmsnorm)(struct gpu *g, const struct gpu_rmsnorm *a)
{
	const float *w = a->w;

	(void)g;
#pragma omp parallel for schedule(static) if ((double)a->t * a->c > SMALL)
	for (int t = 0; t < a->t; t++) {
		const float *x = (const float *)a->x +
				 (size_t)t * (size_t)a->c;
		float *y = (float *)a->y + (size_t)t * (size_t)a->c;
		float r = inverse_rms(x, a->c, a->eps);

		for (int i = 0; i < a->c; i++)
			y[i] = x[i] * r * w[i];
	}
}

/* With s = 1 / rms and n = x s:  dx += s (dy w - n mean(dy w n)). */
static void rmsnorm_dx(const struct gpu_rmsnorm_back *a, int t, float *inv)
{
	const float *x = (const float *)a->x + (size_t)t * (size_t)a->c;
	const float *dy = (const float *)a->dy + (size_t)t * (size_t)a->c;
	float *dx = (float *)a->dx + (size_t)t * (size_t)a->c;
	const float *w = a->w;
	float r = inverse_rms(x, a->c, a->eps), mean = 0;

	for (int i = 0; i < a->c; i++)
		mean += dy[i] * w[i] * (x[i] * r);
	mean /= (float)a->c;
	for (int i = 0; i < a->c; i++)
		dx[i] += r * (dy[i] * w[i] - x[i] * r * mean);
	inv[t] = r;
}

void CPU_OP(rmsnorm_back)(struct gpu *g, const struct gpu_rmsnorm_back *a)
{
	float *inv = g->work, *dw = a->dw;
	const float *x = a->x, *dy = a->dy;
	size_t c = (size_t)a->c;

#pragma omp parallel for schedule(static) if ((double)a->t * a->c > SMALL)
	for (int t = 0; t < a->t; t++)
		rmsnorm_dx(a, t, inv);
#pragma omp parallel for schedule(static) if ((double)a->t * a->c > SMALL)
	for (int j = 0; j < a->c; j++) {
		float sum = 0;

		for (int t = 0; t < a->t; t++) {
			size_t at = (size_t)t * c + (size_t)j;

			sum += dy[at] * x[at] * inv[t];
		}
		dw[j] += sum;
	}
}

void CPU_OP(swiglu)(struct gpu *g, const struct gpu_swiglu *a)
{
	size_t f = (size_t)a->f;

	(void)g;
#pragma omp parallel for schedule(static) if ((double)a->t * a->f > SMALL)
	for (int t = 0; t < a->t; t++) {
		const float *gate = (const float *)a->gu + (size_t)t * 2 * f;
		const float *up = gate + f;
		float *out = (float *)a->out + (size_t)t * f;
		vec x, e, u;
		size_t i = 0;

		for (; i + LANES <= f; i += LANES) {
			vec_load(&x, gate + i);
			vec_load(&u, up + i);
			e = -x;
			vec_exp(&e);
			x = x / (e + 1.0f) * u;
			vec_store(out + i, &x);
		}
		for (; i < f; i++)
			out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
	}
}

void CPU_OP(swiglu_back)(struct gpu *g, const struct gpu_swiglu_back *a)
{
	size_t f = (size_t)a->f;

	(void)g;
#pragma omp parallel for schedule(static) if ((double)a->t * a->f > SMALL)
	for (int t = 0; t < a->t; t++) {
		const float *gate = (const float *)a->gu + (size_t)t * 2 * f;
		const float *up = gate + f;
		const float *d = (const float *)a->dout + (size_t)t * f;
		float *dgate = (float *)a->dgu + (size_t)t * 2 * f;
		float *dup = dgate + f;
		float *out = a->out ? (float *)a->out + (size_t)t * f : NULL;

		for (size_t i = 0; i < f; i++) {
			float x = gate[i], s = 1 / (1 + expf(-x));

			if (out)
				out[i] = x * s * up[i];
			dup[i] = d[i] * x * s;
			dgate[i] = d[i] * up[i] * s * (1 + x * (1 - s));
		}
	}
}

void CPU_OP(rows)(struct gpu *g, const struct gpu_rows *a)
{
	const int32_t *index = a->index;
	size_t c = (size_t)a->c;

	(void)g;
	for (int i = 0; i < a->m; i++)
		memcpy((float *)a->out + (size_t)i * c,
		       (const float *)a->x + (size_t)index[i] * c,
		       c * sizeof(float));
}

void CPU_OP(rows_back)(struct gpu *g, const struct gpu_rows *a)
{
	const int32_t *index = a->index;
	size_t c = (size_t)a->c;

	(void)g;
	for (int i = 0; i < a->m; i++)
		memcpy((float *)a->out + (size_t)index[i] * c,
		       (const float *)a->x + (size_t)i * c,
		       c * sizeof(float));
}

void CPU_OP(adamw)(struct gpu *g, const struct gpu_adamw *a)
{
	float *w = a->w, *m = a->m, *v = a->v;
	const float *grad = a->g;

	(void)g;
#pragma omp parallel for schedule(static) if (a->n > SMALL)
	for (size_t i = 0; i < a->n; i++) {
		float d = grad[i] * a->gscale;
		float m1 = a->beta1 * m[i] + (1 - a->beta1) * d;
		float v1 = a->beta2 * v[i] + (1 - a->beta2) * d * d;

		m[i] = m1;
		v[i] = v1;
		w[i] -= a->lr * a->decay * w[i];
		w[i] -= a->lr * (m1 / a->c1) / (sqrtf(v1 / a->c2) + a->eps);
	}
	if (a->out)
		gpu_narrow(a->out, w, a->otype, a->n);
}

void CPU_OP(score_back)(struct gpu *g, const struct gpu_score_back *a)
{
	const float *dy = a->dy, *w = a->w, *x = a->x;
	float *dx = a->dx, *dw = a->dw, *db = a->db;
	size_t k = (size_t)a->k;

	(void)g;
	for (int i = 0; i < a->m; i++) {
		for (size_t j = 0; j < k; j++)
			dx[(size_t)i * k + j] = dy[i] * w[j];
		vec_axpy(dw, dy[i], x + (size_t)i * k, a->k);
		*db += dy[i];
	}
}

/* Blocks of fixed size, each summed by itself, then in order. */
#define SUM_BLOCK 4096

void CPU_OP(sumsq)(struct gpu *g, const struct gpu_sumsq *a)
{
	size_t blocks = (a->n + SUM_BLOCK - 1) / SUM_BLOCK;
	const float *x = a->x;
	double *part = g->work, sum = 0;
	size_t wave = g->work_bytes / sizeof *part;

	for (size_t from = 0; from < blocks; from += wave) {
		size_t to = blocks - from < wave ? blocks : from + wave;

#pragma omp parallel for schedule(static) if (to - from > 4)
		for (size_t b = from; b < to; b++) {
			size_t end = (b + 1) * SUM_BLOCK;
			double s = 0;

			for (size_t i = b * SUM_BLOCK;
			     i < end && i < a->n; i++)
				s += (double)x[i] * (double)x[i];
			part[b - from] = s;
		}
		for (size_t b = from; b < to; b++)
			sum += part[b - from];
	}
	*(double *)a->out = sum;
}
