/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates without Python: the part of Jinja that those of our families
 * of models are written in, with the results that jinja2 has in the
 * environment that transformers makes for it.  Whatever is not known to come
 * out the same is not computed at all, which is said, so that the caller can
 * ask jinja2 itself.
 */
#ifndef CA_JINJA_JINJA_H
#define CA_JINJA_JINJA_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "rec/json.h"

struct jinja;				/* a template that was read */

/* Reads a template of valid UTF-8.  NULL with CA_CONFIG, and the line, when it
 * holds what is not understood here. */
struct jinja *jinja_parse(const char *text, size_t len, struct err *e);
void jinja_free(struct jinja *j);	/* NULL is fine */

/* What a template can name. */
struct jinja_vars {
	const struct json *messages;	/* an array */
	size_t n;			/* of which the first so many count */
	const struct json *tools;	/* NULL: none */
	int open;			/* add_generation_prompt */
	const char *bos, *eos;		/* texts of these tokens */
};

enum jinja_end {
	JINJA_TEXT,			/* `out` has the text */
	JINJA_REFUSED,			/* by the template, in its own words */
	JINJA_UNKNOWN,			/* not computed here, or it fails */
};

/* Appends the text to `out`, or says in `e` why there is none, with `out` as
 * it was.  Thread safe. */
enum jinja_end jinja_render(const struct jinja *j, const struct jinja_vars *v,
			    struct str *out, struct err *e);

#endif
