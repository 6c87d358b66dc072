/* SPDX-License-Identifier: Apache-2.0
 *
 * A trie over bytes, with a table of first bytes in front of it since nearly
 * every place of a text begins no token.
 */
#include "nn/added.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

struct node {
	unsigned char byte;
	int32_t child, sibling;		/* indices; 0: none */
	int32_t token;			/* index; -1: none ends here */
};

struct added {
	struct node *node;		/* [0] is the root */
	size_t nodes, node_room;
	struct added_token *token;
	size_t tokens, token_room;
	unsigned char first[256];
	int begin;			/* with which they all do; -1: none */
};

static int grow(void **p, size_t *room, size_t want, size_t size)
{
	size_t n = *room ? *room * 2 : 64;
	void *q;

	if (want <= *room)
		return 0;
	q = realloc(*p, n * size);
	if (!q)
		return -1;
	*p = q;
	*room = n;
	return 0;
}

static int32_t new_node(struct added *a, unsigned char byte)
{
	void *p = a->node;

	if (grow(&p, &a->node_room, a->nodes + 1, sizeof *a->node))
		return -1;
	a->node = p;
	a->node[a->nodes] = (struct node){ byte, 0, 0, -1 };
	return (int32_t)a->nodes++;
}

struct added *added_new(void)
{
	struct added *a = calloc(1, sizeof *a);

	if (a)
		a->begin = -1;
	if (a && new_node(a, 0) < 0) {
		free(a);
		return NULL;
	}
	return a;
}

void added_free(struct added *a)
{
	if (!a)
		return;
	free(a->node);
	free(a->token);
	free(a);
}

static int32_t child_of(const struct added *a, int32_t at, unsigned char byte)
{
	int32_t c = a->node[at].child;

	while (c && a->node[c].byte != byte)
		c = a->node[c].sibling;
	return c;
}

int added_add(struct added *a, const struct added_token *t)
{
	void *p = a->token;
	int32_t at = 0, c;

	if (grow(&p, &a->token_room, a->tokens + 1, sizeof *a->token))
		return -1;
	a->token = p;
	for (size_t i = 0; i < t->len; i++) {
		c = child_of(a, at, (unsigned char)t->p[i]);
		if (!c) {
			c = new_node(a, (unsigned char)t->p[i]);
			if (c < 0)
				return -1;
			a->node[c].sibling = a->node[at].child;
			a->node[at].child = c;
		}
		at = c;
	}
	c = (unsigned char)t->p[0];
	a->first[c] = 1;
	a->begin = !a->tokens || a->begin == c ? c : -1;
	a->node[at].token = (int32_t)a->tokens;
	a->token[a->tokens++] = *t;
	return 0;
}

/* The longest token that begins at p; NULL when none does. */
static const struct added_token *longest(const struct added *a, const char *p,
					 size_t len, int plain)
{
	const struct added_token *best = NULL;
	int32_t at = 0, t;

	for (size_t i = 0; i < len; i++) {
		at = child_of(a, at, (unsigned char)p[i]);
		if (!at)
			break;
		t = a->node[at].token;
		if (t >= 0 && !(plain && a->token[t].special))
			best = &a->token[t];
	}
	return best;
}

/* The code point that ends before p + at, or begins there. */
static int32_t letter_before(const char *p, size_t at, size_t *n)
{
	utf8proc_int32_t c = -1;
	size_t from = at;

	while (from > 0 && at - from < 4 && (p[--from] & 0xc0) == 0x80)
		;
	*n = at - from;
	utf8proc_iterate((const utf8proc_uint8_t *)p + from,
			 (utf8proc_ssize_t)*n, &c);
	return c;
}

static int32_t letter_at(const char *p, size_t len, size_t at, size_t *n)
{
	utf8proc_int32_t c = -1;
	utf8proc_ssize_t k;

	k = utf8proc_iterate((const utf8proc_uint8_t *)p + at,
			     (utf8proc_ssize_t)(len - at), &c);
	*n = k > 0 ? (size_t)k : 1;
	return c;
}

static int is_space(int32_t c)
{
	if (c < 0)
		return 0;
	return (c >= 9 && c <= 13) || c == 0x85 ||
	       utf8proc_category(c) == UTF8PROC_CATEGORY_ZS ||
	       utf8proc_category(c) == UTF8PROC_CATEGORY_ZL ||
	       utf8proc_category(c) == UTF8PROC_CATEGORY_ZP;
}

static int is_word(int32_t c)
{
	utf8proc_category_t k = c < 0 ? UTF8PROC_CATEGORY_CN :
				utf8proc_category(c);

	return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_ME) ||
	       k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
	       k == UTF8PROC_CATEGORY_PC;
}

static int inside_word(const char *p, size_t len, size_t from, size_t to)
{
	size_t n;

	return (from > 0 && is_word(letter_before(p, from, &n))) ||
	       (to < len && is_word(letter_at(p, len, to, &n)));
}

static void strip(const char *p, size_t len, size_t at, struct added_hit *h)
{
	size_t n;

	while (h->token->lstrip && h->from > at &&
	       is_space(letter_before(p, h->from, &n)) && h->from - n >= at)
		h->from -= n;
	while (h->token->rstrip && h->to < len &&
	       is_space(letter_at(p, len, h->to, &n)))
		h->to += n;
}

int added_find(const struct added *a, const char *p, size_t len, size_t at,
	       int plain, struct added_hit *hit)
{
	for (size_t i = at; a->tokens && i < len; i++) {
		const struct added_token *t;

		if (a->begin >= 0) {
			const char *q = memchr(p + i, a->begin, len - i);

			if (!q)
				break;
			i = (size_t)(q - p);
		}
		if (!a->first[(unsigned char)p[i]])
			continue;
		t = longest(a, p + i, len - i, plain);
		if (!t)
			continue;
		if (t->single_word && inside_word(p, len, i, i + t->len)) {
			i += t->len - 1;
			continue;
		}
		*hit = (struct added_hit){ i, i + t->len, t };
		strip(p, len, at, hit);
		return 1;
	}
	return 0;
}
