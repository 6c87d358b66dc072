/* SPDX-License-Identifier: Apache-2.0
 *
 * Hidden text number i is U+F8F0, U+E000 + i, U+F8F1; the first of these
 * characters in a message counts as text number 0, so that all of them in a
 * template's result are ours.
 */
#include "nn/marks.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "nn/added.h"

#define OPENS "\xef\xa3\xb0"		/* U+F8F0 */
#define SHUTS "\xef\xa3\xb1"		/* U+F8F1 */
#define BASE  0xe000
#define MOST  6000
#define MARK  9				/* bytes of a hidden text's stand-in */

struct marks {
	struct added *set;		/* ids are numbers in `text` */
	struct str *text;
	int n;
};

static int add(struct marks *m, const struct str *s)
{
	const struct added_token t = {
		.p = s->buf, .len = s->len, .id = m->n };

	m->n++;
	return added_add(m->set, &t);
}

static int fill(struct marks *m, const struct tok *t)
{
	struct str *s = &m->text[0];

	if (str_adds(s, OPENS) || add(m, s))
		return -1;
	for (int32_t id = 0; id < tok_count(t) && m->n < MOST; id++) {
		if (!tok_special(t, id))
			continue;
		s = &m->text[m->n];
		if (tok_decode(t, &id, 1, 0, s) || (s->len && add(m, s)))
			return -1;
	}
	return 0;
}

struct marks *marks_new(const struct tok *t)
{
	struct marks *m = calloc(1, sizeof *m);

	if (!m)
		return NULL;
	m->set = added_new();
	m->text = calloc(MOST + 1, sizeof *m->text);
	if (m->set && m->text && !fill(m, t))
		return m;
	marks_free(m);
	return NULL;
}

void marks_free(struct marks *m)
{
	if (!m)
		return;
	for (int i = 0; m->text && i <= MOST; i++)
		str_release(&m->text[i]);
	free(m->text);
	added_free(m->set);
	free(m);
}

static void hide(const struct marks *m, const char *text, struct str *out)
{
	size_t len = strlen(text), at = 0;
	struct added_hit hit;
	char number[4];

	while (added_find(m->set, text, len, at, 0, &hit)) {
		str_add(out, text + at, hit.from - at);
		str_adds(out, OPENS);
		str_add(out, number, utf8_put(BASE + (unsigned)hit.token->id,
					      number));
		str_adds(out, SHUTS);
		at = hit.to;
	}
	str_add(out, text + at, len - at);
}

void marks_hide(const struct marks *m, const char *text, struct jw *w)
{
	struct str s = STR_INIT;

	hide(m, text, &s);
	jw_strn(w, s.buf ? s.buf : "", s.len);
	w->out->failed |= s.failed;
	str_release(&s);
}

static void hide_key(const struct marks *m, const char *key, struct jw *w)
{
	struct str s = STR_INIT;

	hide(m, key, &s);
	jw_key(w, s.buf ? s.buf : "");
	w->out->failed |= s.failed;
	str_release(&s);
}

/* As deep as the wall lets trees be. */
void marks_hide_value(const struct marks *m, const struct json *j,
		      struct jw *w)
{
	const struct json *k;

	switch (json_type(j)) {
	case JSON_STRING:
		marks_hide(m, json_str(j, ""), w);
		break;
	case JSON_OBJECT:
		jw_obj(w);
		for (k = json_first(j); k; k = json_next(k)) {
			hide_key(m, json_key(k), w);
			marks_hide_value(m, k, w);
		}
		jw_end_obj(w);
		break;
	case JSON_ARRAY:
		jw_arr(w);
		for (k = json_first(j); k; k = json_next(k))
			marks_hide_value(m, k, w);
		jw_end_arr(w);
		break;
	default:
		jw_node(w, j);
	}
}

void marks_spans_release(struct marks_spans *s)
{
	free(s->span);
	*s = (struct marks_spans)MARKS_SPANS_INIT;
}

static int add_span(struct marks_spans *s, size_t from, size_t to)
{
	size_t alloc = s->alloc ? 2 * s->alloc : 16;
	struct tok_span *p = s->span;

	if (s->n == s->alloc) {
		p = realloc(s->span, alloc * sizeof *p);
		if (!p)
			return -1;
		s->span = p;
		s->alloc = alloc;
	}
	p[s->n++] = (struct tok_span){ from, to };
	return 0;
}

/* The number of the hidden text whose stand-in is at p; -1: none is. */
static int hidden_at(const struct marks *m, const char *p, size_t len)
{
	const unsigned char *c = (const unsigned char *)p;
	int i;

	if (len < MARK || memcmp(p, OPENS, 3) || memcmp(p + 6, SHUTS, 3))
		return -1;
	i = ((c[3] & 15) << 12 | (c[4] & 63) << 6 | (c[5] & 63)) - BASE;
	return i >= 0 && i < m->n ? i : -1;
}

int marks_reveal(const struct marks *m, const char *text, size_t len,
		 struct str *out, struct marks_spans *spans)
{
	size_t from = 0;

	for (size_t at = 0; at < len; ) {
		int i = text[at] == OPENS[0] ?
			hidden_at(m, text + at, len - at) : -1;

		if (i < 0) {
			at++;
			continue;
		}
		str_add(out, text + from, at - from);
		if (add_span(spans, out->len, out->len + m->text[i].len))
			return -1;
		str_add(out, m->text[i].buf, m->text[i].len);
		from = at += MARK;
	}
	return str_add(out, text + from, len - from);
}
