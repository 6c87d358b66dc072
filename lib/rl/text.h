/* SPDX-License-Identifier: Apache-2.0
 *
 * Between a trajectory's messages and token ids: whether its ids are this
 * tokenizer's, and ids for one that has none.
 */
#ifndef CA_RL_TEXT_H
#define CA_RL_TEXT_H

#include "nn/prompt.h"
#include "nn/tok.h"
#include "rl/traj.h"

struct text {
	struct tok *tok;
	int32_t vocab;			/* of the model */
	const char *dir;
	struct prompt *prompt;		/* opened when it is needed */
};

/* Reads a model folder's tokenizer. */
int text_open(struct text *x, const char *dir, struct err *e);
void text_close(struct text *x);

/* TRAJ_OK, or TRAJ_FOREIGN when an id is not in the vocabulary or the ids of
 * an answer do not spell what its message says. */
int text_check(struct text *x, const struct json *root, const struct traj *t,
	       struct err *e);

/*
 * Tokenises the messages as ca-serve does, an answer of the agent and what lies
 * between at a time; the result is marked `text`.  A segment ends where the
 * chat template does not only append.  TRAJ_OK, a
 * reason to drop it, or -1.
 */
int text_tokenise(struct text *x, const struct json *root, struct traj *t,
		  struct err *e);

/* CA_CONFIG when the tokenizers of two folders differ. */
int text_same(const char *dir, const char *other, struct err *e);

#endif
