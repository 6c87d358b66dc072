/* SPDX-License-Identifier: Apache-2.0
 *
 * One answer at a time is laid beside the expected values, and how far each
 * element is off goes into a histogram of log u; its upper median is all
 * that is needed.  The reasoning is in guard.h.
 */
#include "judge/guard.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pieces.h"
#include "judge/compare_block.h"
#include "torch/torch.h"

#define BLOCK 1024
#define PART ((uint64_t)1 << 18)	/* elements that a thread takes */
#define FLOOR_LOOSE 4.0		/* times the largest error of loose math */
#define SHARE_SEEN 64		/* one in so many must be beyond that, */
#define CASE_SEEN 16		/* or so many in every case */
#define STEP_BITS 5
#define STEPS (1 << STEP_BITS)	/* bins in an octave of u */
#define OCTAVE_LOW (-160)	/* the least float32 in units of 1e-2 */
#define OCTAVE_HIGH 40
#define BINS ((OCTAVE_HIGH - OCTAVE_LOW) * STEPS)

const char *guard_answer_name(enum guard_answer a)
{
	static const char *const names[GUARD_ANSWERS] = {
		[GUARD_ZEROS] = "zeros", [GUARD_MEAN] = "mean",
		[GUARD_SLICE_MEAN] = "slice_mean",
		[GUARD_INPUT_COPY] = "input_copy",
		[GUARD_OTHER_INPUT] = "other_input",
		[GUARD_PART] = "part",
		[GUARD_OTHER_WEIGHTS] = "other_weights",
	};

	return a >= 0 && a < GUARD_ANSWERS ? names[a] : "none";
}

size_t guard_cases(uint64_t elements)
{
	return elements < 64 ? 2 * GUARD_CASES : GUARD_CASES;
}

/* The part of a leaf that is looked at, complex numbers as pairs of reals. */
struct part {
	struct view v;
	uint64_t n;
};

static uint64_t product(const struct view *v, uint32_t from)
{
	uint64_t n = 1;

	for (uint32_t i = from; i < v->ndim; i++)
		n *= (uint64_t)v->shape[i];
	return n;
}

static int part_of(const struct view *v, struct part *p)
{
	uint64_t bytes;

	p->v = *v;
	if (view_count(v, &p->n, &bytes) || (p->n && !v->data))
		return -1;
	if (dtype_is_complex(v->dtype)) {
		p->v.dtype = v->dtype == DT_C64 ? DT_F32 : DT_F64;
		if (v->ndim < CA_NDIM)
			p->v.shape[p->v.ndim++] = 2;
		else
			p->v.shape[CA_NDIM - 1] *= 2;
		p->n *= 2;
	}
	for (uint32_t i = 0; i < p->v.ndim && p->n > GUARD_ELEMENTS; i++) {
		uint64_t rest = product(&p->v, i + 1);
		uint64_t keep = rest ? GUARD_ELEMENTS / rest : 1;

		if (keep < (uint64_t)p->v.shape[i])
			p->v.shape[i] = keep ? (int64_t)keep : 1;
		p->n = p->v.shape[i] == 1 ? rest :
			(uint64_t)p->v.shape[i] * rest;
	}
	return 0;
}

size_t guard_bytes(const struct view *v)
{
	uint64_t n, bytes, most;

	if (view_count(v, &n, &bytes))
		return 0;
	most = GUARD_ELEMENTS * dtype_size(v->dtype);
	return bytes < most ? bytes : most;
}

/* Where the values of an answer come from: a view, or means along an axis
 * (stride `inner`, length `len`), of which a constant is the case of one. */
struct source {
	const struct view *v;
	const double *means;
	uint64_t inner, len;
};

static void fill(const struct source *s, uint64_t at, uint64_t n, double *out)
{
	uint64_t in, run;

	if (s->v) {
		view_doubles(s->v, at, n, out);
		return;
	}
	in = at % s->inner;
	run = at / s->inner;
	for (uint64_t i = 0; i < n; i++) {
		out[i] = s->means[run / s->len * s->inner + in];
		if (++in == s->inner) {
			in = 0;
			run++;
		}
	}
}

/* Means of the finite elements along an axis; malloc'd. */
static double *axis_means(const struct part *p, uint64_t inner, uint64_t len)
{
	uint64_t slots = p->n / len, in = 0, run = 0;
	double *sum = calloc(slots, 2 * sizeof(*sum)), *count = sum + slots;
	double x[BLOCK];

	if (!sum)
		return NULL;
	for (uint64_t at = 0, k; at < p->n; at += k) {
		k = p->n - at < BLOCK ? p->n - at : BLOCK;
		view_doubles(&p->v, at, k, x);
		for (uint64_t i = 0; i < k; i++) {
			uint64_t slot = run / len * inner + in;

			if (isfinite(x[i])) {
				sum[slot] += x[i];
				count[slot]++;
			}
			if (++in == inner) {
				in = 0;
				run++;
			}
		}
	}
	for (uint64_t i = 0; i < slots; i++)
		sum[i] /= count[i] > 0 ? count[i] : 1;
	return sum;
}

/* How an answer differs from what is wanted, over all cases. */
struct tally {
	uint64_t differs;	/* u > m */
	uint64_t seen;		/* u > 4m: D */
	uint64_t least;		/* of the case with the fewest in D */
	uint64_t classes;	/* finite against not, or another class */
	int rounding;		/* nowhere off by more than rounding */
	uint64_t bin[BINS];
};

struct leaf_job {
	double atol, rtol;
	double noise, floor;	/* m, 4m; at most 1 */
	double rounding;	/* relative, of the leaf's type */
	int exact;		/* integers, bools */
};

static unsigned bin_of(double u)
{
	uint64_t bits;
	int i;

	/* By the double's parts, since frexp is slow: exponent, mantissa. */
	memcpy(&bits, &u, sizeof(bits));
	i = ((int)(bits >> 52 & 0x7ff) - 1023 - OCTAVE_LOW) * STEPS +
	    (int)(bits >> (52 - STEP_BITS) & (STEPS - 1));
	if (!isfinite(u) || i >= BINS)
		return BINS - 1;
	return i < 0 ? 0 : (unsigned)i;
}

static double bin_edge(unsigned i)
{
	return ldexp(1 + (double)(i % STEPS) / STEPS,
		     OCTAVE_LOW + (int)(i / STEPS));
}

static void tally_one(struct tally *t, const struct leaf_job *j, double got,
		      double want)
{
	double d, u;

	if (!isfinite(got) || !isfinite(want)) {
		t->classes += !cmp_same_class(got, want);
		return;
	}
	d = fabs(got - want);
	if (d == 0)
		return;
	if (d > j->rounding * fabs(want))
		t->rounding = 0;
	u = j->exact ? INFINITY : d / (j->atol + j->rtol * fabs(want));
	t->differs += u > j->noise;
	if (u > j->floor) {
		t->seen++;
		t->bin[bin_of(u)]++;
	}
}

static void tally_init(struct tally *t)
{
	memset(t, 0, sizeof(*t));
	t->rounding = 1;
	t->least = UINT64_MAX;
}

/* Counts only, so that it is all one who comes first. */
static void tally_add(struct tally *t, const struct tally *more)
{
	t->differs += more->differs;
	t->seen += more->seen;
	t->classes += more->classes;
	t->rounding &= more->rounding;
	for (unsigned i = 0; i < BINS; i++)
		t->bin[i] += more->bin[i];
}

/* One answer beside one expectation. */
struct tally_job {
	const struct leaf_job *j;
	const struct part *want;
	const struct source *s;
	struct tally *sum;
	pthread_mutex_t lock;	/* of *sum */
	int failed;
};

static uint64_t parts_of(uint64_t n)
{
	return (n + PART - 1) / PART;
}

static uint64_t part_end(uint64_t n, uint64_t i)
{
	return n - i * PART < PART ? n : (i + 1) * PART;
}

static void tally_part(void *ctx, uint64_t i)
{
	struct tally_job *t = ctx;
	uint64_t end = part_end(t->want->n, i);
	struct tally *own = malloc(sizeof(*own));
	double w[BLOCK], g[BLOCK];

	if (own)
		tally_init(own);
	for (uint64_t at = i * PART, k; own && at < end; at += k) {
		k = end - at < BLOCK ? end - at : BLOCK;
		view_doubles(&t->want->v, at, k, w);
		fill(t->s, at, k, g);
		for (uint64_t x = 0; x < k; x++)
			tally_one(own, t->j, g[x], w[x]);
	}
	pthread_mutex_lock(&t->lock);
	if (own)
		tally_add(t->sum, own);
	else
		t->failed = 1;
	pthread_mutex_unlock(&t->lock);
	free(own);
}

/* -1 without memory. */
static int tally_source(struct tally *sum, const struct leaf_job *j,
			const struct part *want, const struct source *s)
{
	struct tally_job t = { .j = j, .want = want, .s = s, .sum = sum };

	pthread_mutex_init(&t.lock, NULL);
	pieces_run(tally_part, &t, parts_of(want->n), 0);
	pthread_mutex_destroy(&t.lock);
	return t.failed ? -1 : 0;
}

/* The largest s at which half of D still misses; D is not empty. */
static double tally_limit(const struct tally *t)
{
	uint64_t need = (t->seen + 1) / 2, above = 0;
	unsigned i = BINS;

	while (i > 0 && above < need)
		above += t->bin[--i];
	return bin_edge(i) * (1 - 0x1p-20);
}

/* What one answer says about a leaf. */
static void weigh(struct guard_leaf *l, enum guard_answer a,
		  const struct tally *t)
{
	double limit;
	int hardly = t->seen < t->differs / SHARE_SEEN + 1 &&
		t->least < CASE_SEEN;

	if (!t->differs) {
		int own = a == GUARD_MEAN || a == GUARD_SLICE_MEAN ||
			a == GUARD_OTHER_WEIGHTS;

		if (!t->classes && !(own && t->rounding) &&
		    a != GUARD_PART && l->trivial == GUARD_NONE)
			l->trivial = a;
		return;
	}
	if (hardly && a != GUARD_PART) {
		if (!t->classes && l->passes == GUARD_NONE)
			l->passes = a;
		return;
	}
	limit = hardly ? 0 : tally_limit(t);
	if (limit < l->limit) {
		l->limit = limit;
		l->nearest = a;
	}
}

/* Below this nothing is asked of any type: see guard.h. */
#define LEAST_NOISE 0x1p-13

/* How far one view is off another, where both are finite. */
struct extremes {
	const struct leaf_job *j;
	const struct part *want;
	const struct view *v;
	pthread_mutex_t lock;	/* of what follows */
	double worst;		/* largest u */
	double top;		/* largest finite |want| */
	uint64_t finite;
};

static void extremes_part(void *ctx, uint64_t i)
{
	struct extremes *x = ctx;
	uint64_t end = part_end(x->want->n, i), finite = 0;
	double w[BLOCK], g[BLOCK], worst = 0, top = 0;

	for (uint64_t at = i * PART, k; at < end; at += k) {
		k = end - at < BLOCK ? end - at : BLOCK;
		view_doubles(&x->want->v, at, k, w);
		view_doubles(x->v, at, k, g);
		for (uint64_t n = 0; n < k; n++) {
			double aw = fabs(w[n]), d = fabs(g[n] - w[n]);

			if (!isfinite(aw))
				continue;
			finite++;
			top = fmax(top, aw);
			d /= x->j->atol + x->j->rtol * aw;
			if (isfinite(d) && d > worst)
				worst = d;
		}
	}
	pthread_mutex_lock(&x->lock);
	x->worst = fmax(x->worst, worst);
	x->top = fmax(x->top, top);
	x->finite += finite;
	pthread_mutex_unlock(&x->lock);
}

static void extremes_find(struct extremes *x, const struct leaf_job *j,
			  const struct part *want, const struct view *v)
{
	*x = (struct extremes){ .j = j, .want = want, .v = v };
	pthread_mutex_init(&x->lock, NULL);
	pieces_run(extremes_part, x, parts_of(want->n), 0);
	pthread_mutex_destroy(&x->lock);
}

struct guard_run {
	const struct guard_case *cases;
	size_t ncase, leaf;
	struct part want[GUARD_CASES_MAX];
	uint64_t whole;		/* elements before the cut */
	struct leaf_job job;
	struct guard_leaf *out;
	struct tally *tally;
	int failed;		/* for lack of memory */
};

static int fits(const struct view *v, const struct view *want,
		struct part *p)
{
	if (v->dtype != want->dtype || v->ndim != want->ndim ||
	    memcmp(v->shape, want->shape, v->ndim * sizeof(v->shape[0])))
		return 0;
	return !part_of(v, p);
}

static int measure_noise(struct guard_run *g, struct guard_result *res,
			 struct err *e)
{
	double worst = 0, top = 0, least;
	enum ca_dtype t = g->want[0].v.dtype;

	for (size_t c = 0; c < g->ncase; c++) {
		const struct guard_case *k = &g->cases[c];
		struct extremes x;
		struct part p;

		extremes_find(&x, &g->job, &g->want[c], &g->want[c].v);
		top = fmax(top, x.top);
		g->out->finite += x.finite;
		if (!x.finite && g->want[c].n)
			res->no_finite = 1;
		for (size_t i = 0; i < k->nloose; i++) {
			if (!fits(&k->loose[i][g->leaf], &k->want[g->leaf],
				  &p))
				return err_set(e, CA_SOFTWARE,
					       "guard: loose result %zu does "
					       "not fit", i);
			extremes_find(&x, &g->job, &g->want[c], &p.v);
			worst = fmax(worst, x.worst);
		}
	}
	g->job.rounding = 4 * cmp_half_ulp(t);
	if (g->job.exact)
		return 0;
	least = fmax(cmp_half_ulp(t), LEAST_NOISE) * top /
		(g->job.atol + g->job.rtol * top);
	g->job.noise = fmin(1, fmax(worst, least));
	g->job.floor = fmin(1, FLOOR_LOOSE * g->job.noise);
	return 0;
}

static void answer_begin(struct guard_run *g)
{
	tally_init(g->tally);
}

static void answer_case(struct guard_run *g, size_t c,
			const struct source *s)
{
	uint64_t before = g->tally->seen, n;

	g->failed |= tally_source(g->tally, &g->job, &g->want[c], s);
	n = g->tally->seen - before;
	if (n < g->tally->least)
		g->tally->least = n;
}

static void answer_end(struct guard_run *g, enum guard_answer a)
{
	weigh(g->out, a, g->tally);
}

static void try_constant(struct guard_run *g, enum guard_answer a)
{
	answer_begin(g);
	for (size_t c = 0; c < g->ncase; c++) {
		double value = 0;
		struct source s = { NULL, &value, 1, g->want[c].n + 1 };

		/* Integers have no mean to guess: their first element. */
		if (a == GUARD_MEAN && g->job.exact && g->want[c].n)
			view_doubles(&g->want[c].v, 0, 1, &value);
		answer_case(g, c, &s);
	}
	answer_end(g, a);
}

/* Of all cases. */
struct means_job {
	struct guard_run *g;
	uint64_t inner, len;
	double *means[GUARD_CASES_MAX];
};

static uint64_t axis_length(const struct means_job *m, uint64_t c)
{
	return m->len ? m->len : m->g->want[c].n;
}

static void means_part(void *ctx, uint64_t c)
{
	struct means_job *m = ctx;
	const struct part *w = &m->g->want[c];

	if (w->n)
		m->means[c] = axis_means(w, m->inner, axis_length(m, c));
}

/* Along one axis; over the whole when len is 0. */
static void try_means(struct guard_run *g, enum guard_answer a, uint64_t inner,
		      uint64_t len)
{
	struct means_job m = { .g = g, .inner = inner, .len = len };

	pieces_run(means_part, &m, g->ncase, 0);
	answer_begin(g);
	for (size_t c = 0; c < g->ncase; c++) {
		struct source s = { NULL, m.means[c], inner,
				    axis_length(&m, c) };

		if (m.means[c])
			answer_case(g, c, &s);
		else if (g->want[c].n)
			g->failed = 1;
		free(m.means[c]);
	}
	answer_end(g, a);
}

static void try_all_means(struct guard_run *g)
{
	const struct view *v = &g->want[0].v;

	if (g->job.exact) {
		try_constant(g, GUARD_MEAN);
		return;
	}
	try_means(g, GUARD_MEAN, 1, 0);
	for (uint32_t d = 0; d < v->ndim; d++) {
		uint64_t len = (uint64_t)v->shape[d];

		if (len > 1 && len < g->want[0].n)
			try_means(g, GUARD_SLICE_MEAN, product(v, d + 1), len);
	}
}

/* An input with as many elements, whatever its shape or real type. */
static int copy_part(const struct guard_run *g, const struct view *in,
		     struct part *p)
{
	const struct view *want = &g->cases[0].want[g->leaf];
	uint64_t n, bytes;

	if (view_count(in, &n, &bytes) || n != g->whole ||
	    dtype_is_complex(in->dtype) != dtype_is_complex(want->dtype) ||
	    (n && !in->data))
		return 0;
	p->v = *in;
	if (dtype_is_complex(in->dtype))
		p->v.dtype = in->dtype == DT_C64 ? DT_F32 : DT_F64;
	return 1;
}

static void try_copies(struct guard_run *g)
{
	for (size_t i = 0; i < g->cases[0].ninputs; i++) {
		size_t c;

		answer_begin(g);
		for (c = 0; c < g->ncase; c++) {
			struct part p;
			struct source s = { &p.v, NULL, 1, 1 };

			if (i >= g->cases[c].ninputs ||
			    !copy_part(g, &g->cases[c].inputs[i], &p))
				break;
			answer_case(g, c, &s);
		}
		if (c == g->ncase)
			answer_end(g, GUARD_INPUT_COPY);
	}
}

static const struct view *answers(const struct guard_case *k,
				  enum guard_answer a)
{
	return a == GUARD_OTHER_INPUT ? k->other_input :
		a == GUARD_PART ? k->part : k->other_weights;
}

/* A result of another shape cannot be mistaken for the right one. */
static void try_other(struct guard_run *g, enum guard_answer a)
{
	answer_begin(g);
	for (size_t c = 0; c < g->ncase; c++) {
		const struct guard_case *k = &g->cases[c];
		const struct view *list = answers(k, a);
		struct part p;
		struct source s = { &p.v, NULL, 1, 1 };

		if (!list || !fits(&list[g->leaf], &k->want[g->leaf], &p))
			return;
		answer_case(g, c, &s);
	}
	answer_end(g, a);
}

static int prepare(struct guard_run *g, struct err *e)
{
	const struct view *first = &g->cases[0].want[g->leaf];
	uint64_t bytes;

	for (size_t c = 0; c < g->ncase; c++) {
		const struct view *v = &g->cases[c].want[g->leaf];

		if (!fits(v, first, &g->want[c]))
			return err_set(e, CA_SOFTWARE, "guard: result %zu "
				       "changes between seeds", g->leaf);
	}
	if (view_count(first, &g->whole, &bytes))
		return -1;
	g->job.noise = g->job.floor = 0;
	g->job.exact = !dtype_is_float(first->dtype) &&
		!dtype_is_complex(first->dtype);
	return 0;
}

static int run_leaf(struct guard_run *g, struct guard_result *res,
		    struct err *e)
{
	struct guard_leaf *l = g->out;

	l->limit = bin_edge(BINS - 1);
	l->nearest = l->trivial = l->passes = GUARD_NONE;
	if (prepare(g, e) || measure_noise(g, res, e))
		return -1;
	try_constant(g, GUARD_ZEROS);
	try_all_means(g);
	try_copies(g);
	try_other(g, GUARD_OTHER_INPUT);
	try_other(g, GUARD_PART);
	try_other(g, GUARD_OTHER_WEIGHTS);
	if (g->failed)
		return err_set(e, CA_SOFTWARE, "out of memory");
	l->noise = g->job.noise;
	l->factor = fmax(fmin(1, l->limit), g->job.floor);
	return 0;
}

static const char *in_words(enum guard_answer a)
{
	static const char *const words[GUARD_ANSWERS] = {
		[GUARD_ZEROS] = "all zeros", [GUARD_MEAN] = "a constant",
		[GUARD_SLICE_MEAN] = "the mean of each slice",
		[GUARD_INPUT_COPY] = "a copy of an input",
		[GUARD_OTHER_INPUT] = "the result for another input",
		[GUARD_PART] = "the result for half of the input",
		[GUARD_OTHER_WEIGHTS] = "the result of other weights",
	};

	return a >= 0 ? words[a] : "nothing";
}

static void fail(struct guard_result *r, size_t leaf, enum guard_answer a,
		 const char *how)
{
	if (r->invalid)
		return;
	r->invalid = 1;
	r->answer = a;
	r->bad_leaf = (uint32_t)leaf;
	snprintf(r->text, sizeof(r->text), "result %zu: %s %s", leaf,
		 in_words(a), how);
}

static void conclude(struct guard_result *r)
{
	size_t trivial = 0;

	r->answer = GUARD_NONE;
	if (r->no_finite) {
		r->invalid = 1;
		snprintf(r->text, sizeof(r->text),
			 "a result without one finite element");
	}
	for (size_t i = 0; i < r->nleaf; i++) {
		trivial += r->leaf[i].trivial != GUARD_NONE;
		if (r->leaf[i].passes != GUARD_NONE)
			fail(r, i, r->leaf[i].passes,
			     "cannot be told from the right one");
	}
	if (r->nleaf && trivial == r->nleaf)
		fail(r, 0, r->leaf[0].trivial, "is right");
	if (!r->nleaf && !r->invalid) {
		r->invalid = 1;
		snprintf(r->text, sizeof(r->text), "no result to compare");
	}
}

int guard_run(const struct guard_case *cases, size_t ncase, size_t nleaf,
	      double atol, double rtol, struct guard_result *res,
	      struct err *e)
{
	struct guard_run g = { .cases = cases, .ncase = ncase };
	int rc = -1;

	memset(res, 0, sizeof(*res));
	if (!ncase || ncase > GUARD_CASES_MAX || nleaf > CA_LEAVES ||
	    !(atol > 0) || !(rtol >= 0))
		return err_set(e, CA_SOFTWARE, "guard: arguments do not fit");
	g.job.atol = atol;
	g.job.rtol = rtol;
	g.tally = malloc(sizeof(*g.tally));
	if (!g.tally)
		return err_set(e, CA_SOFTWARE, "out of memory");
	res->nleaf = nleaf;
	for (g.leaf = 0; g.leaf < nleaf; g.leaf++) {
		g.out = &res->leaf[g.leaf];
		if (run_leaf(&g, res, e))
			goto out;
	}
	conclude(res);
	rc = 0;
out:
	free(g.tally);
	return rc;
}
