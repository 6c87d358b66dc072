/* SPDX-License-Identifier: Apache-2.0
 *
 * Replacing text in a text: the heart of Edit and MultiEdit.
 */
#ifndef CA_AGENT_EDIT_H
#define CA_AGENT_EDIT_H

#include "base/err.h"
#include "base/str.h"

/*
 * Replaces `old` by `new` in text, once or everywhere (`all`), into out.  In
 * a text whose lines all end in CRLF an LF in `old` matches CRLF, and the
 * replacement is written with CRLF; nothing else is ever normalised.  Returns
 * the number of replacements; -1 with `e`, worded for the model: not found
 * (with the nearest lines), found more than once (with where), old empty, or
 * both equal.
 */
int edit_text(const char *text, size_t len, const char *old, const char *new_,
	      int all, struct str *out, struct err *e);

#endif
