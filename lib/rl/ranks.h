/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of a data-parallel training: processes that hold the same model, read
 * the same input, compute their share of each batch and add their gradients
 * through shared memory.  Sums are made in the order of the ranks, so all
 * have the same bits.  NULL stands for a single rank everywhere.
 */
#ifndef CA_RL_RANKS_H
#define CA_RL_RANKS_H

#include <stddef.h>

#include "base/err.h"

#define RANKS_MAX 64

struct ranks;

/*
 * Forks n - 1 others, before any thread exists.  They return from here too:
 * with standard input from a pipe that rank 0 fills, standard output to
 * /dev/null and no signals but those that kill; they die with rank 0.
 */
int ranks_start(struct ranks **out, int n, struct err *e);

int ranks_mine(const struct ranks *r);
int ranks_count(const struct ranks *r);

/* Rank 0: a line (without LF) of the input for the others. */
int ranks_tell(struct ranks *r, const char *line, size_t len, struct err *e);

/* Rank 0: there is no more input. */
void ranks_end(struct ranks *r);

/* Replaces x by its sum over the ranks; all have to call it.  CA_UNAVAILABLE
 * when one of them is gone or does not come within ten minutes. */
int ranks_sum(struct ranks *r, float *x, size_t n, struct err *e);

/* Whether any rank says so. */
int ranks_any(struct ranks *r, int *flag, struct err *e);

/* Rank 0 ends the others' input, waits for them and reports the first that
 * failed; others leave by returning from main after this. */
int ranks_finish(struct ranks *r, struct err *e);

#endif
