/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification: one process of the candidate, the plan of rounds, a verdict.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/weaken.h"
#include "build/audit.h"
#include "judge/ahead.h"
#include "judge/chain.h"
#include "judge/rules.h"
#include "judge/trial.h"
#include "judge/witness.h"
#include "rec/stage.h"

#define VERIFY_VERSION "5"
#define DOUBT_CALLS 192		/* beyond the plan, at most */
#define DOUBT_STEP 32
#define DOUBT_SECONDS 20	/* of computing, which gives samples; */
#define DOUBT_WAIT_S 60		/* sleep gives none, nor a slow reference */

/* What a verification found. */
struct verdict {
	struct fail f;		/* status ST_OK: right */
	int trivial;
	struct trial t;
	struct guard_result guard;
	struct attribution saw;
	struct origin origin;	/* the same on CUDA */
};

/* Dtypes among the tensor nodes of the inputs. */
static void look(const struct json *node, struct family_traits *t)
{
	const char *kind = json_get_str(node, "t", "");
	const struct json *shape = json_get(node, "shape"), *d;
	enum ca_dtype dt;
	int64_t last = 0, n = 1;

	if (!strcmp(kind, "list") || !strcmp(kind, "tuple")) {
		for (d = json_first(json_get(node, "v")); d; d = json_next(d))
			look(d, t);
		return;
	}
	if (strcmp(kind, "tensor"))
		return;
	for (d = json_first(shape); d; d = json_next(d)) {
		last = json_int(d, 0);
		n *= last;
	}
	dt = dtype_parse(json_get_str(node, "dtype", ""));
	if (dtype_is_float(dt) || dtype_is_complex(dt)) {
		t->has_float = 1;
		t->has_slices |= last >= 2;
	} else if (dt != DT_BOOL && n >= 2) {
		t->has_int = 1;
	}
}

static void traits(const struct oracle *o, int rewrites,
		   struct family_traits *t)
{
	const struct json *a;

	memset(t, 0, sizeof(*t));
	/* Where weights change all the time, folding is wrong anyway. */
	t->has_state = o->param_bytes > 0 && !rewrites;
	a = json_first(json_path(o->spec, "inputs.args"));
	for (; a; a = json_next(a))
		look(a, t);
}

/* A task that nobody's candidate could be verified on. */
static int judge_task(struct judge *j, struct verdict *v, struct fail *f)
{
	v->trivial = 0;
	if (v->guard.no_finite)
		return fail_set(f, ST_INVALID_REFERENCE, PHASE_RESULT, "%s",
				v->guard.text);
	if (!v->guard.invalid)
		return 0;
	v->trivial = 1;
	if (j->o.allow_trivial)
		return 0;
	return fail_set(f, ST_INVALID_REFERENCE, PHASE_RESULT, "%s",
			v->guard.text);
}

/*
 * A short call gives few samples: where some of them lie in foreign code, more
 * calls tell whether it does the work.  They look like those that are timed.
 */
static int look_longer(struct judge *j, struct trial *t, struct fail *f)
{
	const struct attribution *saw;
	struct attrib_idle idle = j->idle;
	int64_t ns, until = deadline_in(DOUBT_WAIT_S);
	const struct rng was = j->rng;
	double enough;

	if (!j->dev->witnessed || j->rules->torch || weakened("witness"))
		return 0;
	idle.parts = t->o->first.nleaf;
	saw = witness_saw(t->r->witness);
	enough = saw->all.during_user + DOUBT_SECONDS * 1e9;
	for (int i = 0; i < DOUBT_CALLS && now_ns() < until &&
			saw->all.during_user < enough; i++) {
		struct verify_round round = {
			.family = FAMILY_PLAIN, .factor = 1,
			.deciding = 1, .seed = rng_u64(&j->rng),
			.forward_seed = rng_u64(&j->rng),
		};

		if (i % DOUBT_STEP == 0 && !attrib_doubts(saw, &idle))
			break;
		if (stage_interrupted())
			return fail_set(f, ST_INFRA_ERROR, 0, "interrupted");
		if (trial_go(t, &round, 0, &ns, f) < 0)
			return -1;
	}
	if (j->o.seeded)	/* a replay may look for another time */
		j->rng = was;
	return 0;
}

static int rounds(struct judge *j, struct oracle *o, struct trial *t,
		  struct fail *f)
{
	struct verify_round plan[FAMILY_ROUNDS];
	struct family_traits tr;
	int64_t ns;
	size_t n;

	traits(o, j->rules->rewrites, &tr);
	n = families_plan(&j->rng, &tr, (size_t)j->o.inputs,
			  j->o.literal || !j->rules->families ||
			  weakened("families"), plan);
	for (size_t i = 0; i < n; i++) {
		if (stage_interrupted())
			return fail_set(f, ST_INFRA_ERROR, 0, "interrupted");
		if (plan[i].other_weights) {
			if (look_longer(j, t, f) ||
			    oracle_state(j, o, rng_u64(&j->rng), 1, f))
				return -1;
			t->rewrite = 1;
		}
		if (t->guard.refused >> plan[i].family & 1) {
			t->skipped++;
			continue;
		}
		if (trial_go(t, &plan[i], i ? 0 : GO_FIRST, &ns, f) < 0)
			return -1;
	}
	return tr.has_state ? 0 : look_longer(j, t, f);
}

/* What the built object wants of others. */
static int judge_symbols(struct judge *j, const struct program *p,
			 struct fail *f)
{
	unsigned flags = 0;
	struct str image = STR_INIT;
	struct err e = ERR_INIT;
	char text[512];
	int rc = 0;

	if (!p->object || j->rules->torch || weakened("symbols"))
		return 0;
	if (!j->dev->witnessed)
		flags |= AUDIT_CUDA;
	if (!strcmp(p->form, "paper") || !strcmp(p->form, "inline"))
		flags |= AUDIT_BINDING | (p->slim ? AUDIT_SLIM : 0);
	if (read_file(p->object, BUILD_OBJECT_MAX, &image, &e))
		rc = fail_set(f, ST_INFRA_ERROR, PHASE_LOAD, "%s", e.msg);
	else if (audit_object(image.buf, image.len, flags, text,
			      sizeof(text)))
		rc = fail_set(f, ST_RULES_SYMBOL, PHASE_LOAD, "%s", text);
	str_release(&image);
	return rc;
}

/* What CUPTI saw of the calls that were compared, but for the first: between
 * two of them is a warm one, in which kernels of its own would cost nothing
 * and make others' share small. */
static void trace_calls(struct judge *j, struct runner *r, struct origin *g)
{
	uint64_t step = r->warmed ? 2 : 1, from = 2 + r->seq % step;
	struct trace_table t;
	int rc;

	if (!judge_on_cuda(j) || r->seq < from)
		return;
	rc = runner_trace(j, r, from, r->seq, step, &t);
	trial_origin(j, r, rc ? NULL : &t, (r->seq - from) / step + 1, g);
	trace_free(&t);
}

/* One attempt.  A fault leaves v->f.fault set. */
static void attempt(struct judge *j, const struct subject *s, void *result)
{
	struct verdict *v = result;
	struct program p = s->program;
	struct oracle o;
	struct runner r;
	int have_runner = 0;

	memset(v, 0, sizeof(*v));
	p.fine = 1;
	if (judge_symbols(j, &p, &v->f))
		return;
	if (oracle_open(j, &o, "oracle", 0, &v->f))
		goto out;
	if (j->dev->witnessed && !(j->idle.user_ns > 0))
		ahead_want(j, &(struct purpose){ "calib", 0, NULL });
	ahead_want(j, &(struct purpose){ p.role, 0, NULL });
	if (oracle_load(j, &o, s->task, s->tasklen, &v->f) ||
	    oracle_know(j, &o, s->task_id, &v->f) ||
	    (j->rules->guarded &&
	     (guard_task(j, &o, s->task_id, &v->guard, &v->f) ||
	      judge_task(j, v, &v->f))) ||
	    (!j->rules->own_state &&
	     oracle_state(j, &o, rng_u64(&j->rng), 1, &v->f)) ||
	    trial_idle(j, &o, &v->f) || trial_init(&v->t, j, &o, &v->f))
		goto out;
	v->t.guard = v->guard;
	v->t.r = &r;
	v->t.counted = trial_counts(j, &p);
	/* On CUDA the judge's kernels order the candidate's work and find out
	 * what goes on behind its answer: third contexts are in the way.  And
	 * no candidate may live there while others' clocks run. */
	if (judge_on_cuda(j) && judge_alone(j, &v->f))
		goto out;
	have_runner = 1;
	if (runner_start(j, &o, &r, &p, &v->f))
		goto out;
	if (!rounds(j, &o, &v->t, &v->f))
		trace_calls(j, &r, &v->origin);
out:
	if (have_runner) {
		runner_stop(j, &r);
		v->saw = r.saw;
		oracle_beside(j, &o, &v->f);
	}
	if (v->f.status == ST_OK &&
	    !trial_attribute(j, &o, &v->saw, &v->f))
		trial_originated(j, &o, &v->origin, &v->f);
	trial_release(&v->t);
	oracle_stop(j, &o);
}

static void write_options(struct judge *j, struct jw *w)
{
	jw_key(w, "options");
	jw_obj(w);
	jw_kint(w, "inputs", j->o.inputs);
	jw_kbool(w, "literal", j->o.literal);
	jw_kbool(w, "allow_trivial", j->o.allow_trivial);
	jw_key(w, "seed");
	if (j->o.seeded)
		jw_u64(w, j->o.seed);
	else
		jw_null(w);
	jw_end_obj(w);
}

static void write_field(struct judge *j, const struct verdict *v,
			int64_t began, struct jw *w)
{
	jw_obj(w);
	jw_kstr(w, "status", status_name(v->f.status));
	if (v->f.status != ST_OK) {
		jw_kstr(w, "phase", phase_name(v->f.phase));
		jw_kstr(w, "text", v->f.text);
	}
	jw_kstr(w, "rules", j->rules->name);
	chain_write_common(j, VERIFY_VERSION, w);
	write_options(j, w);
	jw_kint(w, "iterations", (int64_t)v->t.iterations);
	jw_kint(w, "skipped", (int64_t)v->t.skipped);
	jw_key(w, "tensors");
	trial_write(&v->t, w);
	jw_key(w, "modified");
	trial_write_left(&v->t, w);
	jw_key(w, "aten");
	jw_obj(w);
	jw_kint(w, "compute", (int64_t)v->t.compute);
	jw_kint(w, "other", (int64_t)v->t.other);
	jw_end_obj(w);
	jw_kint(w, "launches", (int64_t)v->t.launches);
	jw_key(w, "attribution");
	if (judge_on_cuda(j))
		origin_write(&v->origin, !j->o.no_prov, w);
	else
		attrib_write(&v->saw, !j->o.no_prov, w);
	jw_kbool(w, "folded", v->t.folded);
	jw_kbool(w, "trivial_task", v->trivial);
	chain_write_prov(j, began, w);
	jw_end_obj(w);
}

/* `verify` for a candidate whose build failed: its status repeated. */
static void unbuilt(struct judge *j, enum status build, struct jw *w)
{
	jw_obj(w);
	jw_kstr(w, "status", status_name(build));
	jw_kstr(w, "phase", "build");
	jw_kstr(w, "rules", j->rules->name);
	chain_write_common(j, VERIFY_VERSION, w);
	write_options(j, w);
	jw_end_obj(w);
}

/* Whether the field at hand was made under options at least as strict. */
static int strict_enough(struct judge *j, const struct json *v)
{
	const struct json *o = json_get(v, "options");
	uint64_t seed = 0;
	int seeded = !json_u64(json_get(o, "seed"), &seed);

	return chain_same_common(j, VERIFY_VERSION, v) &&
	       !strcmp(json_get_str(v, "rules", ""), j->rules->name) &&
	       json_get_int(o, "inputs", 0) >= j->o.inputs &&
	       json_get_bool(o, "literal", 1) <= j->o.literal &&
	       json_get_bool(o, "allow_trivial", 1) <= j->o.allow_trivial &&
	       (!seeded || (j->o.seeded && seed == j->o.seed));
}

static int believed(struct judge *j, const struct rec *r)
{
	struct json *v;
	int ok;

	if (!mac_check(&j->key, r, "verify", chain_uses_build))
		return 0;
	v = chain_field(r, "verify");
	ok = v && strict_enough(j, v) &&
	     status_parse(json_get_str(v, "status", NULL)) != ST_INFRA_ERROR;
	json_free(v);
	return ok;
}

/* A candidate that cannot be judged for what its record lacks. */
static int bad_record(struct judge *j, struct rec *r, struct err *e)
{
	struct str out = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &out);
	jw_obj(&w);
	jw_kstr(&w, "status", status_name(ST_BAD_RECORD));
	jw_kstr(&w, "text", e->msg);
	chain_write_common(j, VERIFY_VERSION, &w);
	write_options(j, &w);
	jw_end_obj(&w);
	err_clear(e);
	rc = out.failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     rec_set(r, "verify", out.buf, out.len);
	str_release(&out);
	return rc;
}

/* Later programs go by the rules that were asked for here. */
static int name_rules(struct judge *j, struct rec *r, struct err *e)
{
	const char *name = j->rules->name;
	char text[32];
	int n;

	if (!j->o.rules || !strcmp(json_str(rec_get(r, "rules"), ""), name))
		return 0;
	n = snprintf(text, sizeof(text), "\"%s\"", name);
	if (rec_set(r, "rules", text, (size_t)n))
		return err_set(e, CA_SOFTWARE, "out of memory");
	return 0;
}

int judge_verify(struct judge *j, struct rec *r, struct err *e)
{
	struct str out = STR_INIT;
	struct verdict *v = NULL;
	struct subject s;
	int64_t began = now_ns();
	enum status build;
	struct jw w;
	int rc = -1;

	memset(j->spent, 0, sizeof(j->spent));
	if (chain_subject(j, r, &s, e))
		return e->code == CA_DATAERR ? bad_record(j, r, e) : -1;
	if (rec_true_ids(r)) {
		err_set(e, CA_SOFTWARE, "out of memory");
		goto out;
	}
	build = chain_build(j, r, &s, e);
	if (build == ST_NONE || name_rules(j, r, e))
		goto out;
	if (believed(j, r)) {
		rc = 0;
		goto out;
	}
	jw_init(&w, &out);
	if (build != ST_OK) {
		unbuilt(j, build, &w);
	} else {
		v = calloc(1, sizeof(*v));
		if (!v) {
			err_set(e, CA_SOFTWARE, "out of memory");
			goto out;
		}
		if (judge_enter(j, 0, e))
			goto out;
		rc = chain_twice(j, attempt, &s, v, &v->f, e);
		judge_leave(j);
		if (rc)
			goto out;
		write_field(j, v, began, &w);
	}
	rc = mac_set(&j->key, r, "verify", out.buf, out.len, chain_uses_build,
		     e);
out:
	free(v);
	str_release(&out);
	chain_release(&s);
	return rc;
}
