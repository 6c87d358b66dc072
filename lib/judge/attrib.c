/* SPDX-License-Identifier: Apache-2.0
 *
 * What is made of the outside witness's evidence.
 *
 * Foreign are torch's libraries, files that are neither the candidate's
 * object nor a BLAS it is linked with nor the C library, and code in memory
 * without a file.  DESIGN 6 lets ATen move data for a quarter of a call.  The
 * shim itself spends time in torch, and an allocation or a view costs as much
 * in a call of 20 us as in one of 20 ms, so some multiple of what an empty
 * call takes here is free: below it an evader remains unseen.  In other foreign
 * code the shim has nothing to do, so that there no more than a constant is,
 * and no share: threads that are busy beside it would make any share small.
 */
#include "judge/attrib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/stats.h"

#define FOREIGN_SHARE 0.25
#define FREE_NS 100e3		/* nobody minds, in a call, */
#define FREE_PART 50e3		/* and for each result */
#define FREE_STRANGE 4e3	/* in a call, where the shim does not go, */
#define OFTEN_STRANGE 20e3	/* of one call at most: a library that stirs
				 * now and then does no work */
#define FREE_IDLE 4		/* with so many times an empty call's */
/* A call that takes longer than this beyond what is free computes something,
 * and a twentieth of it at least has to be the candidate's.  Python alone
 * takes half a millisecond where others press on its caches. */
#define LONG_NS 1e6
#define OWN_SHARE 0.05
#define MISSING_SHARE 0.5	/* of the CPU time, unseen; not of a call
				 * that is short */
#define SHORT_NS 300e3
#define FEW 4			/* samples that say nothing by themselves */
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

void attrib_keep(struct attribution *a, int64_t length_ns)
{
	a->now.length = (double)length_ns;
	a->now.often = fmin(a->now.strange, OFTEN_STRANGE);
	add_call(&a->all, &a->now);
	if (a->ncall < ATTRIB_CALLS)
		a->call[a->ncall++] = a->now;
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
	for (size_t i = 0; i < a->ncall && sum->ncall < ATTRIB_CALLS; i++)
		sum->call[sum->ncall++] = a->call[i];
	add_call(&sum->all, &a->all);
	if (a->foreign_ns > sum->foreign_ns) {
		sum->foreign_ns = a->foreign_ns;
		snprintf(sum->foreign, sizeof(sum->foreign), "%s",
			 a->foreign);
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

/* Whether much of the CPU time was not sampled. */
static int is_cut_off(const struct attribution *a, char *text, size_t len)
{
	double all = a->missing_ns, calls = (double)a->calls;

	for (int i = 0; i < PLACES; i++)
		all += a->ns[i];
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
 * Whether more than its share of the user time, and more than is free, was
 * foreign.  What looks like n samples, of which the share is expected, has a
 * spread of sqrt(n share (1 - share)).
 */
static int is_much(double foreign, double user, double free_ns, double each)
{
	double spread = sqrt(user * each * FOREIGN_SHARE *
			     (1 - FOREIGN_SHARE));

	return foreign - SIGMAS * spread > FOREIGN_SHARE * user &&
	       exceeds(foreign, free_ns, each);
}

/* Of some calls together; `which` names them. */
static int judge_calls(double calls, const struct attrib_call *sum,
		       const struct attribution *a,
		       const struct attrib_idle *idle, const char *which,
		       char *text, size_t len)
{
	const char *name = *a->foreign ? a->foreign : "generated code";
	double strange = (FREE_NS + FREE_PART * idle->parts) * calls;
	double foreign = strange + FREE_IDLE * idle->foreign_ns * calls;
	double work = sum->user - FREE_IDLE * idle->user_ns * calls;
	double each = rhythm(a);

	if (exceeds(sum->often, FREE_STRANGE * calls, each) ||
	    exceeds(sum->strange, strange, each)) {
		snprintf(text, len, "%.0f us of %s went to code that is "
			 "neither the candidate's nor PyTorch's, as NumPy's "
			 "or made at run time; most foreign time to %s",
			 sum->strange / calls / 1e3, which, name);
		return 1;
	}
	if (is_much(sum->foreign, sum->user, foreign, each)) {
		snprintf(text, len, "%.0f %% of %s's CPU time (%.0f us) "
			 "went to code that is not the candidate's, most of "
			 "it to %s", 100 * sum->foreign / sum->user, which,
			 sum->foreign / calls / 1e3, name);
		return 1;
	}
	if (is_much(sum->during_foreign, sum->during_user, foreign, each)) {
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
	return judge_calls((double)half, &sum, a, idle, "a shorter call", text,
			   len);
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
	if (a->samples < FEW)
		return 0;
	if (judge_calls((double)a->calls, &a->all, a, idle, "a call", text,
			len))
		return 1;
	return judge_short(a, idle, text, len);
}

int attrib_doubts(const struct attribution *a)
{
	double ns = a->all.often, each = rhythm(a);
	double free_ns = FREE_STRANGE * (double)a->calls;

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
