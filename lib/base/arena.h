/* SPDX-License-Identifier: Apache-2.0
 *
 * One arena per record: allocate freely, release everything at once.
 */
#ifndef CA_BASE_ARENA_H
#define CA_BASE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
	struct arena_block *head;
	size_t used;		/* bytes handed out since the last reset */
	size_t cap;		/* limit on `used`; 0 means 1 GiB */
};

#define ARENA_INIT { NULL, 0, 0 }

/* Zeroed memory of n * size bytes, 16-byte aligned; NULL when the product
 * overflows, the cap is reached or memory is short. */
void *arena_alloc(struct arena *a, size_t n, size_t size);

/* A NUL-terminated copy of len bytes; NULL as above. */
char *arena_strndup(struct arena *a, const char *s, size_t len);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Forgets all allocations and keeps one block (unless it is over 1 MiB);
 * release frees that too. */
void arena_reset(struct arena *a);
void arena_release(struct arena *a);

#endif
