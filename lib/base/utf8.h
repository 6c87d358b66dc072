/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, at most
 * U+10FFFF.
 */
#ifndef CA_BASE_UTF8_H
#define CA_BASE_UTF8_H

#include <stddef.h>

/* Length of the character at p (at most len bytes are there); 0 when they do
 * not begin with a whole valid one. */
size_t utf8_len(const char *p, size_t len);

/* The first byte of a text, from 1, that is NUL or no valid UTF-8, and its
 * line; 0 where all is text. */
size_t utf8_bad(const char *p, size_t len, size_t *line);

/* Length of the mark (U+FEFF) that some editors put in front: 3, or 0. */
size_t utf8_mark(const char *p, size_t len);

/* How many of the bytes are left without a character that has begun at their
 * end but is not whole. */
size_t utf8_whole(const char *p, size_t len);

/* Writes code point cp (at most U+10FFFF) to out; returns its length. */
size_t utf8_put(unsigned long cp, char out[4]);

#endif
