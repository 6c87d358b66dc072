/* SPDX-License-Identifier: Apache-2.0
 *
 * Special tokens' texts inside messages.  A chat template makes one text of
 * its own markers and of what people and tools said; who said "<|im_end|>"
 * must not have ended the turn.  So such texts are hidden behind characters
 * for private use before the template runs, and revealed in its result with
 * where they are.
 */
#ifndef CA_NN_MARKS_H
#define CA_NN_MARKS_H

#include "base/str.h"
#include "nn/tok.h"
#include "rec/json.h"

struct marks;

/* For the special tokens of a tokenizer; NULL: no memory. */
struct marks *marks_new(const struct tok *t);
void marks_free(struct marks *m);	/* NULL is fine */

/* Writes a text, or a JSON value with all its texts and keys, with special
 * tokens hidden. */
void marks_hide(const struct marks *m, const char *text, struct jw *w);
void marks_hide_value(const struct marks *m, const struct json *j,
		      struct jw *w);

/* Where hidden texts are, once revealed. */
struct marks_spans {
	struct tok_span *span;
	size_t n, alloc;
};
#define MARKS_SPANS_INIT { NULL, 0, 0 }
void marks_spans_release(struct marks_spans *s);

/* Appends `text` with what was hidden as it was before, and adds where that
 * now is in `out`.  0, or -1: no memory. */
int marks_reveal(const struct marks *m, const char *text, size_t len,
		 struct str *out, struct marks_spans *spans);

#endif
