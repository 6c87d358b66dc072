/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json of the kind "byte-level BPE": text to token ids and back,
 * with the ids that the library `tokenizers` gives.
 */
#ifndef CA_NN_TOK_H
#define CA_NN_TOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct tok;

struct tok_ids {
	int32_t *id;
	size_t n, alloc;
};

#define TOK_IDS_INIT { NULL, 0, 0 }

void tok_ids_release(struct tok_ids *ids);
int tok_ids_add(struct tok_ids *ids, int32_t id);	/* 0; -1: no memory */
int tok_ids_join(struct tok_ids *ids, const int32_t *id, size_t n); /* too */

/* Reads dir/tokenizer.json.  Models, normalisers and pre-tokenisers that we
 * do not compute are refused by name (CA_CONFIG); broken ones CA_DATAERR. */
struct tok *tok_open(const char *dir, struct err *e);
struct tok *tok_parse(const char *text, size_t len, struct err *e);
void tok_free(struct tok *t);			/* NULL is fine */

/*
 * Appends the ids of valid UTF-8 text.  Added tokens ("<|im_end|>") in the
 * text become theirs, as in `tokenizers`; with `plain` only those do that are
 * not special, so that text of strangers cannot contain control tokens.
 * With `template` what the post-processor adds (a begin-of-text token) is
 * added.  One thread at a time, for each struct tok.
 */
enum { TOK_TEMPLATE = 1, TOK_PLAIN = 2 };
int tok_encode(struct tok *t, const char *text, size_t len, unsigned flags,
	       struct tok_ids *out, struct err *e);

/*
 * The same for text of which parts, in order, are strangers': special tokens
 * that touch them are ordinary text.
 */
struct tok_span {
	size_t from, to;
};
int tok_encode_spans(struct tok *t, const char *text, size_t len,
		     const struct tok_span *span, size_t nspans,
		     unsigned flags, struct tok_ids *out, struct err *e);

/* Appends the bytes of n ids, which need not be whole UTF-8 characters.
 * Unknown ids give nothing; special tokens neither with `skip_special`. */
int tok_decode(const struct tok *t, const int32_t *id, size_t n,
	       int skip_special, struct str *out);

/* The id of a token by its text; -1 when there is none. */
int32_t tok_id(const struct tok *t, const char *text, size_t len);

/* Whether the id is a special token (control, not content). */
int tok_special(const struct tok *t, int32_t id);

/* Whether the id is an added token, special or not: cut out of a text as a
 * whole. */
int tok_added(const struct tok *t, int32_t id);

/* One more than the highest id. */
int32_t tok_count(const struct tok *t);

#endif
