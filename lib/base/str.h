/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing byte string with a cap.  A write that fails sets `failed` and the
 * rest are ignored, so that only the end has to be checked.
 */
#ifndef CA_BASE_STR_H
#define CA_BASE_STR_H

#include <stddef.h>

#include "base/err.h"

struct str {
	char *buf;		/* NUL-terminated when not NULL */
	size_t len;
	size_t alloc;
	size_t cap;		/* limit on len; 0 means 256 MiB */
	int failed;
};

#define STR_INIT { NULL, 0, 0, 0, 0 }

void str_release(struct str *s);	/* frees; s is as STR_INIT (cap kept) */
void str_reset(struct str *s);		/* empties, keeps the buffer */
int str_add(struct str *s, const void *p, size_t len);	/* 0 or -1 */
int str_reserve(struct str *s, size_t len);	/* room for so much more */
int str_adds(struct str *s, const char *text);
int str_addc(struct str *s, char c);
int str_addf(struct str *s, const char *fmt, ...) CA_PRINTF(2, 3);
char *str_detach(struct str *s); /* malloc'd, caller's; NULL if failed */

/* Whether NUL-terminated `s` begins or ends with `t`. */
int starts_with(const char *s, const char *t);
int ends_with(const char *s, const char *t);

/*
 * Appends text of a child that is shown to people or put in a record: bytes
 * that are not valid UTF-8, what turns the direction of text and control
 * characters other than LF and tab become \xNN.
 */
int str_add_safe(struct str *s, const char *p, size_t len);
/* The same of what has to stay on its line: LF and tab too. */
int str_add_name(struct str *s, const char *name);

#endif
