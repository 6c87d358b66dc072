/* SPDX-License-Identifier: Apache-2.0
 *
 * One iteration of a runner with fresh inputs, and whether its results are
 * right.  The same for verification and for timing, so that a candidate
 * cannot tell them apart.  Not for other modules.
 */
#ifndef CA_JUDGE_TRIAL_H
#define CA_JUDGE_TRIAL_H

#include "judge/bank.h"
#include "judge/compare.h"
#include "judge/families.h"
#include "judge/guard.h"
#include "judge/origin.h"
#include "judge/session.h"

/* Iterations after the first call that are not timed. */
#define TRIAL_WARM 2

/* Times that a disturbed bracket is repeated.  Where a stranger uses the GPU
 * a quarter of them are; then it is a fault, and a second one the
 * candidate's. */
#define TRIAL_AGAIN 20
int trial_disturbed(struct fail *f);	/* that it was to no avail: -1 */

/* An input, parameter or buffer that a call did not leave as it had to. */
struct trial_left {
	char name[128];		/* "input 1", …; "": none */
	enum family family;	/* of the round */
	struct view v;		/* without data */
	struct cmp_rule rule;
	struct cmp_result r;
};

struct trial {
	struct judge *j;
	struct oracle *o;
	struct runner *r;
	struct guard_result guard;	/* tolerance per leaf */
	int no_wait;		/* CUDA: answers come right after the launches
				 * and the capture waits for them */
	int warm;		/* see struct bracket */
	int rewrite;		/* copy the state again at the next reveal */
	struct mem got, ref;		/* private: captured, and expected while
					 * the fp64 values take its place */
	/* Where this iteration's inputs and expected values are: the oracle's
	 * memory, or a sample of the bank. */
	const struct mem *inputs, *expect;
	const struct ca_slot *slots;
	const struct sample *banked;	/* NULL: the oracle's */
	const struct mem *params;	/* what the runner's must be */
	uint64_t state_seed;		/* of them, once rewritten */
	struct cmp_result sum[CA_LEAVES];	/* worst so far */
	struct trial_left left;
	struct ca_msg want;		/* leaves of the last expectation */
	int64_t reference_ns;	/* for the last expectation, with its copies */
	uint64_t iterations, skipped;
	uint64_t compute, other; /* ATen operations, first calls left out */
	uint64_t launches;	/* calls of launchers, likewise */
	int counted;		/* each call has to launch something */
	int folded;			/* other weights gave other results */
};

/* Takes private memory for what will be captured.  The oracle has run once.
 * trial_release frees it. */
int trial_init(struct trial *t, struct judge *j, struct oracle *o,
	       struct fail *f);
void trial_release(struct trial *t);

/*
 * One iteration: inputs by `round`, the bracket, the expected values made
 * afterwards, everything compared.  flags as ca_go_flag.  *ns is the
 * bracket's length.  0: right (or not deciding); 1: the reference is not
 * finite on this round's inputs, nothing was decided; -1: `f` says what is
 * wrong, a fault included.
 */
int trial_go(struct trial *t, const struct verify_round *round,
	     uint32_t flags, int64_t *ns, struct fail *f);

/* The same for a baseline: on the sample if it is full, else on fresh inputs,
 * which it then keeps.  For a candidate (`fresh`) always the latter.  s may be
 * NULL. */
int trial_sample(struct trial *t, struct sample *s, int fresh,
		 const struct verify_round *round, uint32_t flags,
		 int64_t *ns, struct fail *f);

/* Whether the calls of a candidate's launchers are counted (t->counted). */
int trial_counts(const struct judge *j, const struct program *p);

/* Measures, once in a session, what an empty call takes: due before
 * trial_attribute.  0, or -1 with `f`. */
int trial_idle(struct judge *j, struct oracle *o, struct fail *f);

/* What the witness's evidence means for a candidate that has been right all
 * the time, and whose process is gone.  0, or -1 with `f`. */
int trial_attribute(struct judge *j, struct oracle *o,
		    const struct attribution *a, struct fail *f);
/*
 * The same on CUDA, in two steps: takes what CUPTI saw of `calls` of a
 * runner's (t NULL: nothing), while that lives; and judges all of it.  Where
 * this machine traces nothing, nothing can be said: 0.
 */
void trial_origin(const struct judge *j, const struct runner *r,
		  const struct trace_table *t, uint64_t calls,
		  struct origin *g);
int trial_originated(struct judge *j, struct oracle *o,
		     const struct origin *g, struct fail *f);
/*
 * For trial_values: indices that missed pass where they name other ones of
 * equal values (r, of CA_LEAVES).  trial_again has the oracle go back to the
 * inputs of a sample, for another look.  0, or -1 with `f`.
 */
int trial_ties(struct trial *t, const struct verify_round *round,
	       const struct bracket_result *res, struct cmp_result *r,
	       struct fail *f);
int trial_again(struct trial *t, const struct verify_round *round,
		struct fail *f);
/* For trial_go: compares the values of an answer with what is wanted; returns
 * as trial_go does. */
int trial_values(struct trial *t, const struct verify_round *round,
		 const struct bracket_result *res, struct fail *f);

/*
 * Likewise: that inputs and state are as the reference leaves them, by the
 * tolerance of results where it changes them, and that nothing was written
 * beside them or beside results.  0, or -1 with `f` and, of what was changed,
 * t->left.
 */
int trial_memory(struct trial *t, const struct verify_round *round,
		 const struct bracket_result *res, unsigned set,
		 struct fail *f);

/* Writes the array of verify.tensors, and verify.modified. */
void trial_write(const struct trial *t, struct jw *w);
void trial_write_left(const struct trial *t, struct jw *w);

/* The guard's verdict on the task, from the cache or by asking the oracle
 * for its fixed seeds.  Leaves the oracle with some state: set it after. */
int guard_task(struct judge *j, struct oracle *o, const char *task,
	       struct guard_result *g, struct fail *f);
/* The same for who asks whether there is a tolerance, no more: what is not
 * known is not remembered, and g->refused says little. */
int guard_look(struct judge *j, struct oracle *o, const char *task,
	       struct guard_result *g, struct fail *f);

#endif
