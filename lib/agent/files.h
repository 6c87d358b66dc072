/* SPDX-License-Identifier: Apache-2.0
 *
 * The tools that read and change files of the work directory.  Arguments have
 * passed tool_check.  Each appends its answer to out and returns 1, or 0 when
 * that answer is an error.
 */
#ifndef CA_AGENT_FILES_H
#define CA_AGENT_FILES_H

#include "agent/place.h"
#include "rec/json.h"

#define EDIT_MAX ((size_t)8 << 20)	/* bytes of a file that is edited */

int files_read(const struct place *p, const struct json *args,
	       struct str *out);
int files_write(const struct place *p, const struct json *args,
		struct str *out);
int files_edit(const struct place *p, const struct json *args,
	       struct str *out);
int files_multi_edit(const struct place *p, const struct json *args,
		     struct str *out);

/* Appends text from a file or command: what is no UTF-8 becomes U+FFFD, and
 * so do control characters other than tab, LF and CR. */
void text_add(struct str *out, const char *p, size_t len);

/* The largest n <= len that does not end inside a character. */
size_t text_cut(const char *p, size_t len);

#endif
