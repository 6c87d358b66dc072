/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes of a data-parallel training: they hold the same model, read
 * the same input, compute their share of each batch and add up their gradients
 * (gpu/comm.h).  NULL stands for a single one everywhere.
 */
#ifndef CA_RL_RANKS_H
#define CA_RL_RANKS_H

#include <stddef.h>

#include "base/err.h"
#include "gpu/comm.h"

struct ranks;

/*
 * Forks n - 1 others, before any thread exists.  They return from here too:
 * with standard input from a pipe that rank 0 fills, standard output to
 * /dev/null and no signals but those that kill; they die with rank 0.
 */
int ranks_start(struct ranks **out, int n, struct err *e);

struct comm *ranks_comm(const struct ranks *r);

/* Rank 0: a line (without LF) of the input for the others.  As comm_check
 * when one of them does not take it. */
int ranks_tell(struct ranks *r, const char *line, size_t len, struct err *e);

/* Rank 0: there is no more input. */
void ranks_end(struct ranks *r);

/* Rank 0 ends the others' input, waits for them and reports the first that
 * failed; when this one has `failed` it kills them instead, and 0 is returned.
 * Others leave by returning from main after this. */
int ranks_finish(struct ranks *r, int failed, struct err *e);

#endif
