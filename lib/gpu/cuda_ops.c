/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations on CUDA: which kernel, and in which shape.
 */
#include "gpu/cuda.h"
#include "gpu/cuda/args.h"

#define THREADS 256
#define PARTS	64		/* at most, of a sum over rows */
#define GEMV_ROWS 8		/* more of them go to cuBLASLt */

/* LAUNCH(kernel, x, y, z, threads, shared, &argument, ...) */
#define LAUNCH(kernel, gx, gy, gz, threads, shared, ...) \
	do { \
		void *list[] = { __VA_ARGS__ }; \
		cuda_launch(c, c->kernel, \
			    (struct cuda_grid){ (unsigned)(gx), \
						(unsigned)(gy), \
						(unsigned)(gz) }, \
			    threads, shared, list); \
	} while (0)

/* Arguments are read through pointers to what is not ours to change. */
#define ARG(x) ((void *)&(x))

static struct cuda *of(struct gpu *g)
{
	return (struct cuda *)g;
}

static size_t ceil_div(size_t a, size_t b)
{
	return (a + b - 1) / b;
}

void cuda_embed(struct gpu *g, const struct gpu_embed *a)
{
	struct cuda *c = of(g);
	int wide = a->wtype == GPU_F32;

	LAUNCH(embed, a->t, 1, 1, THREADS, 0, ARG(a->out), ARG(a->w),
	       ARG(a->ids), ARG(a->c), &wide);
}

void cuda_embed_back(struct gpu *g, const struct gpu_embed_back *a)
{
	struct cuda *c = of(g);

	LAUNCH(embed_back, a->t, ceil_div((size_t)a->c, THREADS), 1, THREADS,
	       0, ARG(a->dw), ARG(a->dout), ARG(a->ids), ARG(a->order),
	       ARG(a->t), ARG(a->c));
}

void cuda_rmsnorm(struct gpu *g, const struct gpu_rmsnorm *a)
{
	struct cuda *c = of(g);

	LAUNCH(rmsnorm, a->t, 1, 1, THREADS, 0, ARG(a->y), ARG(a->x),
	       ARG(a->w), ARG(a->c), ARG(a->eps));
}

/* out += sums over rows of dy, or of dy x inv. */
static void add_columns(struct cuda *c, void *out, const void *dy,
			const void *x, const float *inv, int t, int n,
			float *part)
{
	int parts = (int)ceil_div((size_t)t, 64), per;
	size_t blocks = ceil_div((size_t)n, THREADS);

	parts = parts < PARTS ? parts : PARTS;
	per = (int)ceil_div((size_t)t, (size_t)parts);
	parts = (int)ceil_div((size_t)t, (size_t)per);
	LAUNCH(column_parts, blocks, parts, 1, THREADS, 0, &part, ARG(dy),
	       ARG(x), ARG(inv), &t, &n, &per);
	LAUNCH(add_parts, blocks, 1, 1, THREADS, 0, &out, &part, &parts, &n);
}

void cuda_rmsnorm_back(struct gpu *g, const struct gpu_rmsnorm_back *a)
{
	struct cuda *c = of(g);
	float *inv = cuda_work(c), *part = inv + a->t;

	LAUNCH(rmsnorm_dx, a->t, 1, 1, THREADS, 0, ARG(a->dx), &inv,
	       ARG(a->dy), ARG(a->x), ARG(a->w), ARG(a->c), ARG(a->eps));
	add_columns(c, a->dw, a->dy, a->x, inv, a->t, a->c, part);
}

void cuda_swiglu(struct gpu *g, const struct gpu_swiglu *a)
{
	struct cuda *c = of(g);
	unsigned long long n = (unsigned long long)a->t *
			       (unsigned long long)a->f;

	LAUNCH(swiglu, ceil_div(n, THREADS), 1, 1, THREADS, 0, ARG(a->out),
	       ARG(a->gu), &n, ARG(a->f));
}

void cuda_swiglu_back(struct gpu *g, const struct gpu_swiglu_back *a)
{
	struct cuda *c = of(g);
	unsigned long long n = (unsigned long long)a->t *
			       (unsigned long long)a->f;

	LAUNCH(swiglu_back, ceil_div(n, THREADS), 1, 1, THREADS, 0,
	       ARG(a->dgu), ARG(a->dout), ARG(a->gu), &n, ARG(a->f));
}

static void run_rows(struct gpu *g, const struct gpu_rows *a, int back)
{
	struct cuda *c = of(g);

	LAUNCH(rows, a->m, 1, 1, THREADS, 0, ARG(a->out), ARG(a->x),
	       ARG(a->index), ARG(a->c), &back);
}

void cuda_rows(struct gpu *g, const struct gpu_rows *a)
{
	run_rows(g, a, 0);
}

void cuda_rows_back(struct gpu *g, const struct gpu_rows *a)
{
	run_rows(g, a, 1);
}

static void by_cublas(struct cuda *c, void *out, const void *a,
		      const void *b, int m, int n, int k, int ta, int tb,
		      float beta, enum gpu_type type)
{
	const struct cublas_product p = {
		.c = out, .a = a, .b = b, .m = m, .n = n, .k = k, .ta = ta,
		.tb = tb, .beta = beta, .in = c->g.act, .out = type
	};

	if (!c->g.failed.code)
		cublas_run(c->blas, c->dev->stream, c->g.work, &p,
			   &c->g.failed);
}

static void by_kernel(struct cuda *c, const struct gpu_linear *a)
{
	struct product p = { a->y, a->x, a->w, a->bias, a->m, a->n, a->k,
			     a->add, a->logits };
	int tiles = c->g.act == GPU_BF16 && a->k % 8 == 0;
	size_t columns = ceil_div((size_t)a->n, 8);

	if (!tiles)
		LAUNCH(gemm_plain, ceil_div((size_t)a->n, THREADS), a->m, 1,
		       THREADS, 0, &p);
	else if (a->m > GEMV_ROWS || (c->g.flags & GPU_EXACT))
		LAUNCH(gemm, ceil_div((size_t)a->n, 64),
		       ceil_div((size_t)a->m, 64), 1, 128, 0, &p);
	else if (a->m == 1)
		LAUNCH(gemv1, columns, 1, 1, THREADS, 0, &p);
	else if (a->m == 2)
		LAUNCH(gemv2, columns, 1, 1, THREADS, 0, &p);
	else if (a->m <= 4)
		LAUNCH(gemv4, columns, 1, 1, THREADS, 0, &p);
	else
		LAUNCH(gemv8, columns, 1, 1, THREADS, 0, &p);
}

/* cuBLASLt wants rows that begin at multiples of 16 bytes. */
static int odd(const struct cuda *c, int n, int k)
{
	int per = (int)(16 / gpu_type_size(c->g.act));

	return n % per || k % per;
}

void cuda_linear(struct gpu *g, const struct gpu_linear *a)
{
	struct cuda *c = of(g);
	enum gpu_type out = a->logits ? GPU_F32 : g->act;
	unsigned long long n = (unsigned long long)a->m *
			       (unsigned long long)a->n;

	if (a->n == 1 && a->wtype == GPU_F32) {
		LAUNCH(score, a->m, 1, 1, THREADS, 0, ARG(a->y), ARG(a->x),
		       ARG(a->w), ARG(a->bias), ARG(a->k));
		return;
	}
	if ((g->flags & GPU_EXACT) || odd(c, a->n, a->k) ||
	    (a->m <= GEMV_ROWS && g->act == GPU_BF16)) {
		by_kernel(c, a);
		return;
	}
	if (a->bias)
		LAUNCH(bias, ceil_div(n, THREADS), 1, 1, THREADS, 0,
		       ARG(a->y), ARG(a->bias), &n, ARG(a->n), ARG(a->add),
		       ARG(a->logits));
	by_cublas(c, a->y, a->w, a->x, a->n, a->m, a->k, 1, 0,
		  a->add || a->bias ? 1 : 0, out);
}

void cuda_linear_back(struct gpu *g, const struct gpu_linear_back *a)
{
	struct cuda *c = of(g);

	if (a->dx)
		by_cublas(c, a->dx, a->w, a->dy, a->k, a->m, a->n, 0, 0, 0,
			  g->act);
	if (a->dw)
		by_cublas(c, a->dw, a->x, a->dy, a->k, a->n, a->m, 0, 1, 1,
			  GPU_F32);
	if (a->db)
		add_columns(c, a->db, a->dy, NULL, NULL, a->m, a->n,
			    cuda_work(c));
}

void cuda_score_back(struct gpu *g, const struct gpu_score_back *a)
{
	struct cuda *c = of(g);

	LAUNCH(score_dx, a->m, 1, 1, THREADS, 0, ARG(a->dx), ARG(a->dy),
	       ARG(a->w), ARG(a->k));
	LAUNCH(score_dw, ceil_div((size_t)a->k + 1, THREADS), 1, 1, THREADS,
	       0, ARG(a->dw), ARG(a->db), ARG(a->dy), ARG(a->x), ARG(a->m),
	       ARG(a->k));
}

void cuda_rope(struct gpu *g, const struct gpu_rope *a)
{
	struct cuda *c = of(g);
	struct rotation r = {
		a->q, a->k, a->v, a->qkv, a->table, a->qn, a->kn, a->pos,
		a->slot, a->heads, a->kv_heads, a->dim, a->eps
	};
	size_t warps = (size_t)a->t * (size_t)(a->heads + 2 * a->kv_heads);

	LAUNCH(rope, ceil_div(warps, THREADS / 32), 1, 1, THREADS, 0, &r,
	       ARG(a->t));
}

void cuda_rope_back(struct gpu *g, const struct gpu_rope_back *a)
{
	struct cuda *c = of(g);
	int per = (int)ceil_div((size_t)a->t, 512), n = 2 * a->dim;
	int blocks = (int)ceil_div((size_t)a->t, (size_t)per);
	float *part = a->qn ? cuda_work(c) : NULL;
	struct rotation_back r = {
		a->dqkv, a->dq, a->dk, a->dv, a->qkv, a->table, a->qn, a->kn,
		a->pos, part, a->heads, a->kv_heads, a->dim, a->t, per, a->eps
	};

	LAUNCH(rope_back, blocks, 1, 1, 128, 0, &r);
	/* The gradients of qn and kn lie one behind the other. */
	if (part)
		LAUNCH(add_parts, ceil_div((size_t)n, THREADS), 1, 1, THREADS,
		       0, ARG(a->dqn), &part, &blocks, &n);
}

static int has_tiles(const struct cuda *c, int dim)
{
	return c->g.act == GPU_BF16 && (dim == 64 || dim == 128);
}

void cuda_attn(struct gpu *g, const struct gpu_attn *a)
{
	struct cuda *c = of(g);
	struct attention t = {
		a->out, a->lse, a->q, a->k, a->v, a->first, a->len, a->pages,
		a->nseq, a->stride, a->rows, a->heads, a->kv_heads, a->dim,
		a->scale
	};
	size_t tiles = ceil_div((size_t)a->max_rows, 64);

	if (has_tiles(c, a->dim) &&
	    (a->max_rows > 1 || (g->flags & GPU_EXACT))) {
		unsigned shared = cuda_tile_bytes(5, a->dim);

		if (a->dim == 64)
			LAUNCH(flash_64, tiles, a->heads, a->nseq, 128,
			       shared, &t);
		else
			LAUNCH(flash_128, tiles, a->heads, a->nseq, 128,
			       shared, &t);
	} else if (a->dim <= 64) {
		LAUNCH(attn_8, a->rows, a->heads, 1, 256, 0, &t);
	} else if (a->dim <= 128) {
		LAUNCH(attn_16, a->rows, a->heads, 1, 256, 0, &t);
	} else {
		LAUNCH(attn_32, a->rows, a->heads, 1, 256, 0, &t);
	}
}

static void flash_back(struct cuda *c, struct attention_back *t, size_t tiles)
{
	unsigned shared = cuda_tile_bytes(4, t->dim);

	if (t->dim == 64) {
		LAUNCH(flash_dq_64, tiles, t->heads, t->nseq, 128, shared, t);
		LAUNCH(flash_dkdv_64, tiles, t->kv_heads, t->nseq, 128,
		       shared, t);
	} else {
		LAUNCH(flash_dq_128, tiles, t->heads, t->nseq, 128, shared,
		       t);
		LAUNCH(flash_dkdv_128, tiles, t->kv_heads, t->nseq, 128,
		       shared, t);
	}
}

void cuda_attn_back(struct gpu *g, const struct gpu_attn_back *a)
{
	struct cuda *c = of(g);
	struct attention_back t = {
		a->dq, a->dk, a->dv, a->work, a->dout, a->out, a->q, a->k,
		a->v, a->lse, a->first, a->nseq, a->rows, a->heads,
		a->kv_heads, a->dim, a->scale
	};
	size_t warps = (size_t)a->rows * (size_t)a->heads;
	size_t keys = (size_t)a->rows * (size_t)a->kv_heads;

	LAUNCH(attn_delta, ceil_div(warps, THREADS / 32), 1, 1, THREADS, 0,
	       &t);
	if (has_tiles(c, a->dim)) {
		flash_back(c, &t, ceil_div((size_t)a->max_rows, 64));
		return;
	}
	LAUNCH(attn_dq, ceil_div(warps, THREADS / 32), 1, 1, THREADS, 0, &t);
	LAUNCH(attn_dkdv, ceil_div(keys, THREADS / 32), 1, 1, THREADS, 0, &t);
}

void cuda_pick(struct gpu *g, const struct gpu_pick *a)
{
	struct cuda *c = of(g);

	LAUNCH(pick, a->m, 1, 1, 1024, 0, ARG(a->logprob), ARG(a->entropy),
	       ARG(a->lse), ARG(a->logits), ARG(a->target), ARG(a->v),
	       ARG(a->inv_temp));
}

void cuda_pick_back(struct gpu *g, const struct gpu_pick_back *a)
{
	struct cuda *c = of(g);

	LAUNCH(pick_back, a->m, 1, 1, 1024, 0, ARG(a->dlogits),
	       ARG(a->logits), ARG(a->target), ARG(a->lse), ARG(a->entropy),
	       ARG(a->dlp), ARG(a->dent), ARG(a->v), ARG(a->inv_temp));
}

void cuda_sample(struct gpu *g, const struct gpu_sample *a)
{
	struct cuda *c = of(g);

	LAUNCH(sample, a->m, 1, 1, 1024, 0, ARG(a->id), ARG(a->logprob),
	       ARG(a->logits), ARG(a->temp), ARG(a->top_p), ARG(a->top_k),
	       ARG(a->min_p), ARG(a->u), ARG(a->v));
}

void cuda_adamw(struct gpu *g, const struct gpu_adamw *a)
{
	struct cuda *c = of(g);
	unsigned long long n = a->n;

	LAUNCH(adamw, ceil_div(a->n, THREADS), 1, 1, THREADS, 0, ARG(a->w),
	       ARG(a->m), ARG(a->v), ARG(a->g), ARG(a->out), &n, ARG(a->lr),
	       ARG(a->beta1), ARG(a->beta2), ARG(a->eps), ARG(a->decay),
	       ARG(a->c1), ARG(a->c2), ARG(a->gscale));
}

void cuda_sumsq(struct gpu *g, const struct gpu_sumsq *a)
{
	struct cuda *c = of(g);
	double *part = cuda_work(c);
	unsigned long long n = a->n;
	int blocks = 512;

	LAUNCH(sumsq, blocks, 1, 1, 512, 0, &part, ARG(a->x), &n);
	LAUNCH(sum_double, 1, 1, 1, 512, 0, ARG(a->out), &part, &blocks);
}
