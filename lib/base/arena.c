/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of blocks, filled from the front one.
 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_MIN ((size_t)64 << 10)
#define CAP_DEFAULT ((size_t)1 << 30)
#define ALIGN ((size_t)16)

struct arena_block {
	struct arena_block *next;
	size_t size;		/* of data */
	size_t used;
	_Alignas(16) char data[];
};

static struct arena_block *block_new(size_t size)
{
	struct arena_block *b = malloc(sizeof *b + size);

	if (b) {
		b->next = NULL;
		b->size = size;
		b->used = 0;
	}
	return b;
}

/* size bytes, not zeroed, size already rounded up. */
static void *take(struct arena *a, size_t size)
{
	size_t cap = a->cap ? a->cap : CAP_DEFAULT;
	struct arena_block *b = a->head;
	void *p;

	if (size > cap || a->used > cap - size)
		return NULL;
	if (!b || b->size - b->used < size) {
		b = block_new(size > BLOCK_MIN ? size : BLOCK_MIN);
		if (!b)
			return NULL;
		b->next = a->head;
		a->head = b;
	}
	p = b->data + b->used;
	b->used += size;
	a->used += size;
	return p;
}

static void *take_bytes(struct arena *a, size_t len)
{
	if (len > SIZE_MAX - ALIGN)
		return NULL;
	return take(a, len ? (len + ALIGN - 1) & ~(ALIGN - 1) : ALIGN);
}

void *arena_alloc(struct arena *a, size_t n, size_t size)
{
	void *p;

	if (size && n > SIZE_MAX / size)
		return NULL;
	p = take_bytes(a, n * size);
	if (p)
		memset(p, 0, n * size);
	return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
	char *p = len < SIZE_MAX ? take_bytes(a, len + 1) : NULL;

	if (p) {
		memcpy(p, s, len);
		p[len] = '\0';
	}
	return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return NULL;
	p = take_bytes(a, (size_t)n + 1);
	if (!p)
		return NULL;
	va_start(ap, fmt);
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return p;
}

void arena_reset(struct arena *a)
{
	struct arena_block *keep = a->head, *b;

	a->used = 0;
	if (!keep)
		return;
	while ((b = keep->next)) {
		keep->next = b->next;
		free(b);
	}
	keep->used = 0;
	/* One huge record must not hold its memory for the rest of a stream. */
	if (keep->size > 16 * BLOCK_MIN) {
		free(keep);
		a->head = NULL;
	}
}

void arena_release(struct arena *a)
{
	struct arena_block *b;

	while ((b = a->head)) {
		a->head = b->next;
		free(b);
	}
	a->used = 0;
}
