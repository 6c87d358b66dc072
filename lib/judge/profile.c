/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiling a verified candidate: full runs that are paid, quick ones for
 * tries.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "build/workdir.h"
#include "judge/ahead.h"
#include "judge/baseline.h"
#include "judge/chain.h"
#include "judge/kernels.h"
#include "judge/rules.h"
#include "judge/timing.h"
#include "judge/trial.h"
#include "rec/stage.h"

#define PROFILE_VERSION "4"
#define FLOOR_ROUNDS 6		/* fewer may all be noise */

static const char *const racer_name[RACERS] = {
	"candidate", "eager", "compile"
};

struct profiled {
	struct fail f;
	struct timing t;
	size_t bytes;		/* of inputs and results together */
	size_t written;		/* of results */
	struct json *told[RACERS]; /* reference: the baselines' own tables */
	struct fail untold;	/* why one of them has none */
	double copy_rate;	/* reference: judge_copy_rate */
};

static void profiled_free(struct profiled *p)
{
	if (!p)
		return;
	timing_release(&p->t);
	for (int who = 0; who < RACERS; who++)
		json_free(p->told[who]);
	free(p);
}

static void profiled_reset(struct profiled *p)
{
	timing_release(&p->t);
	for (int who = 0; who < RACERS; who++)
		json_free(p->told[who]);
	memset(p, 0, sizeof(*p));
}

static void set_baselines(struct judge *j, const char *code, size_t len,
			  struct race *race)
{
	race[RACE_EAGER].program = (struct program){
		.role = "eager", .code = code, .codelen = len };
	race[RACE_COMPILE].program = (struct program){
		.role = "compile", .code = code, .codelen = len,
		.mode = j->o.mode };
	race[RACE_EAGER].runs = 1;
	race[RACE_COMPILE].runs = !j->o.eager_only;
}

/* On CUDA one process's median is good to about a microsecond. */
static size_t quick_rounds(const struct judge *j)
{
	return judge_on_cuda(j) ? 1 : 2;
}

/* Whether torch.compile's time can be told from eager's: then a quick profile
 * on CUDA leaves it out. */
static int told_by_eager(struct judge *j, const char *task,
			 struct race *compile, struct baseline *known)
{
	if (!compile->runs || !j->o.quick || !judge_on_cuda(j) ||
	    baseline_get(j, task, known))
		return 0;
	compile->runs = 0;
	return 1;
}

/* Times the candidate.  `known`: what torch.compile's time is told by; or
 * NULL. */
static int race_all(struct judge *j, struct oracle *o, const char *task,
		    const struct guard_result *g,
		    const struct baseline *known, struct profiled *p)
{
	size_t max = j->o.quick ? quick_rounds(j) : (size_t)j->o.max_rounds;
	struct race *compile = &p->t.race[RACE_COMPILE];

	if (known) {
		if (timing_run(j, o, g, &p->t, max, &p->f))
			return -1;
		if (!baseline_apply(known, &p->t))
			return 0;
		mention("eager takes another time than when that of "
			"torch.compile was remembered: both are timed");
		timing_again(&p->t);
		compile->runs = 1;
	}
	if (timing_run(j, o, g, &p->t, max, &p->f))
		return -1;
	if (compile->runs)
		baseline_put(j, task, &p->t);
	return 0;
}

static void attempt(struct judge *j, const struct subject *s, void *result)
{
	struct profiled *p = result;
	struct race *race = p->t.race;
	struct guard_result g;
	struct baseline b;
	struct oracle o;
	int known;

	memset(&g, 0, sizeof(g));
	profiled_reset(p);
	race[RACE_CANDIDATE].program = s->program;
	race[RACE_CANDIDATE].runs = 1;
	set_baselines(j, s->task, s->tasklen, race);
	p->t.quick = j->o.quick && !judge_on_cuda(j);
	j->keeps = j->o.quick && ahead_parks(j);
	j->times = 1;
	if (oracle_open(j, &o, "oracle", 0, &p->f))
		goto out;
	known = told_by_eager(j, s->task_id, &race[RACE_COMPILE], &b);
	if (known)
		p->t.correction = b.correction_ns;
	timing_ahead(j, &p->t);
	if (oracle_load(j, &o, s->task, s->tasklen, &p->f) ||
	    oracle_know(j, &o, s->task_id, &p->f) ||
	    (j->rules->guarded && guard_task(j, &o, s->task_id, &g, &p->f)) ||
	    (!j->rules->own_state &&
	     oracle_state(j, &o, rng_u64(&j->rng), 1, &p->f)) ||
	    judge_alone(j, &p->f) || trial_idle(j, &o, &p->f))
		goto out;
	p->bytes = o.input_bytes + o.expect_bytes;
	p->written = o.expect_bytes;
	if (!race_all(j, &o, s->task_id, &g, known ? &b : NULL, p))
		(void)(trial_attribute(j, &o, &p->t.saw, &p->f) ||
		       trial_originated(j, &o, &p->t.origin, &p->f));
out:
	oracle_stop(j, &o);
}

static void write_time(const struct profiled *p, enum racer who,
		       const char *key, struct jw *w)
{
	struct stats_bound b;

	jw_key(w, key);
	if (!p->t.race[who].runs || !p->t.rounds || p->f.status != ST_OK) {
		jw_null(w);
		return;
	}
	timing_bound(&p->t, who, &b);
	jw_obj(w);
	jw_knum(w, "median_us", b.point / 1e3);
	jw_knum(w, "low_us", b.lower / 1e3);
	jw_knum(w, "high_us", b.upper / 1e3);
	jw_kint(w, "n", (int64_t)b.n);
	jw_end_obj(w);
}

/* Gains (t0 - t)/t0 of the rounds, which rewards go by, and as speedup. */
static void write_gain(const double *gain, size_t n, struct jw *w)
{
	struct stats_bound b;

	stats_bound(gain, n, &b);
	jw_obj(w);
	jw_knum(w, "point", stats_speedup(b.point));
	jw_knum(w, "lower", isfinite(b.lower) ? stats_speedup(b.lower) : NAN);
	jw_knum(w, "upper", isfinite(b.upper) && b.upper < 1 ?
		stats_speedup(b.upper) : NAN);
	jw_key(w, "gain");
	jw_obj(w);
	jw_knum(w, "point", b.point);
	jw_knum(w, "lower", b.lower);
	jw_knum(w, "upper", b.upper);
	jw_end_obj(w);
	jw_end_obj(w);
}

/* Over one baseline, by the sums of the kernels' times; null unless every
 * round of both was traced. */
static void write_device_speedup(const struct profiled *p, enum racer who,
				 const char *key, struct jw *w)
{
	const struct race *a = &p->t.race[RACE_CANDIDATE];
	const struct race *b = &p->t.race[who];
	double gain[STATS_ROUNDS];
	size_t n = 0;

	for (size_t i = 0; a->runs && b->runs && i < p->t.rounds; i++)
		if (isfinite(a->device_us[i]) && b->device_us[i] > 0)
			gain[n++] = (b->device_us[i] - a->device_us[i]) /
				    b->device_us[i];
	jw_key(w, key);
	if (n && n == p->t.rounds)
		write_gain(gain, n, w);
	else
		jw_null(w);
}

/* Over one baseline, by the judge's clock. */
static size_t write_speedup(const struct profiled *p, enum racer who,
			    const char *key, struct jw *w)
{
	const struct race *r = p->t.race;
	double gain[STATS_ROUNDS];
	size_t shorts;

	jw_key(w, key);
	if (!r[RACE_CANDIDATE].runs || !r[who].runs || !p->t.rounds ||
	    p->f.status != ST_OK) {
		jw_null(w);
		return 0;
	}
	shorts = stats_gains(r[RACE_CANDIDATE].time, r[who].time,
			     p->t.rounds, gain);
	write_gain(gain, p->t.rounds, w);
	return shorts;
}

static void write_options(struct judge *j, struct jw *w)
{
	jw_key(w, "options");
	jw_obj(w);
	jw_kbool(w, "quick", j->o.quick);
	jw_kstr(w, "baseline", j->o.eager_only ? "eager" : "compile");
	jw_kstr(w, "mode", j->o.mode);
	jw_kint(w, "max_rounds", j->o.max_rounds);
	jw_kbool(w, "allow_shared", j->o.allow_shared);
	jw_key(w, "seed");
	if (j->o.seeded)
		jw_u64(w, j->o.seed);
	else
		jw_null(w);
	jw_end_obj(w);
}

static double mean_correction(const struct profiled *p)
{
	double c[STATS_ROUNDS];
	const struct race *r = &p->t.race[RACE_CANDIDATE];

	r += !r->runs;
	memcpy(c, r->correction, sizeof(c));
	return stats_median(c, p->t.rounds);
}

/* How long it takes to write the results, in ns, if nothing else has to be
 * done and every cache is used. */
static double floor_ns(const struct judge *j, const struct profiled *p)
{
	double rate = j->dev->cache_bytes_per_s;

	if (rate <= 0)
		rate = 4 * j->dev->bytes_per_s;
	return rate > 0 ? 1e9 * (double)p->written / rate : 0;
}

/*
 * Too short for the clock when most rounds were.  Impossible when in every
 * round what is left of the bracket is less than nothing by more than the
 * clock's error (a tenth of what was subtracted), since nobody does less than
 * the process that does nothing; or less than writing the results takes.  A
 * few rounds on the CPU say neither.
 */
static enum status final_status(const struct judge *j,
				const struct profiled *p)
{
	const struct race *r = &p->t.race[RACE_CANDIDATE];
	double most = -INFINITY;
	struct stats_bound b;
	size_t shorts = 0;

	if (p->f.status != ST_OK)
		return p->f.status;
	for (size_t i = 0; i < p->t.rounds; i++)
		most = fmax(most, r->bracket[i] - 0.9 * r->correction[i]);
	if (p->t.rounds >= FLOOR_ROUNDS &&
	    most < -3e3 * j->dev->resolution_us)
		return ST_BELOW_FLOOR;
	timing_bound(&p->t, RACE_CANDIDATE, &b);
	if (r->runs && b.point < floor_ns(j, p))
		return judge_on_cuda(j) || p->t.rounds >= FLOOR_ROUNDS ?
			ST_BELOW_FLOOR : ST_INCONCLUSIVE_TIME;
	for (size_t i = 0; i < p->t.rounds; i++)
		shorts += !!r->time[i].is_short;
	return 2 * shorts > p->t.rounds ? ST_INCONCLUSIVE_TIME : ST_OK;
}

/* Sums of the kernels' times, by CUPTI: evidence beside the clock.  Null
 * where nothing was traced. */
static void write_device_sums(const struct profiled *p, struct jw *w)
{
	jw_key(w, "device_sum_us");
	jw_obj(w);
	for (int who = 0; who < RACERS; who++) {
		const struct race *r = &p->t.race[who];
		double v[STATS_ROUNDS];
		size_t n = 0;

		for (size_t i = 0; r->runs && i < p->t.rounds; i++)
			if (isfinite(r->device_us[i]))
				v[n++] = r->device_us[i];
		jw_key(w, racer_name[who]);
		if (n)
			jw_num(w, stats_median(v, n));
		else
			jw_null(w);
	}
	jw_end_obj(w);
}

static void write_kernels(struct judge *j, const struct profiled *p,
			  struct jw *w)
{
	const struct race *r = p->t.race;

	jw_kint(w, "bytes", (int64_t)p->bytes);
	jw_key(w, "peak_bytes_per_s");
	if (j->dev->bytes_per_s > 0)
		jw_num(w, j->dev->bytes_per_s);
	else
		jw_null(w);
	if (p->copy_rate > 0)
		jw_knum(w, "copy_bytes_per_s", p->copy_rate);
	if (p->untold.status != ST_OK)
		jw_kstr(w, "kernels_reason", p->untold.text);
	jw_key(w, "kernels");
	jw_obj(w);
	for (int who = 0; who < RACERS; who++) {
		jw_key(w, racer_name[who]);
		if (json_len(json_get(p->told[who], "rows")))
			kernels_told(p->told[who], w);
		else
			kernels_write(&r[who].kernels, w);
	}
	jw_end_obj(w);
}

static void write_numbers(struct judge *j, const struct profiled *p,
			  struct jw *w)
{
	const struct race *c = &p->t.race[RACE_COMPILE];

	jw_kstr(w, "clock", "bracket");
	jw_kint(w, "rounds", (int64_t)p->t.rounds);
	jw_kint(w, "iterations", (int64_t)p->t.verified);
	write_time(p, RACE_CANDIDATE, "candidate", w);
	write_time(p, RACE_EAGER, "eager", w);
	write_time(p, RACE_COMPILE, "compile", w);
	jw_key(w, "compile_reason");
	if (j->o.eager_only)
		jw_str(w, "not asked for");
	else if (c->remembered)
		jw_str(w, "by its ratio to eager in an earlier run");
	else if (!c->runs && c->out.status != ST_OK)
		jw_str(w, c->out.text);
	else
		jw_null(w);
	jw_key(w, "speedup");
	jw_obj(w);
	write_speedup(p, RACE_EAGER, "eager", w);
	write_speedup(p, RACE_COMPILE, "compile", w);
	jw_end_obj(w);
	jw_knum(w, "correction_us", mean_correction(p) / 1e3);
	jw_kbool(w, "provisional", j->o.quick || j->o.eager_only);
	jw_kbool(w, "contended", p->t.contended && !j->o.allow_shared);
	if (p->t.race[RACE_CANDIDATE].program.role) {
		jw_key(w, "attribution");
		if (judge_on_cuda(j))
			origin_write(&p->t.origin, 1, w);
		else
			attrib_write(&p->t.saw, 1, w);
	}
	write_device_sums(p, w);
	if (judge_on_cuda(j)) {
		jw_key(w, "device_speedup");
		jw_obj(w);
		write_device_speedup(p, RACE_EAGER, "eager", w);
		write_device_speedup(p, RACE_COMPILE, "compile", w);
		jw_end_obj(w);
	}
	write_kernels(j, p, w);
}

static void write_field(struct judge *j, const struct profiled *p,
			int64_t began, struct jw *w)
{
	enum status st = final_status(j, p);

	jw_obj(w);
	jw_kstr(w, "status", status_name(st));
	if (p->f.status != ST_OK) {
		jw_kstr(w, "phase", phase_name(p->f.phase));
		jw_kstr(w, "text", p->f.text);
	}
	chain_write_common(j, PROFILE_VERSION, w);
	write_options(j, w);
	write_numbers(j, p, w);
	chain_write_prov(j, began, w);
	jw_end_obj(w);
}

/* `profile` of a candidate that is not verified: no time. */
static void unverified(struct judge *j, enum status st, struct jw *w)
{
	jw_obj(w);
	jw_kstr(w, "status", status_name(st));
	jw_kstr(w, "phase", "verify");
	chain_write_common(j, PROFILE_VERSION, w);
	write_options(j, w);
	jw_end_obj(w);
}

static int believed(struct judge *j, const struct rec *r)
{
	const struct json *o;
	struct json *p;
	int ok;

	if (!mac_check(&j->key, r, "profile", chain_uses_verify))
		return 0;
	p = chain_field(r, "profile");
	o = json_get(p, "options");
	ok = p && chain_same_common(j, PROFILE_VERSION, p) &&
	     json_get_bool(o, "quick", 1) <= j->o.quick &&
	     (j->o.eager_only ||
	      !strcmp(json_get_str(o, "baseline", ""), "compile")) &&
	     !strcmp(json_get_str(o, "mode", ""), j->o.mode) &&
	     json_get_bool(o, "allow_shared", 1) <= j->o.allow_shared &&
	     !json_get_bool(p, "contended", 0) &&
	     status_parse(json_get_str(p, "status", NULL)) !=
	     ST_INFRA_ERROR &&
	     json_type(json_get(o, "seed")) == JSON_NULL;
	json_free(p);
	return ok;
}

int judge_profile(struct judge *j, struct rec *r, struct err *e)
{
	struct str out = STR_INIT;
	struct profiled *p = NULL;
	struct subject s;
	enum status st;
	int64_t began = now_ns();
	struct jw w;
	int rc = -1;

	/* Parsed again, so that what was just built is not built once more,
	 * which would leave `verify` with the mac of another `build`. */
	if (judge_verify(j, r, e) || rec_refresh(r, e))
		return -1;
	memset(j->spent, 0, sizeof(j->spent));
	if (judge_status(r, "verify") == ST_BAD_RECORD)
		return rec_drop(r, "profile");
	if (chain_subject(j, r, &s, e))
		return -1;
	if (believed(j, r)) {
		rc = 0;
		goto out;
	}
	st = judge_status(r, "verify");
	jw_init(&w, &out);
	if (st != ST_OK) {
		unverified(j, st, &w);
	} else {
		p = calloc(1, sizeof(*p));
		if (!p) {
			err_set(e, CA_SOFTWARE, "out of memory");
			goto out;
		}
		if (chain_build(j, r, &s, e) == ST_NONE ||
		    judge_enter(j, 0, e))
			goto out;
		rc = chain_twice(j, attempt, &s, p, &p->f, e);
		judge_leave(j);
		if (rc)
			goto out;
		write_field(j, p, began, &w);
	}
	rc = mac_set(&j->key, r, "profile", out.buf, out.len,
		     chain_uses_verify, e);
out:
	profiled_free(p);
	str_release(&out);
	chain_release(&s);
	return rc;
}

/* A baseline that cannot tell keeps what CUPTI saw, if anything. */
static void tables(struct judge *j, struct oracle *o,
		  const struct guard_result *g, struct profiled *p)
{
	for (int who = RACE_EAGER; who < RACERS; who++) {
		const struct race *race = &p->t.race[who];
		struct fail f = { .status = ST_OK };

		if (!race->runs ||
		    !timing_table(j, o, g, race, &p->told[who], &f))
			continue;
		p->untold = f;
		if (!stage_interrupted() && host_alive(j))
			continue;
		p->f = f;
		return;
	}
}

static void attempt_reference(struct judge *j, const struct subject *s,
			      void *result)
{
	struct profiled *p = result;
	/* The published tolerance: what is judged is the process, not the
	 * task. */
	struct guard_result g;
	struct oracle o;

	profiled_reset(p);
	memset(&g, 0, sizeof(g));
	set_baselines(j, s->task, s->tasklen, p->t.race);
	if (oracle_start(j, &o, s->task, s->tasklen, &p->f) ||
	    oracle_state(j, &o, rng_u64(&j->rng), 1, &p->f))
		goto out;
	p->bytes = o.input_bytes + o.expect_bytes;
	p->written = o.expect_bytes;
	if (!timing_run(j, &o, &g, &p->t, quick_rounds(j), &p->f))
		tables(j, &o, &g, p);
out:
	oracle_stop(j, &o);
}

int judge_reference(struct judge *j, struct rec *r, struct err *e)
{
	const char *code = workdir_code(r);
	struct profiled *p = calloc(1, sizeof(*p));
	struct subject s;
	struct str out = STR_INIT;
	int64_t began = now_ns();
	struct jw w;
	int rc = -1;

	if (!p)
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (!code) {
		rc = err_set(e, CA_DATAERR, "the record holds no model.py");
		goto out;
	}
	memset(j->spent, 0, sizeof(j->spent));
	if (judge_enter(j, 1, e))
		goto out;
	memset(&s, 0, sizeof(s));
	j->rules = &rules_paper;
	s.task = code;
	s.tasklen = strlen(code);
	rc = chain_twice(j, attempt_reference, &s, p, &p->f, e);
	judge_leave(j);
	if (rc)
		goto out;
	p->copy_rate = judge_copy_rate(j);
	jw_init(&w, &out);
	write_field(j, p, began, &w);
	rc = out.failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     rec_set(r, "reference", out.buf, out.len);
out:
	profiled_free(p);
	str_release(&out);
	return rc;
}
