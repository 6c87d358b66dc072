/* SPDX-License-Identifier: Apache-2.0
 *
 * Glob and Grep: ripgrep over the work directory.  As in files.h, 1 or 0.
 */
#ifndef CA_AGENT_SEARCH_H
#define CA_AGENT_SEARCH_H

#include "agent/place.h"
#include "rec/json.h"

int search_glob(const struct place *p, const struct json *args,
		struct str *out);
int search_grep(const struct place *p, const struct json *args,
		struct str *out);

/* Appends the lines of text that match a regular expression (ripgrep's);
 * -1 with `e` when it is none. */
int search_filter(const char *regex, const char *text, size_t len,
		  struct str *out, struct err *e);

#endif
