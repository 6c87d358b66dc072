/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch of trajectories as the model sees it: sequences, and the rows of
 * them from which log-probabilities or values are wanted; and the
 * micro-batches that sequences are packed into.
 */
#ifndef CA_RL_ROWS_H
#define CA_RL_ROWS_H

#include "rl/traj.h"

/* What is not needed behind a sequence's last row is cut off. */
struct rows_seq {
	const int32_t *id;		/* the trajectory's */
	size_t n;			/* tokens that are computed */
	size_t first, nout;		/* its outputs */
	size_t traj;
};

struct rows {
	struct rows_seq *seq;
	size_t nseq;
	/* Output i is read at token row[i] of its sequence and is about the
	 * token behind it, target[i]; the outputs of a trajectory lie
	 * together, in order. */
	int32_t *row, *target;
	uint8_t *agent;			/* that token is the agent's */
	uint8_t *opens;			/* it is the first of a sequence */
	float *logprob;			/* as the trajectory has it */
	size_t n;
	size_t *first;			/* ntraj + 1: outputs of each */
	size_t ntraj;
	size_t tokens;			/* of all sequences */
};

/* Outputs are the agent's tokens; with `all` also those of the environment
 * between a segment's first and last of them.  Refers to t. */
int rows_make(struct rows *r, const struct traj *t, size_t n, int all,
	      struct err *e);
void rows_release(struct rows *r);

/* Micro-batch b holds sequences seq[first[b]] to seq[first[b + 1]], and is
 * computed by rank[b]. */
struct pack {
	size_t *seq, *first;
	int *rank;
	size_t n;
};

/*
 * Packs sequences, the longest first, into micro-batches of at most `tokens`
 * tokens and `seqs` sequences, and gives them to `ranks` ranks so that they
 * have about as many tokens each.  CA_DATAERR when one is longer than
 * `tokens`.
 */
int pack_make(struct pack *p, const struct rows *r, size_t tokens,
	      size_t seqs, int ranks, struct err *e);
void pack_release(struct pack *p);

#endif
