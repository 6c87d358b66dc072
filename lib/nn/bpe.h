/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair merges over pieces of bytes: the vocabulary by bytes, the table
 * of merges, and a cache of the pieces seen last.
 */
#ifndef CA_NN_BPE_H
#define CA_NN_BPE_H

#include "nn/tok.h"

struct bpe;

struct bpe *bpe_new(size_t tokens, size_t merges);	/* NULL: no memory */
void bpe_free(struct bpe *b);

/* Adds token `id` with these bytes, which must outlive b.  -1 when another
 * has the same. */
int bpe_token(struct bpe *b, const char *p, size_t len, int32_t id);

/* The id of the token with these bytes; -1 when there is none. */
int32_t bpe_find(const struct bpe *b, const char *p, size_t len);

/* The next merge in order of rank: left and right become id.  A pair that
 * has a rank already takes the new one, as in `tokenizers`. */
void bpe_merge(struct bpe *b, int32_t left, int32_t right, int32_t id);

/* With `on`, a piece that is a token as a whole is not merged up to it. */
void bpe_ignore_merges(struct bpe *b, int on);

/* Appends the ids of one piece.  Bytes that are no token are left out, as
 * `tokenizers` does without an unk_token. */
int bpe_encode(struct bpe *b, const char *p, size_t len, struct tok_ids *out);

#endif
