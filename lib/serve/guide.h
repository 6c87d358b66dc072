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

/* One answer on its way.  One thread at a time. */
struct guide;
struct guide *guide_new(const struct words *w, const struct shape *s);
void guide_free(struct guide *g);		/* NULL is fine */

/* Lowers the logits of `vocab` tokens that may not come next.  One that ends
 * a generation may where the text may end; and where nothing else may. */
void guide_mask(struct guide *g, float *logits, int vocab);

/* A token was drawn: 1 when nothing but the end may follow. */
int guide_take(struct guide *g, int32_t id);

#endif
