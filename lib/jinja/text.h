/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts as Python has them: white space of Unicode, characters instead of
 * bytes, numbers in its spelling.
 */
#ifndef CA_JINJA_TEXT_H
#define CA_JINJA_TEXT_H

#include <stddef.h>

#include "base/str.h"

/* Bytes of white space at the beginning of a text, as str.isspace has it. */
size_t text_spaces(const char *p, size_t len);

/* How long a text is without the white space at its end. */
size_t text_rstrip(const char *p, size_t len);

/* The same for the characters of `set`, which may be any. */
size_t text_skip_set(const char *p, size_t len, const char *set,
		     size_t nset);
size_t text_rstrip_set(const char *p, size_t len, const char *set,
		       size_t nset);

/* How many characters valid UTF-8 has. */
size_t text_chars(const char *p, size_t len);

int text_ascii(const char *p, size_t len);

/* A finite number as repr(float) spells it. */
void text_float(double v, struct str *out);

/* A text as json.dumps(ensure_ascii=False) spells it. */
void text_json(const char *p, size_t len, struct str *out);

#endif
