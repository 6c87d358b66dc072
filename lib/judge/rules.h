/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of rules: what a candidate may do and how its results are measured.
 * ca-verify(1) tells what each catches and lets pass.  Not for other modules.
 */
#ifndef CA_JUDGE_RULES_H
#define CA_JUDGE_RULES_H

#include "torch/proto.h"

struct rules {
	const char *name;
	int torch;		/* PyTorch may compute; it is only counted, and
				 * no kernel of the candidate's is needed */
	int own_state;		/* models keep what their constructors drew,
				 * under one seed, and train; else they get the
				 * judge's state, perturbed, and evaluate */
	int rewrites;		/* other weights in each iteration */
	int guarded;		/* the guard shrinks the tolerance and refuses
				 * tasks */
	int families;		/* rounds of other distributions */
	int relief;		/* an element passes that is no farther from
				 * fp64 than the reference is */
	double own;		/* error at most so many times the reference's
				 * own, against fp64; 0: not measured */
};

#define RULES_NAMES "paper|strict|kernelbench"

extern const struct rules rules_paper;
const struct rules *rules_find(const char *name);	/* NULL: unknown */

/* atol and rtol for results of a type, as published. */
double rules_tolerance(const struct rules *r, enum ca_dtype t);

#endif
