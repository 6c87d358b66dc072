/* SPDX-License-Identifier: Apache-2.0
 *
 * A page is known by its own tokens and by which page is before it: that one's
 * number in the order of publishing, which nobody has twice.  Hashes, chained
 * from page to page, only say where to look, so a collision shares nothing.
 * Free pages queue, the longest unused in front.
 */
#include "nn/pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/rand.h"

#define AHEAD 8			/* pages that are looked for at once */

struct page {
	int32_t token[GPU_PAGE];
	uint64_t hash;			/* chain up to here; 0: not published */
	uint64_t born;			/* the how-many-th that was published */
	uint64_t parent;		/* `born` of the page before; 0: none */
	int holders;
	int32_t before, after;		/* in the queue of free ones; -1 */
	int32_t chain;			/* next in its bucket; -1 */
};

struct pages {
	struct page *page;
	int n, avail;
	int32_t head, tail;		/* of the queue */
	int32_t *bucket;
	uint32_t mask;
	uint64_t born;			/* pages published so far */
	uint64_t salt;			/* so that nobody can fill a bucket */
};

static void queue(struct pages *p, int32_t i)
{
	p->page[i].before = p->tail;
	p->page[i].after = -1;
	if (p->tail >= 0)
		p->page[p->tail].after = i;
	else
		p->head = i;
	p->tail = i;
	p->avail++;
}

static void unqueue(struct pages *p, int32_t i)
{
	struct page *x = &p->page[i];

	if (x->before >= 0)
		p->page[x->before].after = x->after;
	else
		p->head = x->after;
	if (x->after >= 0)
		p->page[x->after].before = x->before;
	else
		p->tail = x->before;
	p->avail--;
}

struct pages *pages_new(int n)
{
	struct pages *p = calloc(1, sizeof *p);
	uint32_t buckets = 16;
	struct rng own;

	while (buckets < (uint32_t)n)
		buckets *= 2;
	if (!p)
		return NULL;
	p->page = calloc((size_t)n, sizeof *p->page);
	p->bucket = malloc(buckets * sizeof *p->bucket);
	if (!p->page || !p->bucket) {
		pages_free(p);
		return NULL;
	}
	rng_fresh(&own);
	p->salt = rng_u64(&own);
	p->n = n;
	p->mask = buckets - 1;
	p->head = p->tail = -1;
	memset(p->bucket, 0xff, buckets * sizeof *p->bucket);
	for (int i = 0; i < n; i++)
		queue(p, i);
	return p;
}

void pages_free(struct pages *p)
{
	if (!p)
		return;
	free(p->page);
	free(p->bucket);
	free(p);
}

int pages_avail(const struct pages *p)
{
	return p->avail;
}

static uint64_t chain_hash(const struct pages *p, uint64_t chain,
			   const int32_t *token)
{
	const uint64_t k = 0xd6e8feb86659fd93u;
	uint64_t word[GPU_PAGE / 2], own = p->salt, h;

	/* That of the tokens does not wait for what is before them. */
	memcpy(word, token, sizeof word);
	for (int i = 0; i < GPU_PAGE / 2; i += 2) {
		h = (word[i] ^ p->salt) * k;
		h = (h ^ h >> 32 ^ word[i + 1]) * k;
		own = (own << 7 | own >> 57) ^ h ^ h >> 32;
	}
	h = (chain ^ own) * k;
	h ^= h >> 32;
	return h ? h : 1;
}

/* The page of these tokens behind `parent`, whose chain is h. */
static int32_t find(const struct pages *p, uint64_t parent, uint64_t h,
		    const int32_t *token)
{
	int32_t i = p->bucket[h & p->mask];

	while (i >= 0 && (p->page[i].hash != h ||
			  p->page[i].parent != parent ||
			  memcmp(p->page[i].token, token,
				 sizeof p->page[i].token)))
		i = p->page[i].chain;
	return i;
}

static void prefetch_page(const struct pages *p, uint64_t h)
{
	int32_t i = p->bucket[h & p->mask];

	if (i < 0)
		return;
	__builtin_prefetch(&p->page[i]);
	__builtin_prefetch(&p->page[i].chain);
}

static void unpublish(struct pages *p, int32_t i)
{
	struct page *x = &p->page[i];
	int32_t *at = &p->bucket[x->hash & p->mask];

	if (!x->hash)
		return;
	while (*at != i)
		at = &p->page[*at].chain;
	*at = x->chain;
	x->hash = 0;
}

int pages_more(struct pages *p, int n, int32_t *table)
{
	if (n > p->avail)
		return -1;
	for (int k = 0; k < n; k++) {
		table[k] = p->head;
		unqueue(p, table[k]);
		unpublish(p, table[k]);
		p->page[table[k]].holders = 1;
	}
	return 0;
}

/* Finds the leading whole pages of a prompt, at most n of them.  A look-up
 * waits for memory, so the next ones are under way meanwhile. */
static void find_pages(const struct pages *p, const int32_t *prompt, int n,
		       int32_t *table, struct pages_at *at)
{
	uint64_t chain[AHEAD], last = 0;
	int hashed = 0;
	int32_t i;

	*at = (struct pages_at)PAGES_AT_INIT;
	for (; at->n < n; table[at->n++] = i) {
		for (; hashed < n && hashed < at->n + AHEAD; hashed++) {
			last = chain_hash(p, last,
					  prompt + hashed * GPU_PAGE);
			chain[hashed % AHEAD] = last;
			__builtin_prefetch(&p->bucket[last & p->mask]);
		}
		if (at->n + AHEAD / 2 < n)
			prefetch_page(p, chain[(at->n + AHEAD / 2) % AHEAD]);
		i = find(p, at->born, chain[at->n % AHEAD],
			 prompt + at->n * GPU_PAGE);
		if (i < 0)
			break;
		at->chain = chain[at->n % AHEAD];
		at->born = p->page[i].born;
	}
}

int pages_take(struct pages *p, const int32_t *prompt, int nprompt,
	       int tokens, int32_t *table, struct pages_at *at)
{
	int want = pages_for(tokens), idle = 0, shared;

	/* The last token has to be computed: its logits are wanted. */
	find_pages(p, prompt, nprompt > 0 ? (nprompt - 1) / GPU_PAGE : 0,
		   table, at);
	shared = at->n;
	for (int k = 0; k < shared; k++)
		idle += p->page[table[k]].holders == 0;
	if (want - shared > p->avail - idle)
		return -1;
	for (int k = 0; k < shared; k++)
		if (p->page[table[k]].holders++ == 0)
			unqueue(p, table[k]);
	pages_more(p, want - shared, table + shared);
	return shared * GPU_PAGE;
}

static void publish(struct pages *p, int32_t i, uint64_t parent,
		    uint64_t hash, const int32_t *token)
{
	struct page *x = &p->page[i];
	int32_t *bucket = &p->bucket[hash & p->mask];

	memcpy(x->token, token, sizeof x->token);
	x->parent = parent;
	x->born = ++p->born;
	x->hash = hash;
	x->chain = *bucket;
	*bucket = i;
}

void pages_publish(struct pages *p, const int32_t *token, int done,
		   const int32_t *table, struct pages_at *at)
{
	for (; (at->n + 1) * GPU_PAGE <= done; at->n++) {
		const int32_t *own = token + at->n * GPU_PAGE;
		uint64_t hash = chain_hash(p, at->chain, own);
		int32_t i = table[at->n];
		int32_t same = p->page[i].hash ? i :
			       find(p, at->born, hash, own);

		/* Where another has the same page nobody looks this up, but
		 * what follows it can still be found, behind that one. */
		if (same < 0) {
			publish(p, i, at->born, hash, own);
			same = i;
		}
		at->chain = hash;
		at->born = p->page[same].born;
	}
}

void pages_drop(struct pages *p, const int32_t *table, int tokens)
{
	/* The end of a sequence is of use to fewer than its beginning. */
	for (int k = pages_for(tokens) - 1; k >= 0; k--)
		if (--p->page[table[k]].holders == 0)
			queue(p, table[k]);
}

void pages_forget(struct pages *p)
{
	for (int i = 0; i < p->n; i++)
		unpublish(p, i);
}
