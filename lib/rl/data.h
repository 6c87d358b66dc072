/* SPDX-License-Identifier: Apache-2.0
 *
 * Trajectories of a training: read from records, checked, counted; and the
 * order in which a training goes through them.
 */
#ifndef CA_RL_DATA_H
#define CA_RL_DATA_H

#include "base/hash.h"
#include "rec/rec.h"
#include "rl/text.h"
#include "rl/traj.h"

struct data {
	struct traj *t;
	size_t n, alloc;
	uint64_t seen;			/* trajectories that were read */
	uint64_t dropped[TRAJ_DROPS];
	uint64_t bad_logprobs, tokenised, turns_missing;
	/* How they are taken. */
	struct text *text;		/* checks ids; may be NULL */
	int tokenise;			/* what has no ids gets some */
	int logprobs;			/* as traj_read */
	int kept;			/* only what traj_kept keeps */
	size_t longest;			/* 0: no limit */
	uint8_t digest[HASH_LEN];	/* of all lines that were read */
};

void data_release(struct data *d);

/*
 * Takes a record.  TRAJ_OK, or why it was dropped, which is counted and said
 * (complain) the first few times; -1 with `e` when that was not for the
 * record's own sake.
 */
int data_take(struct data *d, const struct rec *r, struct err *e);

/* Only the digest: a record that was taken in an earlier run. */
void data_skip(struct data *d, const struct rec *r);

/* What was read and dropped, as members "data/..." of a metric. */
void data_write(struct jw *w, const struct data *d);

/* Forgets the trajectories, not the counts. */
void data_clear(struct data *d);

/* The first n whole numbers in an order that depends on seed and round. */
void data_shuffle(size_t *order, size_t n, uint64_t seed, uint64_t round);

/* Whether a trajectory is held out, with this share: decided by its task, so
 * that no task is on both sides. */
int data_held_out(const struct traj *t, double share);

#endif
