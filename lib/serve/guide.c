/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens in the order of their bytes: what several begin with is followed
 * once.  Inside of a string or a number states recur, so the last few are
 * kept with what they allow.
 */
#include "serve/guide.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST 64		/* bytes of a token; longer ones never come */
#define KNOWN   8
#define LOW     (-1e30f)

struct word {
	const char *p;
	int32_t id;
	uint16_t len, same;		/* bytes as the one before */
	int added;
};

struct words {
	struct word *word;
	size_t n;
	struct str text;
	int32_t *eos;
	int32_t *at;			/* of an id among them; or -1 */
	int neos, count;
};

struct known {
	struct shape_at at;
	uint64_t *bits;			/* NULL: not used yet */
};

struct guide {
	const struct words *w;
	const struct shape *s;
	struct shape_at at;
	struct shape_at stack[LONGEST + 1];
	struct known known[KNOWN];
	int next;
};

static int by_bytes(const void *a, const void *b)
{
	const struct word *x = a, *y = b;
	int rc = memcmp(x->p, y->p, x->len < y->len ? x->len : y->len);

	return rc ? rc : (x->len > y->len) - (x->len < y->len);
}

static void find_same(struct words *w)
{
	for (size_t i = 1; i < w->n; i++) {
		const struct word *a = &w->word[i - 1];
		struct word *b = &w->word[i];

		while (b->same < a->len && b->same < b->len &&
		       a->p[b->same] == b->p[b->same])
			b->same++;
	}
}

static int read_words(struct words *w, const struct tok *t)
{
	size_t *from = calloc((size_t)w->count + 1, sizeof *from);

	for (int32_t id = 0; from && id < w->count; id++) {
		from[id] = w->text.len;
		if (!tok_special(t, id))
			tok_decode(t, &id, 1, 0, &w->text);
		from[id + 1] = w->text.len;
	}
	for (int32_t id = 0; from && id < w->count; id++) {
		size_t len = from[id + 1] - from[id];

		if (len && len <= LONGEST)
			w->word[w->n++] = (struct word){
				.p = w->text.buf + from[id], .id = id,
				.len = (uint16_t)len,
				.added = tok_added(t, id) };
	}
	free(from);
	return from && !w->text.failed ? 0 : -1;
}

struct words *words_new(const struct tok *t, const int32_t *eos, int neos)
{
	struct words *w = calloc(1, sizeof *w);

	if (!w)
		return NULL;
	w->count = tok_count(t);
	w->word = calloc((size_t)w->count + 1, sizeof *w->word);
	w->at = calloc((size_t)w->count + 1, sizeof *w->at);
	w->eos = calloc((size_t)neos + 1, sizeof *w->eos);
	if (!w->word || !w->at || !w->eos || read_words(w, t)) {
		words_free(w);
		return NULL;
	}
	memcpy(w->eos, eos, (size_t)neos * sizeof *eos);
	w->neos = neos;
	qsort(w->word, w->n, sizeof *w->word, by_bytes);
	find_same(w);
	for (int32_t id = 0; id < w->count; id++)
		w->at[id] = -1;
	for (size_t i = 0; i < w->n; i++)
		w->at[w->word[i].id] = (int32_t)i;
	return w;
}

void words_free(struct words *w)
{
	if (!w)
		return;
	str_release(&w->text);
	free(w->word);
	free(w->at);
	free(w->eos);
	free(w);
}

struct guide *guide_new(const struct words *w, const struct shape *s)
{
	struct guide *g = calloc(1, sizeof *g);

	if (!g)
		return NULL;
	g->w = w;
	g->s = s;
	shape_begin(s, &g->at);
	return g;
}

void guide_free(struct guide *g)
{
	for (int i = 0; g && i < KNOWN; i++)
		free(g->known[i].bits);
	free(g);
}

static void allow(const struct words *w, uint64_t *bits, int32_t id)
{
	if (id >= 0 && id < w->count)
		bits[id / 64] |= (uint64_t)1 << id % 64;
}

/* Follows all tokens; bytes of the one before that are good are on the stack.
 * Returns how many may come. */
static size_t walk(struct guide *g, uint64_t *bits)
{
	int marks = shape_marks(g->s, &g->at);
	size_t good = 0, found = 0;

	memcpy(&g->stack[0], &g->at, shape_size(&g->at));
	for (size_t i = 0; i < g->w->n; i++) {
		const struct word *x = &g->w->word[i];

		/* As long as it begins like what was refused, so is it. */
		if (x->same > good)
			continue;
		for (good = x->same; good < x->len; good++) {
			struct shape_at *at = &g->stack[good + 1];

			memcpy(at, &g->stack[good],
			       shape_size(&g->stack[good]));
			if (!shape_step(g->s, at, (unsigned char)x->p[good]))
				break;
		}
		if (good < x->len || (x->added && !marks))
			continue;
		allow(g->w, bits, x->id);
		found++;
	}
	return found;
}

static const uint64_t *allowed(struct guide *g)
{
	size_t size = shape_size(&g->at);
	struct known *k;

	for (int i = 0; i < KNOWN; i++) {
		k = &g->known[i];
		if (k->bits && shape_size(&k->at) == size &&
		    !memcmp(&k->at, &g->at, size))
			return k->bits;
	}
	k = &g->known[g->next++ % KNOWN];
	free(k->bits);
	k->bits = calloc((size_t)g->w->count / 64 + 1, sizeof *k->bits);
	if (!k->bits)
		return NULL;
	memcpy(&k->at, &g->at, size);
	if (!walk(g, k->bits) || shape_whole(g->s, &g->at))
		for (int i = 0; i < g->w->neos; i++)
			allow(g->w, k->bits, g->w->eos[i]);
	return k->bits;
}

void guide_mask(struct guide *g, float *logits, int vocab)
{
	const uint64_t *bits = allowed(g);

	for (int id = 0; bits && id < vocab; id++)
		if (id >= g->w->count || !(bits[id / 64] >> id % 64 & 1))
			logits[id] = LOW;
}

static const struct word *word_of(const struct words *w, int32_t id)
{
	int32_t at = id >= 0 && id < w->count ? w->at[id] : -1;

	return at < 0 ? NULL : &w->word[at];
}

int guide_take(struct guide *g, int32_t id)
{
	const struct word *x = word_of(g->w, id);

	for (size_t i = 0; x && i < x->len; i++)
		if (!shape_step(g->s, &g->at, (unsigned char)x->p[i]))
			break;
	return !g->at.depth;
}
