/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of timing.
 */
#include "judge/ahead.h"
#include "judge/rules.h"
#include "judge/timing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "rec/stage.h"

#define ITER_MIN 5
#define ITER_MAX 12
#define ROUND_NS 80e6		/* what one process may spend in its calls */
#define CALIB_ITER 5
/* A quick profile on the CPU spends less where a call takes long. */
#define QUICK_CALIB 3
#define QUICK_IDLE_NS 10e6	/* from there on C hardly grows */
#define QUICK_ITER 3
#define QUICK_NS 100e6		/* what the reference may spend on the values of
				 * all calls, with all that it takes to ask */
#define QUICK_PLAIN 0.7		/* of a baseline's time: one round will do */
#define ALIKE 0.1		/* part by which two brackets may differ to
				 * have the same C */
#define QUICK_ALIKE 0.5
#define FIRST_SEED 1
#define NOISY 2			/* between the quartiles of a trusted racer's
				 * times: somebody else's doing */
#define NOISY_ROUNDS 6
#define TABLE_NS 1e9		/* what the calls of a table may take */
/*
 * Brackets below it do not wait for the GPU: the capture queues up behind the
 * work, so that saying "done" early gains nothing.  Longer ones outlast a time
 * slice, in the middle of which the capture would come; there a runner that
 * does not wait before it says so gains some 60 us, less than 4 %.
 */
#define SHORT_NS 1.9e6
#define TOGETHER_US 1200	/* shorter than a time slice of the GPU */

/* All orders of three, so that after six rounds each has stood everywhere and
 * followed everybody equally often. */
static const unsigned char order[6][RACERS] = {
	{ 0, 1, 2 }, { 1, 2, 0 }, { 2, 0, 1 },
	{ 0, 2, 1 }, { 2, 1, 0 }, { 1, 0, 2 },
};

static void plain_round(struct judge *j, struct verify_round *r)
{
	memset(r, 0, sizeof(*r));
	r->family = FAMILY_PLAIN;
	r->factor = 1;
	r->deciding = 1;
	r->seed = rng_u64(&j->rng);
	r->forward_seed = rng_u64(&j->rng);
}

/* As many timed iterations, but some at least, as fit a budget, told by the
 * reference's own time, never by the candidate's. */
static size_t iterations_for(double budget, double ns, size_t least)
{
	double n = budget / (ns > 1 ? ns : 1);

	if (n < (double)least)
		return least;
	return n > ITER_MAX ? ITER_MAX : (size_t)n;
}

/* In the first round, once the one who comes first has warmed up. */
static void choose_iterations(struct timing *t, enum racer who, int64_t took,
			      int64_t reference)
{
	if (t->rounds)
		return;
	if (who == RACE_EAGER && !t->quick)
		t->iterations = iterations_for(ROUND_NS, (double)took,
					       ITER_MIN);
	if (who == RACE_CANDIDATE && t->quick)
		t->iterations = iterations_for(QUICK_NS, (double)reference,
					       QUICK_ITER);
}

/* What CUPTI saw of a process's last n iterations. */
static void keep_kernels(struct judge *j, struct runner *r, size_t n,
			 struct timing *t, enum racer who)
{
	struct race *race = &t->race[who];
	struct trace_table table;
	/* Between two timed calls there is a warm one. */
	uint64_t step = r->warmed ? 2 : 1;
	int rc = runner_trace(j, r, r->seq - step * (n - 1), r->seq, step,
			      &table);

	race->device_us[t->rounds] = NAN;
	if (who == RACE_CANDIDATE)
		trial_origin(j, r, rc ? NULL : &table, n, &t->origin);
	if (rc || !table.iterations) {
		trace_free(&table);
		return;
	}
	race->device_us[t->rounds] = table.median_us;
	trace_free(&race->kernels);
	race->kernels = table;
}

/* Whether there are Python numbers among arguments. */
static int has_numbers(const struct json *node)
{
	const struct json *v = json_first(json_get(node, "v"));

	if (!strcmp(json_get_str(node, "t", ""), "slot"))
		return 1;
	for (; v; v = json_next(v))
		/* Of a dict a pair, key and value. */
		if (has_numbers(json_type(v) == JSON_ARRAY ?
				json_next(json_first(v)) : v))
			return 1;
	return 0;
}

/*
 * torch.compile builds the first numbers it sees into its code, and makes
 * code for any number when others come.  The same ones at first, in every
 * process, let it find that code in its cache; no other call knows them.
 */
static int wants_same_numbers(const struct oracle *o, enum racer who,
			      size_t iteration)
{
	const struct json *a;

	if (who != RACE_COMPILE || iteration)
		return 0;
	a = json_first(json_path(o->spec, "inputs.args"));
	while (a && !has_numbers(a))
		a = json_next(a);
	return !!a;
}

/* One fresh process of a racer: its median bracket. */
static int run_process(struct judge *j, struct oracle *o,
		       const struct guard_result *g, struct timing *t,
		       enum racer who, struct fail *f)
{
	struct race *race = &t->race[who];
	double ns[ITER_MAX + 1];
	struct trial tr;
	struct runner r;
	size_t n = 0;
	int rc = -1;

	if (trial_init(&tr, j, o, f)) {
		trial_release(&tr);
		return -1;
	}
	tr.guard = *g;
	tr.r = &r;
	tr.counted = trial_counts(j, &race->program);
	if (runner_start(j, o, &r, &race->program, f))
		goto out;
	for (size_t i = 0; n < t->iterations; i++) {
		struct sample *s = bank_at(t->bank, i);
		struct verify_round round;
		int64_t took;

		if (stage_interrupted()) {
			fail_set(f, ST_INFRA_ERROR, 0, "interrupted");
			goto out;
		}
		plain_round(j, &round);
		if (wants_same_numbers(o, who, i)) {
			round.seed = FIRST_SEED;
			s = NULL;
		}
		if (trial_sample(&tr, s, who == RACE_CANDIDATE, &round,
				 i ? 0 : GO_FIRST, &took, f))
			goto out;
		if (i == TRIAL_WARM)
			choose_iterations(t, who, took, tr.reference_ns);
		if (i == TRIAL_WARM)
			race->no_wait = tr.no_wait = (double)took < SHORT_NS;
		if (i > TRIAL_WARM)
			ns[n++] = (double)took;
	}
	race->warm = tr.warm;
	keep_kernels(j, &r, n, t, who);
	race->bracket[t->rounds] = stats_median(ns, n);
	if (who == RACE_CANDIDATE)
		t->verified += n;
	rc = 0;
out:
	runner_stop(j, &r);
	if (who == RACE_CANDIDATE) {
		attrib_add(&t->saw, &r.saw);
		oracle_beside(j, o, f);
	}
	trial_release(&tr);
	return rc;
}

/* The calibration process at work. */
struct calib {
	struct judge *j;
	struct oracle *o;
	struct runner r;
	struct mem *capture;
	int cuda;
	int warm;		/* an untimed call precedes each */
	size_t iterations;	/* of a series */
	double most_ns;		/* that it works */
	struct fail *f;
};

/* One iteration of the calibration process: its bracket less its own work.
 * On CUDA the capture is part of the bracket, so it is made here too. */
static int calib_once(struct calib *c, double idle_ns, uint32_t flags,
		      struct bracket_result *res)
{
	struct bracket b = {
		.go = { .set = (uint32_t)(c->r.brackets & 1), .flags = flags,
			.idle_us = (uint32_t)(idle_ns / 1000) },
		.capture = c->capture,
		.inputs = &c->o->inputs,
		.input_bytes = c->o->input_bytes,
		.slots = c->o->slots.p,
		.params = c->j->rules->rewrites && c->o->param_bytes ?
			&c->o->params : NULL,
		.param_bytes = c->o->param_bytes,
		.poison = rng_u64(&c->j->rng),
		.warm = c->warm,
	};

	return runner_go(c->j, &c->r, &b, res, c->f);
}

static int calib_go(struct calib *c, double idle_ns, uint32_t flags,
		    struct bracket_result *res)
{
	for (int tries = 0; tries <= TRIAL_AGAIN; tries++) {
		if (calib_once(c, idle_ns, flags, res))
			return -1;
		if (!res->disturbed)
			return 0;
		flags |= GO_SYNC;	/* longer than a time slice? */
	}
	return trial_disturbed(c->f);
}

/*
 * The bracket on CUDA stands on this: contexts of different processes never
 * run at the same time, so the capture waits for work that was launched
 * before it.  Where it does not (MPS), nothing can be timed.
 */
static int excludes(struct calib *c)
{
	struct bracket_result res;

	if (!c->cuda)
		return 0;
	for (int i = 0; i < 2; i++)
		if (calib_once(c, TOGETHER_US * 1e3, 0, &res))
			return -1;
	if (res.ns < TOGETHER_US * 1000)
		return fail_set(c->f, ST_INFRA_ERROR, 0, "two processes' work "
				"runs at the same time on this GPU (MPS?), so "
				"nothing can be timed");
	return 0;
}

/* Of a few brackets, two that something disturbed would make a C as long as a
 * short call.  By what this one is too small all racers' times are too long:
 * that makes them alike, and pays nobody. */
static double least(const double *v, size_t n)
{
	double min = v[0];

	for (size_t i = 1; i < n; i++)
		min = fmin(min, v[i]);
	return min;
}

static int calib_series(struct calib *c, double idle_ns, uint32_t flags,
			size_t skip, double *out)
{
	struct bracket_result res;
	double v[CALIB_ITER];

	for (size_t i = 0; i < c->iterations + skip; i++) {
		if (calib_go(c, idle_ns, flags, &res))
			return -1;
		if (i >= skip)
			v[i - skip] = (double)res.ns -
				      (double)res.msg.own_ns;
	}
	*out = c->iterations < CALIB_ITER ? least(v, c->iterations) :
					    stats_median(v, c->iterations);
	return 0;
}

/*
 * C for one racer.  The first iteration warms up, and on CUDA the work that
 * an iteration reports is that of the one before.  There the process is to
 * work as long as the racer did without C, which a first series tells.
 */
static int calib_race(struct calib *c, struct race *race, size_t round)
{
	double idle = fmin(race->bracket[round], c->most_ns);
	/* Who looked longer than it is pays as if it had not waited. */
	uint32_t flags = race->no_wait || idle < SHORT_NS ? 0 : GO_SYNC;

	/* Called as the racer was. */
	c->warm = c->cuda || race->warm;
	if (c->cuda && race->guess <= 0 &&
	    calib_series(c, idle, flags, 2, &race->guess))
		return -1;
	if (c->cuda)
		idle = idle > race->guess ? idle - race->guess : 0;
	if (calib_series(c, idle, flags, 1 + (size_t)c->cuda,
			 &race->correction[round]))
		return -1;
	if (c->cuda)
		race->guess = race->correction[round];
	return 0;
}

/* On the CPU C is the same for racers that take about as long. */
static int calib_known(const struct calib *c, const struct timing *t,
		       struct race *race)
{
	double mine = race->bracket[t->rounds];
	double alike = (t->quick ? QUICK_ALIKE : ALIKE) * mine;

	for (const struct race *r = t->race; !c->cuda && r < race; r++)
		if (r->runs && r->warm == race->warm &&
		    fabs(r->bracket[t->rounds] - mine) < alike) {
			race->correction[t->rounds] = r->correction[t->rounds];
			return 1;
		}
	return 0;
}

/* C for each racer, measured in one trusted process that works about as long
 * as the racer does. */
static int calibrate(struct judge *j, struct oracle *o, struct timing *t,
		     struct fail *f)
{
	struct trial tr;
	struct calib c = { .j = j, .o = o, .capture = &tr.got, .warm = 1,
			   .iterations = t->quick ? QUICK_CALIB : CALIB_ITER,
			   .most_ns = t->quick ? QUICK_IDLE_NS : INFINITY,
			   .cuda = judge_on_cuda(j), .f = f };
	int rc = -1;

	if (trial_init(&tr, j, o, f)) {
		trial_release(&tr);
		return -1;
	}
	if (calib_start(j, o, &c.r, 0, f) || excludes(&c))
		goto out;
	for (int who = 0; who < RACERS; who++)
		if (t->race[who].runs && !calib_known(&c, t, &t->race[who]) &&
		    calib_race(&c, &t->race[who], t->rounds))
			goto out;
	rc = 0;
	t->busy += !!j->dev->ops->foreign(j->dev, &c.r);
	/* Noise on the CPU comes and goes. */
	t->contended = c.cuda ? t->busy > 0 : 2 * t->busy > t->rounds + 1;
out:
	runner_stop(j, &c.r);
	trial_release(&tr);
	if (rc)
		f->fault = 1;
	return rc;
}

/* C as an earlier run found it, where that is known: for quick profiles, which
 * nobody is paid for, so that exclusion is not tested again. */
static int recall(struct judge *j, struct timing *t)
{
	if (!(t->correction > 0))
		return -1;
	for (const struct race *r = t->race; r < t->race + RACERS; r++)
		if (r->runs && !r->no_wait)
			return -1;
	for (int who = 0; who < RACERS; who++)
		t->race[who].correction[t->rounds] = t->correction;
	t->busy += !!j->dev->ops->foreign(j->dev, NULL);
	t->contended = t->busy > 0;
	return 0;
}

/* A racer failed.  -1 when that ends the timing. */
static int drop_out(const struct judge *j, struct timing *t, enum racer who,
		    struct fail *f)
{
	if (f->status == ST_OOM && j->beside) {
		f->oom = 1;
		return -1;
	}
	if (f->fault || who == RACE_CANDIDATE || f->status == ST_INFRA_ERROR)
		return -1;
	if (who == RACE_EAGER) {
		f->status = ST_INVALID_REFERENCE;
		return -1;
	}
	t->race[who].runs = 0;
	t->race[who].out = *f;
	memset(f, 0, sizeof(*f));
	return 0;
}

/*
 * Who comes when in this round.  In full runs eager comes first, since it says
 * how many iterations fit.  In a quick one the candidate does: it needs inputs
 * that it has not seen, on which the baselines then run.
 */
static const unsigned char *turns(const struct timing *t)
{
	return order[(t->rounds + !t->quick) % 6];
}

void timing_ahead(struct judge *j, const struct timing *t)
{
	const unsigned char *turn = turns(t);

	for (int i = 0; i < RACERS; i++) {
		const struct program *p = &t->race[turn[i]].program;
		const struct purpose u = { p->role, turn[i] == RACE_COMPILE,
					   p };

		if (t->race[turn[i]].runs)
			ahead_want(j, &u);
	}
	if (!(t->correction > 0))
		ahead_want(j, &(struct purpose){ "calib", 0, NULL });
}

static int one_round(struct judge *j, struct oracle *o,
		     const struct guard_result *g, struct timing *t,
		     struct fail *f)
{
	const unsigned char *turn = turns(t);

	timing_ahead(j, t);
	for (int i = 0; i < RACERS; i++) {
		enum racer who = (enum racer)turn[i];

		if (!t->race[who].runs)
			continue;
		if (run_process(j, o, g, t, who, f) && drop_out(j, t, who, f))
			return -1;
	}
	if (recall(j, t) && calibrate(j, o, t, f))
		return -1;
	for (int who = 0; who < RACERS; who++) {
		struct race *race = &t->race[who];

		if (race->runs)
			stats_time(race->bracket[t->rounds],
				   race->correction[t->rounds],
				   j->dev->resolution_us * 1000,
				   &race->time[t->rounds]);
	}
	t->rounds++;
	return 0;
}

/* Whether the reference, which does the same each time, took now so long and
 * now twice as long.  Nothing of the candidate lives while it runs. */
static int is_noisy(const struct timing *t)
{
	double v[STATS_ROUNDS];

	if (t->rounds < NOISY_ROUNDS)
		return 0;
	memcpy(v, t->race[RACE_EAGER].bracket, sizeof(v));
	return stats_quantile(v, t->rounds, 0.75) >
	       NOISY * stats_quantile(v, t->rounds, 0.25);
}

/* Whether a round leaves no doubt that the candidate is faster than a baseline:
 * it is, by far, even with C. */
static int is_plain(const struct timing *t, enum racer who)
{
	const struct race *r = t->race;

	return !r[who].runs || r[RACE_CANDIDATE].bracket[0] <
	       QUICK_PLAIN * r[who].time[0].low;
}

/* Whether another batch of rounds could still change the reward. */
static int wants_more(const struct timing *t)
{
	double eager[STATS_ROUNDS], compile[STATS_ROUNDS];
	const struct race *r = t->race;

	if (t->quick)
		return t->busy || !is_plain(t, RACE_EAGER) ||
		       !is_plain(t, RACE_COMPILE);
	stats_gains(r[RACE_CANDIDATE].time, r[RACE_EAGER].time, t->rounds,
		    eager);
	if (r[RACE_COMPILE].runs)
		stats_gains(r[RACE_CANDIDATE].time, r[RACE_COMPILE].time,
			    t->rounds, compile);
	return stats_look_both(eager, r[RACE_COMPILE].runs ? compile : NULL,
			       t->rounds, STATS_GAIN) == STATS_MORE;
}

static int run_rounds(struct judge *j, struct oracle *o,
		      const struct guard_result *g, struct timing *t,
		      size_t max_rounds, struct fail *f)
{
	do {
		if (one_round(j, o, g, t, f))
			return -1;
	} while (t->rounds < max_rounds &&
		 (!t->race[RACE_CANDIDATE].runs || wants_more(t)));
	return 0;
}

int timing_run(struct judge *j, struct oracle *o,
	       const struct guard_result *g, struct timing *t,
	       size_t max_rounds, struct fail *f)
{
	struct bank bank;
	int rc;

	bank_init(&bank, j, o, TRIAL_WARM + 1 + ITER_MAX);
	t->bank = &bank;
	t->iterations = ITER_MIN;
	rc = run_rounds(j, o, g, t, max_rounds, f);
	/* On CUDA too: who is judged on another GPU may use up the cores. */
	if (!rc)
		t->contended |= is_noisy(t);
	t->bank = NULL;
	bank_release(&bank);
	return rc;
}

void timing_again(struct timing *t)
{
	t->rounds = 0;
	t->correction = 0;
	t->contended = 0;
	t->busy = 0;
	t->verified = 0;
	memset(&t->saw, 0, sizeof(t->saw));
	memset(&t->origin, 0, sizeof(t->origin));
}

int timing_table(struct judge *j, struct oracle *o,
		 const struct guard_result *g, const struct race *race,
		 struct json **told, struct fail *f)
{
	struct program p = race->program;
	double n = TABLE_NS / race->bracket[0];
	struct trial tr;
	struct runner r;
	int rc = -1;

	*told = NULL;
	p.table = 1;
	if (trial_init(&tr, j, o, f)) {
		trial_release(&tr);
		return -1;
	}
	tr.guard = *g;
	tr.r = &r;
	if (runner_start(j, o, &r, &p, f))
		goto out;
	for (int i = 0; i < 2; i++) {	/* both address sets */
		struct verify_round round;
		int64_t took;

		plain_round(j, &round);
		if (trial_go(&tr, &round, i ? 0 : GO_FIRST, &took, f))
			goto out;
	}
	rc = runner_table(j, &r, n < 3 ? 3 : n > 20 ? 20 : (int)n, told, f);
out:
	runner_stop(j, &r);
	trial_release(&tr);
	return rc;
}

void timing_release(struct timing *t)
{
	for (int who = 0; who < RACERS; who++)
		trace_free(&t->race[who].kernels);
}

void timing_bound(const struct timing *t, enum racer who,
		  struct stats_bound *b)
{
	double v[STATS_ROUNDS];
	const struct race *race = &t->race[who];

	for (size_t i = 0; i < t->rounds; i++)
		v[i] = race->time[i].is_short ? race->time[i].high :
		       race->time[i].ns;
	stats_bound(v, race->runs ? t->rounds : 0, b);
}
