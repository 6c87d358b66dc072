/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokens go on with a shape (serve/shape.h).
 */
#ifndef CA_SERVE_GUIDE_H
#define CA_SERVE_GUIDE_H

#include "nn/tok.h"
#include "serve/shape.h"

/* A vocabulary in the order of its bytes.  NULL: no memory. */
struct words;
struct words *words_new(const struct tok *t, const int32_t *eos, int neos);
void words_free(struct words *w);		/* NULL is fine */

/*
 * Of one shape, for any number of answers: each has its own shape_at, begun by
 * shape_begin.  With `eos` a token of those that end a generation is drawn
 * behind a whole answer, unless there are none.  One thread at a time.
 */
struct guide;
struct guide *guide_new(const struct words *w, const struct shape *s,
			int eos);
void guide_free(struct guide *g);		/* NULL is fine */

/* Finds out which tokens may come next, so that guide_mask knows; where memory
 * is short that one will say so. */
void guide_ready(struct guide *g, const struct shape_at *at);

/* Lowers the logits of `vocab` tokens that may not come next.  -1 without
 * memory, or when none may. */
int guide_mask(struct guide *g, const struct shape_at *at, float *logits,
	       int vocab, struct err *e);

/* A token was drawn: 1 when the answer ends with it, other than by a token
 * that says so. */
int guide_take(const struct guide *g, struct shape_at *at, int32_t id);

#endif
