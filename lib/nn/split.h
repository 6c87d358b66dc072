/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to text before the merges: NFC, and pre-tokenisers that cut
 * it into pieces.
 */
#ifndef CA_NN_SPLIT_H
#define CA_NN_SPLIT_H

#include <stddef.h>

#include "base/err.h"
#include "rec/json.h"

struct split;

/* From the members `normalizer` and `pre_tokenizer` of a tokenizer.json. */
struct split *split_new(const struct json *normalizer,
			const struct json *pre, struct err *e);
void split_free(struct split *s);

/* Whether there is a normaliser that may change this text. */
int split_normalizes(const struct split *s, const char *p, size_t len);

/* The text in NFC, malloc'd; NULL and `e` on failure. */
char *split_normalize(const char *p, size_t len, size_t *outlen,
		      struct err *e);

/* Cuts text and hands each piece to `piece`, in order; stops at its first
 * non-zero result and returns it.  -1 with `e` on failure. */
typedef int split_piece(void *ctx, const char *p, size_t len);
int split_run(struct split *s, const char *p, size_t len, split_piece *piece,
	      void *ctx, struct err *e);

#endif
