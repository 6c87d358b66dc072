/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterations and their comparison.
 */
#include "judge/rules.h"
#include "judge/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/weaken.h"

#define IDLE_CALLS 17
#define WARM_NS 20000000	/* brackets above it need no warm call */

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
	t->params = &o->params;
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

/* Tolerance comparison of an after-image of memory that the reference itself
 * modifies, entry by entry ({offset, bytes, dtype}). */
static int after_differs(struct trial *t, const struct mem *got,
			 const struct mem *want, const struct json *list,
			 struct fail *f)
{
	struct cmp_rule rule = { .atol = CMP_TOL, .rtol = CMP_TOL };
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

/* Writes the place of a storage among the arguments, as "input 1['mask']",
 * behind the `at` bytes of text; 0 where the node does not hold it. */
static int find_storage(const struct json *node, int64_t storage, char *text,
			size_t len, size_t at, int depth)
{
	const char *kind = json_get_str(node, "t", "");
	int dict = !strcmp(kind, "dict"), i = 0;

	if (!strcmp(kind, "tensor"))
		return json_get_int(node, "storage", -1) == storage;
	if ((!dict && strcmp(kind, "list") && strcmp(kind, "tuple")) ||
	    depth == 8)
		return 0;
	for (const struct json *v = json_first(json_get(node, "v")); v;
	     v = json_next(v), i++) {
		const struct json *key = json_first(v);
		int n = dict ?
			snprintf(text + at, len - at, "['%.40s']",
				 json_str(key, "?")) :
			snprintf(text + at, len - at, "[%d]", i);

		if (n < 0 || (size_t)n >= len - at)
			return 0;
		if (find_storage(dict ? json_next(key) : v, storage, text, len,
				 at + (size_t)n, depth + 1))
			return 1;
		text[at] = '\0';
	}
	return 0;
}

static void name_input(const struct oracle *o, int64_t storage, char *text,
		       size_t len)
{
	const struct json *a = json_first(json_path(o->spec, "inputs.args"));

	for (int i = 0; a; a = json_next(a), i++) {
		int n = snprintf(text, len, "input %d", i);

		if (find_storage(a, storage, text, len, (size_t)n, 0))
			return;
	}
	snprintf(text, len, "an input");
}

/* Which storage of the inputs is not as it was.  The first one that differs;
 * -1: all of them are. */
static int64_t changed_input(struct trial *t, const struct mem *got)
{
	const struct json *s = json_first(json_path(t->o->spec,
						    "inputs.storages"));

	for (int64_t i = 0; s; s = json_next(s), i++) {
		size_t at = (size_t)json_get_int(s, "offset", 0);

		if (t->j->dev->ops->differs(t->j->dev, got, at, t->inputs, at,
					    (size_t)json_get_int(s, "bytes",
								 0), NULL))
			return i;
	}
	return -1;
}

/* A region that the runner can write to, and what it should hold. */
struct region {
	const struct mem *got, *before;
	const struct mem *after;	/* NULL: as before */
	size_t bytes;
	const struct json *list;	/* {offset, bytes} of what lies there */
};

/* Looks at what lies between, before and behind the entries.  1: it changed,
 * and *which entry follows it. */
static int zones_differ(struct trial *t, const struct region *g, int *which,
			struct err *e)
{
	const struct json *s = json_first(g->list);
	size_t at = 0;

	for (*which = 0; at < g->bytes; s = json_next(s), ++*which) {
		size_t off = s ? (size_t)json_get_int(s, "offset", 0) :
				 g->bytes;
		size_t n = s ? (size_t)json_get_int(s, "bytes", 0) : 0;
		int d = off <= at ? 0 :
			t->j->dev->ops->differs(t->j->dev, g->got, at,
						g->before, at, off - at, e);

		if (d)
			return d;
		if (off + n > at)	/* else tied to an earlier one */
			at = off + n;
	}
	return 0;
}

/* 0: the region is as it should be.  1: it is not.  2: what lies beside its
 * entries is not, before entry *which. */
static int look(struct trial *t, const struct region *g, int *which,
		struct fail *f)
{
	struct err e = ERR_INIT;
	int rc = g->after ? 1 :
		t->j->dev->ops->differs(t->j->dev, g->got, 0, g->before, 0,
					g->bytes, &e);

	if (rc > 0)
		rc = 2 * zones_differ(t, g, which, &e);
	else if (!rc)
		return 0;
	if (rc)
		return rc < 0 ? infra(f, &e) : rc;
	return g->after ? after_differs(t, g->got, g->after, g->list, f) : 1;
}

static int judge_inputs(struct trial *t, unsigned set, int modified,
			struct fail *f)
{
	struct oracle *o = t->o;
	const struct region g = {
		&t->r->in[set], t->inputs, modified ? &o->after : NULL,
		o->input_bytes, json_path(o->spec, "inputs.storages"),
	};
	char name[128];
	int which, rc = look(t, &g, &which, f);

	if (rc <= 0)
		return rc;
	if (rc == 2) {
		name_input(o, which ? which - 1 : 0, name, sizeof(name));
		return fail_set(f, ST_OUT_OF_BOUNDS, PHASE_FORWARD,
				"memory %s %s was written",
				which ? "behind" : "before", name);
	}
	if (modified)
		return fail_set(f, ST_INPUT_MODIFIED, PHASE_FORWARD, "the "
				"inputs are not left as the reference leaves "
				"them");
	name_input(o, changed_input(t, g.got), name, sizeof(name));
	return fail_set(f, ST_INPUT_MODIFIED, PHASE_FORWARD, "%s was modified",
			name);
}

static int judge_state(struct trial *t, int modified, struct fail *f)
{
	struct oracle *o = t->o;
	const struct region g = {
		&t->r->params, t->params, modified ? &o->params_after : NULL,
		o->param_bytes, json_get(o->spec, "state"),
	};
	int which, rc = look(t, &g, &which, f);

	if (rc <= 0)
		return rc;
	if (rc == 2)
		return fail_set(f, ST_OUT_OF_BOUNDS, PHASE_FORWARD, "memory "
				"beside a parameter or buffer was written");
	return fail_set(f, ST_TAMPERED, PHASE_FORWARD, "parameters or buffers "
			"are not left as the reference leaves them");
}

/*
 * Inputs and state must be as the reference leaves them, and nothing may have
 * been written beside them or beside results.
 */
static int judge_memory(struct trial *t, const struct bracket_result *res,
			unsigned set, struct fail *f)
{
	uint32_t modified = t->want.modified;	/* by the reference */
	int at = res->stray, rc;

	if (weakened("memory"))
		return 0;
	rc = judge_inputs(t, set, modified & 1, f);
	if (rc)
		return rc;
	t->rewrite = !!(modified & 2);
	rc = judge_state(t, modified & 2, f);
	if (rc)
		return rc;
	if (at && !strcmp(t->r->role, "worker"))
		return fail_set(f, ST_OUT_OF_BOUNDS, PHASE_FORWARD, "memory "
				"%s result %d was written",
				at > 0 ? "behind" : "before", abs(at) - 1);
	return 0;
}

/* How many torch operations computed, and which the worker says was first, if
 * that is a name. */
static int computed(const struct ca_msg *m, uint64_t n, struct fail *f)
{
	char name[80];
	int named;

	memcpy(name, m->text, sizeof(name));
	name[sizeof(name) - 1] = '\0';
	named = name[0] && !name[strspn(name, "abcdefghijklmnopqrstuvwxyz"
					"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
					"0123456789_:.")];
	return fail_set(f, ST_RULES_FALLBACK, PHASE_FORWARD,
			"%llu torch operation%s computed in forward%s%s",
			(unsigned long long)n, n == 1 ? "" : "s",
			named ? ", first " : "", named ? name : "");
}

/* What the dispatch hook saw.  A candidate may allocate, view and copy with
 * ATen, and compute nothing, unless the rules allow it. */
static int judge_ops(struct trial *t, const struct ca_msg *m, uint32_t flags,
		     struct fail *f)
{
	uint64_t compute;

	if (strcmp(t->r->role, "worker") || weakened("ops"))
		return 0;
	if (m->canary != 1 && !t->j->rules->torch)
		return fail_set(f, ST_RULES_FALLBACK, PHASE_FORWARD,
				"the hook that counts torch operations was "
				"switched off");
	if (flags & GO_FIRST)
		return 0;
	compute = m->aten_compute > m->canary ?
		m->aten_compute - m->canary : 0;
	t->compute += compute;
	t->other += m->aten_other;
	if (compute && !t->j->rules->torch)
		return computed(m, compute, f);
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
	if (!t->counted || m->launches || t->j->rules->torch ||
	    weakened("launches"))
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
		.params = t->rewrite ? t->params : NULL,
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
	if (weakened("values"))
		return judge_ops(t, &res->msg, flags, f) ||
		       judge_memory(t, res, set, f) ? -1 : 0;
	s = cmp_leaves(&res->msg, &t->want, &leaf, text, sizeof(text));
	if (s != ST_OK)
		return fail_set(f, s, PHASE_RESULT, "%s", text);
	if (judge_ops(t, &res->msg, flags, f) ||
	    judge_memory(t, res, set, f))
		return -1;
	rc = trial_values(t, round, res, f);
	return rc < 0 ? rc : judge_launches(t, &res->msg, flags, f) ? -1 : rc;
}

int trial_go(struct trial *t, const struct verify_round *round,
	     uint32_t flags, int64_t *ns, struct fail *f)
{
	return trial_sample(t, NULL, 1, round, flags, ns, f);
}

int trial_disturbed(struct fail *f)
{
	return fail_set(f, ST_INFRA_ERROR, PHASE_FORWARD, "the GPU does not "
			"take turns between two processes as the clock needs "
			"it");
}

/*
 * After a bracket: 1 when its order of things was broken and it is to be made
 * again.  What the runner did to its state is undone at the next reveal, and
 * it takes the safe way, since its work may have outlasted a time slice.
 */
static int again(struct trial *t, const struct bracket_result *res, int tries,
		 struct fail *f)
{
	if (!res->disturbed)
		return 0;
	if (tries == TRIAL_AGAIN)
		return trial_disturbed(f);
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
	t->banked = s;
	do {
		if (s->params.p) {
			t->params = &s->params;
			t->rewrite = 1;
		}
		set = (unsigned)(t->r->brackets & 1);
		rc = bracket(t, &s->round, flags, &res, f);
		if (!rc)
			rc = again(t, &res, tries++, f);
	} while (rc > 0);
	if (!rc) {
		*ns = res.ns;
		rc = judge_answer(t, &s->round, &res, set, flags, f);
	}
	t->inputs = &t->o->inputs;
	t->expect = &t->o->expect;
	t->params = &t->o->params;
	t->slots = t->o->slots.p;
	t->banked = NULL;
	return rc;
}

/* Revealed together with the inputs. */
static int other_weights(struct trial *t, struct fail *f)
{
	t->state_seed = rng_u64(&t->j->rng);
	t->rewrite = 1;
	return oracle_state(t->j, t->o, t->state_seed, 1, f);
}

int trial_sample(struct trial *t, struct sample *s, int fresh,
		 const struct verify_round *wanted, uint32_t flags,
		 int64_t *ns, struct fail *f)
{
	struct verify_round round = *wanted;
	struct bracket_result res;
	int more, tries = 0;
	int64_t began;
	unsigned set;

	if (s && s->full && !fresh)
		return on_sample(t, s, flags, ns, f);
	do {
		set = (unsigned)(t->r->brackets & 1);
		if ((t->j->rules->rewrites && t->o->param_bytes &&
		     other_weights(t, f)) ||
		    oracle_inputs(t->j, t->o,
				  weakened("fresh") ? 42 : round.seed,
				  family_name(round.family), round.factor,
				  f) ||
		    bracket(t, &round, flags, &res, f))
			return -1;
		more = again(t, &res, tries++, f);
		if (more)	/* the runner has seen these inputs */
			round.seed = rng_u64(&t->j->rng);
	} while (more > 0);
	began = now_ns();
	if (more < 0 ||
	    oracle_expect(t->j, t->o, round.forward_seed, "native", &t->want,
			  f))
		return -1;
	t->reference_ns = now_ns() - began;
	*ns = res.ns;
	if (s)
		sample_keep(t->j, s, t->o, &round, t->state_seed, &t->want);
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

/* What the evidence says: 0 nothing, 1 that others did the work, -1 that it is
 * missing.  Whose fault the latter is nobody knows: once more, and then it is
 * the candidate's. */
static int conclude(int said, const char *text, struct fail *f)
{
	if (!said)
		return 0;
	return fail_set(f, said > 0 ? ST_RULES_FALLBACK : ST_INFRA_ERROR,
			PHASE_FORWARD, "%s", text);
}

int trial_attribute(struct judge *j, const struct oracle *o,
		    const struct attribution *a, struct fail *f)
{
	struct attrib_idle idle = j->idle;
	char text[256];

	idle.parts = o->first.nleaf;
	if (!j->dev->witnessed || j->rules->torch || weakened("witness"))
		return 0;
	return conclude(attrib_judge(a, &idle, text, sizeof(text)), text, f);
}

void trial_origin(const struct judge *j, const struct runner *r,
		  const struct trace_table *t, uint64_t calls,
		  struct origin *g)
{
	struct origin_known known;

	if (!judge_on_cuda(j) || j->rules->torch || weakened("witness") ||
	    origin_learn(&known, r->image.buf ? r->image.buf : "",
			 r->image.len))
		return;
	origin_add(g, &known, t, calls);
	origin_forget(&known);
}

/* Whether a process of our own is traced here; asked once. */
static int can_trace(struct judge *j, struct oracle *o)
{
	struct trace_table table;
	struct fail f = { .status = ST_OK };
	struct runner r;
	struct bracket b = {
		.inputs = &o->inputs,
		.input_bytes = o->input_bytes,
		.slots = o->slots.p,
	};
	struct bracket_result res;

	if (j->traces)
		return j->traces > 0;
	j->traces = -1;
	if (!calib_start(j, o, &r, 1, &f) &&
	    !runner_go(j, &r, &b, &res, &f) &&
	    !runner_trace(j, &r, 1, r.seq, 1, &table)) {
		j->traces = table.iterations ? 1 : -1;
		trace_free(&table);
	}
	runner_stop(j, &r);
	return j->traces > 0;
}

int trial_originated(struct judge *j, struct oracle *o,
		     const struct origin *g, struct fail *f)
{
	char text[256];
	int said = origin_judge(g, o->first.nleaf, text, sizeof(text));

	if (said < 0 && !g->calls && !can_trace(j, o))
		return 0;
	return conclude(said, text, f);
}
