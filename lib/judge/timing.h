/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of timing: candidate, eager, torch.compile and the calibration, each
 * in a fresh process, in balanced order.  Not for other modules.
 */
#ifndef CA_JUDGE_TIMING_H
#define CA_JUDGE_TIMING_H

#include "judge/stats.h"
#include "judge/trial.h"

enum racer { RACE_CANDIDATE, RACE_EAGER, RACE_COMPILE, RACERS };

struct race {
	struct program program;
	int runs;		/* takes part */
	int remembered;		/* its times are an earlier run's */
	struct fail out;	/* why it does not any more */
	double bracket[STATS_ROUNDS];	/* ns, median of each round */
	double correction[STATS_ROUNDS];	/* ns, C of each round */
	struct stats_time time[STATS_ROUNDS];
	int warm;		/* untimed calls preceded its timed ones */
	int no_wait;		/* answers without waiting for the GPU */
	struct trace_table kernels;	/* of its last round */
	double device_us[STATS_ROUNDS];	/* sum of kernels' times by CUPTI,
				 * median of each round; NaN: not known */
	double guess;		/* ns, of the last round: how long C's process
				 * has to work */
};

struct timing {
	struct race race[RACERS];
	int quick;		/* a try on the CPU: fewer iterations, and one
				 * round where that leaves no doubt */
	size_t rounds;
	size_t iterations;	/* timed ones of a process */
	size_t busy;		/* rounds while somebody else used the device */
	int contended;
	double correction;	/* ns, C of racers who need not wait for the
				 * GPU, from an earlier run; 0: not known */
	struct bank *bank;	/* timing_run's own */
	uint64_t verified; /* timed iterations of the candidate, all right */
	struct attribution saw;	/* of all its processes */
	struct origin origin;	/* the same on CUDA */
};

/*
 * Runs rounds until the looks decide or max_rounds are done.  The oracle has
 * run and holds the state that all competitors get.  A candidate that fails
 * ends it: -1 with `f` (a verdict, or a fault).  A baseline that fails drops
 * out; eager's failure is the task's (invalid_reference).  Where the
 * candidate does not take part, max_rounds are run.
 */
int timing_run(struct judge *j, struct oracle *o,
	       const struct guard_result *g, struct timing *t,
	       size_t max_rounds, struct fail *f);

/* Has the processes of the next round forked before they are needed. */
void timing_ahead(struct judge *j, const struct timing *t);

/* Forgets the rounds; the racers stay. */
void timing_again(struct timing *t);

/*
 * One more process of a baseline that has been timed, which tells where its
 * time goes (runner_table).
 */
int timing_table(struct judge *j, struct oracle *o,
		 const struct guard_result *g, const struct race *race,
		 struct json **told, struct fail *f);

void timing_release(struct timing *t);

/* A racer's time over the rounds, in ns; NaN medians when it has none. */
void timing_bound(const struct timing *t, enum racer who,
		  struct stats_bound *b);

#endif
