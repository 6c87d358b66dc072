/* SPDX-License-Identifier: Apache-2.0
 *
 * A trajectory record as training sees it: token ids, whose they are, their
 * log-probabilities, what it earned.  Nothing is tokenised here; see text.h.
 */
#ifndef CA_RL_TRAJ_H
#define CA_RL_TRAJ_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "rec/json.h"

/* A run of ids in which each prompt goes on where the answer before it
 * ended: one sequence for the model. */
struct traj_seg {
	int32_t *id;
	uint8_t *agent;			/* tokens that the model drew */
	float *logprob;			/* of those; else 0 */
	size_t n, alloc;
};

/* Why a trajectory, or some of its tokens, cannot be used. */
enum traj_drop {
	TRAJ_OK,
	TRAJ_NO_IDS,			/* of any turn */
	TRAJ_NO_REWARD,			/* null: the fault was not its own */
	TRAJ_NO_TOKENS,			/* none that are the agent's */
	TRAJ_TOO_LONG,
	TRAJ_BAD_IDS,			/* ids, mask and hash disagree */
	TRAJ_FOREIGN,			/* ids are of another tokenizer */
	TRAJ_OMITTED,			/* it became too long for a record */
	TRAJ_LOW_REWARD, TRAJ_LOOP, TRAJ_SCHEMA,	/* ca-rft's filter */
	TRAJ_DROPS
};

/* "no_ids" and so on, as metrics and messages have them. */
const char *traj_drop_name(enum traj_drop d);

struct traj {
	char id[64], task[64], version[128];
	struct traj_seg *seg;
	size_t nseg;
	size_t agent;			/* tokens of the agent that are used */
	size_t bad_logprobs;		/* masked: null, NaN or above 0 */
	double reward;			/* NaN: none */
	double temperature, top_p, min_p;	/* NaN: not stated */
	int64_t top_k;			/* 0: not stated */
	char logprobs[16];		/* "raw", "temperature" or "" */
	int64_t turns;
	int64_t missing;		/* of them have no ids */
	int redundant, cut;		/* cut: an answer was too long */
	int64_t violations;
	int text;			/* was tokenised by us */
};

/*
 * Reads a record of kind trajectory.  The result says whether it can be used;
 * `e` then says in words what is wrong (code CA_DATAERR), and everything but
 * the segments has been read.  -1: memory is short.  With `logprobs` tokens
 * of the agent without a proper log-probability are not used.
 */
int traj_read(struct traj *t, const struct json *root, int logprobs,
	      struct err *e);
void traj_release(struct traj *t);

/* The longest segment, in tokens. */
size_t traj_longest(const struct traj *t);

/* Whether ca-rft keeps it: reward above 0, no redundant loop, every call
 * valid against its schema. */
enum traj_drop traj_kept(const struct traj *t);

/* Appends to a segment: n ids with what they are; logprob may be NULL. */
int traj_add(struct traj *t, const int32_t *id, size_t n, int agent,
	     const float *logprob, struct err *e);
/* Begins a segment. */
int traj_open(struct traj *t, struct err *e);

#endif
