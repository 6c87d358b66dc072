/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of digests.
 */
#include "synth/seen.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

void seen_release(struct seen *s)
{
	for (size_t i = 0; i < s->slots; i++)
		free(s->slot[i].name);
	free(s->slot);
	*s = (struct seen)SEEN_INIT;
}

/* The slot that holds the digest, or the empty one where it belongs. */
static struct seen_entry *place(const struct seen *s, const uint8_t *digest)
{
	uint64_t at;

	memcpy(&at, digest, sizeof(at));
	for (;; at++) {
		struct seen_entry *e = &s->slot[at & (s->slots - 1)];

		if (!e->name || !memcmp(e->digest, digest, sizeof(e->digest)))
			return e;
	}
}

static int enlarge(struct seen *s)
{
	struct seen_entry *old = s->slot;
	size_t was = s->slots, slots = was ? was * 2 : 256;
	struct seen_entry *slot = calloc(slots, sizeof(*slot));

	if (!slot)
		return -1;
	s->slot = slot;
	s->slots = slots;
	for (size_t i = 0; i < was; i++)
		if (old[i].name)
			*place(s, old[i].digest) = old[i];
	free(old);
	return 0;
}

const char *seen_find(const struct seen *s, const void *text, size_t len)
{
	uint8_t digest[HASH_LEN];

	if (!s->n)
		return NULL;
	sha256(text, len, digest);
	return place(s, digest)->name;
}

int seen_add(struct seen *s, const void *text, size_t len, const char *name)
{
	uint8_t digest[HASH_LEN];
	struct seen_entry *e;

	if (s->n * 2 >= s->slots && enlarge(s))
		return -1;
	sha256(text, len, digest);
	e = place(s, digest);
	if (e->name)
		return 0;
	e->name = strdup(name);
	if (!e->name)
		return -1;
	memcpy(e->digest, digest, sizeof(e->digest));
	s->n++;
	return 0;
}
