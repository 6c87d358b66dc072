/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterations and their comparison.
 */
#include "judge/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

#define IDLE_CALLS 11
#define WARM_NS 20000000	/* brackets above it need no warm call */
#define AGAIN 3			/* times that a disturbed bracket is repeated */

static int infra(struct fail *f, const struct err *e)
{
	return fail_set(f, ST_INFRA_ERROR, 0, "%s", e->msg);
}

int trial_init(struct trial *t, struct judge *j, struct oracle *o,
	       struct fail *f)
{
	const struct device_ops *d = j->dev->ops;
	struct err e = ERR_INIT;

	memset(t, 0, sizeof(*t));
	t->j = j;
	t->o = o;
	t->inputs = &o->inputs;
	t->expect = &o->expect;
	t->slots = o->slots.p;
	t->got = t->ref = (struct mem)MEM_NONE;
	for (size_t i = 0; i < CA_LEAVES; i++)
		cmp_result_init(&t->sum[i]);
	if (d->private_mem(j->dev, o->expect_bytes, &t->got, &e) ||
	    d->private_mem(j->dev, o->expect_bytes, &t->ref, &e))
		return infra(f, &e);
	return 0;
}

void trial_release(struct trial *t)
{
	if (!t->j)
		return;
	t->j->dev->ops->release(t->j->dev, &t->got);
	t->j->dev->ops->release(t->j->dev, &t->ref);
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

/* The rule for leaf i in this round. */
static struct cmp_rule rule_for(const struct trial *t,
				const struct verify_round *round, uint32_t i)
{
	double s = i < t->guard.nleaf ? t->guard.leaf[i].factor : 1;
	struct cmp_rule r = { CMP_TOL * s, CMP_TOL * s, 0 };

	if (round->by_norm)
		r.norm = norm_for(t, i);
	return r;
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
	/* For a sample of the bank the oracle has to go back to its inputs. */
	if (t->banked && oracle_inputs(t->j, t->o, round->seed,
				       family_name(round->family),
				       round->factor, f))
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

/*
 * Second look at the leaves that missed, with fp64 values at hand: an element
 * also passes when it is no farther from them than the reference is.
 */
static int relieve(struct trial *t, const struct verify_round *round,
		   const struct bracket_result *res,
		   struct cmp_result *r, struct fail *f)
{
	struct extent at[CA_LEAVES] = { { 0, 0 } };
	struct ca_msg m64;
	int rc = want_fp64(t, round, &t->want, at, &m64, f);

	if (rc)
		return rc < 0 ? -1 : 0;
	if (m64.nleaf != t->want.nleaf)
		return 0;
	for (uint32_t i = 0; i < t->want.nleaf; i++) {
		struct cmp_rule rule = rule_for(t, round, i);
		struct view got, ref, fp64;

		if (r[i].passed || t->want.leaf[i].kind != LEAF_TENSOR)
			continue;
		if (cmp_leaf_view(&res->msg.leaf[i], t->got.p,
				  res->got[i].offset, &got) ||
		    cmp_leaf_view(&t->want.leaf[i], t->ref.p, at[i].offset,
				  &ref) ||
		    cmp_leaf_view(&m64.leaf[i], t->o->expect.p,
				  m64.leaf[i].offset, &fp64))
			continue;
		if (!cmp_wants_fp64(&rule, &ref, &r[i]))
			continue;
		if (compare_leaf(t, &rule, &t->want.leaf[i], &got, &ref,
				 &fp64, &r[i], f))
			return -1;
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

static int judge_values(struct trial *t, const struct verify_round *round,
			const struct bracket_result *res, struct fail *f)
{
	struct cmp_result r[CA_LEAVES];
	struct view got, want;
	int missed = 0;

	memset(r, 0, sizeof(r));
	for (uint32_t i = 0; i < t->want.nleaf; i++) {
		struct cmp_rule rule = rule_for(t, round, i);

		r[i].passed = 1;
		if (views(t, res, i, &got, &want))
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
	if (missed && relieve(t, round, res, r, f))
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
			return fail_value(f, round, i, &want, &r[i]);
	return 0;
}

/* Tolerance comparison of an after-image of memory that the reference itself
 * modifies, entry by entry ({offset, bytes, dtype}). */
static int after_differs(struct trial *t, const struct mem *got,
			 const struct mem *want, const struct json *list,
			 struct fail *f)
{
	struct cmp_rule rule = { CMP_TOL, CMP_TOL, 0 };
	struct err e = ERR_INIT;

	for (const struct json *s = json_first(list); s; s = json_next(s)) {
		size_t off = (size_t)json_get_int(s, "offset", 0);
		size_t n = (size_t)json_get_int(s, "bytes", 0);
		enum ca_dtype dt = dtype_parse(json_get_str(s, "dtype", ""));
		size_t one = dtype_size(dt);
		struct cmp_result r;
		struct view a = { .dtype = dt, .ndim = 1 }, b;
		int d = t->j->dev->ops->differs(t->j->dev, got, off, want,
						off, n, &e);

		if (d < 0)
			return infra(f, &e);
		if (!d)
			continue;
		if (!one || n % one)
			return 1;
		a.shape[0] = (int64_t)(n / one);
		b = a;
		a.data = (char *)got->p + off;
		b.data = (char *)want->p + off;
		if (t->j->dev->ops->compare(t->j->dev, &rule, &a, &b, NULL,
					    &r, &e))
			return infra(f, &e);
		if (!r.passed)
			return 1;
	}
	return 0;
}

/*
 * Inputs and state must be as the reference leaves them.  `modified` as the
 * oracle says of its own forward.
 */
static int judge_memory(struct trial *t, unsigned set, uint32_t modified,
			struct fail *f)
{
	const struct device_ops *d = t->j->dev->ops;
	struct err e = ERR_INIT;
	struct oracle *o = t->o;
	int rc;

	if (modified & 1)
		rc = after_differs(t, &t->r->in[set], &o->after,
				   json_path(o->spec, "inputs.storages"), f);
	else
		rc = d->differs(t->j->dev, &t->r->in[set], 0, t->inputs, 0,
				o->input_bytes, &e);
	if (rc < 0)
		return e.code ? infra(f, &e) : -1;
	if (rc)
		return fail_set(f, ST_INPUT_MODIFIED, PHASE_FORWARD,
				modified & 1 ? "the inputs are not left as "
				"the reference leaves them" :
				"the inputs were modified");
	t->rewrite = !!(modified & 2);
	if (modified & 2)
		rc = after_differs(t, &t->r->params, &o->params_after,
				   json_get(o->spec, "state"), f);
	else
		rc = d->differs(t->j->dev, &t->r->params, 0, &o->params, 0,
				o->param_bytes, &e);
	if (rc < 0)
		return e.code ? infra(f, &e) : -1;
	if (rc)
		return fail_set(f, ST_TAMPERED, PHASE_FORWARD,
				"parameters or buffers are not left as the "
				"reference leaves them");
	return 0;
}

/* What the dispatch hook saw.  Under `paper` a candidate may allocate, view
 * and copy with ATen, and compute nothing. */
static int judge_ops(struct trial *t, const struct ca_msg *m, uint32_t flags,
		     struct fail *f)
{
	uint64_t compute;

	if (strcmp(t->r->role, "worker"))
		return 0;
	if (m->canary != 1)
		return fail_set(f, ST_RULES_FALLBACK, PHASE_FORWARD,
				"the hook that counts torch operations was "
				"switched off");
	if (flags & GO_FIRST)
		return 0;
	compute = m->aten_compute - m->canary;
	t->compute += compute;
	t->other += m->aten_other;
	if (compute)
		return fail_set(f, ST_RULES_FALLBACK, PHASE_FORWARD,
				"%llu torch operations computed in forward",
				(unsigned long long)compute);
	return 0;
}

/*
 * By the worker's word too, so that it proves nothing to have launched.  Only
 * where the witness backs it: a CUDA graph replays what was launched once, and
 * a binding of the candidate's own is not counted.
 */
static int judge_launches(struct trial *t, const struct ca_msg *m,
			  uint32_t flags, struct fail *f)
{
	t->launches += flags & GO_FIRST ? 0 : m->launches;
	if (!t->counted || m->launches)
		return 0;
	return fail_set(f, ST_RULES_FALLBACK, PHASE_FORWARD,
			"no launcher of the candidate was called");
}

static int bracket(struct trial *t, const struct verify_round *round,
		   uint32_t flags, struct bracket_result *res, struct fail *f)
{
	struct bracket b = {
		.go = { .set = (uint32_t)(t->r->brackets & 1),
			.forward_seed = round->forward_seed,
			.flags = flags | (t->no_wait ? 0 : GO_SYNC) },
		.inputs = t->inputs,
		.input_bytes = t->o->input_bytes,
		.slots = t->slots,
		.params = t->rewrite ? &t->o->params : NULL,
		.param_bytes = t->o->param_bytes,
		.capture = &t->got,
		.poison = rng_u64(&t->j->rng),
		.warm = t->warm,
	};

	t->rewrite = 0;
	return runner_go(t->j, t->r, &b, res, f);
}

/* Everything about one answer, the expected values at hand. */
static int judge_answer(struct trial *t, const struct verify_round *round,
			const struct bracket_result *res, unsigned set,
			uint32_t flags, struct fail *f)
{
	char text[256];
	enum status s;
	uint32_t leaf;
	int rc;

	/* From here on calls go in pairs, a warm one first, whatever they are
	 * for: what is verified is called as what is timed. */
	if (t->iterations++ == TRIAL_WARM)
		t->warm = res->ns < WARM_NS;
	s = cmp_leaves(&res->msg, &t->want, &leaf, text, sizeof(text));
	if (s != ST_OK)
		return fail_set(f, s, PHASE_RESULT, "%s", text);
	if (judge_ops(t, &res->msg, flags, f) ||
	    judge_memory(t, set, t->want.modified, f))
		return -1;
	rc = judge_values(t, round, res, f);
	return rc < 0 ? rc : judge_launches(t, &res->msg, flags, f) ? -1 : rc;
}

int trial_go(struct trial *t, const struct verify_round *round,
	     uint32_t flags, int64_t *ns, struct fail *f)
{
	return trial_sample(t, NULL, 1, round, flags, ns, f);
}

/* After a bracket whose order of things was broken: what the runner did to
 * its state is undone at the next reveal, and it takes the safe way, since
 * its work may have outlasted a time slice. */
static int again(struct trial *t, const struct bracket_result *res, int tries)
{
	if (!res->disturbed || tries == AGAIN)
		return 0;
	t->rewrite = t->o->param_bytes > 0;
	t->no_wait = 0;
	return 1;
}

static int on_sample(struct trial *t, const struct sample *s, uint32_t flags,
		     int64_t *ns, struct fail *f)
{
	struct bracket_result res;
	int rc, tries = 0;
	unsigned set;

	t->inputs = &s->inputs;
	t->expect = &s->expect;
	t->slots = s->slots;
	t->want = s->want;
	t->banked = 1;
	do {
		set = (unsigned)(t->r->brackets & 1);
		rc = bracket(t, &s->round, flags, &res, f);
	} while (!rc && again(t, &res, tries++));
	if (!rc) {
		*ns = res.ns;
		rc = judge_answer(t, &s->round, &res, set, flags, f);
	}
	t->inputs = &t->o->inputs;
	t->expect = &t->o->expect;
	t->slots = t->o->slots.p;
	t->banked = 0;
	return rc;
}

int trial_sample(struct trial *t, struct sample *s, int fresh,
		 const struct verify_round *wanted, uint32_t flags,
		 int64_t *ns, struct fail *f)
{
	struct verify_round round = *wanted;
	struct bracket_result res;
	int more, tries = 0;
	unsigned set;

	if (s && s->full && !fresh)
		return on_sample(t, s, flags, ns, f);
	do {
		set = (unsigned)(t->r->brackets & 1);
		if (oracle_inputs(t->j, t->o, round.seed,
				  family_name(round.family), round.factor,
				  f) ||
		    bracket(t, &round, flags, &res, f))
			return -1;
		more = again(t, &res, tries++);
		if (more)	/* the runner has seen these inputs */
			round.seed = rng_u64(&t->j->rng);
	} while (more);
	if (oracle_expect(t->j, t->o, round.forward_seed, "native", &t->want,
			  f))
		return -1;
	*ns = res.ns;
	if (s)
		sample_keep(t->j, s, t->o, &round, &t->want);
	return judge_answer(t, &round, &res, set, flags, f);
}

int trial_counts(const struct judge *j, const struct program *p)
{
	return j->dev->witnessed && !strcmp(p->role, "worker") && p->object &&
	       (!strcmp(p->form, "light") || !strcmp(p->form, "kernel"));
}

int trial_idle(struct judge *j, struct oracle *o, struct fail *f)
{
	struct bracket b = {
		.inputs = &o->inputs,
		.input_bytes = o->input_bytes,
		.slots = o->slots.p,
		.warm = 1,
	};
	struct bracket_result res;
	struct runner r;
	int rc;

	if (!j->dev->witnessed || j->idle.user_ns > 0)
		return 0;
	rc = calib_start(j, o, &r, 1, f);
	for (int i = 0; i < IDLE_CALLS && !rc; i++) {
		b.go.set = (uint32_t)(r.brackets & 1);
		b.go.flags = i ? 0 : GO_FIRST;
		rc = runner_go(j, &r, &b, &res, f);
	}
	runner_stop(j, &r);
	if (rc)
		f->fault = 1;
	else
		attrib_idle_of(&r.saw, &j->idle);
	return rc;
}

int trial_attribute(struct judge *j, const struct attribution *a,
		    struct fail *f)
{
	char text[256];

	if (!j->dev->witnessed)
		return 0;
	switch (attrib_judge(a, &j->idle, text, sizeof(text))) {
	case 0:
		return 0;
	case 1:
		return fail_set(f, ST_RULES_FALLBACK, PHASE_FORWARD, "%s",
				text);
	default:
		/* Whose fault that is nobody knows: once more, and then it is
		 * the candidate's. */
		fail_set(f, ST_INFRA_ERROR, PHASE_FORWARD, "%s", text);
		return -1;
	}
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
		cmp_write(w, path, &v, &rule, rule.atol / CMP_TOL,
			  &t->sum[i]);
	}
	jw_end_arr(w);
}
