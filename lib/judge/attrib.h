/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose code a candidate's time went to, and what the rules say to that.
 */
#ifndef CA_JUDGE_ATTRIB_H
#define CA_JUDGE_ATTRIB_H

#include "judge/modules.h"
#include "rec/json.h"

#define ATTRIB_CALLS 512

/*
 * One call: its length, CPU time of all threads by what the rules ask about,
 * and the time during which any thread was there.  By the latter threads that
 * are busy beside foreign code, or pretend to be, do not hide it.  Strange is
 * what is foreign and not torch's: the shim never goes there.
 */
struct attrib_call {
	double length, user, foreign, strange, own;
	double often;		/* of strange, what counts as every call's */
	double during_user, during_foreign;
};

/*
 * Of calls that count: all but the first, warm ones left out.  What was seen
 * from outside can only make a verdict worse.
 */
struct attribution {
	const char *by;		/* "perf", "ptrace"; NULL: nobody looked */
	uint64_t calls, samples;
	double ns[PLACES];	/* of CPU time, in all threads */
	double missing_ns;	/* spent, by the kernel's books, unseen */
	uint64_t moved;		/* calls in which memory became executable */
	char foreign[64];	/* the library with most time that is neither
				 * the candidate's nor allowed, "" for none */
	double foreign_ns;
	char strange[64];	/* the same without torch's */
	double strange_ns;
	struct attrib_call all;			/* sums of all of them, */
	struct attrib_call call[ATTRIB_CALLS];	/* and an even part: one in */
	size_t ncall;				/* 1 << thin */
	unsigned thin;
	uint64_t kept;			/* of which these are a part */
	struct attrib_spots {		/* samples that were ordered */
		uint64_t all, user, foreign, strange;	/* (sampler.h), */
	} spot, pass;			/* and in how many passes any was */
	struct attrib_call now;			/* the one under way, */
	int64_t until_user, until_foreign; /* and what of it is counted */
	struct attrib_spots pass_now;	/* the pass under way, all: its number
					 * and one */
};

/* Begins a call; counts the `ns` before `when`, in the order of time, in
 * which some thread was in p; ends the call. */
void attrib_call(struct attribution *a);
void attrib_see(struct attribution *a, int64_t when, enum place p, double ns);
void attrib_keep(struct attribution *a, int64_t length_ns);
/* An ordered sample: a thread was in p.  Those of one pass come one after the
 * other; then how many passes there were in the call, also in vain. */
void attrib_spot(struct attribution *a, unsigned pass, enum place p);
void attrib_passes(struct attribution *a, unsigned n);

/* Adds what another process of the same candidate did. */
void attrib_add(struct attribution *sum, const struct attribution *a);

/* What a call of a process that computes nothing takes, shim and all. */
struct attrib_idle {
	double foreign_ns, user_ns;
	unsigned parts;		/* results of a call; each is looked at, and
				 * copied where it lies elsewhere */
};

/* By the calls in the middle: what pressed on some of them must not make more
 * free. */
void attrib_idle_of(const struct attribution *a, struct attrib_idle *idle);
/* Whether a verdict of 1 stands on what an empty call took when that was
 * measured: where others press on the machine by now, it takes longer. */
int attrib_is_close(const struct attribution *a,
		    const struct attrib_idle *idle);

/*
 * 0: nothing speaks against the candidate's own kernels having done the work.
 * 1: something does (rules_fallback), as text says.  -1: the evidence is
 * missing or cut off.
 */
int attrib_judge(const struct attribution *a, const struct attrib_idle *idle,
		 char *text, size_t len);

/* Of what attrib_judge found: whether it is only that Python takes so much
 * longer than the kernels as it may where everything is slow for a while. */
int attrib_is_python(const struct attribution *a,
		     const struct attrib_idle *idle);

/* Whether something was seen that does not decide, of code that is neither the
 * candidate's nor torch's or at times that nobody can foresee, and more calls
 * could tell whether it is more than chance. */
int attrib_doubts(const struct attribution *a, const struct attrib_idle *idle);

/* The object verify.attribution; null where nobody looked.  `measured`: with
 * what differs from run to run. */
void attrib_write(const struct attribution *a, int measured, struct jw *w);

#endif
