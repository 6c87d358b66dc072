/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of one row, as of decoding by itself: how much of the memory's
 * bandwidth each shape of a model gets, its weights being others each time,
 * and all of a model's layers one behind the other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rand.h"
#include "gpu/cuda.h"
#include "gpu/gpu.h"

static struct gpu *g;

static void die_on(struct err *e)
{
	if (e->code) {
		fprintf(stderr, "row_bench: %s\n", e->msg);
		exit(1);
	}
}

static double now(void)
{
	struct err e = ERR_INIT;
	struct timespec t;

	gpu_sync(g, &e);
	die_on(&e);
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of a layer, and the head. */
struct product {
	const char *name;
	int n, k, norm, gated;
};

struct model {
	const char *name;
	int layers;
	struct product p[5];
};

struct arrays {
	struct gpu_plan plan;
	void *w, *x, *y, *norm, *normed, *act;
};

static size_t weights(const struct product *p)
{
	return (size_t)p->n * (size_t)p->k;
}

/* Random weights: memory may be faster with zeroes. */
static void fill(char *w, size_t n)
{
	enum { PIECE = 1 << 20 };
	uint16_t *x = malloc(PIECE * 2);
	struct err e = ERR_INIT;
	struct rng r;

	rng_seeded(&r, 7);
	for (size_t i = 0; i < PIECE; i++) {
		float f = (float)(2 * rng_unit(&r) - 1) * 0.02f;

		gpu_narrow(&x[i], &f, GPU_BF16, 1);
	}
	for (size_t i = 0; i < n; i += PIECE)
		gpu_upload(g, w + 2 * i, x, 2 * (n - i < PIECE ? n - i :
							     PIECE));
	gpu_sync(g, &e);
	die_on(&e);
	free(x);
}

static void run(const struct arrays *a, const struct product *p, size_t at)
{
	gpu_do_linear(g, &(struct gpu_linear){
		.y = a->y, .x = a->x, .w = (char *)a->w + 2 * at, .m = 1,
		.n = p->n, .k = p->k, .wtype = GPU_BF16,
		.norm = p->norm ? a->norm : NULL, .normed = a->normed,
		.act = p->gated ? a->act : NULL, .eps = 1e-5f,
		.logits = p->n > 40000, .lean = 1 });
}

static void say(const char *model, const char *name, double s, size_t elements)
{
	struct cu_info i;

	cu_info(0, &i, NULL);
	printf("%s %-6s %8.2f us %6.0f GB/s %5.1f %%\n", model, name, s * 1e6,
	       2e-9 * (double)elements / s,
	       200 * (double)elements / s / i.bytes_per_s);
	fflush(stdout);
}

/* Product i alone, or with i = 5 all of them in turn; launched as one. */
static void bench_some(const struct model *m, const struct arrays *a, int i,
		       size_t all)
{
	const struct product *p = &m->p[i % 5];
	size_t n = i < 5 ? weights(p) : all, times = all / n, at = 0;
	struct gpu_tape *tape;
	double start, best = 1;

	times = times > 100 ? 100 : times;
	/* The first one finds what it needs. */
	run(a, p, 0);
	now();
	if (!gpu_record(g))
		exit(1);
	for (size_t k = 0; i < 5 && k < times; k++)
		run(a, p, k * n);
	for (int l = 0; i == 5 && l < m->layers; l++)
		for (int k = 0; k < 4; at += weights(&m->p[k++]))
			run(a, &m->p[k], at);
	if (i == 5)
		run(a, &m->p[4], at);
	tape = gpu_record_end(g);
	for (int r = 0; tape && r < 6; r++) {
		start = now();
		gpu_replay(g, tape);
		start = now() - start;
		best = start < best ? start : best;
	}
	gpu_tape_free(g, tape);
	say(m->name, i < 5 ? p->name : "all", best / (double)times, n);
}

static void bench(const struct model *m)
{
	size_t layer = 0, all;
	struct err e = ERR_INIT;
	struct arrays a = { .plan = GPU_PLAN_INIT };

	for (int i = 0; i < 4; i++)
		layer += weights(&m->p[i]);
	all = layer * (size_t)m->layers + weights(&m->p[4]);
	gpu_plan_add(&a.plan, "weights", &a.w, all, 2);
	gpu_plan_add(&a.plan, "x", &a.x, 1 << 16, 4);
	gpu_plan_add(&a.plan, "y", &a.y, 1 << 18, 4);
	gpu_plan_add(&a.plan, "norm", &a.norm, 1 << 16, 4);
	gpu_plan_add(&a.plan, "normed", &a.normed, 1 << 16, 4);
	gpu_plan_add(&a.plan, "act", &a.act, 1 << 18, 4);
	gpu_plan_commit(g, &a.plan, &e);
	die_on(&e);
	fill(a.w, all);
	for (int i = 0; i <= 5; i++)
		bench_some(m, &a, i, all);
	gpu_plan_release(g, &a.plan);
}

int main(void)
{
	static const struct model model[] = {
		{ "1b", 16, { { "qkv", 3072, 2048, 1, 0 },
			      { "out", 2048, 2048, 0, 0 },
			      { "gate", 16384, 2048, 1, 1 },
			      { "down", 2048, 8192, 0, 0 },
			      { "head", 128256, 2048, 0, 0 } } },
		{ "135m", 30, { { "qkv", 960, 576, 1, 0 },
				{ "out", 576, 576, 0, 0 },
				{ "gate", 3072, 576, 1, 1 },
				{ "down", 576, 1536, 0, 0 },
				{ "head", 49152, 576, 0, 0 } } },
	};
	struct err e = ERR_INIT;

	g = gpu_open("cuda", GPU_BF16, 0, &e);
	die_on(&e);
	for (size_t i = 0; i < sizeof model / sizeof *model; i++)
		bench(&model[i]);
	gpu_close(g);
	return 0;
}
