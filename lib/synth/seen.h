/* SPDX-License-Identifier: Apache-2.0
 *
 * Which texts have been seen, and under which name first.
 */
#ifndef CA_SYNTH_SEEN_H
#define CA_SYNTH_SEEN_H

#include <stddef.h>
#include <stdint.h>

struct seen_entry {
	uint8_t digest[16];
	char *name;		/* NULL: empty */
};

struct seen {
	struct seen_entry *slot;
	size_t n, slots;
};

#define SEEN_INIT { NULL, 0, 0 }

void seen_release(struct seen *s);
/* The name under which the text was added; NULL: it was not. */
const char *seen_find(const struct seen *s, const void *text, size_t len);
/* Adds a text (one that is known keeps its name); -1 when memory is short. */
int seen_add(struct seen *s, const void *text, size_t len, const char *name);

#endif
