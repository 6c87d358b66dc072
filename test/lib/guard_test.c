/* SPDX-License-Identifier: Apache-2.0
 *
 * Small tasks, computed here for fixed seeds, in fp32 and in a math as loose
 * as TF32 (inputs cut to 11 bits).
 */
#include "judge/guard.h"

#include "tests.h"

#include <math.h>

#define CASES GUARD_CASES

enum draw { RAND, RANDN };

/* out (outlen) = f(x (n), w); w is a seed of weights. */
typedef void forward(const float *x, float *out, unsigned w);

struct task {
	forward *f;
	enum draw draw;
	int64_t rows, cols;		/* of x */
	int64_t orows, ocols;		/* of the output; ocols 0: scalar */
	int weights;
};

static uint64_t state;

static double unit(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (double)(state >> 33) / 2147483648.0;
}

static float normal(void)
{
	return (float)(sqrt(-2 * log(1 - unit())) *
		       cos(6.283185307179586 * unit()));
}

static float tf32(float x)
{
	uint32_t b;

	memcpy(&b, &x, 4);
	b &= 0xffffe000u;
	memcpy(&x, &b, 4);
	return x;
}

static int64_t rows_, cols_;	/* of the task in hand, for its forward */

static void draw(float *x, int64_t n, enum draw d, unsigned seed)
{
	state = seed * 7919 + 1;
	for (int64_t i = 0; i < n; i++)
		x[i] = d == RAND ? (float)unit() : normal();
}

static struct view view_of(int64_t r, int64_t c, const float *p)
{
	struct view v = { DT_F32, 2, { r, c }, p };

	if (!c)
		v.ndim = 0;
	return v;
}

#define MEMS 9	/* x, another, as TF32; f of these; other weights; x of which
			 * half is read, and f of that */

/* Everything guard_run needs for a task, freed as one. */
struct bench {
	struct guard_case c[CASES];
	struct view v[CASES][6];
	float *mem[CASES][MEMS];
};

static float *floats(int64_t n)
{
	return calloc((size_t)(n ? n : 1), sizeof(float));
}

static void build(struct bench *b, const struct task *t)
{
	int64_t n = t->rows * t->cols;
	int64_t m = t->ocols ? t->orows * t->ocols : 1;

	rows_ = t->rows;
	cols_ = t->cols;
	memset(b, 0, sizeof(*b));
	for (unsigned k = 0; k < CASES; k++) {
		float **p = b->mem[k];
		struct view *v = b->v[k];

		for (int i = 0; i < MEMS; i++)
			p[i] = floats(i < 3 || i == 7 ? n : m);
		draw(p[0], n, t->draw, 2 * k);
		draw(p[1], n, t->draw, 2 * k + 1);
		for (int64_t i = 0; i < n; i++)
			p[2][i] = tf32(p[0][i]);
		memcpy(p[7], p[0], (size_t)n * sizeof(float));
		memcpy(p[7] + n - n / 2, p[0], (size_t)(n / 2) * sizeof(float));
		t->f(p[0], p[3], 1);
		t->f(p[1], p[4], 1);
		t->f(p[0], p[5], 2);
		t->f(p[2], p[6], 1);
		t->f(p[7], p[8], 1);
		v[0] = view_of(t->rows, t->cols, p[0]);
		for (int i = 1; i < 6; i++)
			v[i] = view_of(t->orows, t->ocols,
				       p[i < 5 ? i + 2 : 8]);
		b->c[k].want = &v[1];
		b->c[k].other_input = &v[2];
		b->c[k].part = &v[5];
		b->c[k].other_weights = t->weights ? &v[3] : NULL;
		b->c[k].loose[0] = &v[4];
		b->c[k].nloose = 1;
		b->c[k].inputs = &v[0];
		b->c[k].ninputs = 1;
	}
}

static void release(struct bench *b)
{
	for (int k = 0; k < CASES; k++)
		for (int i = 0; i < MEMS; i++)
			free(b->mem[k][i]);
}

static struct guard_result judge(const struct task *t)
{
	struct bench b;
	struct guard_result g;
	struct err e = ERR_INIT;

	build(&b, t);
	assert_int_equal(guard_run(b.c, CASES, 1, 1e-2, 1e-2, &g, &e), 0);
	release(&b);
	print_message("# factor %.3g noise %.3g limit %.3g (%s) invalid %d "
		      "%s\n",
		      g.leaf[0].factor, g.leaf[0].noise, g.leaf[0].limit,
		      guard_answer_name(g.leaf[0].nearest), g.invalid,
		      g.text);
	return g;
}

static void f_relu(const float *x, float *y, unsigned w)
{
	(void)w;
	for (int64_t i = 0; i < rows_ * cols_; i++)
		y[i] = x[i] > 0 ? x[i] : 0;
}

static void f_clamp(const float *x, float *y, unsigned w)
{
	(void)w;
	for (int64_t i = 0; i < rows_ * cols_; i++)
		y[i] = x[i] > 3 ? 3 : x[i] < -3 ? -3 : x[i];
}

static void f_softmax(const float *x, float *y, unsigned w)
{
	(void)w;
	for (int64_t r = 0; r < rows_; r++, x += cols_, y += cols_) {
		double sum = 0;

		for (int64_t i = 0; i < cols_; i++)
			sum += exp(x[i]);
		for (int64_t i = 0; i < cols_; i++)
			y[i] = (float)(exp(x[i]) / sum);
	}
}

static void f_layernorm(const float *x, float *y, unsigned w)
{
	(void)w;
	for (int64_t r = 0; r < rows_; r++, x += cols_, y += cols_) {
		double sum = 0, sq = 0, mean, inv;

		for (int64_t i = 0; i < cols_; i++)
			sum += x[i];
		mean = sum / (double)cols_;
		for (int64_t i = 0; i < cols_; i++)
			sq += (x[i] - mean) * (x[i] - mean);
		inv = 1 / sqrt(sq / (double)cols_ + 1e-5);
		for (int64_t i = 0; i < cols_; i++)
			y[i] = (float)((x[i] - mean) * inv);
	}
}

static int ascending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void f_sort(const float *x, float *y, unsigned w)
{
	(void)w;
	memcpy(y, x, (size_t)(rows_ * cols_) * sizeof(*y));
	for (int64_t r = 0; r < rows_; r++)
		qsort(y + r * cols_, (size_t)cols_, sizeof(*y), ascending);
}

/* Mean of squares: the loss of a task whose target is 0. */
static void f_loss(const float *x, float *y, unsigned w)
{
	double sum = 0;

	(void)w;
	for (int64_t i = 0; i < rows_ * cols_; i++)
		sum += (double)x[i] * x[i];
	*y = (float)(sum / (double)(rows_ * cols_));
}

/* Statistics of each row, expanded over it. */
static void f_expand(const float *x, float *y, unsigned w)
{
	(void)w;
	for (int64_t r = 0; r < rows_; r++) {
		double sum = 0;

		for (int64_t i = 0; i < cols_; i++)
			sum += x[r * cols_ + i];
		for (int64_t i = 0; i < cols_; i++)
			y[r * cols_ + i] = (float)sum;
	}
}

static void f_row_mean(const float *x, float *y, unsigned w)
{
	(void)w;
	for (int64_t r = 0; r < rows_; r++) {
		double sum = 0;

		for (int64_t i = 0; i < cols_; i++)
			sum += x[r * cols_ + i];
		y[r] = (float)(sum / (double)cols_);
	}
}

static float weight(unsigned w, int64_t i)
{
	uint64_t z = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u + w;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (float)((double)(z >> 11) * 0x1p-53 - 0.5);
}

/* (R, C) @ (C, 16), columns of W scaled by 1/sqrt(C). */
static void f_linear(const float *x, float *y, unsigned w)
{
	for (int64_t r = 0; r < rows_; r++)
		for (int64_t o = 0; o < 16; o++) {
			double sum = 0;

			for (int64_t i = 0; i < cols_; i++)
				sum += x[r * cols_ + i] *
					weight(w, i * 16 + o);
			y[r * 16 + o] = (float)(sum / sqrt((double)cols_));
		}
}

/* A scale per row that depends on the weights by too little to be seen. */
static void f_faint(const float *x, float *y, unsigned w)
{
	for (int64_t i = 0; i < rows_ * cols_; i++)
		y[i] = expf(x[i]) * (1 + 1e-5f * weight(w, i % cols_));
}

static void f_ignores_weights(const float *x, float *y, unsigned w)
{
	(void)w;
	for (int64_t i = 0; i < rows_ * cols_; i++)
		y[i] = expf(x[i]);
}

static void f_ignores_input(const float *x, float *y, unsigned w)
{
	(void)x;
	for (int64_t i = 0; i < rows_ * cols_; i++)
		y[i] = weight(w, i);
}

/* 0 but for the first few of each row, where it cannot be mistaken. */
static void f_product(const float *x, float *y, unsigned w)
{
	(void)w;
	for (int64_t r = 0; r < rows_; r++) {
		float p = 1;

		for (int64_t i = 0; i < cols_; i++)
			y[r * cols_ + i] = p *= x[r * cols_ + i];
	}
}

static void f_mask(const float *x, float *y, unsigned w)
{
	(void)w;
	for (int64_t i = 0; i < rows_ * cols_; i++)
		y[i] = i % cols_ > i / cols_ ? -INFINITY : x[i] * 2;
}

static void f_nan(const float *x, float *y, unsigned w)
{
	(void)x;
	(void)w;
	for (int64_t i = 0; i < rows_ * cols_; i++)
		y[i] = NAN;
}

static void f_identity(const float *x, float *y, unsigned w)
{
	(void)w;
	memcpy(y, x, (size_t)(rows_ * cols_) * sizeof(*y));
}

#define SAME(f, d, r, c) { f, d, r, c, r, c, 0 }

static void ordinary_tasks_keep_the_published_tolerance(void **s)
{
	static const struct task tasks[] = {
		SAME(f_relu, RANDN, 64, 256), SAME(f_clamp, RANDN, 64, 1024),
		SAME(f_expand, RANDN, 64, 256), SAME(f_mask, RANDN, 128, 128),
		{ f_linear, RANDN, 64, 256, 64, 16, 1 },
		SAME(f_ignores_weights, RANDN, 64, 64),
	};

	(void)s;
	for (size_t i = 0; i < sizeof(tasks) / sizeof(*tasks); i++) {
		struct guard_result g = judge(&tasks[i]);

		assert_false(g.invalid);
		assert_true(g.leaf[0].factor == 1);
		assert_int_equal(g.leaf[0].trivial, GUARD_NONE);
	}
}

static void the_tolerance_shrinks_as_far_as_it_must(void **s)
{
	static const struct task tasks[] = {
		SAME(f_softmax, RANDN, 4, 16384),	/* near 0 and 1/N */
		SAME(f_softmax, RAND, 4, 16384),
		SAME(f_layernorm, RANDN, 8, 16384),	/* near its input */
		SAME(f_sort, RANDN, 4, 16384),		/* near each other */
		{ f_row_mean, RANDN, 64, 8192, 64, 1, 0 },
	};

	(void)s;
	for (size_t i = 0; i < sizeof(tasks) / sizeof(*tasks); i++) {
		struct guard_result g = judge(&tasks[i]);

		assert_false(g.invalid);
		assert_true(g.leaf[0].factor < 0.9);
		assert_true(g.leaf[0].factor >= 4 * g.leaf[0].noise);
	}
}

static uint64_t misses(const struct bench *b, double factor, int answer)
{
	struct cmp_rule rule = { 1e-2 * factor, 1e-2 * factor, 0, 0 };
	struct cmp_result r;
	struct err e = ERR_INIT;
	uint64_t sum = 0;

	for (int k = 0; k < CASES; k++) {
		assert_int_equal(compare(&rule, &b->v[k][answer], &b->v[k][1],
					 NULL, 1, &r, &e), 0);
		sum += r.misses;
	}
	return sum;
}

/* What the guard promises, seen through the judge's own comparison. */
static void half_of_what_differs_misses(void **s)
{
	static const struct task t = SAME(f_layernorm, RANDN, 8, 16384);
	struct guard_result g = judge(&t);
	struct bench b;

	(void)s;
	build(&b, &t);
	assert_true(2 * misses(&b, g.leaf[0].factor, 0) >=
		    misses(&b, 4 * g.leaf[0].noise, 0));
	assert_true(misses(&b, g.leaf[0].factor, 0) > 8 * 16384);
	assert_true(misses(&b, g.leaf[0].factor, 4) == 0);	/* TF32 */
	release(&b);
}

static void tasks_that_cannot_be_verified(void **s)
{
	static const struct {
		struct task t;
		enum guard_answer answer;
	} tasks[] = {
		{ SAME(f_relu, RAND, 64, 64), GUARD_INPUT_COPY },
		{ SAME(f_identity, RANDN, 64, 64), GUARD_INPUT_COPY },
		{ { f_identity, RANDN, 64, 64, 4096, 1, 0 },
		  GUARD_INPUT_COPY },		/* flatten */
		{ { f_ignores_input, RANDN, 32, 32, 32, 32, 1 },
		  GUARD_OTHER_INPUT },
		{ { f_loss, RANDN, 1024, 2048, 1, 0, 0 }, GUARD_OTHER_INPUT },
		{ { f_faint, RANDN, 32, 32, 32, 32, 1 },
		  GUARD_OTHER_WEIGHTS },
	};

	(void)s;
	for (size_t i = 0; i < sizeof(tasks) / sizeof(*tasks); i++) {
		struct guard_result g = judge(&tasks[i].t);

		assert_true(g.invalid);
		assert_int_equal(g.answer, tasks[i].answer);
	}
}

/* Each case's loss is another, but half of the input says nearly the same. */
static void f_spread_loss(const float *x, float *y, unsigned w)
{
	f_loss(x, y, w);
	*y *= 1 + 40 * fabsf(x[0]);
}

static void a_part_of_the_input_shrinks_the_tolerance(void **s)
{
	static const struct task t = { f_spread_loss, RANDN, 1024, 2048, 1, 0,
				       0 };
	struct guard_result g = judge(&t);

	(void)s;
	assert_false(g.invalid);
	assert_int_equal(g.leaf[0].nearest, GUARD_PART);
	assert_true(g.leaf[0].factor < 0.9);
	assert_true(g.leaf[0].factor >= 4 * g.leaf[0].noise);
}

static void a_loss_of_few_elements_can_be_verified(void **s)
{
	static const struct task t = { f_loss, RANDN, 32, 32, 1, 0, 0 };
	struct guard_result g = judge(&t);

	(void)s;
	assert_false(g.invalid);
}

/* One element in a hundred cannot be mistaken, but in every case. */
static void a_small_part_that_always_tells_is_enough(void **s)
{
	static const struct task t = SAME(f_product, RAND, 64, 900);

	(void)s;
	assert_false(judge(&t).invalid);
}

static void a_result_without_a_finite_element_is_invalid(void **s)
{
	static const struct task t = SAME(f_nan, RANDN, 4, 4);
	struct guard_result g = judge(&t);

	(void)s;
	assert_true(g.invalid && g.no_finite);
}

static void weights_that_do_nothing_are_not_held_against_a_task(void **s)
{
	static const struct task t = { f_ignores_weights, RANDN, 32, 32, 32,
				       32, 1 };
	struct guard_result g = judge(&t);

	(void)s;
	assert_false(g.invalid);
}

/* Integer and bool results, several leaves. */
struct small {
	int64_t idx[CASES][2], other[CASES][2];
	uint8_t mask[CASES][4];
	struct view want[CASES][2], oth[CASES][2];
	struct guard_case c[CASES];
};

static void build_small(struct small *m, int index_varies, int mask_varies)
{
	memset(m, 0, sizeof(*m));
	for (int k = 0; k < CASES; k++) {
		for (int i = 0; i < 2; i++) {
			m->idx[k][i] = index_varies ? (3 * k + i) % 10 : 7;
			m->other[k][i] = index_varies ? (3 * k + 5 + i) % 10 :
				7;
		}
		m->mask[k][k] = (uint8_t)mask_varies;
		m->want[k][0] = (struct view){ DT_I64, 1, { 2 }, m->idx[k] };
		m->want[k][1] = (struct view){ DT_BOOL, 1, { 4 },
					       m->mask[k] };
		m->oth[k][0] = (struct view){ DT_I64, 1, { 2 },
					      m->other[k] };
		m->oth[k][1] = (struct view){ DT_BOOL, 1, { 4 },
					      m->mask[(k + 1) % CASES] };
		m->c[k].want = m->want[k];
		m->c[k].other_input = m->oth[k];
	}
}

static struct guard_result judge_small(int index_varies, int mask_varies,
				       size_t nleaf)
{
	struct small m;
	struct guard_result g;
	struct err e = ERR_INIT;

	build_small(&m, index_varies, mask_varies);
	assert_int_equal(guard_run(m.c, CASES, nleaf, 1e-2, 1e-2, &g, &e), 0);
	return g;
}

static void exact_results(void **s)
{
	struct guard_result g = judge_small(1, 1, 2);

	(void)s;
	assert_false(g.invalid);
	assert_true(g.leaf[0].factor == 1 && g.leaf[1].factor == 1);
	g = judge_small(0, 0, 1);
	assert_true(g.invalid);
	assert_int_equal(g.leaf[0].trivial, GUARD_OTHER_INPUT);
	/* A constant mask beside a real result is harmless. */
	g = judge_small(1, 0, 2);
	assert_false(g.invalid);
	assert_int_equal(g.leaf[1].trivial, GUARD_ZEROS);
	g = judge_small(0, 0, 2);
	assert_true(g.invalid);
	g = judge_small(1, 1, 0);
	assert_true(g.invalid);
}

static void half_precision_keeps_its_rounding(void **s)
{
	static uint16_t x[CASES][256], y[CASES][256];
	struct view want[CASES], other[CASES];
	struct guard_case c[CASES];
	struct guard_result g;
	struct err e = ERR_INIT;

	(void)s;
	memset(c, 0, sizeof(c));
	state = 5;
	for (int k = 0; k < CASES; k++) {
		for (int i = 0; i < 256; i++) {
			x[k][i] = (uint16_t)(0x3f80 + unit() * 64);
			/* One step of bfloat16 away: nobody can tell. */
			y[k][i] = (uint16_t)(x[k][i] + 1);
		}
		want[k] = (struct view){ DT_BF16, 1, { 256 }, x[k] };
		other[k] = (struct view){ DT_BF16, 1, { 256 }, y[k] };
		c[k].want = &want[k];
		c[k].other_input = &other[k];
	}
	assert_int_equal(guard_run(c, CASES, 1, 1e-2, 1e-2, &g, &e), 0);
	assert_true(g.invalid);
	assert_int_equal(g.answer, GUARD_OTHER_INPUT);
	assert_true(g.leaf[0].factor > 0.9);
}

static void complex_results(void **s)
{
	static float x[CASES][128], y[CASES][128];
	struct view want[CASES], other[CASES], in[CASES];
	struct guard_case c[CASES];
	struct guard_result g;
	struct err e = ERR_INIT;

	(void)s;
	memset(c, 0, sizeof(c));
	state = 9;
	for (int k = 0; k < CASES; k++) {
		for (int i = 0; i < 128; i++) {
			x[k][i] = normal();
			y[k][i] = normal();
		}
		want[k] = (struct view){ DT_C64, 2, { 8, 8 }, x[k] };
		other[k] = (struct view){ DT_C64, 2, { 8, 8 }, y[k] };
		in[k] = (struct view){ DT_C64, 1, { 64 }, y[k] };
		c[k].want = &want[k];
		c[k].other_input = &other[k];
		c[k].inputs = &in[k];
		c[k].ninputs = 1;
	}
	assert_int_equal(guard_run(c, CASES, 1, 1e-2, 1e-2, &g, &e), 0);
	assert_false(g.invalid);
	assert_int_equal(g.leaf[0].finite, CASES * 128);
	for (int k = 0; k < CASES; k++)
		in[k].data = x[k];
	assert_int_equal(guard_run(c, CASES, 1, 1e-2, 1e-2, &g, &e), 0);
	assert_true(g.invalid);
	assert_int_equal(g.answer, GUARD_INPUT_COPY);
}

/* Only the leading part of a huge result is read. */
static void huge_results_are_cut(void **s)
{
	int64_t rows = 5, cols = (int64_t)GUARD_ELEMENTS / 2;
	uint8_t *x = calloc((size_t)(rows * cols), 1);
	struct view want = { DT_U8, 3, { 1, rows, cols }, x };
	struct guard_case c = { .want = &want, .other_input = &want };
	struct guard_result g;
	struct err e = ERR_INIT;

	(void)s;
	x[rows * cols - 1] = 1;
	assert_int_equal(guard_run(&c, 1, 1, 1e-2, 1e-2, &g, &e), 0);
	assert_int_equal(g.leaf[0].finite, GUARD_ELEMENTS);
	assert_int_equal(g.leaf[0].trivial, GUARD_ZEROS);
	x[7] = 1;
	assert_int_equal(guard_run(&c, 1, 1, 1e-2, 1e-2, &g, &e), 0);
	assert_int_equal(g.leaf[0].trivial, GUARD_OTHER_INPUT);
	free(x);
}

static void arguments_are_checked(void **s)
{
	static const float x[4] = { 1, 2, 3, 4 };
	struct view a = { DT_F32, 1, { 4 }, x }, b = { DT_F32, 1, { 3 }, x };
	struct guard_case c[2] = { { .want = &a, .other_input = &a },
				   { .want = &b, .other_input = &b } };
	struct guard_result g;
	struct err e = ERR_INIT;

	(void)s;
	assert_int_equal(guard_run(c, 2, 1, 1e-2, 1e-2, &g, &e), -1);
	assert_int_equal(guard_run(c, 0, 1, 1e-2, 1e-2, &g, &e), -1);
	assert_int_equal(guard_run(c, 1, 1, 0, 1e-2, &g, &e), -1);
	c[0].loose[0] = &b;
	c[0].nloose = 1;
	assert_int_equal(guard_run(c, 1, 1, 1e-2, 1e-2, &g, &e), -1);
	/* A result whose shape follows the data is not another's. */
	c[0].nloose = 0;
	c[0].other_input = &b;
	assert_int_equal(guard_run(c, 1, 1, 1e-2, 1e-2, &g, &e), 0);
	assert_false(g.invalid);
}

static void results_survive_their_cache(void **s)
{
	static const struct task t = SAME(f_layernorm, RANDN, 8, 1024);
	struct guard_result g = judge(&t), back;
	struct str out = STR_INIT;
	struct err e = ERR_INIT;
	struct json *j;
	struct jw w;

	(void)s;
	jw_init(&w, &out);
	guard_write(&w, &g);
	j = json_parse(out.buf, out.len, JSON_MAX_LINE, NULL, &e);
	assert_non_null(j);
	assert_int_equal(guard_read(j, &back), 0);
	assert_memory_equal(&back.leaf[0], &g.leaf[0], sizeof(g.leaf[0]));
	assert_int_equal(back.answer, g.answer);
	json_free(j);
	j = json_parse("{\"leaves\":[{\"factor\":2}]}", 25, JSON_MAX_LINE,
		       NULL, &e);
	assert_non_null(j);
	assert_int_equal(guard_read(j, &back), -1);
	json_free(j);
	str_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ordinary_tasks_keep_the_published_tolerance),
		cmocka_unit_test(the_tolerance_shrinks_as_far_as_it_must),
		cmocka_unit_test(half_of_what_differs_misses),
		cmocka_unit_test(tasks_that_cannot_be_verified),
		cmocka_unit_test(a_part_of_the_input_shrinks_the_tolerance),
		cmocka_unit_test(a_loss_of_few_elements_can_be_verified),
		cmocka_unit_test(a_small_part_that_always_tells_is_enough),
		cmocka_unit_test(a_result_without_a_finite_element_is_invalid),
		cmocka_unit_test(
			weights_that_do_nothing_are_not_held_against_a_task),
		cmocka_unit_test(exact_results),
		cmocka_unit_test(half_precision_keeps_its_rounding),
		cmocka_unit_test(complex_results),
		cmocka_unit_test(huge_results_are_cut),
		cmocka_unit_test(arguments_are_checked),
		cmocka_unit_test(results_survive_their_cache),
	};

	return RUN_TESTS(tests);
}
