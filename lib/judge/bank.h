/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs and expected results of a round, kept for the baselines.  A
 * candidate gets fresh inputs in every iteration and its expected values are
 * made after the capture; eager and torch.compile, which are trusted, run on
 * what the candidate ran on last, since making inputs takes longer than
 * anything else.  Private memory of the judge's.  Not for other modules.
 */
#ifndef CA_JUDGE_BANK_H
#define CA_JUDGE_BANK_H

#include "judge/families.h"
#include "judge/session.h"

#define BANK_MAX 24

struct sample {
	int full;
	struct verify_round round;
	struct mem inputs, expect;
	struct mem params;	/* where the rules rewrite them; else none */
	uint64_t state_seed;
	struct ca_slot slots[CA_SLOTS];
	struct ca_msg want;
};

struct bank {
	struct judge *j;
	size_t n;		/* samples there is room for; may be 0 */
	struct sample s[BANK_MAX];
};

/*
 * Room for n samples, or for none: when they would take more memory than
 * BANK_BYTES, or when the reference modifies its inputs or state, whose
 * after-images are not kept.
 */
#define BANK_BYTES ((size_t)1 << 30)
void bank_init(struct bank *b, struct judge *j, const struct oracle *o,
	       size_t n);
void bank_release(struct bank *b);

/* Sample i, or NULL when there is no room for it. */
struct sample *bank_at(struct bank *b, size_t i);

/* Keeps what the oracle holds now; lack of memory leaves the sample empty. */
void sample_keep(struct judge *j, struct sample *s, const struct oracle *o,
		 const struct verify_round *round, uint64_t state_seed,
		 const struct ca_msg *want);

#endif
