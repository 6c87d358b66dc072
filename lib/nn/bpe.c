/* SPDX-License-Identifier: Apache-2.0
 *
 * The pair of lowest rank is merged first, the leftmost of equals, until no
 * pair has a rank.  A heap finds it, so that a piece of a megabyte (a line of
 * base64) takes n log n.
 */
#include "nn/bpe.h"

#include <stdlib.h>
#include <string.h>

#define CACHE_SLOTS 16384
#define CACHE_BYTES 24
#define CACHE_IDS   8

struct token {
	const char *p;
	size_t len;
	int32_t id;			/* -1: empty slot */
};

struct pair {
	uint64_t key;			/* left << 32 | right; ~0: empty */
	int32_t rank, id;
};

struct cached {
	uint8_t len, n;			/* len 0: empty */
	char bytes[CACHE_BYTES];
	int32_t id[CACHE_IDS];
};

struct symbol {
	int32_t id;			/* -1: merged into its left one */
	int32_t prev, next;		/* -1: none */
};

struct todo {				/* in the heap */
	int32_t rank, at, id;
};

struct bpe {
	struct token *token;
	size_t token_mask;
	struct pair *pair;
	size_t pair_mask;
	int32_t ranks;
	int ignore_merges;
	int32_t byte_id[256];
	struct cached *cache;
	struct symbol *sym;		/* work space */
	struct todo *heap;
	size_t room, heaped;
};

static size_t slots_for(size_t n)
{
	size_t slots = 16;

	while (slots < 2 * n)
		slots *= 2;
	return slots;
}

static uint64_t hash_bytes(const char *p, size_t len)
{
	uint64_t h = 0xcbf29ce484222325u ^ len;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
	return h ^ h >> 29;
}

static uint64_t hash_key(uint64_t k)
{
	k *= 0x9e3779b97f4a7c15u;
	return k ^ k >> 32;
}

struct bpe *bpe_new(size_t tokens, size_t merges)
{
	struct bpe *b = calloc(1, sizeof *b);
	size_t nt = slots_for(tokens), np = slots_for(merges);

	if (!b)
		return NULL;
	b->token = malloc(nt * sizeof *b->token);
	b->pair = malloc(np * sizeof *b->pair);
	b->cache = calloc(CACHE_SLOTS, sizeof *b->cache);
	if (!b->token || !b->pair || !b->cache) {
		bpe_free(b);
		return NULL;
	}
	b->token_mask = nt - 1;
	b->pair_mask = np - 1;
	for (size_t i = 0; i < nt; i++)
		b->token[i].id = -1;
	memset(b->pair, 0xff, np * sizeof *b->pair);
	memset(b->byte_id, 0xff, sizeof b->byte_id);
	return b;
}

void bpe_free(struct bpe *b)
{
	if (!b)
		return;
	free(b->token);
	free(b->pair);
	free(b->cache);
	free(b->sym);
	free(b->heap);
	free(b);
}

/* The slot that holds these bytes, or the empty one where they belong. */
static struct token *token_slot(const struct bpe *b, const char *p,
				size_t len)
{
	size_t i = hash_bytes(p, len) & b->token_mask;

	while (b->token[i].id >= 0 &&
	       (b->token[i].len != len || memcmp(b->token[i].p, p, len)))
		i = (i + 1) & b->token_mask;
	return &b->token[i];
}

int bpe_token(struct bpe *b, const char *p, size_t len, int32_t id)
{
	struct token *t = token_slot(b, p, len);

	if (t->id >= 0)
		return -1;
	*t = (struct token){ p, len, id };
	if (len == 1)
		b->byte_id[(unsigned char)*p] = id;
	return 0;
}

int32_t bpe_find(const struct bpe *b, const char *p, size_t len)
{
	return token_slot(b, p, len)->id;
}

static struct pair *pair_slot(const struct bpe *b, int32_t left,
			      int32_t right)
{
	uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	size_t i = hash_key(key) & b->pair_mask;

	while (b->pair[i].key != key && b->pair[i].key != UINT64_MAX)
		i = (i + 1) & b->pair_mask;
	return &b->pair[i];
}

void bpe_merge(struct bpe *b, int32_t left, int32_t right, int32_t id)
{
	struct pair *p = pair_slot(b, left, right);

	p->key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	p->rank = b->ranks++;
	p->id = id;
}

void bpe_ignore_merges(struct bpe *b, int on)
{
	b->ignore_merges = on;
}

static int before(const struct todo *x, const struct todo *y)
{
	return x->rank != y->rank ? x->rank < y->rank : x->at < y->at;
}

static void push(struct bpe *b, struct todo t)
{
	size_t i = b->heaped++, up;

	for (; i > 0; i = up) {
		up = (i - 1) / 2;
		if (!before(&t, &b->heap[up]))
			break;
		b->heap[i] = b->heap[up];
	}
	b->heap[i] = t;
}

static struct todo pop(struct bpe *b)
{
	struct todo top = b->heap[0], last = b->heap[--b->heaped];
	size_t i = 0, k;

	while ((k = 2 * i + 1) < b->heaped) {
		if (k + 1 < b->heaped && before(&b->heap[k + 1], &b->heap[k]))
			k++;
		if (!before(&b->heap[k], &last))
			break;
		b->heap[i] = b->heap[k];
		i = k;
	}
	b->heap[i] = last;
	return top;
}

/* Queues the pair that begins at symbol `at`, if it has a rank. */
static void consider(struct bpe *b, int32_t at)
{
	const struct symbol *s = &b->sym[at];
	const struct pair *p;

	if (s->next < 0)
		return;
	p = pair_slot(b, s->id, b->sym[s->next].id);
	if (p->key != UINT64_MAX)
		push(b, (struct todo){ p->rank, at, p->id });
}

static int make_room(struct bpe *b, size_t n)
{
	struct symbol *sym;
	struct todo *heap;

	if (n <= b->room)
		return 0;
	if (n > INT32_MAX / 4)
		return -1;
	n += n / 2 + 64;
	sym = realloc(b->sym, n * sizeof *sym);
	if (sym)
		b->sym = sym;
	/* Every merge takes a pair off and brings at most two. */
	heap = realloc(b->heap, 3 * n * sizeof *heap);
	if (heap)
		b->heap = heap;
	if (!sym || !heap)
		return -1;
	b->room = n;
	return 0;
}

/* The bytes as symbols, linked; returns how many. */
static int32_t spread(struct bpe *b, const char *p, size_t len)
{
	int32_t n = 0, id;

	for (size_t i = 0; i < len; i++) {
		id = b->byte_id[(unsigned char)p[i]];
		if (id < 0)
			continue;
		b->sym[n] = (struct symbol){ id, n - 1, n + 1 };
		n++;
	}
	if (n)
		b->sym[n - 1].next = -1;
	return n;
}

static void merge_all(struct bpe *b, int32_t n)
{
	b->heaped = 0;
	for (int32_t i = 0; i < n; i++)
		consider(b, i);
	while (b->heaped) {
		struct todo t = pop(b);
		struct symbol *s = &b->sym[t.at], *r;
		const struct pair *p;

		if (s->id < 0 || s->next < 0)
			continue;
		r = &b->sym[s->next];
		p = pair_slot(b, s->id, r->id);
		/* Queued before one of the two changed. */
		if (p->key == UINT64_MAX || p->id != t.id)
			continue;
		s->id = t.id;
		r->id = -1;
		s->next = r->next;
		if (s->next >= 0)
			b->sym[s->next].prev = t.at;
		if (s->prev >= 0)
			consider(b, s->prev);
		consider(b, t.at);
	}
}

static int merge_piece(struct bpe *b, const char *p, size_t len,
		       struct tok_ids *out)
{
	int32_t n, whole;

	whole = b->ignore_merges ? bpe_find(b, p, len) : -1;
	if (whole >= 0)
		return tok_ids_add(out, whole);
	if (make_room(b, len))
		return -1;
	n = spread(b, p, len);
	merge_all(b, n);
	for (int32_t i = n ? 0 : -1; i >= 0; i = b->sym[i].next)
		if (tok_ids_add(out, b->sym[i].id))
			return -1;
	return 0;
}

int bpe_encode(struct bpe *b, const char *p, size_t len, struct tok_ids *out)
{
	struct cached *c;
	size_t was = out->n;

	if (len > CACHE_BYTES || !len)
		return len ? merge_piece(b, p, len, out) : 0;
	c = &b->cache[hash_bytes(p, len) % CACHE_SLOTS];
	if (c->len == len && !memcmp(c->bytes, p, len)) {
		for (int i = 0; i < c->n; i++)
			if (tok_ids_add(out, c->id[i]))
				return -1;
		return 0;
	}
	if (merge_piece(b, p, len, out))
		return -1;
	if (out->n > was && out->n - was <= CACHE_IDS) {
		c->len = (uint8_t)len;
		c->n = (uint8_t)(out->n - was);
		memcpy(c->bytes, p, len);
		memcpy(c->id, out->id + was, c->n * sizeof *c->id);
	}
	return 0;
}
