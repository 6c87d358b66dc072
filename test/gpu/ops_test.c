/* SPDX-License-Identifier: Apache-2.0
 *
 * Every operation of lib/gpu on CUDA against its twin on the CPU, with fp32
 * and with bf16 activations, on the same numbers.
 */
#include "../lib/tests.h"

#include <math.h>
#include <stdio.h>

#include "base/rand.h"
#include "gpu/gpu.h"

#define ROOM ((size_t)256 << 20)

static enum gpu_type act;
static struct side {
	struct gpu *g;
	struct gpu_plan plan;
	void *base, *work;
	size_t used;
} side[2];				/* CPU, CUDA */
static struct rng rng;

/* Type of an array on a side: activations are fp32 on the CPU. */
static enum gpu_type type_on(int s, int is_act)
{
	return is_act && s ? act : GPU_F32;
}

static float *numbers(size_t n, double scale, int is_act)
{
	float *x = calloc(n, sizeof *x);
	uint16_t h;

	for (size_t i = 0; i < n; i++) {
		x[i] = (float)(scale * (2 * rng_unit(&rng) - 1));
		if (is_act && act == GPU_BF16) {
			gpu_narrow(&h, &x[i], GPU_BF16, 1);
			gpu_widen(&x[i], &h, GPU_BF16, 1);
		}
	}
	return x;
}

static void *room(int s, size_t bytes)
{
	void *p = (char *)side[s].base + side[s].used;

	side[s].used += (bytes + 255) / 256 * 256;
	assert_true(side[s].used < ROOM);
	return p;
}

static void *put(int s, const float *x, size_t n, int is_act)
{
	enum gpu_type t = type_on(s, is_act);
	void *p = room(s, n * 4), *raw = malloc(n * 4);

	gpu_narrow(raw, x, t, n);
	gpu_upload(side[s].g, p, raw, n * gpu_type_size(t));
	assert_int_equal(gpu_sync(side[s].g, NULL), 0);
	free(raw);
	return p;
}

static void *put_ints(int s, const int32_t *x, size_t n)
{
	void *p = room(s, n * 4);

	gpu_upload(side[s].g, p, x, n * 4);
	return p;
}

static float *get(int s, const void *p, size_t n, int is_act)
{
	enum gpu_type t = type_on(s, is_act);
	void *raw = malloc(n * 4);
	float *x = malloc(n * 4);
	struct err e = ERR_INIT;

	if (gpu_download(side[s].g, raw, p, n * gpu_type_size(t), &e))
		fail_msg("%s", e.msg);
	gpu_widen(x, raw, t, n);
	free(raw);
	return x;
}

/* Relative L2 distance of n numbers at p[0] and p[1]. */
static void same(const char *what, void *const p[2], size_t n, int is_act)
{
	float *a = get(0, p[0], n, is_act), *b = get(1, p[1], n, is_act);
	double off = 0, all = 0, rel, limit = act == GPU_BF16 ? 1.5e-2 : 2e-5;

	for (size_t i = 0; i < n; i++) {
		off += pow((double)a[i] - (double)b[i], 2);
		all += pow((double)a[i], 2);
	}
	rel = sqrt(off / (all + 1e-30));
	print_message("# %s %s: %.2g\n", gpu_type_name(act), what, rel);
	if (!(rel <= limit))
		fail_msg("%s: off by %g, %g allowed", what, rel, limit);
	free(a);
	free(b);
}

static int open_sides(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	rng_seeded(&rng, 11);
	side[0].g = gpu_open("cpu", GPU_F32, 0, &e);
	side[1].g = gpu_open("cuda", act, 0, &e);
	for (int s = 0; s < 2; s++) {
		size_t n;

		if (!side[s].g)
			return 0;
		n = gpu_work_size(side[s].g, 4096, 4096, 1 << 22);
		gpu_plan_add(&side[s].plan, "test", &side[s].base, ROOM, 1);
		gpu_plan_add(&side[s].plan, "work", &side[s].work, n, 1);
		if (gpu_plan_commit(side[s].g, &side[s].plan, &e))
			return -1;
		gpu_set_work(side[s].g, side[s].work, n);
	}
	return 0;
}

static int close_sides(void **state)
{
	(void)state;
	for (int s = 0; s < 2; s++) {
		if (side[s].g)
			gpu_plan_release(side[s].g, &side[s].plan);
		gpu_close(side[s].g);
		memset(&side[s], 0, sizeof side[s]);
	}
	return 0;
}

static void begin(void)
{
	struct err e = ERR_INIT;

	if (!side[1].g) {
		gpu_close(gpu_open("cuda", act, 0, &e));
		print_message("# %s\n", e.msg);
		skip();
	}
	side[0].used = side[1].used = 0;
}

static void linear(int m, int n, int k, int add, int logits, int bias)
{
	size_t mn = (size_t)m * (size_t)n;
	float *x = numbers((size_t)m * (size_t)k, 1, 1);
	float *w = numbers((size_t)n * (size_t)k, 0.1, 1);
	float *b = numbers((size_t)n, 1, 0), *y = numbers(mn, 1, 1);
	void *out[2];
	char what[80];

	for (int s = 0; s < 2; s++) {
		out[s] = put(s, y, mn, !logits);
		gpu_do_linear(side[s].g, &(struct gpu_linear){
			.y = out[s], .x = put(s, x, (size_t)m * (size_t)k, 1),
			.w = put(s, w, (size_t)n * (size_t)k, 1),
			.bias = bias ? put(s, b, (size_t)n, 0) : NULL,
			.add = add ? out[s] : NULL, .m = m, .n = n, .k = k,
			.logits = logits,
			.wtype = type_on(s, 1) });
	}
	snprintf(what, sizeof what, "linear %d x %d x %d", m, n, k);
	same(what, out, mn, !logits);
	free(x);
	free(w);
	free(b);
	free(y);
}

static void products(void **state)
{
	static const int rows[] = { 1, 2, 3, 7, 8, 9, 64, 300 };

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		begin();
		linear(rows[i], 256, 192, 0, 0, 0);
		linear(rows[i], 200, 136, 1, 0, 1);
		linear(rows[i], 1000, 64, 0, 1, 0);
		linear(rows[i], 77, 60, 0, 0, 1);
		linear(rows[i], 257, 64, 1, 1, 1);
	}
}

/* A norm before the product, swiglu behind it. */
static void products_around(void **state)
{
	enum { N = 96 };
	static const struct { int m, k; } of[] = {
		{ 1, 576 }, { 1, 1096 }, { 1, 4000 }, { 1, 8192 },
		{ 5, 1096 }, { 70, 1096 },
	};
	float *x, *w, *b, *n;
	void *y[2], *out[2];

	(void)state;
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		size_t m = (size_t)of[i].m, K = (size_t)of[i].k;

		begin();
		x = numbers(m * K, 1, 1);
		w = numbers(N * K, 0.1, 1);
		b = numbers(N, 1, 0);
		n = numbers(K, 1, 0);
		for (int s = 0; s < 2; s++) {
			struct gpu_linear a = {
				.y = y[s] = room(s, m * N * 4),
				.x = put(s, x, m * K, 1),
				.w = put(s, w, N * K, 1),
				.bias = put(s, b, N, 0), .m = of[i].m, .n = N,
				.k = of[i].k, .wtype = type_on(s, 1),
				.norm = put(s, n, K, 0),
				.normed = room(s, m * K * 4), .eps = 1e-5f
			};

			gpu_do_linear(side[s].g, &a);
			out[s] = a.act = room(s, m * N * 2);
			a.y = room(s, m * N * 4);
			a.lean = 1;
			gpu_do_linear(side[s].g, &a);
		}
		same("norm, then linear", y, m * N, 1);
		same("norm, linear, swiglu", out, m * N / 2, 1);
		free(x);
		free(w);
		free(b);
		free(n);
	}
}

/* Rotations behind the product, of one row and of some. */
static void products_turned(void **state)
{
	enum { H = 3, KV = 2, D = 64, N = (H + 2 * KV) * D, K = 576, T = 5 };
	float *x = numbers(T * K, 1, 1), *w = numbers(N * K, 0.1, 1);
	float *b = numbers(N, 1, 0), *n = numbers(K, 1, 0);
	float *tab = numbers(T * D, 1, 0);
	const int32_t pos[T] = { 3, 0, 4, 1, 2 }, slot[T] = { 2, 4, 0, 1, 3 };
	void *q[2], *k[2], *v[2];

	(void)state;
	for (int m = 1; m <= T; m += T - 1) {
		begin();
		for (int s = 0; s < 2; s++) {
			void *qkv = room(s, T * N * 4);
			const struct gpu_rope r = {
				.q = q[s] = room(s, T * H * D * 4),
				.k = k[s] = put(s, x, T * KV * D, 1),
				.v = v[s] = put(s, x, T * KV * D, 1),
				.qkv = qkv, .table = put(s, tab, T * D, 0),
				.pos = put_ints(s, pos, T),
				.slot = put_ints(s, slot, T), .t = m,
				.heads = H, .kv_heads = KV, .dim = D
			};

			gpu_do_linear(side[s].g, &(struct gpu_linear){
				.y = qkv, .x = put(s, x, T * K, 1),
				.w = put(s, w, N * K, 1),
				.bias = put(s, b, N, 0), .m = m, .n = N,
				.k = K, .wtype = type_on(s, 1),
				.norm = put(s, n, K, 0),
				.normed = room(s, T * K * 4), .eps = 1e-5f,
				.rope = &r, .lean = 1 });
		}
		same("norm, linear, rope: q", q, (size_t)(m * H * D), 1);
		same("norm, linear, rope: k", k, T * KV * D, 1);
		same("norm, linear, rope: v", v, T * KV * D, 1);
	}
	free(x);
	free(w);
	free(b);
	free(n);
	free(tab);
}

static void products_back(void **state)
{
	enum { M = 200, N = 256, K = 192 };
	float *x, *w, *dy, *dw, *db;
	void *out[3][2];

	(void)state;
	begin();
	x = numbers(M * K, 1, 1);
	w = numbers(N * K, 0.1, 1);
	dy = numbers(M * N, 1, 1);
	dw = numbers(N * K, 1, 0);
	db = numbers(N, 1, 0);
	for (int s = 0; s < 2; s++) {
		out[0][s] = put(s, x, M * K, 1);
		out[1][s] = put(s, dw, N * K, 0);
		out[2][s] = put(s, db, N, 0);
		gpu_do_linear_back(side[s].g, &(struct gpu_linear_back){
			.dx = out[0][s], .dw = out[1][s], .db = out[2][s],
			.dy = put(s, dy, M * N, 1), .x = put(s, x, M * K, 1),
			.w = put(s, w, N * K, 1), .m = M, .n = N, .k = K,
			.wtype = type_on(s, 1) });
	}
	same("linear: dx", out[0], M * K, 1);
	same("linear: dw", out[1], N * K, 0);
	same("linear: db", out[2], N, 0);
	free(x);
	free(w);
	free(dy);
	free(dw);
	free(db);
}

static void rows_of_things(void **state)
{
	enum { T = 150, C = 192, V = 40 };
	float *x, *w, *dy, *dx, *table;
	int32_t ids[T], order[T], index[T];
	void *norm[2], *ndx[2], *ndw[2], *emb[2], *demb[2], *got[2];
	int n = 0;

	(void)state;
	begin();
	x = numbers(T * C, 1, 1);
	w = numbers(C, 1, 0);
	dy = numbers(T * C, 1, 1);
	dx = numbers(T * C, 1, 1);
	table = numbers(V * C, 1, 1);
	for (int i = 0; i < T; i++) {
		ids[i] = (int32_t)rng_below(&rng, V);
		index[i] = (i * 7) % T;
	}
	for (int v = 0; v < V; v++)
		for (int i = 0; i < T; i++)
			if (ids[i] == v)
				order[n++] = i;
	for (int s = 0; s < 2; s++) {
		struct gpu *g = side[s].g;
		void *xs = put(s, x, T * C, 1), *ws = put(s, w, C, 0);
		void *ds = put(s, dy, T * C, 1), *is = put_ints(s, ids, T);

		norm[s] = room(s, T * C * 4);
		emb[s] = room(s, T * C * 4);
		got[s] = room(s, T * C * 4);
		ndx[s] = put(s, dx, T * C, 1);
		ndw[s] = put(s, w, C, 0);
		demb[s] = put(s, table, V * C, 0);
		gpu_do_rmsnorm(g, &(struct gpu_rmsnorm){
			norm[s], xs, ws, T, C, 1e-5f });
		gpu_do_rmsnorm_back(g, &(struct gpu_rmsnorm_back){
			ndx[s], ndw[s], ds, xs, ws, T, C, 1e-5f });
		gpu_do_embed(g, &(struct gpu_embed){
			emb[s], put(s, table, V * C, 1), is, T, C,
			type_on(s, 1) });
		gpu_do_embed_back(g, &(struct gpu_embed_back){
			demb[s], ds, is, put_ints(s, order, T), T, C });
		gpu_do_rows(g, &(struct gpu_rows){
			got[s], xs, put_ints(s, index, T), T, C });
	}
	same("rmsnorm", norm, T * C, 1);
	same("rmsnorm: dx", ndx, T * C, 1);
	same("rmsnorm: dw", ndw, C, 0);
	same("embed", emb, T * C, 1);
	same("embed: dw", demb, V * C, 0);
	same("rows", got, T * C, 1);
	for (int s = 0; s < 2; s++)
		gpu_do_rows_back(side[s].g, &(struct gpu_rows){
			norm[s], got[s], put_ints(s, index, T), T, C });
	same("rows: back", norm, T * C, 1);
	free(x);
	free(w);
	free(dy);
	free(dx);
	free(table);
}

/* Rows by the thousand, and as wide as those of large models. */
static void norms_back(void **state)
{
	static const struct { int t, c; } of[] = {
		{ 2200, 192 }, { 1100, 2048 }, { 1100, 4096 },
	};
	float *x, *w, *dy, *dx;
	void *out[2], *dw[2];

	(void)state;
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		size_t c = (size_t)of[i].c, n = (size_t)of[i].t * c;

		begin();
		x = numbers(n, 1, 1);
		w = numbers(c, 1, 0);
		dy = numbers(n, 1, 1);
		dx = numbers(n, 1, 1);
		for (int s = 0; s < 2; s++) {
			out[s] = put(s, dx, n, 1);
			dw[s] = put(s, w, c, 0);
			gpu_do_rmsnorm_back(side[s].g,
					    &(struct gpu_rmsnorm_back){
				out[s], dw[s], put(s, dy, n, 1),
				put(s, x, n, 1), put(s, w, c, 0), of[i].t,
				of[i].c, 1e-5f });
		}
		same("rmsnorm of many rows: dx", out, n, 1);
		same("rmsnorm of many rows: dw", dw, c, 0);
		free(x);
		free(w);
		free(dy);
		free(dx);
	}
}

static void swiglu_and_score(void **state)
{
	enum { T = 130, F = 96 };
	float *gu, *d, *w, *y;
	void *out[2], *again[2], *dgu[2], *v[2], *dx[2], *dw[2], *db[2];

	(void)state;
	begin();
	gu = numbers(T * 2 * F, 3, 1);
	d = numbers(T * F, 1, 1);
	w = numbers(F + 1, 1, 0);
	y = numbers(T, 1, 0);
	for (int s = 0; s < 2; s++) {
		struct gpu *g = side[s].g;
		void *gs = put(s, gu, T * 2 * F, 1), *ds = put(s, d, T * F, 1);
		void *ws = put(s, w, F, 0), *bs = put(s, w + F, 1, 0);

		out[s] = room(s, T * F * 4);
		dgu[s] = room(s, T * 2 * F * 4);
		v[s] = room(s, (T + 1) * 4);
		dx[s] = room(s, T * F * 4);
		dw[s] = put(s, w, F, 0);
		db[s] = put(s, w, 1, 0);
		gpu_do_swiglu(g, &(struct gpu_swiglu){ out[s], gs, T, F });
		gpu_do_swiglu_back(g, &(struct gpu_swiglu_back){
			dgu[s], again[s] = room(s, T * F * 4), ds, gs, T, F });
		gpu_do_linear(g, &(struct gpu_linear){
			.y = v[s], .x = ds, .w = ws, .bias = bs, .m = T,
			.n = 1, .k = F, .logits = 1, .wtype = GPU_F32 });
		/* One row by itself takes another way. */
		gpu_do_linear(g, &(struct gpu_linear){
			.y = (float *)v[s] + T, .x = ds, .w = ws, .bias = bs,
			.m = 1, .n = 1, .k = F, .logits = 1,
			.wtype = GPU_F32 });
		gpu_do_score_back(g, &(struct gpu_score_back){
			dx[s], dw[s], db[s], put(s, y, T, 0), ds, ws, T, F });
	}
	same("swiglu", out, T * F, 1);
	same("swiglu: again", again, T * F, 1);
	same("swiglu: dgu", dgu, T * 2 * F, 1);
	same("score", v, T + 1, 0);
	same("score: dx", dx, T * F, 1);
	same("score: dw", dw, F, 0);
	same("score: db", db, 1, 0);
	free(gu);
	free(d);
	free(w);
	free(y);
}

/* Three sequences: attention of training, then of a step in pages. */
static void attention(int h, int kv, int d, int norms)
{
	enum { T = 300 };
	static const int32_t first[] = { 0, 1, 171, T };
	static const int32_t len[] = { 1, 170, 129 };
	int32_t pos[T], slot[T];
	size_t q = (size_t)(h * d), k = (size_t)(kv * d), row = q + 2 * k;
	float *qkv = numbers(T * row, 1, 1), *tab = numbers(T * (size_t)d, 1,
							   0);
	float *w = numbers((size_t)d * 2, 1, 0), *dout = numbers(T * q, 1, 1);
	void *r[3][2], *att[2], *lse[2], *g[3][2], *dqkv[2], *dqn[2];

	for (int s = 0, i = 0; s < 3; s++)
		for (; i < first[s + 1]; i++) {
			pos[i] = i - first[s];
			slot[i] = i;
		}
	for (int s = 0; s < 2; s++) {
		struct gpu *dev = side[s].g;
		void *in = put(s, qkv, T * row, 1), *ts = put(s, tab, T *
							   (size_t)d, 0);
		void *ws = norms ? put(s, w, 2 * (size_t)d, 0) : NULL;
		void *kn = norms ? (float *)ws + d : NULL;
		void *ps = put_ints(s, pos, T), *fs = put_ints(s, first, 4);
		void *ds = put(s, dout, T * q, 1);

		for (int i = 0; i < 3; i++) {
			r[i][s] = room(s, T * q * 4);
			g[i][s] = room(s, T * q * 4);
		}
		att[s] = room(s, T * q * 4);
		lse[s] = room(s, T * (size_t)h * 4);
		dqkv[s] = room(s, T * row * 4);
		dqn[s] = put(s, w, 2 * (size_t)d, 0);
		gpu_do_rope(dev, &(struct gpu_rope){
			r[0][s], r[1][s], r[2][s], in, ts, ps,
			put_ints(s, slot, T), ws, kn, T, h, kv, d, 1e-6f });
		gpu_do_attn(dev, &(struct gpu_attn){
			.out = att[s], .lse = lse[s], .q = r[0][s],
			.k = r[1][s], .v = r[2][s], .first = fs,
			.len = put_ints(s, len, 3), .nseq = 3, .rows = T,
			.max_rows = 170, .max_len = 170, .heads = h,
			.kv_heads = kv, .dim = d,
			.scale = 1 / sqrtf((float)d) });
		gpu_do_attn_back(dev, &(struct gpu_attn_back){
			.dq = g[0][s], .dk = g[1][s], .dv = g[2][s],
			.work = room(s, T * (size_t)h * 4), .dout = ds,
			.out = att[s], .lse = lse[s], .q = r[0][s],
			.k = r[1][s], .v = r[2][s], .first = fs, .nseq = 3,
			.rows = T, .max_rows = 170, .heads = h,
			.kv_heads = kv, .dim = d,
			.scale = 1 / sqrtf((float)d) });
		gpu_do_rope_back(dev, &(struct gpu_rope_back){
			dqkv[s], norms ? dqn[s] : NULL,
			norms ? (float *)dqn[s] + d : NULL, g[0][s], g[1][s],
			g[2][s], in, ts, ps, ws, kn, T, h, kv, d, 1e-6f });
	}
	print_message("# heads %d of %d, %d dimensions\n", h, kv, d);
	same("rope: q", r[0], T * q, 1);
	same("rope: k", r[1], T * k, 1);
	same("rope: v", r[2], T * k, 1);
	same("attention", att, T * q, 1);
	same("attention: lse", lse, T * (size_t)h, 0);
	same("attention: dq", g[0], T * q, 1);
	same("attention: dk", g[1], T * k, 1);
	same("attention: dv", g[2], T * k, 1);
	same("rope: dqkv", dqkv, T * row, 1);
	if (norms)
		same("rope: dqn, dkn", dqn, 2 * (size_t)d, 0);
	free(qkv);
	free(tab);
	free(w);
	free(dout);
}

static void attentions(void **state)
{
	(void)state;
	begin();
	attention(6, 2, 64, 0);
	begin();
	attention(4, 2, 128, 1);
	begin();
	attention(2, 1, 18, 0);
	begin();
	attention(2, 2, 256, 1);
}

/* Keys in pages, out of order; rows: one each, or several of one. */
static void paged(int d, int rows)
{
	enum { LEN = 100, PAGES = 8, H = 6, KV = 2 };
	const int32_t first[] = { 0, rows }, len[] = { LEN };
	const int32_t pages[PAGES] = { 5, 2, 7, 0, 1, 6, 3, 4 };
	size_t n = PAGES * GPU_PAGE * KV * (size_t)d;
	size_t q = (size_t)rows * H * (size_t)d;
	float *k = numbers(n, 1, 1), *v = numbers(n, 1, 1);
	float *x = numbers(q, 1, 1);
	void *out[2];

	for (int s = 0; s < 2; s++) {
		out[s] = room(s, q * 4);
		gpu_do_attn(side[s].g, &(struct gpu_attn){
			.out = out[s], .q = put(s, x, q, 1),
			.k = put(s, k, n, 1), .v = put(s, v, n, 1),
			.first = put_ints(s, first, 2),
			.len = put_ints(s, len, 1),
			.pages = put_ints(s, pages, PAGES), .nseq = 1,
			.stride = PAGES, .rows = rows, .max_rows = rows,
			.max_len = LEN, .heads = H, .kv_heads = KV, .dim = d,
			.scale = 0.2f });
	}
	same(rows > 1 ? "attention in pages, part of a prompt" :
	     "attention in pages, decoding", out, q, 1);
	free(k);
	free(v);
	free(x);
}

static void pages(void **state)
{
	static const int dims[] = { 64, 128, 32, 256 };

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		begin();
		paged(dims[i], 1);
		paged(dims[i], 70);
	}
}

static void heads(void **state)
{
	enum { M = 5, V = 1003 };
	static const float temp[M] = { 0, 1, 0.7f, 1, 2 };
	static const float top_p[M] = { 1, 1, 1, 0.5f, 0.9f };
	static const int32_t top_k[M] = { 0, 0, 10, 0, 3 };
	static const float min_p[M] = { 0, 0.05f, 0, 0.1f, 0 };
	float *logits, u[M];
	int32_t target[M], id[2][M];
	void *lp[2], *ent[2], *lse[2], *d[2], *slp[2], *sid[2];

	(void)state;
	begin();
	logits = numbers(M * V, 6, 0);
	for (int i = 0; i < M; i++) {
		target[i] = (int32_t)rng_below(&rng, V);
		u[i] = (float)rng_unit(&rng) * 0.99f;
	}
	for (int s = 0; s < 2; s++) {
		struct gpu *g = side[s].g;
		void *x = put(s, logits, M * V, 0);
		void *t = put_ints(s, target, M);

		lp[s] = room(s, M * 4);
		ent[s] = room(s, M * 4);
		lse[s] = room(s, M * 4);
		slp[s] = room(s, M * 4);
		sid[s] = room(s, M * 4);
		d[s] = room(s, M * V * 4);
		gpu_do_pick(g, &(struct gpu_pick){
			lp[s], ent[s], lse[s], x, t, M, V, 0.8f });
		gpu_do_pick_back(g, &(struct gpu_pick_back){
			d[s], x, t, lse[s], ent[s], put(s, u, M, 0),
			put(s, top_p, M, 0), M, V, 0.8f });
		gpu_do_sample(g, &(struct gpu_sample){
			sid[s], slp[s], x, put(s, temp, M, 0),
			put(s, top_p, M, 0), put_ints(s, top_k, M),
			put(s, min_p, M, 0), put(s, u, M, 0), M, V });
		assert_int_equal(gpu_download(g, id[s], sid[s], sizeof id[s],
					      NULL), 0);
	}
	same("log-probability", lp, M, 0);
	same("entropy", ent, M, 0);
	same("log-sum-exp", lse, M, 0);
	same("dlogits", d, M * V, 1);
	same("log-probability of what was drawn", slp, M, 0);
	for (int i = 0; i < M; i++)
		assert_int_equal(id[0][i], id[1][i]);
	free(logits);
}

static void optimiser(void **state)
{
	enum { N = 10007 };
	float *w, *m, *v, *grad;
	void *p[3][2], *sum[2];
	double s2[2];

	(void)state;
	begin();
	w = numbers(N, 1, 0);
	m = numbers(N, 0.1, 0);
	v = numbers(N, 0.1, 0);
	grad = numbers(N, 1, 0);
	for (int i = 0; i < N; i++)
		v[i] = fabsf(v[i]);
	for (int s = 0; s < 2; s++) {
		void *gs = put(s, grad, N, 0);

		p[0][s] = put(s, w, N, 0);
		p[1][s] = put(s, m, N, 0);
		p[2][s] = put(s, v, N, 0);
		sum[s] = room(s, 8);
		gpu_do_adamw(side[s].g, &(struct gpu_adamw){
			.w = p[0][s], .m = p[1][s], .v = p[2][s], .g = gs,
			.n = N, .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f,
			.eps = 1e-8f, .decay = 0.1f, .c1 = 0.5f, .c2 = 0.3f,
			.gscale = 0.7f });
		gpu_do_sumsq(side[s].g, &(struct gpu_sumsq){ sum[s], gs, N });
		assert_int_equal(gpu_download(side[s].g, &s2[s], sum[s], 8,
					      NULL), 0);
	}
	same("adamw: w", p[0], N, 0);
	same("adamw: m", p[1], N, 0);
	same("adamw: v", p[2], N, 0);
	assert_true(fabs(s2[0] - s2[1]) < 1e-9 * s2[0]);
	free(w);
	free(m);
	free(v);
	free(grad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products), cmocka_unit_test(products_around),
		cmocka_unit_test(products_turned),
		cmocka_unit_test(products_back),
		cmocka_unit_test(rows_of_things),
		cmocka_unit_test(swiglu_and_score),
		cmocka_unit_test(attentions), cmocka_unit_test(pages),
		cmocka_unit_test(heads), cmocka_unit_test(optimiser),
		cmocka_unit_test(norms_back),
	};
	int bad = 0;

	for (act = GPU_F32; act <= GPU_BF16; act++)
		bad += cmocka_run_group_tests_name(gpu_type_name(act), tests,
						   open_sides, close_sides);
	return bad;
}
