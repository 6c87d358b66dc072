/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of the baselines, remembered for quick profiles on CUDA.  There
 * torch.compile takes most of a try; its time is then taken from eager's,
 * which is measured beside the candidate, by their ratio in an earlier run,
 * and what the bracket costs is that run's too, as long as eager, timed so,
 * agrees with that run.  Not for other modules.
 */
#ifndef CA_JUDGE_BASELINE_H
#define CA_JUDGE_BASELINE_H

#include "judge/timing.h"

#define BASELINE_AGREES 0.03

struct baseline {
	double eager_ns, compile_ns;
	double correction_ns;	/* C of eager; 0: of other brackets than those
				 * of the rules in hand */
};

/* 0, or -1 when nothing is remembered. */
int baseline_get(struct judge *j, const char *task, struct baseline *b);
/* Remembers the medians of a timing in which both ran. */
void baseline_put(struct judge *j, const char *task, const struct timing *t);

/*
 * Fills in compile's times of a timing in which only eager ran.  -1 when
 * eager does not agree with what is remembered, or C does not hold.
 */
int baseline_apply(const struct baseline *b, struct timing *t);

#endif
