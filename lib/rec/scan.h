/* SPDX-License-Identifier: Apache-2.0
 *
 * The strict scanner behind the JSON wall, and the spans of the members of
 * a top-level object, which let a record be changed without printing it anew.
 */
#ifndef CA_REC_SCAN_H
#define CA_REC_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* cJSON reads no longer number than this. */
#define SCAN_NUMBER_MAX 63

/* Offsets into the text; the key is unescaped, in the arena or the text. */
struct scan_member {
	const char *key;
	size_t keylen;
	size_t start;		/* of the key's opening quote */
	size_t value, end;	/* of the value */
};

/* The array under `ids_key`, if it is set and holds nothing but integers below
 * 10^9 in plain digits, is read too: `ids`, which is the caller's to free, or
 * NULL. */
struct scan_top {
	struct scan_member *member;
	size_t n, alloc;
	const char *ids_key;
	int32_t *ids;
	size_t nids;
};

/*
 * Checks that text is exactly one JSON value.  With `top` it must be an
 * object, whose members are appended there, in memory of `arena`.  On failure
 * *at is the byte, counted from 1, and `e` says what is wrong there, without
 * the number.
 */
int scan_json(const char *text, size_t len, struct scan_top *top,
	      struct arena *arena, size_t *at, struct err *e);

/* Unescapes the inside of a valid string; out holds at least len bytes.
 * Returns the length. */
size_t scan_unescape(const char *p, size_t len, char *out);

/* The end of the value that begins at p, in valid JSON. */
const char *scan_skip(const char *p, const char *end);

/* The first byte from p on that is no white space. */
const char *scan_space(const char *p, const char *end);

/* The member of top with this key, or NULL. */
const struct scan_member *scan_find(const struct scan_top *top,
				    const char *key);

#endif
