/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens: texts that are cut out before anything else happens, the
 * leftmost first, the longest of those that begin there.
 */
#ifndef CA_NN_ADDED_H
#define CA_NN_ADDED_H

#include <stddef.h>
#include <stdint.h>

struct added_token {
	const char *p;			/* outlives the set */
	size_t len;
	int32_t id;
	int special, normalized, single_word, lstrip, rstrip;
};

struct added;				/* a set */

struct added *added_new(void);		/* NULL: no memory */
void added_free(struct added *a);

/* Adds a token of at least one byte; the last of equal texts counts.  -1: no
 * memory. */
int added_add(struct added *a, const struct added_token *t);

struct added_hit {
	size_t from, to;		/* with what lstrip and rstrip take */
	const struct added_token *token;
};

/* The first token in p[at, len); special ones only without `plain`, and
 * white space is only taken from `at` on.  0 when there is none. */
int added_find(const struct added *a, const char *p, size_t len, size_t at,
	       int plain, struct added_hit *hit);

#endif
