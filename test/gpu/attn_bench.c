/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on Hopper's tensor cores (lib/gpu/cuda/hopper.cuh, and with keys
 * that stream stream.cuh) beside that on Ampere's: how far the results are
 * apart, whether they are the same twice, whether a row's bits depend on its
 * neighbours, and how long each takes.
 * Arguments, if any, name what is done: check, time, cached.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rand.h"
#include "gpu/cuda.h"
#include "gpu/gpu.h"

static struct gpu *g;
static int bad;

static void die_on(struct err *e)
{
	if (e->code) {
		fprintf(stderr, "attn_bench: %s\n", e->msg);
		exit(1);
	}
}

static void done(void)
{
	struct err e = ERR_INIT;

	gpu_sync(g, &e);
	die_on(&e);
}

/* 0: Ampere's; 1: Hopper's; 2: where keys stream. */
static void use(int way)
{
	((struct cuda *)g)->hopper = way;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, DELTA, FIRST, LEN, PAGES, WORK,
       NARRAYS };

/* Heads, and sequences of `rows` rows each behind `before` keys. */
struct shape {
	int h, kv, d, nseq, rows[8], before;	/* rows[0] for all if equal */
	int equal;
};

struct arrays {
	struct gpu_plan plan;
	void *p[NARRAYS];
	int t, longest, keys, stride, nseq;
	size_t q, k;			/* elements */
	struct shape s;
};

static void fill(void *p, size_t n)
{
	uint16_t *x = malloc(n * 2);
	struct rng r;

	rng_seeded(&r, 7 + n);
	for (size_t i = 0; i < n; i++) {
		float f = (float)(2 * rng_unit(&r) - 1) * 1.7f;

		gpu_narrow(&x[i], &f, GPU_BF16, 1);
	}
	gpu_upload(g, p, x, n * 2);
	done();
	free(x);
}

static int rows_of(const struct shape *s, int i)
{
	return s->rows[s->equal ? 0 : i];
}

/* Where sequences begin, how long they are, and pages in a mixed order. */
static void lay_out(struct arrays *a)
{
	int n = a->nseq, all = n * a->stride;
	int32_t *first = calloc((size_t)(2 * n + 1 + all), 4);
	int32_t *len = first + n + 1, *pages = len + n;

	for (int i = 0; i < n; i++) {
		first[i + 1] = first[i] + rows_of(&a->s, i);
		len[i] = rows_of(&a->s, i) + a->s.before;
	}
	for (int i = 0; i < all; i++)
		pages[i] = (int32_t)(((int64_t)i * 7919 + 3) % all);
	gpu_upload(g, a->p[FIRST], first, (size_t)(n + 1) * 4);
	gpu_upload(g, a->p[LEN], len, (size_t)n * 4);
	gpu_upload(g, a->p[PAGES], pages, (size_t)all * 4);
	done();
	free(first);
}

static void make(struct arrays *a, const struct shape *s)
{
	size_t h = (size_t)s->h, work;
	struct err e = ERR_INIT;
	size_t bytes[NARRAYS];

	memset(a, 0, sizeof *a);
	a->s = *s;
	a->nseq = s->nseq;
	for (int i = 0; i < s->nseq; i++) {
		a->t += rows_of(s, i);
		if (rows_of(s, i) > a->longest)
			a->longest = rows_of(s, i);
	}
	a->stride = (a->longest + s->before + GPU_PAGE - 1) / GPU_PAGE;
	if (s->before)
		a->keys = a->nseq * a->stride * GPU_PAGE;
	else
		a->keys = a->t;
	a->q = (size_t)a->t * h * (size_t)s->d;
	a->k = (size_t)a->keys * (size_t)(s->kv * s->d);
	work = gpu_work_size(g, (size_t)a->t, 1024, 1024);
	for (int i = 0; i < NARRAYS; i++)
		bytes[i] = (i == K || i == V || i == DK || i == DV ? a->k :
			    i == LSE || i == DELTA ? 2 * (size_t)a->t * h :
			    i >= FIRST && i <= PAGES ?
			    2 * (size_t)(a->nseq * a->stride + a->nseq + 1) :
			    i == WORK ? work / 2 : a->q) * 2;
	for (int i = 0; i < NARRAYS; i++)
		gpu_plan_add(&a->plan, "arrays", &a->p[i], bytes[i], 1);
	gpu_plan_commit(g, &a->plan, &e);
	die_on(&e);
	gpu_set_work(g, a->p[WORK], work);
	fill(a->p[Q], a->q);
	fill(a->p[K], a->k);
	fill(a->p[V], a->k);
	fill(a->p[DOUT], a->q);
	lay_out(a);
}

static void forward(struct arrays *a, void *out, void *lse)
{
	const struct shape *s = &a->s;

	gpu_do_attn(g, &(struct gpu_attn){
		.out = out, .lse = lse, .q = a->p[Q], .k = a->p[K],
		.v = a->p[V], .first = a->p[FIRST], .len = a->p[LEN],
		.pages = s->before ? a->p[PAGES] : NULL, .nseq = a->nseq,
		.stride = a->stride, .rows = a->t, .max_rows = a->longest,
		.max_len = a->longest + s->before, .heads = s->h,
		.kv_heads = s->kv, .dim = s->d,
		.scale = 1 / sqrtf((float)s->d) });
}

static void backward(struct arrays *a)
{
	const struct shape *s = &a->s;

	gpu_do_attn_back(g, &(struct gpu_attn_back){
		.dq = a->p[DQ], .dk = a->p[DK], .dv = a->p[DV],
		.work = a->p[DELTA], .dout = a->p[DOUT], .out = a->p[OUT],
		.lse = a->p[LSE], .q = a->p[Q], .k = a->p[K], .v = a->p[V],
		.first = a->p[FIRST], .nseq = a->nseq, .rows = a->t,
		.max_rows = a->longest, .heads = s->h, .kv_heads = s->kv,
		.dim = s->d, .scale = 1 / sqrtf((float)s->d) });
}

/* Forward, and backward of whole sequences. */
static void compute(struct arrays *a)
{
	int whole = !a->s.before;

	forward(a, a->p[OUT], whole ? a->p[LSE] : NULL);
	if (whole)
		backward(a);
}

static void *fetch(const void *p, size_t bytes)
{
	void *x = malloc(bytes);
	struct err e = ERR_INIT;

	gpu_download(g, x, p, bytes, &e);
	die_on(&e);
	return x;
}

/* Relative L2 distance, and the largest one. */
static void apart(const char *what, const void *x, const void *y, size_t n,
		  enum gpu_type type, double limit)
{
	float *a = malloc(n * 4), *b = malloc(n * 4);
	double off = 0, all = 0, worst = 0, rel;

	gpu_widen(a, x, type, n);
	gpu_widen(b, y, type, n);
	for (size_t i = 0; i < n; i++) {
		double d = (double)a[i] - (double)b[i];

		off += d * d;
		all += (double)a[i] * (double)a[i];
		if (!(fabs(d) <= worst))
			worst = fabs(d);
	}
	rel = sqrt(off / (all + 1e-30));
	printf(" %s %.2g/%.2g", what, rel, worst);
	if (!(rel <= limit)) {
		printf(" WRONG");
		bad = 1;
	}
	free(a);
	free(b);
}

static void check_shape(const struct shape *s, int way)
{
	static const int arrays[] = { OUT, LSE, DQ, DK, DV };
	static const char *const name[] = { "out", "lse", "dq", "dk", "dv" };
	void *was[5], *again;
	struct arrays a;
	size_t n[5];
	int many = s->before ? 1 : 5;

	make(&a, s);
	n[0] = n[2] = a.q;
	n[1] = (size_t)a.t * (size_t)s->h;
	n[3] = n[4] = a.k;
	printf("check way %d, %d/%d heads of %d, %d x %d%s behind %d:", way,
	       s->h, s->kv, s->d, s->nseq, s->rows[0],
	       s->equal ? "" : " and others", s->before);
	use(0);
	compute(&a);
	for (int i = 0; i < many; i++)
		was[i] = fetch(a.p[arrays[i]], n[i] * (i == 1 ? 4 : 2));
	use(way);
	compute(&a);
	for (int i = 0; i < many; i++) {
		size_t bytes = n[i] * (i == 1 ? 4 : 2);

		again = fetch(a.p[arrays[i]], bytes);
		apart(name[i], was[i], again, n[i], i == 1 ? GPU_F32 :
		      GPU_BF16, 1e-2);
		free(was[i]);
		was[i] = again;
	}
	compute(&a);
	for (int i = 0; i < many; i++) {
		size_t bytes = n[i] * (i == 1 ? 4 : 2);

		again = fetch(a.p[arrays[i]], bytes);
		if (memcmp(was[i], again, bytes)) {
			printf(" %s DIFFERS", name[i]);
			bad = 1;
		}
		free(again);
		free(was[i]);
	}
	printf("\n");
	fflush(stdout);
	gpu_plan_release(g, &a.plan);
}

/* The last rows of a sequence by themselves and among all of them. */
static void check_rows(int h, int kv, int d)
{
	const struct shape all = { h, kv, d, 1, { 700 }, 16, 1 };
	size_t row = (size_t)(h * d) * 2;
	struct arrays a;
	int32_t first[2] = { 0, 1 };
	char *many, *one;

	make(&a, &all);
	use(1);
	forward(&a, a.p[OUT], NULL);
	many = fetch(a.p[OUT], (size_t)a.t * row);
	gpu_copy(g, a.p[Q], (char *)a.p[Q] + 699 * row, row);
	gpu_upload(g, a.p[FIRST], first, sizeof first);
	a.t = a.longest = 1;
	a.s.before = 715;
	forward(&a, a.p[OUT], NULL);
	one = fetch(a.p[OUT], row);
	printf("a row by itself, %d/%d heads of %d: %s\n", h, kv, d,
	       memcmp(many + 699 * row, one, row) ? (bad = 1, "DIFFERS") :
	       "same bits");
	free(many);
	free(one);
	gpu_plan_release(g, &a.plan);
}

/* Whole rows have the same bits whether keys stream or not. */
static void check_bits(const struct shape *s)
{
	struct arrays a;
	void *out, *lse, *again;
	size_t n;

	make(&a, s);
	n = (size_t)a.t * (size_t)s->h * sizeof(float);
	use(1);
	forward(&a, a.p[OUT], a.p[LSE]);
	out = fetch(a.p[OUT], a.q * 2);
	lse = fetch(a.p[LSE], n);
	use(2);
	forward(&a, a.p[OUT], a.p[LSE]);
	again = fetch(a.p[OUT], a.q * 2);
	printf("bits of way 2, %d/%d heads of %d, %d x %d behind %d: %s",
	       s->h, s->kv, s->d, s->nseq, s->rows[0], s->before,
	       memcmp(out, again, a.q * 2) ? (bad = 1, "DIFFER") : "same");
	free(again);
	again = fetch(a.p[LSE], n);
	printf(", lse %s\n", memcmp(lse, again, n) ? (bad = 1, "DIFFERS") :
	       "same");
	free(again);
	free(out);
	free(lse);
	gpu_plan_release(g, &a.plan);
}

static double seconds(struct arrays *a, int back, int lse, int n)
{
	double from = 0;

	for (int i = -2; i < n; i++) {
		if (!i) {
			done();
			from = now();
		}
		if (back)
			backward(a);
		else
			forward(a, a->p[OUT], lse ? a->p[LSE] : NULL);
	}
	done();
	return (now() - from) / n;
}

/* Causal, whole sequences: both passes. */
static void time_training(const struct shape *s, int n)
{
	double pairs = 0, flops;
	struct arrays a;

	make(&a, s);
	for (int i = 0; i < s->nseq; i++)
		pairs += 0.5 * rows_of(s, i) * (double)rows_of(s, i);
	flops = 4 * pairs * s->h * s->d;
	for (int way = 0; way < 3; way++) {
		use(way);
		double f = seconds(&a, 0, 1, n), b = seconds(&a, 1, 1, n);

		printf("time %s %d/%d heads of %d, %d x %d: forward %.0f us, "
		       "%.0f TFLOP/s; backward %.0f us, %.0f TFLOP/s\n",
		       way == 2 ? "stream" : way ? "new" : "old", s->h,
		       s->kv, s->d, s->nseq,
		       s->rows[0], f * 1e6, flops / f / 1e12, b * 1e6,
		       2.5 * flops / b / 1e12);
		fflush(stdout);
	}
	gpu_plan_release(g, &a.plan);
}

static void time_cached(const struct shape *s, int n)
{
	struct arrays a;
	double keys = s->before + 0.5 * s->rows[0];
	double bytes = 4.0 * s->nseq * keys * s->kv * s->d;
	double flops = 4.0 * s->nseq * s->rows[0] * keys * s->h * s->d;

	make(&a, s);
	printf("time %d/%d heads of %d, %d x %d behind %d:", s->h, s->kv,
	       s->d, s->nseq, s->rows[0], s->before);
	for (int i = 0; i < 3; i++) {
		use(i);
		double t = seconds(&a, 0, 0, n);

		printf(" %s %.1f us (%.0f GB/s, %.0f TFLOP/s)",
		       i == 2 ? "stream" : i ? "new" : "old", 1e6 * t,
		       1e-9 * bytes / t, 1e-12 * flops / t);
	}
	/* A H200's memory and tensor cores. */
	printf(" bound %.1f us", 1e6 * fmax(bytes / 4.8e12, flops / 989e12));
	printf("\n");
	fflush(stdout);
	gpu_plan_release(g, &a.plan);
}

static void check(void)
{
	static const struct shape s[] = {
		{ 9, 3, 64, 1, { 128 }, 0, 1 },
		{ 9, 3, 64, 6, { 1, 7, 64, 129, 300, 1000 }, 0, 0 },
		{ 32, 8, 64, 3, { 513, 2, 191 }, 0, 0 },
		{ 6, 1, 64, 2, { 333, 65 }, 0, 0 },
		{ 4, 4, 64, 2, { 257, 640 }, 0, 0 },
		{ 4, 4, 128, 1, { 128 }, 0, 1 },
		{ 16, 8, 128, 5, { 1, 65, 130, 300, 700 }, 0, 0 },
		{ 14, 2, 128, 2, { 450, 77 }, 0, 0 },
		{ 9, 3, 64, 4, { 1 }, 299, 1 },
		{ 9, 3, 64, 3, { 5, 70, 1 }, 3000, 0 },
		{ 9, 3, 64, 1, { 100 }, 20000, 1 },
		{ 9, 3, 64, 1, { 30 }, 20003, 1 },
		{ 9, 3, 64, 2, { 1000, 22 }, 2990, 0 },
		{ 32, 8, 64, 1, { 200 }, 5000, 1 },
		{ 32, 4, 128, 2, { 1 }, 1000, 1 },
		{ 16, 8, 128, 2, { 33, 150 }, 2100, 0 },
	};

	for (int way = 1; way < 3; way++)
		for (size_t i = 0; i < sizeof s / sizeof *s; i++)
			check_shape(&s[i], way);
	for (size_t i = 0; i < sizeof s / sizeof *s; i++)
		check_bits(&s[i]);
	check_rows(9, 3, 64);
	check_rows(16, 8, 128);
}

static void times(int training)
{
	static const struct shape train[] = {
		{ 9, 3, 64, 8, { 4096 }, 0, 1 },
		{ 32, 8, 64, 4, { 4096 }, 0, 1 },
		{ 32, 8, 128, 2, { 4096 }, 0, 1 },
		{ 9, 3, 64, 1, { 32768 }, 0, 1 },
	};
	static const struct shape cached[] = {
		{ 9, 3, 64, 1, { 1 }, 200, 1 },
		{ 9, 3, 64, 64, { 1 }, 300, 1 },
		{ 9, 3, 64, 256, { 1 }, 300, 1 },
		{ 32, 8, 64, 1, { 1 }, 200, 1 },
		{ 32, 8, 64, 1, { 1 }, 8000, 1 },
		{ 32, 8, 128, 16, { 1 }, 8000, 1 },
		{ 9, 3, 64, 1, { 1 }, 20000, 1 },
		{ 9, 3, 64, 1, { 30 }, 20000, 1 },
		{ 9, 3, 64, 1, { 64 }, 20000, 1 },
		{ 9, 3, 64, 1, { 100 }, 20000, 1 },
		{ 9, 3, 64, 1, { 300 }, 20000, 1 },
		{ 9, 3, 64, 1, { 1000 }, 20000, 1 },
		{ 32, 8, 64, 1, { 64 }, 20000, 1 },
		{ 32, 8, 128, 1, { 100 }, 20000, 1 },
	};

	for (size_t i = 0; training && i < sizeof train / sizeof *train; i++)
		time_training(&train[i], 5);
	for (size_t i = 0; i < sizeof cached / sizeof *cached; i++)
		time_cached(&cached[i], 50);
}

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;

	g = gpu_open("cuda", GPU_BF16, 0, &e);
	die_on(&e);
	if (argc < 2 || !strcmp(argv[1], "check"))
		check();
	if (argc < 2 || !strcmp(argv[1], "time"))
		times(1);
	if (argc == 2 && !strcmp(argv[1], "cached"))
		times(0);
	gpu_close(g);
	return bad;
}
