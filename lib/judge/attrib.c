/* SPDX-License-Identifier: Apache-2.0
 *
 * What is made of the outside witness's evidence.
 *
 * Foreign are torch's libraries, files that are neither the candidate's
 * object nor a BLAS it is linked with nor the C library, and code in memory
 * without a file.  DESIGN 6 lets ATen move data for a quarter of a call.  The
 * shim itself spends time in torch, and an allocation or a view costs as much
 * in a call of 20 us as in one of 20 ms, so some multiple of what an empty
 * call takes here is free beside it: below it an evader remains unseen.  In
 * other foreign code the shim has nothing to do, so that there no more than a
 * constant is, and no share: threads that are busy beside it would make any
 * share small.
 */
#include "judge/attrib.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/stats.h"

#define FOREIGN_SHARE 0.25
#define FREE_NS 50e3		/* nobody minds beyond that, in a call, */
#define FREE_PART 50e3		/* and for each result */
#define FREE_RARE 100e3		/* of strange code, now and then */
#define FREE_STRANGE 4e3	/* in a call, where the shim does not go, */
#define OFTEN_STRANGE 20e3	/* of one call at most: a library that stirs
				 * now and then does no work */
#define FREE_IDLE 4		/* with so many times an empty call's */
#define NEAR 4			/* what exceeds by less has to in most calls:
				 * others' bursts make some of them long */
#define BUSY 8			/* so many times longer takes an empty call
				 * that others press on */
/* A call that takes longer than this beyond what is free computes something,
 * and a twentieth of it at least has to be the candidate's.  Python alone
 * takes half a millisecond where others press on its caches. */
#define LONG_NS 1e6
#define OWN_SHARE 0.05
#define MISSING_SHARE 0.5	/* of the CPU time, unseen; not of a call
				 * that is short */
#define SHORT_NS 300e3
#define FEW 4			/* samples that say nothing by themselves */
#define FEW_SPOTS 16		/* of those that were ordered */
#define SIGMAS 3		/* by which chance has to be excluded */

static int is_own(enum place p)
{
	return p == PLACE_OWN || p == PLACE_BLAS;
}

static int is_strange(enum place p)
{
	return p == PLACE_OTHER || p == PLACE_ANON || p == PLACE_NOWHERE;
}

static int is_foreign(enum place p)
{
	return p == PLACE_TORCH || is_strange(p);
}

/* In user mode: page faults and the like are nobody's computing, and waiting
 * is not either. */
static int is_user(enum place p)
{
	return is_own(p) || is_foreign(p) || p == PLACE_PYTHON;
}

void attrib_call(struct attribution *a)
{
	a->until_user = a->until_foreign = INT64_MIN;
	a->now = (struct attrib_call){ 0 };
}

/* How much of the time before `when` is not counted yet. */
static double more(int64_t *until, int64_t when, double ns)
{
	double gap = *until == INT64_MIN ? ns : (double)(when - *until);

	*until = when;
	return gap < ns ? gap : ns;
}

void attrib_see(struct attribution *a, int64_t when, enum place p, double ns)
{
	a->ns[p] += ns;
	if (is_user(p)) {
		a->now.user += ns;
		a->now.during_user += more(&a->until_user, when, ns);
	}
	if (is_foreign(p)) {
		a->now.foreign += ns;
		a->now.during_foreign += more(&a->until_foreign, when, ns);
	}
	if (is_strange(p))
		a->now.strange += ns;
	if (is_own(p))
		a->now.own += ns;
}

static void add_spot(struct attrib_spots *s, enum place p)
{
	s->user += (uint64_t)is_user(p);
	s->foreign += (uint64_t)is_foreign(p);
	s->strange += (uint64_t)is_strange(p);
}

/* Whether any thread of the pass under way was there. */
static void end_pass(struct attribution *a)
{
	a->pass.user += a->pass_now.user > 0;
	a->pass.foreign += a->pass_now.foreign > 0;
	a->pass.strange += a->pass_now.strange > 0;
	a->pass_now = (struct attrib_spots){ 0 };
}

void attrib_spot(struct attribution *a, unsigned pass, enum place p)
{
	if (a->pass_now.all != pass + 1u)
		end_pass(a);
	a->pass_now.all = pass + 1u;
	add_spot(&a->pass_now, p);
	a->spot.all++;
	add_spot(&a->spot, p);
}

void attrib_passes(struct attribution *a, unsigned n)
{
	end_pass(a);
	a->pass.all += n;
}

static void add_call(struct attrib_call *sum, const struct attrib_call *c)
{
	sum->length += c->length;
	sum->user += c->user;
	sum->foreign += c->foreign;
	sum->strange += c->strange;
	sum->often += c->often;
	sum->own += c->own;
	sum->during_user += c->during_user;
	sum->during_foreign += c->during_foreign;
}

/* One in 1 << thin is kept, counted from the first: every other one makes
 * room. */
static void keep_call(struct attribution *a, const struct attrib_call *c,
		      uint64_t nth)
{
	if (nth & ((UINT64_C(1) << a->thin) - 1))
		return;
	if (a->ncall == ATTRIB_CALLS) {
		for (a->ncall = 0; a->ncall < ATTRIB_CALLS / 2; a->ncall++)
			a->call[a->ncall] = a->call[2 * a->ncall];
		a->thin++;
	}
	a->call[a->ncall++] = *c;
}

void attrib_keep(struct attribution *a, int64_t length_ns)
{
	a->now.length = (double)length_ns;
	a->now.often = fmin(a->now.strange, OFTEN_STRANGE);
	add_call(&a->all, &a->now);
	keep_call(a, &a->now, a->kept++);
}

static void add_spots(struct attrib_spots *sum, const struct attrib_spots *s)
{
	sum->all += s->all;
	sum->user += s->user;
	sum->foreign += s->foreign;
	sum->strange += s->strange;
}

void attrib_add(struct attribution *sum, const struct attribution *a)
{
	if (!sum->by)
		sum->by = a->by;
	sum->calls += a->calls;
	sum->samples += a->samples;
	sum->missing_ns += a->missing_ns;
	sum->moved += a->moved;
	for (int i = 0; i < PLACES; i++)
		sum->ns[i] += a->ns[i];
	for (size_t i = 0; i < a->ncall; i++)
		keep_call(sum, &a->call[i], sum->kept++);
	add_call(&sum->all, &a->all);
	add_spots(&sum->spot, &a->spot);
	add_spots(&sum->pass, &a->pass);
	if (a->foreign_ns > sum->foreign_ns) {
		sum->foreign_ns = a->foreign_ns;
		snprintf(sum->foreign, sizeof(sum->foreign), "%s",
			 a->foreign);
	}
	if (a->strange_ns > sum->strange_ns) {
		sum->strange_ns = a->strange_ns;
		snprintf(sum->strange, sizeof(sum->strange), "%s",
			 a->strange);
	}
}

/* Of what a few bursts make long. */
static double middle(double *v, size_t n)
{
	if (!n)
		return 0;
	return (stats_quantile(v, n, 0.25) + 2 * stats_median(v, n) +
		stats_quantile(v, n, 0.75)) / 4;
}

void attrib_idle_of(const struct attribution *a, struct attrib_idle *idle)
{
	double foreign[ATTRIB_CALLS], user[ATTRIB_CALLS];

	for (size_t i = 0; i < a->ncall; i++) {
		foreign[i] = a->call[i].foreign;
		user[i] = a->call[i].user;
	}
	idle->foreign_ns = middle(foreign, a->ncall);
	idle->user_ns = middle(user, a->ncall);
}

/* By the kernel's books. */
static double cpu_ns(const struct attribution *a)
{
	double ns = a->missing_ns;

	for (int i = 0; i < PLACES; i++)
		ns += a->ns[i];
	return ns;
}

/* Whether much of the CPU time was not sampled. */
static int is_cut_off(const struct attribution *a, char *text, size_t len)
{
	double all = cpu_ns(a), calls = (double)a->calls;

	if (a->missing_ns <= MISSING_SHARE * all ||
	    a->missing_ns <= SHORT_NS * calls)
		return 0;
	snprintf(text, len, "%.0f of %.0f us of a call were not seen from "
		 "outside", a->missing_ns / calls / 1e3, all / calls / 1e3);
	return 1;
}

/* The time that a sample stands for. */
static double rhythm(const struct attribution *a)
{
	double all = 0;

	for (int i = 0; i < PLACES; i++)
		all += a->ns[i];
	return a->samples ? all / (double)a->samples : 0;
}

/* Whether that is more than is free, and no chance: k samples have a spread
 * of sqrt(k). */
static int exceeds(double ns, double free_ns, double each)
{
	return ns - SIGMAS * sqrt(ns * each) > free_ns;
}

/*
 * Whether more than its share of the user time, and what is free beside it, was
 * foreign: the shim alone has a share of a quarter, and where others press on
 * the machine its Python takes longer as well.  What looks like n samples, of
 * which the share is expected, has a spread of sqrt(n share (1 - share)).
 */
static int is_much(double foreign, double user, double free_ns, double each,
		   double sigmas)
{
	double spread = sqrt(each * (free_ns + user * FOREIGN_SHARE *
						       (1 - FOREIGN_SHARE)));

	return foreign - sigmas * spread > FOREIGN_SHARE * user + free_ns;
}

/* What is free in a call, of strange and of all foreign code. */
static double free_strange(const struct attrib_idle *idle)
{
	return FREE_RARE + FREE_PART * idle->parts;
}

static double free_foreign(const struct attrib_idle *idle)
{
	return FREE_NS + FREE_PART * idle->parts +
	       FREE_IDLE * idle->foreign_ns;
}

/* Of some calls together; `which` names them. */
static int judge_strange(double calls, const struct attrib_call *sum,
			 const struct attribution *a,
			 const struct attrib_idle *idle, const char *which,
			 char *text, size_t len)
{
	const char *name = *a->strange ? a->strange : "generated code";
	double each = rhythm(a);

	if (exceeds(sum->often, FREE_STRANGE * calls, each) ||
	    exceeds(sum->strange, free_strange(idle) * calls, each)) {
		snprintf(text, len, "%.0f us of %s went to code that is "
			 "neither the candidate's nor PyTorch's, as NumPy's "
			 "or made at run time; most of it to %s",
			 sum->strange / calls / 1e3, which, name);
		return 1;
	}
	return 0;
}

static int judge_share(double calls, const struct attrib_call *sum,
		       const struct attribution *a,
		       const struct attrib_idle *idle, const char *which,
		       char *text, size_t len)
{
	const char *name = *a->foreign ? a->foreign : "generated code";
	double foreign = free_foreign(idle) * calls;
	double work = sum->user - FREE_IDLE * idle->user_ns * calls;
	double each = rhythm(a);

	if (is_much(sum->foreign, sum->user, foreign, each, SIGMAS)) {
		snprintf(text, len, "%.0f %% of %s's CPU time (%.0f us) "
			 "went to code that is not the candidate's, most of "
			 "it to %s", 100 * sum->foreign / sum->user, which,
			 sum->foreign / calls / 1e3, name);
		return 1;
	}
	if (is_much(sum->during_foreign, sum->during_user, foreign, each,
		    SIGMAS)) {
		snprintf(text, len, "%.0f of the %.0f us of %s passed with a "
			 "thread in code that is not the candidate's, most of "
			 "it in %s", sum->during_foreign / calls / 1e3,
			 sum->during_user / calls / 1e3, which, name);
		return 1;
	}
	if (work > LONG_NS * calls && sum->own < OWN_SHARE * work) {
		snprintf(text, len, "the candidate's kernels took %.0f us of "
			 "%s of %.0f us", sum->own / calls / 1e3, which,
			 sum->user / calls / 1e3);
		return 1;
	}
	return 0;
}

static int by_length(const void *a, const void *b)
{
	double x = ((const struct attrib_call *)a)->length;
	double y = ((const struct attrib_call *)b)->length;

	return (x > y) - (x < y);
}

/*
 * The shorter half of the calls is what the median goes by: who computes
 * elsewhere in just these must not hide behind long honest ones.
 */
static int judge_short(const struct attribution *a,
		       const struct attrib_idle *idle, char *text, size_t len)
{
	struct attrib_call call[ATTRIB_CALLS], sum = { 0 };
	size_t half = a->ncall / 2;

	if (half < FEW)
		return 0;
	memcpy(call, a->call, a->ncall * sizeof(call[0]));
	qsort(call, a->ncall, sizeof(call[0]), by_length);
	for (size_t i = 0; i < half; i++)
		add_call(&sum, &call[i]);
	return judge_strange((double)half, &sum, a, idle, "a shorter call",
			     text, len) ||
	       judge_share((double)half, &sum, a, idle, "a shorter call",
			   text, len);
}

/* What a call in the middle does, as often as there were calls. */
static struct attrib_call in_middle(const struct attribution *a)
{
	static const size_t field[] = {
		offsetof(struct attrib_call, user),
		offsetof(struct attrib_call, foreign),
		offsetof(struct attrib_call, own),
		offsetof(struct attrib_call, during_user),
		offsetof(struct attrib_call, during_foreign),
	};
	struct attrib_call sum = { 0 };
	double v[ATTRIB_CALLS];

	for (size_t k = 0; k < sizeof(field) / sizeof(field[0]); k++) {
		for (size_t i = 0; i < a->ncall; i++)
			memcpy(&v[i], (const char *)&a->call[i] + field[k],
			       sizeof(v[i]));
		v[0] = (double)a->calls * middle(v, a->ncall);
		memcpy((char *)&sum + field[k], &v[0], sizeof(v[0]));
	}
	return sum;
}

/*
 * All calls.  Where others press on the machine, a few of them take
 * milliseconds more in whatever code they were: little more than is free has
 * to be in most calls.  The little that a few could do is worth nothing.
 */
static int judge_all(const struct attribution *a,
		     const struct attrib_idle *idle, char *text, size_t len)
{
	double calls = (double)a->calls;
	struct attrib_call mid;

	if (judge_strange(calls, &a->all, a, idle, "a call", text, len))
		return 1;
	if (!judge_share(calls, &a->all, a, idle, "a call", text, len))
		return 0;
	if (a->ncall < FEW ||
	    a->all.foreign > NEAR * free_foreign(idle) * calls ||
	    a->all.user > NEAR * (LONG_NS + FREE_IDLE * idle->user_ns) * calls)
		return 1;
	mid = in_middle(a);
	return judge_share(calls, &mid, a, idle, "a call", text, len);
}

/* Whether more than is allowed was foreign of samples that stand for `each` ns
 * of a call, by so many spreads. */
static int are_much(const struct attrib_spots *s, double each,
		    const struct attrib_idle *idle, double sigmas)
{
	double n = (double)s->user, k = (double)s->foreign;
	double strange = (double)s->strange;

	if (n < FEW_SPOTS)
		return 0;
	return (strange - sigmas * sqrt(strange)) * each > free_strange(idle) ||
	       is_much(k * each, n * each, free_foreign(idle), each, sigmas);
}

/*
 * Who knows the rhythm is elsewhere at its samples' times, but not at those of
 * samples that were ordered.  They come by the clock on the wall, so that they
 * tell shares; how much there was to share, the kernel's books say.
 */
static double spot_ns(const struct attribution *a)
{
	return a->spot.all ? cpu_ns(a) / (double)a->calls /
				     (double)a->spot.all : 0;
}

/* Threads that are busy beside foreign code make its share of all samples
 * small, but not the time during which any thread is there. */
static double pass_ns(const struct attribution *a)
{
	return a->pass.all ? fmin(cpu_ns(a), a->all.length) /
			     (double)a->calls / (double)a->pass.all : 0;
}

static int unforeseen_much(const struct attribution *a,
			   const struct attrib_idle *idle, double sigmas)
{
	return are_much(&a->spot, spot_ns(a), idle, sigmas) ||
	       are_much(&a->pass, pass_ns(a), idle, sigmas);
}

static int judge_spots(const struct attribution *a,
		       const struct attrib_idle *idle, char *text, size_t len)
{
	if (are_much(&a->spot, spot_ns(a), idle, SIGMAS)) {
		snprintf(text, len, "%.0f %% of a call's CPU time (%.0f us) "
			 "went to code that is not the candidate's, seen at "
			 "times that nobody can foresee",
			 100 * (double)a->spot.foreign / (double)a->spot.user,
			 (double)a->spot.foreign * spot_ns(a) / 1e3);
		return 1;
	}
	if (are_much(&a->pass, pass_ns(a), idle, SIGMAS)) {
		snprintf(text, len, "at %llu of %llu times that nobody can "
			 "foresee a thread was in code that is not the "
			 "candidate's, for %.0f us of a call",
			 (unsigned long long)a->pass.foreign,
			 (unsigned long long)a->pass.user,
			 (double)a->pass.foreign * pass_ns(a) / 1e3);
		return 1;
	}
	return 0;
}

int attrib_judge(const struct attribution *a, const struct attrib_idle *idle,
		 char *text, size_t len)
{
	if (!a->by) {
		snprintf(text, len, "nobody could watch the candidate");
		return -1;
	}
	if (!a->calls)
		return 0;
	if (is_cut_off(a, text, len))
		return -1;
	if (a->moved) {
		snprintf(text, len, "memory became executable during %llu "
			 "calls", (unsigned long long)a->moved);
		return 1;
	}
	if (judge_spots(a, idle, text, len))
		return 1;
	if (a->samples < FEW)
		return 0;
	return judge_all(a, idle, text, len) ||
	       judge_short(a, idle, text, len);
}

/* Whether an empty call that much longer, and as much more of it foreign, says
 * nothing against a candidate. */
static int is_free_with(const struct attribution *a, struct attrib_idle busy,
			double user, double foreign)
{
	char text[256];

	busy.user_ns *= user;
	busy.foreign_ns *= foreign;
	return !attrib_judge(a, &busy, text, sizeof(text));
}

int attrib_is_close(const struct attribution *a,
		    const struct attrib_idle *idle)
{
	return is_free_with(a, *idle, BUSY, BUSY);
}

int attrib_is_python(const struct attribution *a,
		     const struct attrib_idle *idle)
{
	return is_free_with(a, *idle, BUSY, 1);
}

int attrib_doubts(const struct attribution *a, const struct attrib_idle *idle)
{
	double ns = a->all.often, each = rhythm(a);
	double free_ns = FREE_STRANGE * (double)a->calls;

	if (unforeseen_much(a, idle, 0) && !unforeseen_much(a, idle, SIGMAS))
		return 1;
	return ns >= 2 * each && !exceeds(ns, free_ns, each) &&
	       ns + SIGMAS * sqrt(ns * each) > free_ns;
}

void attrib_write(const struct attribution *a, int measured, struct jw *w)
{
	double per = a->calls ? 1e3 * (double)a->calls : 1;

	if (!a->by) {
		jw_null(w);
		return;
	}
	jw_obj(w);
	jw_kstr(w, "by", a->by);
	jw_kint(w, "calls", (int64_t)a->calls);
	if (!measured) {
		jw_end_obj(w);
		return;
	}
	jw_kint(w, "samples", (int64_t)a->samples);
	jw_key(w, "unforeseen");
	jw_obj(w);
	jw_kint(w, "samples", (int64_t)a->spot.user);
	jw_kint(w, "foreign", (int64_t)a->spot.foreign);
	jw_kint(w, "passes", (int64_t)a->pass.user);
	jw_kint(w, "passes_foreign", (int64_t)a->pass.foreign);
	jw_end_obj(w);
	jw_key(w, "us");
	jw_obj(w);
	for (int i = 0; i < PLACES; i++)
		jw_knum(w, place_name((enum place)i), a->ns[i] / per);
	jw_end_obj(w);
	jw_knum(w, "missing_us", a->missing_ns / per);
	jw_kint(w, "moved", (int64_t)a->moved);
	jw_key(w, "foreign");
	if (*a->foreign)
		jw_str(w, a->foreign);
	else
		jw_null(w);
	jw_end_obj(w);
}
