/* SPDX-License-Identifier: Apache-2.0
 *
 * The canonical form, made from the text and not from a tree, so that number
 * tokens survive as they stand.
 */
#include "rec/json.h"

#include <stdlib.h>
#include <string.h>

#include "rec/scan.h"

struct canon {
	struct arena arena;	/* members and unescaped keys */
	struct str *out;
	const char *skip;	/* key left out at the top level */
	struct err *e;
};

struct item {
	const char *key;
	size_t keylen;
	const char *value, *end;
};

static int emit(struct canon *c, const char *p, const char *end, int depth);

static int no_memory(struct canon *c)
{
	return err_set(c->e, CA_SOFTWARE, "no memory for canonical JSON");
}

/* Unescapes the string between its quotes. */
static char *unquote(struct canon *c, const char *p, const char *end,
		     size_t *len)
{
	size_t raw = (size_t)(end - p) - 2;
	char *s = arena_alloc(&c->arena, raw, 1);

	if (s)
		*len = scan_unescape(p + 1, raw, s);
	return s;
}

static int emit_string(struct canon *c, const char *p, const char *end)
{
	struct jw w;
	size_t len = 0;
	char *s = unquote(c, p, end, &len);

	if (!s)
		return no_memory(c);
	jw_init(&w, c->out);
	jw_strn(&w, s, len);
	return 0;
}

static int item_order(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	size_t n = x->keylen < y->keylen ? x->keylen : y->keylen;
	int d = memcmp(x->key, y->key, n);

	if (d == 0 && x->keylen != y->keylen)
		d = x->keylen < y->keylen ? -1 : 1;
	return d;
}

/* p is behind the bracket or at a comma; skips to the next item, NULL when
 * there is none. */
static const char *next_item(const char *p, const char *end)
{
	p = scan_space(p, end);
	if (p < end && *p == ',')
		p = scan_space(p + 1, end);
	return p < end && *p != ']' && *p != '}' ? p : NULL;
}

static int collect(struct canon *c, const char *p, const char *end,
		   struct item **items, size_t *n)
{
	size_t alloc = 0;

	*items = NULL;
	*n = 0;
	for (p++; (p = next_item(p, end)); p = (*items)[(*n)++].end) {
		const char *key = p;
		struct item *it;

		if (*n == alloc) {
			alloc = alloc ? 2 * alloc : 16;
			it = arena_alloc(&c->arena, alloc, sizeof *it);
			if (!it)
				return no_memory(c);
			if (*n)
				memcpy(it, *items, *n * sizeof *it);
			*items = it;
		}
		it = &(*items)[*n];
		p = scan_skip(p, end);
		it->key = unquote(c, key, p, &it->keylen);
		if (!it->key)
			return no_memory(c);
		it->value = scan_space(scan_space(p, end) + 1, end);
		it->end = scan_skip(it->value, end);
	}
	return 0;
}

static int is_skipped(const struct canon *c, const struct item *it, int depth)
{
	return c->skip && depth == 0 && it->keylen == strlen(c->skip) &&
	       memcmp(it->key, c->skip, it->keylen) == 0;
}

static int emit_object(struct canon *c, const char *p, const char *end,
		       int depth)
{
	struct item *items;
	struct jw w;
	size_t n, i;

	if (collect(c, p, end, &items, &n))
		return -1;
	if (n)
		qsort(items, n, sizeof *items, item_order);
	jw_init(&w, c->out);
	str_addc(c->out, '{');
	for (i = 0; i < n; i++) {
		if (is_skipped(c, &items[i], depth))
			continue;
		jw_strn(&w, items[i].key, items[i].keylen);
		str_addc(c->out, ':');
		if (emit(c, items[i].value, items[i].end, depth + 1))
			return -1;
	}
	return str_addc(c->out, '}') ? no_memory(c) : 0;
}

static int emit_array(struct canon *c, const char *p, const char *end,
		      int depth)
{
	int first = 1;

	str_addc(c->out, '[');
	for (p++; (p = next_item(p, end)); first = 0) {
		const char *stop = scan_skip(p, end);

		if (!first)
			str_addc(c->out, ',');
		if (emit(c, p, stop, depth + 1))
			return -1;
		p = stop;
	}
	return str_addc(c->out, ']') ? no_memory(c) : 0;
}

/* One value, which lies in [p, end) without space around it. */
static int emit(struct canon *c, const char *p, const char *end, int depth)
{
	int rc;

	if (*p == '{')
		rc = emit_object(c, p, end, depth);
	else if (*p == '[')
		rc = emit_array(c, p, end, depth);
	else if (*p == '"')
		rc = emit_string(c, p, end);
	else
		rc = str_add(c->out, p, (size_t)(end - p));
	return rc || c->out->failed ? no_memory(c) : 0;
}

int json_canon_without(const char *text, size_t len, const char *key,
		       struct str *out, struct err *e)
{
	struct canon c = { ARENA_INIT, out, key, e };
	const char *end = text + len, *p;
	int rc;

	if (json_check(text, len, JSON_MAX_FILE, NULL, e))
		return -1;
	p = scan_space(text, end);
	rc = emit(&c, p, scan_skip(p, end), 0);
	arena_release(&c.arena);
	return rc;
}

int json_canon(const char *text, size_t len, struct str *out, struct err *e)
{
	return json_canon_without(text, len, NULL, out, e);
}
