/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens in the order of their bytes: what several begin with is followed
 * once.  States recur, in one answer and among those to one request, so what
 * they allow is kept by their class.  Most tokens are plain: inside of a text
 * they need not be followed.
 */
#include "serve/guide.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define LONGEST 64		/* bytes of a token; longer ones never come */
#define KNOWN   128		/* states of a shape that are kept */
#define LOW     (-1e30f)

struct word {
	const char *p;
	int32_t id;
	uint16_t len, same;		/* bytes as the one before */
	uint8_t added, chars;		/* chars: of a plain one, else 0 */
};

struct list {
	struct word *word;
	size_t n;
};

struct words {
	struct list all, odd;		/* odd: those that are not plain */
	uint64_t *plain;		/* the others, a bit each */
	uint8_t most;			/* characters of one */
	struct str text;
	int32_t *eos;
	int32_t *at;			/* of an id in `all`; or -1 */
	int neos, count;
};

struct known {
	size_t size;
	uint64_t *bits;			/* NULL: not used yet */
	int none;			/* no token may come */
	struct shape_at at;
};

struct guide {
	const struct words *w;
	const struct shape *s;
	int eos;
	struct shape_at stack[LONGEST + 1], class;
	struct known *known[KNOWN];
	unsigned next;
};

static int by_bytes(const void *a, const void *b)
{
	const struct word *x = a, *y = b;
	int rc = memcmp(x->p, y->p, x->len < y->len ? x->len : y->len);

	return rc ? rc : (x->len > y->len) - (x->len < y->len);
}

static void find_same(struct list *l)
{
	for (size_t i = 1; i < l->n; i++) {
		const struct word *a = &l->word[i - 1];
		struct word *b = &l->word[i];

		b->same = 0;
		while (b->same < a->len && b->same < b->len &&
		       a->p[b->same] == b->p[b->same])
			b->same++;
	}
}

/* The characters of a word that is nothing but whole ones, as they stand in
 * JSON; else 0. */
static uint8_t plain_chars(const char *p, size_t len)
{
	uint8_t chars = 0;
	size_t n;

	for (; len; p += n, len -= n, chars++) {
		n = utf8_len(p, len);
		if (!n || n > len || (unsigned char)*p < 0x20 || *p == '"' ||
		    *p == '\\')
			return 0;
	}
	return chars;
}

static void add_word(struct words *w, const struct tok *t, int32_t id,
		     const char *p, size_t len)
{
	struct word *x = &w->all.word[w->all.n];

	if (!len || len > LONGEST)
		return;
	w->all.n++;
	*x = (struct word){ .p = p, .id = id, .len = (uint16_t)len,
			    .added = tok_added(t, id) != 0 };
	x->chars = x->added ? 0 : plain_chars(p, len);
	if (!x->chars)
		return;
	w->plain[id / 64] |= (uint64_t)1 << id % 64;
	w->most = x->chars > w->most ? x->chars : w->most;
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
	if (!from || w->text.failed) {
		free(from);
		return -1;
	}
	for (int32_t id = 0; w->text.len && id < w->count; id++)
		add_word(w, t, id, w->text.buf + from[id],
			 from[id + 1] - from[id]);
	free(from);
	return 0;
}

static void sort(struct words *w)
{
	qsort(w->all.word, w->all.n, sizeof *w->all.word, by_bytes);
	for (size_t i = 0; i < w->all.n; i++) {
		w->at[w->all.word[i].id] = (int32_t)i;
		if (!w->all.word[i].chars)
			w->odd.word[w->odd.n++] = w->all.word[i];
	}
	find_same(&w->all);
	find_same(&w->odd);
}

struct words *words_new(const struct tok *t, const int32_t *eos, int neos)
{
	struct words *w = calloc(1, sizeof *w);
	size_t n;

	if (!w)
		return NULL;
	w->count = tok_count(t);
	n = (size_t)w->count + 1;
	w->all.word = calloc(n, sizeof *w->all.word);
	w->odd.word = calloc(n, sizeof *w->odd.word);
	w->plain = calloc(n / 64 + 1, sizeof *w->plain);
	w->at = malloc(n * sizeof *w->at);
	w->eos = calloc((size_t)neos + 1, sizeof *w->eos);
	if (!w->all.word || !w->odd.word || !w->plain || !w->at || !w->eos ||
	    read_words(w, t)) {
		words_free(w);
		return NULL;
	}
	if (neos)
		memcpy(w->eos, eos, (size_t)neos * sizeof *eos);
	w->neos = neos;
	memset(w->at, 0xff, n * sizeof *w->at);
	sort(w);
	return w;
}

void words_free(struct words *w)
{
	if (!w)
		return;
	str_release(&w->text);
	free(w->all.word);
	free(w->odd.word);
	free(w->plain);
	free(w->at);
	free(w->eos);
	free(w);
}

struct guide *guide_new(const struct words *w, const struct shape *s, int eos)
{
	struct guide *g = calloc(1, sizeof *g);

	if (!g)
		return NULL;
	g->w = w;
	g->s = s;
	g->eos = eos && w->neos;
	return g;
}

void guide_free(struct guide *g)
{
	for (int i = 0; g && i < KNOWN; i++) {
		if (g->known[i])
			free(g->known[i]->bits);
		free(g->known[i]);
	}
	free(g);
}

static void allow(struct known *k, const struct words *w, int32_t id)
{
	if (id < 0 || id >= w->count)
		return;
	k->bits[id / 64] |= (uint64_t)1 << id % 64;
	k->none = 0;
}

/* Follows tokens of a list; bytes of the one before that are good are on the
 * stack. */
static void walk(struct guide *g, const struct list *l,
		 const struct shape_at *from, struct known *k)
{
	int marks = shape_marks(g->s, from);
	size_t good = 0;

	memcpy(&g->stack[0], from, shape_size(from));
	for (size_t i = 0; i < l->n; i++) {
		const struct word *x = &l->word[i];

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
		if (good == x->len && (!x->added || marks))
			allow(k, g->w, x->id);
	}
}

/* Tokens that stay inside of a text of `most` more characters. */
static void allow_plain(const struct words *w, uint32_t most, struct known *k)
{
	size_t n = (size_t)w->count / 64 + 1;

	for (size_t i = 0; most >= w->most && i < n; i++)
		k->bits[i] |= w->plain[i];
	if (w->most && most >= w->most)
		k->none = 0;
	for (size_t i = 0; most < w->most && i < w->all.n; i++)
		if (w->all.word[i].chars && w->all.word[i].chars <= most)
			allow(k, w, w->all.word[i].id);
}

static void fill(struct guide *g, const struct shape_at *at, struct known *k)
{
	uint32_t most = shape_room(g->s, at);

	k->none = 1;
	if (most)
		allow_plain(g->w, most, k);
	walk(g, most ? &g->w->odd : &g->w->all, at, k);
	for (int i = 0; g->eos && shape_whole(g->s, at) && i < g->w->neos;
	     i++)
		allow(k, g->w, g->w->eos[i]);
}

/* The place of a new state: an unused one, or the oldest's. */
static struct known *place(struct guide *g)
{
	struct known **at = &g->known[g->next++ % KNOWN];
	size_t n = (size_t)g->w->count / 64 + 1;

	if (!*at)
		*at = calloc(1, sizeof **at);
	if (!*at)
		return NULL;
	(*at)->size = 0;		/* like no state */
	if (!(*at)->bits)
		(*at)->bits = calloc(n, sizeof *(*at)->bits);
	else
		memset((*at)->bits, 0, n * sizeof *(*at)->bits);
	return (*at)->bits ? *at : NULL;
}

/* What may come; NULL: no memory. */
static const struct known *allowed(struct guide *g, const struct shape_at *at)
{
	size_t size = shape_size(at);
	struct known *k;

	shape_class(g->s, at, LONGEST + 1, &g->class);
	for (int i = 0; i < KNOWN && (k = g->known[i]); i++)
		if (k->size == size && !memcmp(&k->at, &g->class, size))
			return k;
	k = place(g);
	if (!k)
		return NULL;
	fill(g, at, k);
	memcpy(&k->at, &g->class, size);
	k->size = size;
	return k;
}

void guide_ready(struct guide *g, const struct shape_at *at)
{
	allowed(g, at);
}

int guide_mask(struct guide *g, const struct shape_at *at, float *logits,
	       int vocab, struct err *e)
{
	const struct known *k = allowed(g, at);

	if (!k)
		return err_set(e, CA_SOFTWARE, "no memory");
	if (k->none)
		return err_set(e, CA_SOFTWARE, "no token of the vocabulary "
			       "goes on with what the answer has to be");
	for (int id = 0; id < vocab; id++)
		if (id >= g->w->count || !(k->bits[id / 64] >> id % 64 & 1))
			logits[id] = LOW;
	return 0;
}

int guide_take(const struct guide *g, struct shape_at *at, int32_t id)
{
	const struct words *w = g->w;
	int32_t i = id >= 0 && id < w->count ? w->at[id] : -1;
	const struct word *x = i < 0 ? NULL : &w->all.word[i];

	for (size_t n = 0; x && n < x->len; n++)
		if (!shape_step(g->s, at, (unsigned char)x->p[n]))
			break;
	return !g->eos && shape_whole(g->s, at);
}
