/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations on CUDA: which kernel, and in which shape.
 */
#include "gpu/cuda.h"
#include "gpu/cuda/args.h"

#define THREADS 256
#define PARTS	64		/* at most, of a sum over rows */
#define WIDE_PARTS 256
#define PART_BYTES ((size_t)16 << 20)	/* sums of parts of keys */
#define STREAM_PARTS 64		/* stream.cuh's */
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

#define LAUNCH_EARLY(kernel, gx, gy, gz, threads, shared, ...) \
	do { \
		void *list[] = { __VA_ARGS__ }; \
		cuda_launch_early(c, c->kernel, \
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

/* Whether rows of c elements are whole pieces of 16 bytes. */
static int wide(const struct cuda *c, int n)
{
	return c->g.act == GPU_BF16 && n % 8 == 0;
}

/* Likewise, with weights of a norm that begin at such a piece. */
static int wide_row(const struct cuda *c, int n, const void *w)
{
	return wide(c, n) && (uintptr_t)w % 16 == 0;
}

/* Whether a head's pieces are shared by 2^k threads of a warp. */
static int wide_head(const struct cuda *c, int dim)
{
	return wide(c, dim) && dim >= 16 && dim <= 256 && !(dim & (dim - 1));
}

void cuda_rmsnorm(struct gpu *g, const struct gpu_rmsnorm *a)
{
	struct cuda *c = of(g);
	size_t warps = ceil_div((size_t)a->t, THREADS / 32);

	/* Which one depends on the width alone: rows have the same bits. */
	if (wide_row(c, a->c, a->w) && a->c <= 1024)
		LAUNCH_EARLY(wide_norm_4, warps, 1, 1, THREADS, 0, ARG(a->y),
			     ARG(a->x), ARG(a->w), ARG(a->t), ARG(a->c),
			     ARG(a->eps));
	else if (wide_row(c, a->c, a->w) && a->c <= 2048)
		LAUNCH_EARLY(wide_norm_8, warps, 1, 1, THREADS, 0, ARG(a->y),
			     ARG(a->x), ARG(a->w), ARG(a->t), ARG(a->c),
			     ARG(a->eps));
	else if (wide_row(c, a->c, a->w) && a->c <= 4096)
		LAUNCH_EARLY(wide_norm_16, warps, 1, 1, THREADS, 0,
			     ARG(a->y), ARG(a->x), ARG(a->w), ARG(a->t),
			     ARG(a->c), ARG(a->eps));
	else
		LAUNCH(rmsnorm, a->t, 1, 1, THREADS, 0, ARG(a->y), ARG(a->x),
		       ARG(a->w), ARG(a->c), ARG(a->eps));
}

/* out += sums over rows of dy, or of dy x inv. */
static void add_columns(struct cuda *c, void *out, const void *dy,
			const void *x, const float *inv, int t, int n,
			float *part)
{
	int parts = (int)ceil_div((size_t)t, 64), per;
	/* The work space has 64 floats a column and 17 MiB. */
	int most = wide(c, n) ? PARTS + ((4 << 20) / n) : PARTS;
	size_t blocks = ceil_div((size_t)n, THREADS);

	most = most < WIDE_PARTS ? most : WIDE_PARTS;
	parts = parts < most ? parts : most;
	per = (int)ceil_div((size_t)t, (size_t)parts);
	parts = (int)ceil_div((size_t)t, (size_t)per);
	if (wide(c, n))
		LAUNCH(wide_parts, ceil_div((size_t)n, 2 * THREADS), parts, 1,
		       THREADS, 0, &part, ARG(dy), ARG(x), ARG(inv), &t, &n,
		       &per);
	else
		LAUNCH(column_parts, blocks, parts, 1, THREADS, 0, &part,
		       ARG(dy), ARG(x), ARG(inv), &t, &n, &per);
	LAUNCH(add_parts, blocks, 1, 1, THREADS, 0, &out, &part, &parts, &n);
}

/* In parts of a row for each of so many blocks. */
static void wide_norm_back(struct cuda *c, cu_fn fn, int blocks,
			   const struct gpu_rmsnorm_back *a)
{
	float *part = cuda_work(c);
	void *args[] = { ARG(a->dx), &part, ARG(a->dy), ARG(a->x), ARG(a->w),
			 ARG(a->t), ARG(a->c), ARG(a->eps) };

	cuda_launch(c, fn, (struct cuda_grid){ (unsigned)blocks, 1, 1 },
		    THREADS, (unsigned)a->c * sizeof(float), args);
	LAUNCH(add_parts, ceil_div((size_t)a->c, THREADS), 1, 1, THREADS, 0,
	       ARG(a->dw), &part, &blocks, ARG(a->c));
}

void cuda_rmsnorm_back(struct gpu *g, const struct gpu_rmsnorm_back *a)
{
	struct cuda *c = of(g);
	float *inv = cuda_work(c), *part = inv + (a->t + 1) / 2 * 2;
	int sms = c->dev->info.sms;

	if (wide_row(c, a->c, a->w) && a->c <= 1024) {
		wide_norm_back(c, c->wide_norm_back_4, 2 * sms, a);
		return;
	}
	if (wide_row(c, a->c, a->w) && a->c <= 2048) {
		wide_norm_back(c, c->wide_norm_back_8, sms, a);
		return;
	}
	if (wide_row(c, a->c, a->w) && a->c <= 4096) {
		wide_norm_back(c, c->wide_norm_back_16, sms, a);
		return;
	}
	LAUNCH(rmsnorm_dx, a->t, 1, 1, THREADS, 0, ARG(a->dx), &inv,
	       ARG(a->dy), ARG(a->x), ARG(a->w), ARG(a->c), ARG(a->eps));
	add_columns(c, a->dw, a->dy, a->x, inv, a->t, a->c, part);
}

void cuda_swiglu(struct gpu *g, const struct gpu_swiglu *a)
{
	struct cuda *c = of(g);
	unsigned long long n = (unsigned long long)a->t *
			       (unsigned long long)a->f;

	LAUNCH(swiglu, ceil_div(n, 4 * THREADS), 1, 1, THREADS, 0, ARG(a->out),
	       ARG(a->gu), &n, ARG(a->f));
}

void cuda_swiglu_back(struct gpu *g, const struct gpu_swiglu_back *a)
{
	struct cuda *c = of(g);
	unsigned long long n = (unsigned long long)a->t *
			       (unsigned long long)a->f;

	LAUNCH(swiglu_back, ceil_div(n, 4 * THREADS), 1, 1, THREADS, 0,
	       ARG(a->dgu), ARG(a->out), ARG(a->dout), ARG(a->gu), &n,
	       ARG(a->f));
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
		      const void *b, const void *add, int m, int n, int k,
		      int ta, int tb, enum gpu_type type)
{
	const struct cublas_product p = {
		.c = out, .a = a, .b = b, .add = add ? add : out, .m = m,
		.n = n, .k = k, .ta = ta, .tb = tb, .beta = add ? 1 : 0,
		.in = c->g.act, .out = type
	};

	if (!c->g.failed.code)
		cublas_run(c->blas, c->dev->stream, c->g.work, &p,
			   &c->g.failed);
}

static void by_kernel(struct cuda *c, const struct gpu_linear *a)
{
	struct product p = {
		.y = a->y, .x = a->x, .w = a->w, .bias = a->bias, .m = a->m,
		.n = a->n, .k = a->k, .add = a->add, .wide = a->logits
	};
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

static void linear(struct gpu *g, const struct gpu_linear *a)
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
	by_cublas(c, a->y, a->w, a->x, a->bias ? a->y : a->add, a->n, a->m,
		  a->k, 1, 0, out);
}

#define ROW_WARPS 16			/* row.cuh's */
#define ROW_PIECE 512
#define ROW_SLOT  2048

/* Turns that a warp takes when so many share a pair of columns. */
static size_t row_turns(const struct cuda *c, size_t pairs, size_t share)
{
	return ceil_div(pairs, (size_t)c->dev->info.sms * ROW_WARPS / share);
}

/* How many of them leave the least to be read by one. */
static size_t row_share(const struct cuda *c, size_t pairs, size_t pieces)
{
	size_t best = 1, least = SIZE_MAX;

	for (size_t share = 1; share <= 4; share *= 2) {
		size_t steps = row_turns(c, pairs, share) *
			       ceil_div(pieces, share);

		if (steps < least) {
			least = steps;
			best = share;
		}
	}
	return best;
}

static struct rotation rotation_of(const struct gpu_rope *a)
{
	return (struct rotation){
		a->q, a->k, a->v, a->qkv, a->table, a->qn, a->kn, a->pos,
		a->slot, a->heads, a->kv_heads, a->dim, a->eps
	};
}

/* One row with what is around it. */
static int by_row(struct cuda *c, const struct gpu_linear *a)
{
	size_t pairs = ceil_div((size_t)a->n, 2);
	size_t pieces = ceil_div((size_t)a->k, ROW_PIECE), slots, bytes;
	struct row_product p = {
		.p = {
			.y = a->act ? a->act : a->y, .x = a->x, .w = a->w,
			.bias = a->bias, .m = 1, .n = a->n, .k = a->k,
			.add = a->add, .wide = a->logits, .norm = a->norm,
			.eps = a->eps, .gated = a->act != NULL
		},
		.rope = a->rope != NULL,
		.share = (int)row_share(c, pairs, pieces),
	};

	if ((c->g.flags & GPU_EXACT) || c->g.act != GPU_BF16 ||
	    a->wtype != GPU_BF16 || a->m != 1 || a->k % 8 ||
	    ((a->act || a->rope) && !a->lean) ||
	    (a->act && a->n % 2) || (a->rope && a->rope->qn))
		return 0;
	if (a->rope)
		p.r = rotation_of(a->rope);
	bytes = pieces * ROW_PIECE * sizeof(float) + 2 * sizeof(float) *
		ROW_WARPS * row_turns(c, pairs, (size_t)p.share);
	slots = bytes + 3 * ROW_WARPS * ROW_SLOT <= cuda_row_bytes(c, 3) ?
		3 : 2;
	bytes += slots * ROW_WARPS * ROW_SLOT;
	if (bytes > cuda_row_bytes(c, 2))
		return 0;
	if (slots == 3)
		LAUNCH_EARLY(gemv_row_3, c->dev->info.sms, 1, 1,
			     32 * ROW_WARPS, (unsigned)bytes, &p);
	else
		LAUNCH_EARLY(gemv_row_2, c->dev->info.sms, 1, 1,
			     32 * ROW_WARPS, (unsigned)bytes, &p);
	return 1;
}

void cuda_linear(struct gpu *g, const struct gpu_linear *whole)
{
	struct cuda *c = of(g);
	struct gpu_linear part = *whole, *a = &part;

	if (by_row(c, whole))
		return;
	if (a->norm) {
		cuda_rmsnorm(g, &(struct gpu_rmsnorm){
			a->normed, a->x, a->norm, a->m, a->k, a->eps });
		a->x = a->normed;
	}
	linear(g, a);
	if (a->act)
		cuda_swiglu(g, &(struct gpu_swiglu){ a->act, a->y, a->m,
						     a->n / 2 });
	if (a->rope)
		cuda_rope(g, a->rope);
}

void cuda_linear_back(struct gpu *g, const struct gpu_linear_back *a)
{
	struct cuda *c = of(g);

	if (a->dx)
		by_cublas(c, a->dx, a->w, a->dy, NULL, a->k, a->m, a->n, 0,
			  0, g->act);
	if (a->dw)
		by_cublas(c, a->dw, a->x, a->dy, a->dw, a->k, a->n, a->m, 0,
			  1, GPU_F32);
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
	struct rotation r = rotation_of(a);
	size_t warps = (size_t)a->t * (size_t)(a->heads + 2 * a->kv_heads);

	if (wide_head(c, a->dim)) {
		LAUNCH_EARLY(wide_rope, ceil_div(warps * (size_t)a->dim / 16,
					   THREADS), 1, 1, THREADS, 0, &r,
		       ARG(a->t));
		return;
	}
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

	if (!part && wide_head(c, a->dim)) {
		size_t warps = (size_t)a->t *
			       (size_t)(a->heads + 2 * a->kv_heads);

		LAUNCH(wide_rope_back, ceil_div(warps * (size_t)a->dim / 16,
						THREADS), 1, 1, THREADS, 0,
		       &r);
		return;
	}
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

/* Parts of the keys for whose sums there is room. */
static size_t parts_room(const struct gpu_attn *a, size_t most)
{
	size_t room = PART_BYTES / ((size_t)a->rows * (size_t)a->heads *
				    (size_t)(a->dim + 1) * sizeof(float));
	size_t keys = (size_t)a->max_len / 256;

	most = most < keys ? most : keys;
	return most < room ? most : room;
}

static int whole_keys(const struct cuda *c, const struct gpu_attn *a)
{
	return (c->g.flags & GPU_EXACT) || a->lse;
}

/* Into how many parts the keys are divided, so that all of the GPU works. */
static int parts_of(const struct cuda *c, const struct gpu_attn *a,
		    size_t blocks)
{
	/* Two blocks for each multiprocessor. */
	size_t parts = 2 * (size_t)c->dev->info.sms / blocks;
	size_t most = parts_room(a, 32);

	parts = parts < most ? parts : most;
	return whole_keys(c, a) || parts < 2 ? 1 : (int)parts;
}

/* Likewise of streaming blocks, of which a multiprocessor has one at a time:
 * what fills the GPU once, twice, ..., with the fewest turns, of a tile of 128
 * keys each and one to begin; the parts' sums have to be written and read, of
 * which 54,000 take a turn's sixteenth. */
static int stream_parts(const struct cuda *c, const struct gpu_attn *a,
			size_t blocks)
{
	size_t sums = (size_t)a->rows * (size_t)a->heads * (size_t)a->dim;
	size_t most = whole_keys(c, a) ? 1 : parts_room(a, STREAM_PARTS);
	size_t tiles = ceil_div((size_t)a->max_len, 128);
	size_t sms = (size_t)c->dev->info.sms, least = SIZE_MAX, best = 1;

	for (size_t fill = 0; fill <= 4; fill++) {
		size_t parts = fill * sms / blocks, cost;

		parts = parts < most ? parts : most;
		parts = parts > 1 ? parts : 1;
		cost = 16 * ceil_div(blocks * parts, sms) *
		       (ceil_div(tiles, parts) + 1);
		if (parts > 1)
			cost += 16 + parts * sums / 54000;
		if (cost < least) {
			least = cost;
			best = parts;
		}
	}
	return (int)best;
}

#ifndef HEAVY_FIRST
#define HEAVY_FIRST 0			/* hopper.cuh's */
#endif

/* A block for each tile of a head's rows in a sequence or part of one. */
static struct cuda_grid tile_grid(size_t tiles, int heads, int seqs)
{
	struct cuda_grid g = { (unsigned)tiles, (unsigned)heads,
			       (unsigned)seqs };

	if (HEAVY_FIRST)
		g = (struct cuda_grid){ g.y, g.z, g.x };
	return g;
}

static void join_parts(struct cuda *c, struct attention *t)
{
	size_t blocks = ceil_div((size_t)t->rows * (size_t)t->heads,
				 THREADS / 32);

	if (c->hopper > 1)
		LAUNCH_EARLY(stream_join, blocks, 1, 1, THREADS, 0, t);
	else
		LAUNCH_EARLY(wg_merge, blocks, 1, 1, THREADS, 0, t);
}

static void hopper_attn(struct cuda *c, const struct gpu_attn *a,
			struct attention *t)
{
	size_t packed = (size_t)a->max_rows *
			(size_t)(a->heads / a->kv_heads);
	int groups = packed <= 64 ? 1 : a->dim == 64 ? 3 : 2, more = 0;
	int streams = groups > 1 && c->hopper > 1 &&
		      !(c->g.flags & GPU_EXACT);
	size_t tiles = ceil_div(packed, 64 * (size_t)groups);
	size_t blocks = tiles * (size_t)a->kv_heads * (size_t)a->nseq;
	unsigned shared = cuda_hopper_bytes(a->dim, 64 * groups + 4 * 128);
	cu_fn fn = a->dim == 64 ? groups == 1 ? c->wg_64_1 : c->wg_64_3 :
		   groups == 1 ? c->wg_128_1 : c->wg_128_2;
	void *args[] = { t };

	if (streams) {
		fn = a->dim == 64 ? c->stream_64 : c->stream_128;
		shared = cuda_hopper_bytes(a->dim, a->dim == 64 ?
			HOPPER_STREAM_64 : HOPPER_STREAM_128);
		more = 1;
	}
	t->parts = streams ? stream_parts(c, a, blocks) :
		   parts_of(c, a, blocks);
	t->part = cuda_work(c);
	t->part_lse = t->part + (size_t)t->parts * (size_t)a->rows *
		      (size_t)a->heads * (size_t)a->dim;
	cuda_launch_early(c, fn, tile_grid(tiles, a->kv_heads,
					   a->nseq * t->parts),
			  128 * (unsigned)(groups + more), shared, args);
	if (t->parts > 1)
		join_parts(c, t);
}

void cuda_attn(struct gpu *g, const struct gpu_attn *a)
{
	struct cuda *c = of(g);
	struct attention t = {
		.out = a->out, .lse = a->lse, .q = a->q, .k = a->k, .v = a->v,
		.first = a->first, .len = a->len, .pages = a->pages,
		.nseq = a->nseq, .stride = a->stride, .rows = a->rows,
		.heads = a->heads, .kv_heads = a->kv_heads, .dim = a->dim,
		.scale = a->scale, .parts = 1
	};
	size_t tiles = ceil_div((size_t)a->max_rows, 64);

	if (has_tiles(c, a->dim) && c->hopper) {
		hopper_attn(c, a, &t);
		return;
	}
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

static void hopper_back(struct cuda *c, struct attention_back *t,
			size_t most)
{
	size_t rows = most * (size_t)(t->heads / t->kv_heads);
	unsigned dq = cuda_hopper_bytes(t->dim, t->dim == 64 ? HOPPER_DQ_64 :
					HOPPER_DQ_128);
	unsigned dkdv = cuda_hopper_bytes(t->dim, HOPPER_DKDV);
	void *args[] = { t };

	cuda_launch(c, t->dim == 64 ? c->wg_dq_64 : c->wg_dq_128,
		    tile_grid(ceil_div(rows, t->dim == 64 ? 64 : 128),
			      t->kv_heads, t->nseq),
		    t->dim == 64 ? 128 : 256, dq, args);
	cuda_launch(c, t->dim == 64 ? c->wg_dkdv_64 : c->wg_dkdv_128,
		    tile_grid(ceil_div(most, 128), t->kv_heads, t->nseq),
		    256, dkdv, args);
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

	if (wide_head(c, a->dim))
		LAUNCH(wide_delta, ceil_div(warps * (size_t)a->dim / 8,
					    THREADS), 1, 1, THREADS, 0, &t);
	else
		LAUNCH(attn_delta, ceil_div(warps, THREADS / 32), 1, 1,
		       THREADS, 0, &t);
	if (has_tiles(c, a->dim) && c->hopper) {
		hopper_back(c, &t, (size_t)a->max_rows);
		return;
	}
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

	LAUNCH_EARLY(sample, a->m, 1, 1, 1024, 0, ARG(a->id), ARG(a->logprob),
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
