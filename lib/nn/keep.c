/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/keep.h"

#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "base/sum.h"

#define BUCKETS 4096

struct entry {
	struct entry *next;			/* in its bucket */
	struct entry *older, *newer;
	uint64_t sum;				/* of its key */
	size_t n, len;
	int tag;
	int32_t id[];				/* n, then the key */
};

struct keep {
	size_t most, bytes;
	uint64_t seed;				/* of sums: nobody knows it */
	struct entry *oldest, *newest;
	struct entry *bucket[BUCKETS];
};

struct keep *keep_new(size_t most)
{
	struct keep *k = calloc(1, sizeof *k);
	struct rng r;

	if (!k)
		return NULL;
	rng_fresh(&r);
	k->seed = rng_u64(&r);
	k->most = most;
	return k;
}

static uint64_t sum_of(const struct keep *k, const void *key, size_t len)
{
	struct sum s;

	sum_begin(&s, k->seed);
	sum_add(&s, key, len);
	return sum_end(&s);
}

static size_t size_of(size_t n, size_t len)
{
	return sizeof(struct entry) + n * sizeof(int32_t) + len;
}

/* Where the entry hangs; what hangs there is NULL when there is none. */
static struct entry **find(struct keep *k, const void *key, size_t len,
			   uint64_t sum)
{
	struct entry **x = &k->bucket[sum % BUCKETS];

	while (*x && ((*x)->sum != sum || (*x)->len != len ||
		      memcmp((*x)->id + (*x)->n, key, len)))
		x = &(*x)->next;
	return x;
}

static void unlink_age(struct keep *k, struct entry *x)
{
	*(x->older ? &x->older->newer : &k->oldest) = x->newer;
	*(x->newer ? &x->newer->older : &k->newest) = x->older;
}

static void link_newest(struct keep *k, struct entry *x)
{
	x->newer = NULL;
	x->older = k->newest;
	*(k->newest ? &k->newest->newer : &k->oldest) = x;
	k->newest = x;
}

static void forget(struct keep *k, struct entry *x)
{
	struct entry **at = &k->bucket[x->sum % BUCKETS];

	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	unlink_age(k, x);
	k->bytes -= size_of(x->n, x->len);
	free(x);
}

void keep_free(struct keep *k)
{
	while (k && k->oldest)
		forget(k, k->oldest);
	free(k);
}

int keep_get(struct keep *k, const void *key, size_t len, struct tok_ids *out,
	     int *tag)
{
	struct entry *x = *find(k, key, len, sum_of(k, key, len));

	if (!x)
		return 0;
	unlink_age(k, x);
	link_newest(k, x);
	if (tag)
		*tag = x->tag;
	return tok_ids_join(out, x->id, x->n) ? -1 : 1;
}

void keep_put(struct keep *k, const void *key, size_t len,
	      const int32_t *id, size_t n, int tag)
{
	size_t size = size_of(n, len);
	uint64_t sum = sum_of(k, key, len);
	struct entry **at = find(k, key, len, sum), *x;

	if (*at)
		forget(k, *at);
	if (size > k->most)
		return;
	while (k->bytes + size > k->most)
		forget(k, k->oldest);
	x = malloc(size);
	if (!x)
		return;
	*x = (struct entry){ .sum = sum, .n = n, .len = len, .tag = tag };
	if (n)
		memcpy(x->id, id, n * sizeof x->id[0]);
	memcpy(x->id + x->n, key, len);
	at = &k->bucket[sum % BUCKETS];
	x->next = *at;
	*at = x;
	link_newest(k, x);
	k->bytes += size;
}
