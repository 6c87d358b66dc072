/* SPDX-License-Identifier: Apache-2.0
 *
 * What is made of the outside witness's evidence.
 *
 * Foreign are torch's libraries, files that are neither the candidate's
 * object nor a BLAS it is linked with nor the C library, and code in memory
 * without a file.  DESIGN 6 lets ATen move data for a quarter of a call.  The
 * shim itself spends time in torch, and an allocation or a view costs as much
 * in a call of 20 us as in one of 20 ms, so some multiple of what an empty
 * call takes here is free: below it an evader remains unseen.
 */
#include "judge/attrib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOREIGN_SHARE 0.25
#define FREE_NS 100e3		/* nobody minds, in a call, */
#define FREE_PART 50e3		/* and for each result */
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

static double sum_of(const double ns[PLACES], const enum place *p, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += ns[p[i]];
	return sum;
}

static double own_ns(const double ns[PLACES])
{
	static const enum place p[] = { PLACE_OWN, PLACE_BLAS };

	return sum_of(ns, p, 2);
}

static double foreign_ns(const double ns[PLACES])
{
	static const enum place p[] = { PLACE_TORCH, PLACE_OTHER, PLACE_ANON,
					PLACE_NOWHERE };

	return sum_of(ns, p, 4);
}

/* Of time in user mode: page faults and the like are nobody's computing, and
 * waiting is not either. */
static double user_ns(const double ns[PLACES])
{
	return own_ns(ns) + foreign_ns(ns) + ns[PLACE_PYTHON];
}

void attrib_keep(struct attribution *a, int64_t length_ns,
		 const double before[PLACES])
{
	double d[PLACES];

	if (a->ncall == ATTRIB_CALLS)
		return;
	for (int i = 0; i < PLACES; i++)
		d[i] = a->ns[i] - before[i];
	a->call[a->ncall++] = (struct attrib_call){
		(float)length_ns, (float)user_ns(d), (float)foreign_ns(d),
		(float)own_ns(d)
	};
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
	if (a->foreign_ns > sum->foreign_ns) {
		sum->foreign_ns = a->foreign_ns;
		snprintf(sum->foreign, sizeof(sum->foreign), "%s",
			 a->foreign);
	}
}

void attrib_idle_of(const struct attribution *a, struct attrib_idle *idle)
{
	double calls = a->calls ? (double)a->calls : 1;

	idle->foreign_ns = foreign_ns(a->ns) / calls;
	idle->user_ns = user_ns(a->ns) / calls;
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

/* Of some calls together; `which` names them. */
static int judge_calls(double calls, double user, double foreign, double own,
		       const struct attribution *a,
		       const struct attrib_idle *idle, const char *which,
		       char *text, size_t len)
{
	double free_ns = FREE_NS + FREE_PART * idle->parts +
			 FREE_IDLE * idle->foreign_ns;
	double work = user - FREE_IDLE * idle->user_ns * calls;

	if (foreign > FOREIGN_SHARE * user &&
	    foreign > free_ns * calls) {
		snprintf(text, len, "%.0f %% of %s's CPU time (%.0f us) "
			 "went to code that is not the candidate's, most of "
			 "it to %s", 100 * foreign / user, which,
			 foreign / calls / 1e3,
			 *a->foreign ? a->foreign : "generated code");
		return 1;
	}
	if (work > LONG_NS * calls && own < OWN_SHARE * work) {
		snprintf(text, len, "the candidate's kernels took %.0f us of "
			 "%s of %.0f us", own / calls / 1e3, which,
			 user / calls / 1e3);
		return 1;
	}
	return 0;
}

static int by_length(const void *a, const void *b)
{
	float x = ((const struct attrib_call *)a)->length;
	float y = ((const struct attrib_call *)b)->length;

	return (x > y) - (x < y);
}

/*
 * The shorter half of the calls is what the median goes by: who computes
 * elsewhere in just these must not hide behind long honest ones.
 */
static int judge_short(const struct attribution *a,
		       const struct attrib_idle *idle, char *text, size_t len)
{
	struct attrib_call call[ATTRIB_CALLS], sum = { 0, 0, 0, 0 };
	size_t half = a->ncall / 2;

	if (half < FEW)
		return 0;
	memcpy(call, a->call, a->ncall * sizeof(call[0]));
	qsort(call, a->ncall, sizeof(call[0]), by_length);
	for (size_t i = 0; i < half; i++) {
		sum.user += call[i].user;
		sum.foreign += call[i].foreign;
		sum.own += call[i].own;
	}
	return judge_calls((double)half, (double)sum.user,
			   (double)sum.foreign, (double)sum.own, a, idle,
			   "a shorter call", text, len);
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
	if (judge_calls((double)a->calls, user_ns(a->ns), foreign_ns(a->ns),
			own_ns(a->ns), a, idle, "a call", text, len))
		return 1;
	return judge_short(a, idle, text, len);
}

void attrib_write(const struct attribution *a, struct jw *w)
{
	double per = a->calls ? 1e3 * (double)a->calls : 1;

	if (!a->by) {
		jw_null(w);
		return;
	}
	jw_obj(w);
	jw_kstr(w, "by", a->by);
	jw_kint(w, "calls", (int64_t)a->calls);
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
