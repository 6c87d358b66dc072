/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterations and their comparison.
 */
#include "judge/rules.h"
#include "judge/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/weaken.h"

#define IDLE_CALLS 17
#define WARM_NS 20000000	/* brackets above it need no warm call */

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
		return fail_device(f, &e);
	return 0;
}

void trial_release(struct trial *t)
{
	if (!t->j)
		return;
	judge_free(t->j, &t->got);
	judge_free(t->j, &t->ref);
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
		       trial_memory(t, round, res, set, f) ? -1 : 0;
	s = cmp_leaves(&res->msg, &t->want, &leaf, text, sizeof(text));
	if (s != ST_OK)
		return fail_set(f, s, PHASE_RESULT, "%s", text);
	if (judge_ops(t, &res->msg, flags, f) ||
	    trial_memory(t, round, res, set, f))
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

/* What an empty call takes by now, beside whatever else there is: for this
 * candidate alone. */
static int idle_by_now(struct judge *j, struct oracle *o,
		       struct attrib_idle *idle, struct fail *f)
{
	const struct attrib_idle was = j->idle;
	const struct rng own = j->rng;
	int rc;

	j->idle.user_ns = 0;
	rc = trial_idle(j, o, f);
	if (rc) {
		f->apart = 1;
	} else {
		idle->user_ns = fmax(idle->user_ns, j->idle.user_ns);
		idle->foreign_ns = fmax(idle->foreign_ns, j->idle.foreign_ns);
	}
	j->idle = was;
	if (j->o.seeded)
		j->rng = own;
	return rc;
}

int trial_attribute(struct judge *j, struct oracle *o,
		    const struct attribution *a, struct fail *f)
{
	struct attrib_idle idle = j->idle;
	char text[256];
	int said, doubt = 0;

	idle.parts = o->first.nleaf;
	if (!j->dev->witnessed || j->rules->torch || weakened("witness"))
		return 0;
	said = attrib_judge(a, &idle, text, sizeof(text));
	if (said > 0 && attrib_is_close(a, &idle)) {
		if (idle_by_now(j, o, &idle, f))
			return -1;
		said = attrib_judge(a, &idle, text, sizeof(text));
		doubt = said > 0 && attrib_is_python(a, &idle);
	}
	if (!conclude(said, text, f))
		return 0;
	f->doubt = doubt;
	return -1;
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
