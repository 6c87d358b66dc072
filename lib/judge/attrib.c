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
#include <string.h>

#define FOREIGN_SHARE 0.25
#define FREE_NS 100e3		/* nobody minds, in a call, */
#define FREE_IDLE 4		/* with so many times an empty call's */
/* A call that takes longer than this beyond what is free computes something,
 * and a twentieth of it at least has to be the candidate's. */
#define LONG_NS 300e3
#define OWN_SHARE 0.05
#define MISSING_SHARE 0.5	/* of the CPU time, unseen; not of a call
				 * that is short */
#define FEW 4			/* samples that say nothing by themselves */

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
	if (a->foreign_ns > sum->foreign_ns) {
		sum->foreign_ns = a->foreign_ns;
		snprintf(sum->foreign, sizeof(sum->foreign), "%s",
			 a->foreign);
	}
}

/* Of time in user mode: page faults and the like are nobody's computing. */
static double user_ns(const struct attribution *a)
{
	double sum = 0;

	for (int i = 0; i < PLACES; i++)
		if (i != PLACE_KERNEL && i != PLACE_RUNTIME)
			sum += a->ns[i];
	return sum;
}

static double not_own_ns(const struct attribution *a)
{
	return a->ns[PLACE_TORCH] + a->ns[PLACE_OTHER] + a->ns[PLACE_ANON] +
	       a->ns[PLACE_NOWHERE];
}

void attrib_idle_of(const struct attribution *a, struct attrib_idle *idle)
{
	double calls = a->calls ? (double)a->calls : 1;

	idle->foreign_ns = not_own_ns(a) / calls;
	idle->user_ns = user_ns(a) / calls;
}

/* Whether much of the CPU time was not sampled. */
static int is_cut_off(const struct attribution *a, char *text, size_t len)
{
	double all = a->missing_ns, calls = (double)a->calls;

	for (int i = 0; i < PLACES; i++)
		all += a->ns[i];
	if (a->missing_ns <= MISSING_SHARE * all ||
	    a->missing_ns <= LONG_NS * calls)
		return 0;
	snprintf(text, len, "%.0f of %.0f us of a call were not seen from "
		 "outside", a->missing_ns / calls / 1e3, all / calls / 1e3);
	return 1;
}

int attrib_judge(const struct attribution *a, const struct attrib_idle *idle,
		 char *text, size_t len)
{
	double calls = (double)a->calls, user = user_ns(a);
	double foreign = not_own_ns(a), work;
	double own = a->ns[PLACE_OWN] + a->ns[PLACE_BLAS];

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
	if (foreign > FOREIGN_SHARE * user &&
	    foreign > (FREE_NS + FREE_IDLE * idle->foreign_ns) * calls) {
		snprintf(text, len, "%.0f %% of a call's CPU time (%.0f us) "
			 "went to code that is not the candidate's, most of "
			 "it to %s", 100 * foreign / user,
			 foreign / calls / 1e3,
			 *a->foreign ? a->foreign : "generated code");
		return 1;
	}
	work = user - FREE_IDLE * idle->user_ns * calls;
	if (work > LONG_NS * calls && own < OWN_SHARE * work) {
		snprintf(text, len, "the candidate's kernels took %.0f us of "
			 "a call of %.0f us", own / calls / 1e3,
			 user / calls / 1e3);
		return 1;
	}
	return 0;
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
