/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokens an answer was made of.  A client sends text back, and a text
 * has many spellings in tokens, of which the tokenizer knows one and the model
 * may have drawn another; then the next turn would begin with tokens that were
 * never drawn: nothing of the cache fits, and training sees two histories.  So
 * answers are remembered by the conversation they ended.
 */
#ifndef CA_SERVE_RECALL_H
#define CA_SERVE_RECALL_H

#include "base/hash.h"
#include "nn/tok.h"
#include "rec/json.h"

struct recall;

struct recall *recall_new(void);		/* NULL: no memory */
void recall_free(struct recall *r);		/* NULL is fine */

/* A conversation, by all that was said in it. */
struct recall_key {
	uint8_t sum[HASH_LEN];
};

/* Of no message yet, with these tools (or NULL); -1: no memory. */
int recall_begin(struct recall *r, struct recall_key *k,
		 const struct json *tools);
/* With one message more: an answer by what it says, without the white space at
 * its end, any other by all that it has, which templates may show; -1. */
int recall_add(struct recall *r, struct recall_key *k,
	       const struct json *message);

/* Remembers the tokens of a conversation that ends with an answer, and which
 * replica gave it; old ones are forgotten. */
void recall_put(struct recall *r, const struct recall_key *k,
		const struct tok_ids *prompt, const int32_t *answer, int n,
		int home);

/* Appends the tokens of a conversation, and sets *home: 1; 0: it is not
 * known. */
int recall_get(struct recall *r, const struct recall_key *k,
	       struct tok_ids *out, int *home);

#endif
