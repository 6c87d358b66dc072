/* SPDX-License-Identifier: Apache-2.0
 *
 * A token through small models at once (gpu_do_token) against the operations
 * one by one, both on CUDA in bf16: logits, and the keys and values that it
 * leaves; and the same bits twice.
 */
#include "../lib/tests.h"

#include <math.h>
#include <stdio.h>

#include "base/rand.h"
#include "gpu/gpu.h"

#define ROOM ((size_t)1 << 30)
#define LAYERS 2
#define EPS 1e-5f
#define SCALE 0.125f

static struct gpu *g;
static struct gpu_plan plan = GPU_PLAN_INIT;
static void *base, *work, *met;
static size_t used;
static struct rng rng;

struct shape {
	const char *name;
	int hidden, heads, kv, dim, inter, vocab, len, bias, qk_norm;
};

/* A model and what a step needs, on the device. */
struct model {
	struct shape s;
	struct gpu_layer layer[LAYERS];
	void *embed, *norm, *head, *table;
	void *ids, *pos, *slot, *first, *len, *pages;
	void *x, *normed, *qkv, *q, *att, *gu, *act, *logits;
};

static void *room(size_t bytes)
{
	void *p = (char *)base + used;

	used += (bytes + 255) / 256 * 256;
	assert_true(used < ROOM);
	return p;
}

/* n random numbers around `mean` on the device. */
static void *numbers(size_t n, float spread, float mean, enum gpu_type t)
{
	void *p = room(n * gpu_type_size(t)), *raw = malloc(n * 4);
	float *x = malloc(n * sizeof *x);

	for (size_t i = 0; i < n; i++)
		x[i] = mean + spread * (float)(2 * rng_unit(&rng) - 1);
	gpu_narrow(raw, x, t, n);
	gpu_upload(g, p, raw, n * gpu_type_size(t));
	assert_int_equal(gpu_sync(g, NULL), 0);
	free(raw);
	free(x);
	return p;
}

static void *ints(const int32_t *x, size_t n)
{
	void *p = room(n * 4);

	gpu_upload(g, p, x, n * 4);
	assert_int_equal(gpu_sync(g, NULL), 0);
	return p;
}

static int width(const struct shape *s)
{
	return (s->heads + 2 * s->kv) * s->dim;
}

static int pages_of(const struct shape *s)
{
	return (s->len + GPU_PAGE - 1) / GPU_PAGE;
}

static size_t cached(const struct shape *s)
{
	return (size_t)pages_of(s) * GPU_PAGE * (size_t)(s->kv * s->dim);
}

static void make_layer(struct gpu_layer *l, const struct shape *s)
{
	size_t h = (size_t)s->hidden, d = (size_t)s->dim;
	const size_t n[] = { (size_t)width(s), h, 2 * (size_t)s->inter, h };
	const size_t k[] = { h, (size_t)s->heads * d, h, (size_t)s->inter };

	memset(l, 0, sizeof *l);
	for (int i = 0; i < 4; i++) {
		l->w[i] = numbers(n[i] * k[i], 0.08f, 0, GPU_BF16);
		if (s->bias)
			l->bias[i] = numbers(n[i], 0.5f, 0, GPU_F32);
	}
	for (int i = 0; i < 2; i++)
		l->norm[i] = numbers(h, 0.3f, 1, GPU_F32);
	if (s->qk_norm) {
		l->qn = numbers(d, 0.3f, 1, GPU_F32);
		l->kn = numbers(d, 0.3f, 1, GPU_F32);
	}
	l->k = numbers(cached(s), 1, 0, GPU_BF16);
	l->v = numbers(cached(s), 1, 0, GPU_BF16);
}

static void make(struct model *m, const struct shape *s)
{
	size_t h = (size_t)s->hidden, e = 2, f = (size_t)s->inter;
	int32_t *page = calloc((size_t)pages_of(s), sizeof *page);
	int32_t at = s->len - 1, first[] = { 0, 1 }, id = 2, slot;

	used = 0;
	m->s = *s;
	for (int i = 0; i < LAYERS; i++)
		make_layer(&m->layer[i], s);
	for (int i = 0; i < pages_of(s); i++)
		page[i] = pages_of(s) - 1 - i;
	slot = page[at / GPU_PAGE] * GPU_PAGE + at % GPU_PAGE;
	m->embed = numbers(5 * h, 1, 0, GPU_BF16);
	m->norm = numbers(h, 0.3f, 1, GPU_F32);
	m->head = numbers((size_t)s->vocab * h, 0.1f, 0, GPU_BF16);
	m->table = numbers((size_t)(s->len * s->dim), 1, 0, GPU_F32);
	m->ids = ints(&id, 1);
	m->pos = ints(&at, 1);
	m->slot = ints(&slot, 1);
	m->first = ints(first, 2);
	m->len = ints(&s->len, 1);
	m->pages = ints(page, (size_t)pages_of(s));
	m->x = room(h * e);
	m->normed = room(h * e);
	m->qkv = room((size_t)width(s) * e);
	m->q = room((size_t)(s->heads * s->dim) * e);
	m->att = room((size_t)(s->heads * s->dim) * e);
	m->gu = room(2 * f * e);
	m->act = room(f * e);
	m->logits = room((size_t)s->vocab * sizeof(float));
	free(page);
}

/* y = x w^T + bias, or += with `add`; `norm` of x first. */
static void product(const struct model *m, const struct gpu_layer *l, int i,
		    void *y, const void *x, int n, int k)
{
	int normed = i == 0 || i == 2;

	if (normed)
		gpu_do_rmsnorm(g, &(struct gpu_rmsnorm){
			m->normed, x, l->norm[i / 2], 1, k, EPS });
	gpu_do_linear(g, &(struct gpu_linear){
		.y = y, .x = normed ? m->normed : x, .w = l->w[i],
		.bias = l->bias[i], .add = normed ? NULL : y, .m = 1, .n = n,
		.k = k, .wtype = GPU_BF16 });
}

static void one_by_one(const struct model *m)
{
	const struct shape *s = &m->s;
	int h = s->hidden, q = s->heads * s->dim;

	gpu_do_embed(g, &(struct gpu_embed){ m->x, m->embed, m->ids, 1, h,
					     GPU_BF16 });
	for (int i = 0; i < LAYERS; i++) {
		const struct gpu_layer *l = &m->layer[i];

		product(m, l, 0, m->qkv, m->x, width(s), h);
		gpu_do_rope(g, &(struct gpu_rope){
			m->q, l->k, l->v, m->qkv, m->table, m->pos, m->slot,
			l->qn, l->kn, 1, s->heads, s->kv, s->dim, EPS });
		gpu_do_attn(g, &(struct gpu_attn){
			.out = m->att, .q = m->q, .k = l->k, .v = l->v,
			.first = m->first, .len = m->len, .pages = m->pages,
			.nseq = 1, .stride = pages_of(s), .rows = 1,
			.max_rows = 1, .max_len = s->len, .heads = s->heads,
			.kv_heads = s->kv, .dim = s->dim, .scale = SCALE });
		product(m, l, 1, m->x, m->att, h, q);
		product(m, l, 2, m->gu, m->x, 2 * s->inter, h);
		gpu_do_swiglu(g, &(struct gpu_swiglu){ m->act, m->gu, 1,
						       s->inter });
		product(m, l, 3, m->x, m->act, h, s->inter);
	}
	gpu_do_rmsnorm(g, &(struct gpu_rmsnorm){ m->normed, m->x, m->norm, 1,
						 h, EPS });
	gpu_do_linear(g, &(struct gpu_linear){
		.y = m->logits, .x = m->normed, .w = m->head, .m = 1,
		.n = s->vocab, .k = h, .logits = 1, .wtype = GPU_BF16 });
}

static int at_once(const struct model *m)
{
	const struct shape *s = &m->s;
	void *layers = room(sizeof m->layer);

	gpu_upload(g, layers, m->layer, sizeof m->layer);
	assert_int_equal(gpu_sync(g, NULL), 0);
	return gpu_do_token(g, &(struct gpu_token){
		.layers = layers, .nlayers = LAYERS, .hidden = s->hidden,
		.heads = s->heads, .kv_heads = s->kv, .dim = s->dim,
		.inter = s->inter, .vocab = s->vocab, .wtype = GPU_BF16,
		.eps = EPS, .scale = SCALE, .embed = m->embed,
		.head = m->head, .norm = m->norm, .table = m->table,
		.ids = m->ids, .pos = m->pos, .slot = m->slot,
		.len = m->len, .pages = m->pages, .logits = m->logits,
		.met = met });
}

/* Everything that is compared: logits, then the last layer's keys and
 * values. */
static float *results(const struct model *m, size_t *n)
{
	size_t v = (size_t)m->s.vocab, c = cached(&m->s);
	const struct gpu_layer *l = &m->layer[LAYERS - 1];
	float *x = malloc((v + 2 * c) * sizeof *x);
	void *raw = malloc(c * 2);

	assert_int_equal(gpu_download(g, x, m->logits, v * 4, NULL), 0);
	assert_int_equal(gpu_download(g, raw, l->k, c * 2, NULL), 0);
	gpu_widen(x + v, raw, GPU_BF16, c);
	assert_int_equal(gpu_download(g, raw, l->v, c * 2, NULL), 0);
	gpu_widen(x + v + c, raw, GPU_BF16, c);
	free(raw);
	*n = v + 2 * c;
	return x;
}

static double apart(const float *a, const float *b, size_t n)
{
	double off = 0, all = 0;

	for (size_t i = 0; i < n; i++) {
		off += pow((double)a[i] - (double)b[i], 2);
		all += pow((double)a[i], 2);
	}
	return sqrt(off / all);
}

static void compare(const struct shape *s)
{
	struct model m;
	float *want, *got, *again;
	size_t n, v = (size_t)s->vocab;
	double logits, keys;

	make(&m, s);
	one_by_one(&m);
	want = results(&m, &n);
	/* It is to write all of them. */
	gpu_zero(g, m.logits, v * 4);
	/* Elsewhere than on Hopper it goes one by one. */
	if (!at_once(&m))
		skip();
	got = results(&m, &n);
	assert_true(at_once(&m));
	again = results(&m, &n);
	logits = apart(want, got, v);
	keys = apart(want + v, got + v, n - v);
	print_message("# %s, %d keys: logits %.2g, keys and values %.2g\n",
		      s->name, s->len, logits, keys);
	assert_true(logits < 3e-2 && keys < 1e-2);
	assert_memory_equal(got, again, n * sizeof *got);
	free(want);
	free(got);
	free(again);
}

static void models(void **state)
{
	static const struct shape all[] = {
		{ "llama", 256, 4, 2, 64, 704, 5003, 1, 0, 0 },
		{ "llama", 256, 4, 2, 64, 704, 5003, 17, 0, 0 },
		{ "llama", 576, 9, 3, 64, 1536, 49152, 1000, 0, 0 },
		{ "qwen2", 896, 14, 2, 64, 4864, 9000, 200, 1, 0 },
		{ "qwen3", 1024, 16, 8, 128, 3072, 9000, 333, 0, 1 },
		{ "wide", 1024, 32, 8, 128, 14336, 9000, 5000, 0, 0 },
	};

	(void)state;
	if (!g)
		skip();
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		compare(&all[i]);
}

/* Heads that the kernel is not made for go one by one. */
static void others(void **state)
{
	static const struct shape s = { "odd", 60, 5, 1, 12, 76, 300, 9, 0,
					0 };
	struct model m;

	(void)state;
	if (!g)
		skip();
	make(&m, &s);
	assert_int_equal(at_once(&m), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(models),
					    cmocka_unit_test(others) };
	struct err e = ERR_INIT;
	int bad;

	rng_seeded(&rng, 23);
	g = gpu_open("cuda", GPU_BF16, 0, &e);
	if (g) {
		size_t n = gpu_work_size(g, 1, 65536, 65536);

		gpu_plan_add(&plan, "test", &base, ROOM, 1);
		gpu_plan_add(&plan, "work", &work, n, 1);
		gpu_plan_add(&plan, "met", &met, GPU_MEET, 4);
		if (gpu_plan_commit(g, &plan, &e))
			return 1;
		gpu_set_work(g, work, n);
	} else {
		print_message("# %s\n", e.msg);
	}
	bad = cmocka_run_group_tests_name("token", tests, NULL, NULL);
	if (g)
		gpu_plan_release(g, &plan);
	gpu_close(g);
	return bad;
}
