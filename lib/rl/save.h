/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of the trainers: which one to go on from, and what they carry.
 */
#ifndef CA_RL_SAVE_H
#define CA_RL_SAVE_H

#include <stdint.h>

#include "base/hash.h"
#include "rl/learner.h"
#include "rl/opts.h"

struct save_state {
	const char *tool;
	enum rl_tool which;		/* of opts */
	const struct rl_opts *opts;
	int64_t step;			/* updates, skipped ones included */
	uint64_t lines;			/* trajectories of the input that are
					 * in these weights */
	uint8_t digest[HASH_LEN];	/* of those lines */
	const char *gae;		/* name; NULL for an actor */
	uint64_t seed;
};

/* Writes DIR, as rank 0 of all.  `from` has the tokenizer's files. */
int save_put(struct learner *l, const char *dir, const char *from,
	     const struct save_state *s, struct err *e);

/* Writes the weights alone to DIR, as a model. */
int save_publish(struct learner *l, const char *dir, const char *from,
		 struct err *e);

/*
 * Finds what to go on from: DIR or DIR.prev, whichever is whole and newer; of
 * two folders (`other` may be NULL) the newest pair of the same step.  What is
 * found gets the name DIR.  1 when found; 0 when there is nothing, or of a pair
 * only the half of a first save; -1
 * CA_DATAERR when what is there is damaged or does not fit together.
 */
int save_find(const char *dir, const char *other, struct err *e);

/* Loads optimiser and state of a checkpoint that save_find found, made with
 * options that s->opts can go on from (opts_compare); `changed` may be
 * NULL. */
int save_load(struct learner *l, const char *dir, struct save_state *s,
	      struct str *changed, struct err *e);

/* CA_CONFIG when the folder is a critic's checkpoint made under another mode
 * of GAE. */
int save_check_gae(const char *dir, const char *gae, struct err *e);

#endif
