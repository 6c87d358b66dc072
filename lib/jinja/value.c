/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "jinja/value.h"

#include <stdlib.h>
#include <string.h>

#include "jinja/text.h"

#define DEEPEST (JSON_MAX_DEPTH + SYNTAX_DEPTH)

struct value value_int(int64_t i)
{
	return (struct value){ .kind = VALUE_INT, .u.i = i };
}

struct value value_bool(int yes)
{
	return (struct value){ .kind = VALUE_BOOL, .u.i = !!yes };
}

struct value value_string(const char *p, size_t len)
{
	return (struct value){ .kind = VALUE_STRING, .u.s = { p, len } };
}

struct value value_list(struct arena *mem, enum value_kind kind, size_t n)
{
	struct value v = { .kind = kind };

	v.u.list = arena_alloc(mem, 1, sizeof *v.u.list);
	if (v.u.list && !(v.u.list->item = arena_alloc(mem, n + 1,
						       sizeof v)))
		v.u.list = NULL;
	return v;
}

/* As Python reads what jw_num spells. */
static struct value number(const struct json *j)
{
	struct value v = { .kind = VALUE_FLOAT, .u.f = json_num(j, 0) };
	int64_t i = json_int(j, INT64_MIN);
	struct str s = STR_INIT;
	struct jw w;

	if (i != INT64_MIN)
		return value_int(i);
	jw_init(&w, &s);
	jw_num(&w, v.u.f);
	if (s.buf && !strpbrk(s.buf, ".e"))
		v = value_int(strtoll(s.buf, NULL, 10));
	str_release(&s);
	return v;
}

static int json_array(struct arena *mem, const struct json *j,
		      struct value *out)
{
	*out = value_list(mem, VALUE_LIST, json_len(j));
	if (!out->u.list)
		return -1;
	for (j = json_first(j); j; j = json_next(j))
		if (value_json(mem, j,
			       &out->u.list->item[out->u.list->n++]))
			return -1;
	return 0;
}

static int json_object(struct arena *mem, const struct json *j,
		       struct value *out)
{
	struct dict *d = arena_alloc(mem, 1, sizeof *d);

	*out = (struct value){ .kind = VALUE_DICT, .u.dict = d };
	if (!d)
		return -1;
	d->alloc = json_len(j);
	d->entry = arena_alloc(mem, d->alloc + 1, sizeof *d->entry);
	if (!d->entry)
		return -1;
	for (j = json_first(j); j; j = json_next(j)) {
		struct entry *x = &d->entry[d->n++];

		x->key = (struct piece){ json_key(j), strlen(json_key(j)) };
		if (value_json(mem, j, &x->value))
			return -1;
	}
	return 0;
}

/* As deep as the wall lets trees be. */
int value_json(struct arena *mem, const struct json *j, struct value *out)
{
	const char *s;

	switch (json_type(j)) {
	case JSON_ARRAY:
		return json_array(mem, j, out);
	case JSON_OBJECT:
		return json_object(mem, j, out);
	case JSON_STRING:
		s = json_str(j, "");
		*out = value_string(s, strlen(s));
		return 0;
	case JSON_NUMBER:
		*out = number(j);
		return 0;
	case JSON_BOOL:
		*out = value_bool(json_bool(j, 0));
		return 0;
	default:
		*out = (struct value){ .kind = VALUE_NONE };
		return 0;
	}
}

static int same(struct piece a, struct piece b)
{
	return a.len == b.len && !memcmp(a.p, b.p, a.len);
}

struct value *dict_get(const struct dict *d, struct piece key)
{
	for (size_t i = 0; i < d->n; i++)
		if (same(d->entry[i].key, key))
			return &d->entry[i].value;
	return NULL;
}

int dict_put(struct arena *mem, struct dict *d, struct piece key,
	     struct value v)
{
	struct value *old = dict_get(d, key);
	struct entry *more;

	if (old) {
		*old = v;
		return 0;
	}
	if (d->n == d->alloc) {
		size_t alloc = d->alloc ? 2 * d->alloc : 8;

		more = arena_alloc(mem, alloc, sizeof *more);
		if (!more)
			return -1;
		if (d->n)
			memcpy(more, d->entry, d->n * sizeof *more);
		d->entry = more;
		d->alloc = alloc;
	}
	d->entry[d->n++] = (struct entry){ key, v };
	return 0;
}

int value_true(const struct value *v)
{
	switch (v->kind) {
	case VALUE_UNDEFINED:
	case VALUE_NONE:
		return 0;
	case VALUE_BOOL:
	case VALUE_INT:
		return v->u.i != 0;
	case VALUE_FLOAT:
		return v->u.f < 0 || v->u.f > 0;
	case VALUE_STRING:
		return v->u.s.len > 0;
	case VALUE_LIST:
	case VALUE_TUPLE:
		return v->u.list->n > 0;
	case VALUE_DICT:
		return v->u.dict->n > 0;
	case VALUE_SPACE:
	case VALUE_LOOP:
		return 1;
	default:
		return -1;
	}
}

static int is_number(const struct value *v)
{
	return v->kind == VALUE_BOOL || v->kind == VALUE_INT ||
	       v->kind == VALUE_FLOAT;
}

static int sign_of(const struct value *a, const struct value *b)
{
	double x, y;

	if (a->kind != VALUE_FLOAT && b->kind != VALUE_FLOAT)
		return (a->u.i > b->u.i) - (a->u.i < b->u.i);
	x = a->kind == VALUE_FLOAT ? a->u.f : (double)a->u.i;
	y = b->kind == VALUE_FLOAT ? b->u.f : (double)b->u.i;
	return (x > y) - (x < y);
}

int value_order(const struct value *a, const struct value *b, int *sign)
{
	size_t n;

	if (is_number(a) && is_number(b)) {
		*sign = sign_of(a, b);
		return 1;
	}
	if (a->kind != VALUE_STRING || b->kind != VALUE_STRING)
		return 0;
	/* Bytes of UTF-8 are in the order of characters. */
	n = a->u.s.len < b->u.s.len ? a->u.s.len : b->u.s.len;
	*sign = memcmp(a->u.s.p, b->u.s.p, n);
	if (!*sign)
		*sign = (a->u.s.len > b->u.s.len) - (a->u.s.len < b->u.s.len);
	return 1;
}

static int equal(const struct value *a, const struct value *b, int depth);

static int equal_lists(const struct list *a, const struct list *b, int depth)
{
	int rc = a->n == b->n;

	for (size_t i = 0; i < a->n && rc > 0; i++)
		rc = equal(&a->item[i], &b->item[i], depth);
	return rc;
}

static int equal_dicts(const struct dict *a, const struct dict *b, int depth)
{
	int rc = a->n == b->n;

	for (size_t i = 0; i < a->n && rc > 0; i++) {
		const struct value *v = dict_get(b, a->entry[i].key);

		rc = v ? equal(&a->entry[i].value, v, depth) : 0;
	}
	return rc;
}

static int equal(const struct value *a, const struct value *b, int depth)
{
	if (a->kind >= VALUE_SPACE || b->kind >= VALUE_SPACE || !depth)
		return -1;
	if (is_number(a) && is_number(b))
		return sign_of(a, b) == 0;
	if (a->kind != b->kind)
		return 0;
	switch (a->kind) {
	case VALUE_STRING:
		return same(a->u.s, b->u.s);
	case VALUE_LIST:
	case VALUE_TUPLE:
		return equal_lists(a->u.list, b->u.list, depth - 1);
	case VALUE_DICT:
		return equal_dicts(a->u.dict, b->u.dict, depth - 1);
	default:
		return 1;
	}
}

int value_equal(const struct value *a, const struct value *b)
{
	return equal(a, b, DEEPEST);
}

int value_contains(const struct value *in, const struct value *what)
{
	int rc = 0;

	switch (in->kind) {
	case VALUE_UNDEFINED:
		return 0;
	case VALUE_STRING:
		if (what->kind != VALUE_STRING)
			return -1;
		return !what->u.s.len || (in->u.s.len &&
		       memmem(in->u.s.p, in->u.s.len, what->u.s.p,
			      what->u.s.len));
	case VALUE_LIST:
	case VALUE_TUPLE:
		for (size_t i = 0; i < in->u.list->n && !rc; i++)
			rc = value_equal(&in->u.list->item[i], what);
		return rc;
	case VALUE_DICT:
		return what->kind != VALUE_STRING ? -1 :
		       dict_get(in->u.dict, what->u.s) != NULL;
	default:
		return -1;
	}
}

int64_t value_length(const struct value *v)
{
	switch (v->kind) {
	case VALUE_UNDEFINED:
		return 0;
	case VALUE_STRING:
		return (int64_t)text_chars(v->u.s.p, v->u.s.len);
	case VALUE_LIST:
	case VALUE_TUPLE:
		return (int64_t)v->u.list->n;
	case VALUE_DICT:
		return (int64_t)v->u.dict->n;
	default:
		return -1;
	}
}

int value_print(const struct value *v, struct str *out)
{
	switch (v->kind) {
	case VALUE_UNDEFINED:
		return 0;
	case VALUE_NONE:
		str_adds(out, "None");
		return 0;
	case VALUE_BOOL:
		str_adds(out, v->u.i ? "True" : "False");
		return 0;
	case VALUE_INT:
		str_addf(out, "%lld", (long long)v->u.i);
		return 0;
	case VALUE_FLOAT:
		text_float(v->u.f, out);
		return 0;
	case VALUE_STRING:
		str_add(out, v->u.s.p, v->u.s.len);
		return 0;
	default:
		return -1;
	}
}

struct dump {
	struct str *out;
	int indent;
};

static void newline(const struct dump *d, int depth)
{
	if (d->indent < 0)
		return;
	str_addc(d->out, '\n');
	for (int i = 0; i < depth * d->indent; i++)
		str_addc(d->out, ' ');
}

static int dump(const struct dump *d, const struct value *v, int depth);

/* In front of element number i. */
static void separate(const struct dump *d, size_t i, int depth)
{
	if (i)
		str_adds(d->out, d->indent < 0 ? ", " : ",");
	newline(d, depth);
}

static int dump_list(const struct dump *d, const struct list *l, int depth)
{
	str_addc(d->out, '[');
	for (size_t i = 0; i < l->n; i++) {
		separate(d, i, depth + 1);
		if (dump(d, &l->item[i], depth + 1))
			return -1;
	}
	if (l->n)
		newline(d, depth);
	str_addc(d->out, ']');
	return 0;
}

static int dump_dict(const struct dump *d, const struct dict *m, int depth)
{
	str_addc(d->out, '{');
	for (size_t i = 0; i < m->n; i++) {
		separate(d, i, depth + 1);
		text_json(m->entry[i].key.p, m->entry[i].key.len, d->out);
		str_adds(d->out, ": ");
		if (dump(d, &m->entry[i].value, depth + 1))
			return -1;
	}
	if (m->n)
		newline(d, depth);
	str_addc(d->out, '}');
	return 0;
}

static int dump(const struct dump *d, const struct value *v, int depth)
{
	if (depth > DEEPEST)
		return -1;
	switch (v->kind) {
	case VALUE_NONE:
		str_adds(d->out, "null");
		return 0;
	case VALUE_BOOL:
		str_adds(d->out, v->u.i ? "true" : "false");
		return 0;
	case VALUE_INT:
	case VALUE_FLOAT:
		return value_print(v, d->out);
	case VALUE_STRING:
		text_json(v->u.s.p, v->u.s.len, d->out);
		return 0;
	case VALUE_LIST:
	case VALUE_TUPLE:
		return dump_list(d, v->u.list, depth);
	case VALUE_DICT:
		return dump_dict(d, v->u.dict, depth);
	default:
		return -1;
	}
}

int value_tojson(const struct value *v, int indent, struct str *out)
{
	const struct dump d = { out, indent };

	return dump(&d, v, 0);
}
