/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rounds a verification runs: fresh inputs, scaled ones, other
 * distributions, other weights.  The oracle makes the inputs; this says
 * which, and how the result decides.
 */
#ifndef CA_JUDGE_FAMILIES_H
#define CA_JUDGE_FAMILIES_H

#include <stddef.h>
#include <stdint.h>

#include "base/rand.h"
#include "rec/json.h"

/* What is done to what get_inputs() returned.  Names are the oracle's. */
enum family {
	FAMILY_PLAIN,		/* nothing */
	FAMILY_SCALE,		/* float tensors times `factor` */
	FAMILY_SIGN,		/* float tensors' signs drawn anew */
	FAMILY_TIED,		/* the largest of each slice of the last axis
				 * stands at several places */
	FAMILY_CLUSTER,		/* values near the largest of each slice */
	FAMILY_SPIKE,		/* one large element in each slice */
	FAMILY_PERMUTE,		/* integer tensors permuted */
	FAMILY_BLOCKS,		/* every part of the input (halves, strided
				 * rows, …) of another size */
	FAMILY_TILT,		/* likewise, and of another sign */
	FAMILY_PART,		/* half of the input stands for the whole; for
				 * the guard alone */
	FAMILY_COUNT
};
const char *family_name(enum family f);		/* "plain", "scale", … */
enum family family_parse(const char *name);	/* FAMILY_COUNT: unknown */

/* One round. */
struct verify_round {
	enum family family;
	double factor;		/* FAMILY_SCALE; else 1 */
	int other_weights;	/* the folding round: weights W' */
	int by_norm;		/* decides by norm, where eager is finite */
	int deciding;		/* 0: a miss is only reported (folded) */
	uint64_t seed;		/* of the inputs */
	uint64_t forward_seed;	/* of randomness in forward */
};

/* What the task has, so that rounds that would change nothing are left out. */
struct family_traits {
	int has_float;		/* floating or complex input tensors */
	int has_int;		/* integer tensors of 2 or more elements */
	int has_slices;		/* float inputs whose last axis is 2 or more */
	int has_state;		/* parameters or buffers */
};

#define FAMILY_ROUNDS 32
#define FAMILY_FRESH 5		/* rounds of fresh inputs, at least */

/*
 * The plan of ca-verify: `fresh` plain rounds (at least FAMILY_FRESH; fewer
 * are raised), then unless `literal` three scaled rounds with factors drawn
 * log-uniformly from each third of [0.01, 100] and one round of each other
 * family (two of FAMILY_BLOCKS, none of FAMILY_PART), then the folding round
 * when there is state.  Plain rounds come first so that most wrong candidates
 * leave early.  Returns the number of
 * rounds, at most FAMILY_ROUNDS.
 */
size_t families_plan(struct rng *rng, const struct family_traits *t,
		     size_t fresh, int literal,
		     struct verify_round out[FAMILY_ROUNDS]);

/* Members of the oracle's "inputs" request: "seed", "family", "factor". */
void family_write(struct jw *w, const struct verify_round *r);

#endif
