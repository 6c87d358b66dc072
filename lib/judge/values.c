/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the values of one iteration's results are right, by the rules.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "judge/rules.h"
#include "judge/trial.h"
#include "torch/torch.h"

#define SLICES 64
#define SLICE_LEAST 1024	/* elements: fewer say little */

static int infra(struct fail *f, const struct err *e)
{
	return fail_set(f, ST_INFRA_ERROR, 0, "%s", e->msg);
}

/*
 * By norm, a tensor that hardly changes when half of the input goes unread is
 * held to more: to as little as the loosest math leaves room for on any
 * distribution.
 */
#define NORM_PART (1.0 / 16)

static double norm_for(const struct trial *t, uint32_t i)
{
	const struct guard_leaf *l = &t->guard.leaf[i];

	if (i >= t->guard.nleaf || l->nearest != GUARD_PART)
		return CMP_NORM;
	return CMP_NORM * fmax(NORM_PART, l->factor);
}

static double factor_of(const struct trial *t, uint32_t i)
{
	return i < t->guard.nleaf ? t->guard.leaf[i].factor : 1;
}

/* Baselines are what others are measured by. */
static int measures_own(const struct trial *t)
{
	return t->j->rules->own > 0 && !strcmp(t->r->role, "worker");
}

/* The rule for leaf i in this round. */
static struct cmp_rule rule_for(const struct trial *t,
				const struct verify_round *round, uint32_t i)
{
	const struct ca_leaf *l = &t->want.leaf[i];
	enum ca_dtype type = l->kind == LEAF_TENSOR ?
		(enum ca_dtype)l->dtype : DT_F64;
	double tol = factor_of(t, i) * rules_tolerance(t->j->rules, type);
	struct cmp_rule r = { tol, tol, 0, 0 };

	if (round->by_norm)
		r.norm = norm_for(t, i);
	if (measures_own(t))
		r.own = t->j->rules->own;
	return r;
}

int trial_again(struct trial *t, const struct verify_round *round,
		struct fail *f)
{
	if (!t->banked)
		return 0;
	return (t->banked->params.p &&
		oracle_state(t->j, t->o, t->banked->state_seed, 1, f)) ||
	       oracle_inputs(t->j, t->o, round->seed,
			     family_name(round->family), round->factor, f) ?
		-1 : 0;
}

/* Keeps the native results aside and asks for them in double precision.  1:
 * there are none. */
static int want_fp64(struct trial *t, const struct verify_round *round,
		     const struct ca_msg *native, struct extent *at,
		     struct ca_msg *m64, struct fail *f)
{
	struct err e = ERR_INIT;
	size_t to = 0;

	for (uint32_t i = 0; i < native->nleaf; i++) {
		struct view v;
		uint64_t n, bytes;

		if (native->leaf[i].kind != LEAF_TENSOR)
			continue;
		if (cmp_leaf_view(&native->leaf[i], t->expect->p,
				  native->leaf[i].offset, &v) ||
		    view_count(&v, &n, &bytes))
			return 1;
		if (t->j->dev->ops->copy(t->j->dev, &t->ref, to,
					 t->expect, native->leaf[i].offset,
					 bytes, &e))
			return infra(f, &e);
		at[i].offset = to;
		at[i].bytes = bytes;
		to += (bytes + 63) & ~(uint64_t)63;
	}
	if (trial_again(t, round, f))
		return -1;
	return oracle_expect(t->j, t->o, round->forward_seed, "fp64", m64, f);
}

static int fail_value(struct fail *f, const struct verify_round *round,
		      uint32_t leaf, const struct view *ref,
		      const struct cmp_result *r)
{
	char text[512];

	cmp_describe(ref, r, text, sizeof(text));
	return fail_set(f, cmp_status(r), PHASE_RESULT,
			"result %u, %s inputs: %s", (unsigned)leaf,
			family_name(round->family), text);
}

/* Views of a leaf as captured and as expected; -1 when it has no value. */
static int views(const struct trial *t, const struct bracket_result *res,
		 uint32_t i, struct view *got, struct view *want)
{
	uint64_t n, bytes;

	if (cmp_leaf_view(&res->msg.leaf[i], t->got.p, res->got[i].offset,
			  got))
		return -1;
	/* Never what was not captured. */
	if (res->msg.leaf[i].kind == LEAF_TENSOR &&
	    (view_count(got, &n, &bytes) || bytes != res->got[i].bytes))
		return -1;
	return cmp_leaf_view(&t->want.leaf[i], t->expect->p,
			     t->want.leaf[i].offset, want);
}

/* Numbers lie in the leaf itself, in host memory, on every device. */
static int compare_leaf(struct trial *t, const struct cmp_rule *rule,
			const struct ca_leaf *l, const struct view *got,
			const struct view *want, const struct view *fp64,
			struct cmp_result *r, struct fail *f)
{
	struct err e = ERR_INIT;
	int rc;

	if (l->kind == LEAF_TENSOR)
		rc = t->j->dev->ops->compare(t->j->dev, rule, got, want, fp64,
					     r, &e);
	else
		rc = compare(rule, got, want, fp64, 1, r, &e);
	return rc ? infra(f, &e) : 0;
}

/* Runs the reference on this round's inputs; other: with other random
 * numbers.  keep: private memory for the results, or NULL. */
static int once_more(struct trial *t, const struct verify_round *round,
		     int other, struct mem *keep, struct ca_msg *m,
		     struct fail *f)
{
	struct err e = ERR_INIT;
	uint64_t seed = round->forward_seed + (uint64_t)other;

	if (oracle_expect(t->j, t->o, seed, "native", m, f))
		return -1;
	if (keep && t->j->dev->ops->copy(t->j->dev, keep, 0, &t->o->expect, 0,
					 t->o->expect_bytes, &e))
		return infra(f, &e);
	return 0;
}

/* Compares what the oracle holds with what was kept of a call before. */
static int agrees(struct trial *t, const struct verify_round *round,
		  const struct ca_msg *kept, const struct ca_msg *m,
		  const char *what, struct fail *f)
{
	char text[512];
	uint32_t leaf;

	if (cmp_leaves(m, kept, &leaf, text, sizeof(text)) != ST_OK)
		return fail_set(f, ST_INVALID_REFERENCE, PHASE_RESULT,
				"the reference disagrees with itself %s: %s",
				what, text);
	for (uint32_t i = 0; i < m->nleaf; i++) {
		struct cmp_rule rule = rule_for(t, round, i);
		struct view a, b;
		struct cmp_result r;

		rule.own = 0;
		if (cmp_leaf_view(&m->leaf[i], t->o->expect.p,
				  m->leaf[i].offset, &a) ||
		    cmp_leaf_view(&kept->leaf[i], t->ref.p,
				  kept->leaf[i].offset, &b))
			continue;
		if (compare_leaf(t, &rule, &m->leaf[i], &a, &b, NULL, &r, f))
			return -1;
		if (r.passed)
			continue;
		cmp_describe(&a, &r, text, sizeof(text));
		return fail_set(f, ST_INVALID_REFERENCE, PHASE_RESULT,
				"the reference disagrees with itself %s: "
				"result %u: %s", what, (unsigned)i, text);
	}
	return 0;
}

/*
 * Who misses a reference that misses itself is not to blame: it is asked again
 * on the same inputs, with the same seed and, since kernels do not know how
 * torch draws numbers, with another one.
 */
static int is_steady(struct trial *t, const struct verify_round *round,
		     struct fail *f)
{
	struct ca_msg kept, m;

	if (strcmp(t->r->role, "worker"))
		return 0;
	if (trial_again(t, round, f) ||
	    once_more(t, round, 0, &t->ref, &kept, f) ||
	    once_more(t, round, 0, NULL, &m, f) ||
	    agrees(t, round, &kept, &m, "from call to call", f))
		return -1;
	if (t->j->rules->torch)
		return 0;
	return once_more(t, round, 1, NULL, &m, f) ||
	       agrees(t, round, &kept, &m, "with other random numbers", f) ?
		-1 : 0;
}

static struct view slice_of(const struct view *v, uint64_t at, uint64_t n)
{
	struct view s = { .dtype = v->dtype, .ndim = 1,
			  .shape = { (int64_t)n } };

	s.data = (const char *)v->data + at * dtype_size(v->dtype);
	return s;
}

/* Parts of consecutive rows, none of which may stand out. */
static int judge_slices(struct trial *t, const struct cmp_rule *rule,
			const struct ca_leaf *l, const struct view *got,
			const struct view *ref, const struct view *fp64,
			struct cmp_result *r, struct fail *f)
{
	uint64_t row = ref->ndim ? (uint64_t)ref->shape[ref->ndim - 1] : 1;
	uint64_t each = r->n / SLICES + 1;

	if (each < SLICE_LEAST)
		each = SLICE_LEAST;
	each = (each + row - 1) / row * row;
	for (uint64_t at = 0, n; at < r->n; at += n) {
		struct view g, w, d;
		struct cmp_result part;
		double times;

		n = r->n - at < each ? r->n - at : each;
		g = slice_of(got, at, n);
		w = slice_of(ref, at, n);
		d = slice_of(fp64, at, n);
		if (compare_leaf(t, rule, l, &g, &w, &d, &part, f))
			return -1;
		if (!part.comparable)
			continue;
		times = cmp_own_slice(rule, ref->dtype, r, &part);
		if (times > 1 && times > r->own_at) {
			r->passed = 0;
			r->own = OWN_SLICE;
			r->own_at = times;
		}
	}
	return 0;
}

/* end: of the request for it. */
static int no_fp64(struct trial *t, uint32_t end, struct fail *f)
{
	if (!measures_own(t))
		return 0;
	fail_set(f, ST_INVALID_REFERENCE, PHASE_RESULT, "rules '%s' need the "
		 "reference in double precision, %s", t->j->rules->name,
		 end == END_OOM ? "for which there is no memory" :
				  "which it does not compute in");
	f->oom = end == END_OOM;
	return -1;
}

static int look_again(struct trial *t, const struct cmp_rule *rule,
		      const struct ca_leaf *l, const struct view *got,
		      const struct view *ref, const struct view *fp64,
		      struct cmp_result *r, struct fail *f)
{
	enum ca_dtype wide = dtype_is_complex(ref->dtype) ? DT_C128 : DT_F64;

	if (!cmp_wants_fp64(rule, ref, r))
		return 0;
	if (fp64->dtype != wide)
		return no_fp64(t, END_OK, f);
	if (compare_leaf(t, rule, l, got, ref, fp64, r, f))
		return -1;
	if (!measures_own(t) || !r->passed || !r->comparable)
		return 0;
	return judge_slices(t, rule, l, got, ref, fp64, r, f);
}

/*
 * Second look, with fp64 values at hand: at the leaves that missed, of which
 * an element also passes when it is no farther from them than the reference
 * is, or at all where the rules measure errors by the reference's own.
 */
static int relieve(struct trial *t, const struct verify_round *round,
		   const struct bracket_result *res,
		   struct cmp_result *r, struct fail *f)
{
	struct extent at[CA_LEAVES] = { { 0, 0 } };
	struct ca_msg m64 = { .end = END_OK };
	int rc = want_fp64(t, round, &t->want, at, &m64, f);

	if (rc < 0)
		return -1;
	if (rc || m64.nleaf != t->want.nleaf)
		return no_fp64(t, m64.end, f);
	for (uint32_t i = 0; i < t->want.nleaf; i++) {
		struct cmp_rule rule = rule_for(t, round, i);
		struct view got, ref, fp64;

		if (t->want.leaf[i].kind != LEAF_TENSOR)
			continue;
		if (cmp_leaf_view(&res->msg.leaf[i], t->got.p,
				  res->got[i].offset, &got) ||
		    cmp_leaf_view(&t->want.leaf[i], t->ref.p, at[i].offset,
				  &ref) ||
		    cmp_leaf_view(&m64.leaf[i], t->o->expect.p,
				  m64.leaf[i].offset, &fp64))
			continue;
		if (look_again(t, &rule, &t->want.leaf[i], &got, &ref, &fp64,
			       &r[i], f))
			return -1;
	}
	return 0;
}

/* Whether a result could be measured against fp64. */
static int has_floats(const struct trial *t)
{
	for (uint32_t i = 0; i < t->want.nleaf; i++) {
		enum ca_dtype type = (enum ca_dtype)t->want.leaf[i].dtype;

		if (t->want.leaf[i].kind == LEAF_TENSOR &&
		    (dtype_is_float(type) || dtype_is_complex(type)))
			return 1;
	}
	return 0;
}

/*
 * Whether the reference stays as finite as it is on plain inputs, which come
 * first; rounds of other distributions decide only then.
 */
static int stays_finite(const struct trial *t, const struct cmp_result *r)
{
	for (uint32_t i = 0; i < t->want.nleaf; i++) {
		const struct cmp_result *plain = &t->sum[i];

		if (r[i].n && (!r[i].comparable ||
			       (r[i].comparable < r[i].n &&
				plain->comparable == plain->n)))
			return 0;
	}
	return 1;
}

/* Which of equal values an index names is nobody's rule. */
static int names_equals(const struct verify_round *round, enum ca_dtype t)
{
	return (round->family == FAMILY_TIED ||
		round->family == FAMILY_CLUSTER) &&
	       t != DT_BOOL && !dtype_is_float(t) && !dtype_is_complex(t);
}

int trial_values(struct trial *t, const struct verify_round *round,
			const struct bracket_result *res, struct fail *f)
{
	struct cmp_result r[CA_LEAVES];
	struct view got, want;
	int missed = 0;

	memset(r, 0, sizeof(r));
	for (uint32_t i = 0; i < t->want.nleaf; i++) {
		struct cmp_rule rule = rule_for(t, round, i);

		r[i].passed = 1;
		if (views(t, res, i, &got, &want) ||
		    names_equals(round, want.dtype))
			continue;
		if (compare_leaf(t, &rule, &t->want.leaf[i], &got, &want,
				 NULL, &r[i], f))
			return -1;
		missed |= !r[i].passed;
	}
	if (round->family != FAMILY_PLAIN && !stays_finite(t, r)) {
		t->skipped++;
		return 1;
	}
	if (((missed && t->j->rules->relief) ||
	     (measures_own(t) && has_floats(t))) &&
	    relieve(t, round, res, r, f))
		return -1;
	if (missed && t->j->rules->relief && trial_ties(t, round, res, r, f))
		return -1;
	if (!round->deciding) {
		for (uint32_t i = 0; i < t->want.nleaf; i++)
			t->folded |= !r[i].passed;
		return 0;
	}
	for (uint32_t i = 0; i < t->want.nleaf; i++)
		if (!round->by_norm)
			cmp_result_merge(&t->sum[i], &r[i]);
	for (uint32_t i = 0; i < t->want.nleaf; i++)
		if (!r[i].passed && !cmp_leaf_view(&t->want.leaf[i], NULL, 0,
						   &want))
			return is_steady(t, round, f) ? -1 :
				fail_value(f, round, i, &want, &r[i]);
	return 0;
}

void trial_write(const struct trial *t, struct jw *w)
{
	static const struct verify_round plain = { .family = FAMILY_PLAIN };

	jw_arr(w);
	for (uint32_t i = 0; i < t->want.nleaf; i++) {
		struct cmp_rule rule = rule_for(t, &plain, i);
		char path[32];
		struct view v;

		if (cmp_leaf_view(&t->want.leaf[i], NULL, 0, &v))
			continue;
		snprintf(path, sizeof(path), "%u", (unsigned)i);
		cmp_write(w, path, &v, &rule, factor_of(t, i), &t->sum[i]);
	}
	jw_end_arr(w);
}
