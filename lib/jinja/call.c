/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>

#include "jinja/run.h"
#include "jinja/text.h"

#define RANGE_MAX 100000

/* Arguments of a call: by place, and by name in `keys` where there is one. */
#define ARGS 3
struct args {
	struct value v[ARGS];
	int n;				/* one more than the last given */
	int given;			/* how many are */
};

/* Evaluates arguments; names has the parameters' names, NULL for what can
 * only be given by place.  -1: they are not understood. */
static int read_args(struct run *r, const struct node *n,
		     const char *const *names, int most, struct args *a)
{
	int at = 0;

	*a = (struct args){ 0 };
	for (const struct node *k = n->kids; k; k = k->next, at++) {
		if (k->text2.p) {
			for (at = 0; at < most; at++)
				if (names[at] && piece_is(k->text2, names[at]))
					break;
		}
		if (at >= most) {
			run_unknown(r, n, "such an argument");
			return -1;
		}
		a->v[at] = run_eval(r, k);
		a->given++;
		if (a->n <= at)
			a->n = at + 1;
	}
	return r->end == JINJA_TEXT ? 0 : -1;
}

static int is_list(const struct value *v)
{
	return v->kind == VALUE_LIST || v->kind == VALUE_TUPLE;
}

/* str(v), in the arena; -1 when that is not known. */
static int as_text(struct run *r, const struct node *n, const struct value *v,
		   struct piece *out)
{
	struct str s = STR_INIT;

	*out = v->u.s;
	if (v->kind == VALUE_STRING)
		return 0;
	if (value_print(v, &s)) {
		str_release(&s);
		run_unknown(r, n, "the text of such a value");
		return -1;
	}
	*out = run_keep(r, n, &s).u.s;
	return r->end == JINJA_TEXT ? 0 : -1;
}

enum { LEFT = 1, RIGHT = 2 };

static struct value strip(struct run *r, const struct node *n,
			  struct piece s, const struct args *a, int sides)
{
	const char *set = NULL;
	size_t nset = 0, from = 0;

	if (a->n && a->v[0].kind == VALUE_STRING) {
		set = a->v[0].u.s.p;
		nset = a->v[0].u.s.len;
	} else if (a->n && a->v[0].kind != VALUE_NONE) {
		return run_unknown(r, n, "such an argument");
	}
	if (sides & LEFT)
		from = text_skip_set(s.p, s.len, set, nset);
	s.p += from;
	s.len -= from;
	if (sides & RIGHT)
		s.len = text_rstrip_set(s.p, s.len, set, nset);
	return value_string(s.p, s.len);
}

static struct value change_case(struct run *r, const struct node *n,
				struct piece s, int up)
{
	char low = up ? 'a' : 'A', *p;

	if (!text_ascii(s.p, s.len))
		return run_unknown(r, n, "capitals beyond ASCII");
	p = run_alloc(r, n, s.len);
	for (size_t i = 0; p && i < s.len; i++)
		p[i] = s.p[i] >= low && s.p[i] <= low + 25 ?
		       (char)(s.p[i] ^ 0x20) : s.p[i];
	return p ? value_string(p, s.len) : UNDEFINED;
}

static struct value replace(struct run *r, const struct node *n,
			    struct piece s, const struct args *a)
{
	struct piece from = a->v[0].u.s, to = a->v[1].u.s;
	struct str out = STR_INIT;
	size_t at = 0;

	if (a->n != 2 || a->v[0].kind != VALUE_STRING ||
	    a->v[1].kind != VALUE_STRING || !from.len)
		return run_unknown(r, n, "such an argument");
	while (s.len - at >= from.len) {
		const char *hit = memmem(s.p + at, s.len - at, from.p,
					 from.len);

		if (!hit)
			break;
		str_add(&out, s.p + at, (size_t)(hit - s.p) - at);
		str_add(&out, to.p, to.len);
		at = (size_t)(hit - s.p) + from.len;
	}
	str_add(&out, s.p + at, s.len - at);
	return run_keep(r, n, &out);
}

static size_t count_parts(struct piece s, struct piece by)
{
	size_t n = 1, at = 0;
	const char *hit;

	while (at < s.len &&
	       (hit = memmem(s.p + at, s.len - at, by.p, by.len))) {
		n++;
		at = (size_t)(hit - s.p) + by.len;
	}
	return n;
}

static struct value split(struct run *r, const struct node *n,
			  struct piece s, const struct args *a)
{
	struct piece by = a->v[0].u.s;
	struct value v;
	size_t parts, at = 0;

	if (a->n != 1 || a->v[0].kind != VALUE_STRING || !by.len)
		return run_unknown(r, n, "such an argument");
	parts = count_parts(s, by);
	v = value_list(&r->mem, VALUE_LIST, parts);
	if (!v.u.list)
		return run_unknown(r, n, "too much memory");
	while (v.u.list->n + 1 < parts) {
		const char *hit = memmem(s.p + at, s.len - at, by.p, by.len);

		v.u.list->item[v.u.list->n++] =
			value_string(s.p + at, (size_t)(hit - s.p) - at);
		at = (size_t)(hit - s.p) + by.len;
	}
	v.u.list->item[v.u.list->n++] = value_string(s.p + at, s.len - at);
	return v;
}

static struct value begins(struct run *r, const struct node *n,
			   struct piece s, const struct args *a, int at_end)
{
	struct piece t = a->v[0].u.s;

	if (a->n != 1 || a->v[0].kind != VALUE_STRING)
		return run_unknown(r, n, "such an argument");
	return value_bool(t.len <= s.len &&
			  !memcmp(at_end ? s.p + s.len - t.len : s.p, t.p,
				  t.len));
}

static struct value string_method(struct run *r, const struct node *n,
				  struct piece s)
{
	static const char *const none[ARGS];
	struct piece name = n->a->text;
	struct args a;

	if (read_args(r, n, none, ARGS, &a))
		return UNDEFINED;
	if (piece_is(name, "split"))
		return split(r, n, s, &a);
	if (piece_is(name, "strip") && a.n < 2)
		return strip(r, n, s, &a, LEFT | RIGHT);
	if (piece_is(name, "lstrip") && a.n < 2)
		return strip(r, n, s, &a, LEFT);
	if (piece_is(name, "rstrip") && a.n < 2)
		return strip(r, n, s, &a, RIGHT);
	if (piece_is(name, "startswith"))
		return begins(r, n, s, &a, 0);
	if (piece_is(name, "endswith"))
		return begins(r, n, s, &a, 1);
	if (piece_is(name, "replace"))
		return replace(r, n, s, &a);
	if (piece_is(name, "upper") && !a.n)
		return change_case(r, n, s, 1);
	if (piece_is(name, "lower") && !a.n)
		return change_case(r, n, s, 0);
	return run_unknown(r, n, "such a method");
}

enum { KEYS, VALUES, ITEMS };

static struct value dict_view(struct run *r, const struct node *n,
			      const struct dict *d, int what)
{
	struct value v = value_list(&r->mem, VALUE_VIEW, d->n);

	for (size_t i = 0; v.u.list && i < d->n; i++) {
		struct piece k = d->entry[i].key;
		struct value key = value_string(k.p, k.len), pair;

		v.u.list->n = i + 1;
		v.u.list->item[i] = what == KEYS ? key : d->entry[i].value;
		if (what != ITEMS)
			continue;
		pair = value_list(&r->mem, VALUE_TUPLE, 2);
		if (!pair.u.list)
			return run_unknown(r, n, "too much memory");
		pair.u.list->item[0] = key;
		pair.u.list->item[1] = d->entry[i].value;
		pair.u.list->n = 2;
		v.u.list->item[i] = pair;
	}
	return v.u.list ? v : run_unknown(r, n, "too much memory");
}

static struct value dict_method(struct run *r, const struct node *n,
				const struct dict *d)
{
	static const char *const none[ARGS];
	struct value *v;
	struct args a;

	if (read_args(r, n, none, ARGS, &a))
		return UNDEFINED;
	if (piece_is(n->a->text, "items") && !a.n)
		return dict_view(r, n, d, ITEMS);
	if (piece_is(n->a->text, "keys") && !a.n)
		return dict_view(r, n, d, KEYS);
	if (piece_is(n->a->text, "values") && !a.n)
		return dict_view(r, n, d, VALUES);
	if (!piece_is(n->a->text, "get") || !a.n || a.n > 2 ||
	    a.v[0].kind != VALUE_STRING)
		return run_unknown(r, n, "such a method");
	v = dict_get(d, a.v[0].u.s);
	return v ? *v : a.n > 1 ? a.v[1] :
	       (struct value){ .kind = VALUE_NONE };
}

static struct value make_space(struct run *r, const struct node *n)
{
	struct dict *d = arena_alloc(&r->mem, 1, sizeof *d);

	for (const struct node *k = n->kids; d && k; k = k->next) {
		if (!k->text2.p)
			return run_unknown(r, n, "such an argument");
		if (dict_put(&r->mem, d, k->text2, run_eval(r, k)))
			d = NULL;
	}
	if (!d)
		return run_unknown(r, n, "too much memory");
	return (struct value){ .kind = VALUE_SPACE, .u.dict = d };
}

static struct value range(struct run *r, const struct node *n,
			  const struct args *a)
{
	int64_t from = a->n > 1 ? a->v[0].u.i : 0;
	int64_t to = a->n > 1 ? a->v[1].u.i : a->v[0].u.i;
	struct value v;

	for (int i = 0; i < a->n; i++)
		if (a->v[i].kind != VALUE_INT)
			return run_unknown(r, n, "such an argument");
	if (!a->n || a->n > 2 || from < -RANGE_MAX || from > RANGE_MAX ||
	    to - from > RANGE_MAX)
		return run_unknown(r, n, "such a range");
	v = value_list(&r->mem, VALUE_LIST, to > from ?
		       (size_t)(to - from) : 0);
	if (!v.u.list)
		return run_unknown(r, n, "too much memory");
	for (; from < to; from++)
		v.u.list->item[v.u.list->n++] = value_int(from);
	return v;
}

static struct value now(struct run *r, const struct node *n,
			const struct args *a)
{
	char format[64], text[256];
	struct str s = STR_INIT;
	time_t t = time(NULL);
	struct tm tm;

	if (a->n != 1 || a->v[0].kind != VALUE_STRING || !a->v[0].u.s.len ||
	    a->v[0].u.s.len >= sizeof format || !localtime_r(&t, &tm))
		return run_unknown(r, n, "such a date");
	memcpy(format, a->v[0].u.s.p, a->v[0].u.s.len);
	format[a->v[0].u.s.len] = 0;
	/* Of the conversions that mean the same to Python and C. */
	for (const char *p = format; (p = strchr(p, '%')); p += 2)
		if (!p[1] || !strchr("aAbBdHIjmMpSyY%", p[1]))
			return run_unknown(r, n, "such a date");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	str_add(&s, text, strftime(text, sizeof text, format, &tm));
#pragma GCC diagnostic pop
	return run_keep(r, n, &s);
}

static struct value global(struct run *r, const struct node *n)
{
	static const char *const none[ARGS];
	struct piece name = n->a->text, why;
	struct args a;

	if (piece_is(name, "namespace"))
		return make_space(r, n);
	if (read_args(r, n, none, ARGS, &a))
		return UNDEFINED;
	if (piece_is(name, "range"))
		return range(r, n, &a);
	if (piece_is(name, "strftime_now"))
		return now(r, n, &a);
	if (a.n != 1 || as_text(r, n, &a.v[0], &why))
		return run_unknown(r, n, "such an argument");
	err_set(r->e, CA_DATAERR, "TemplateError: %.*s", (int)(why.len < 2000 ?
		why.len : 2000), why.p);
	r->end = JINJA_REFUSED;
	return UNDEFINED;
}

struct value run_call(struct run *r, const struct node *n)
{
	struct value of;

	if (n->a->kind == NODE_FUNCTION)
		return global(r, n);
	of = run_eval(r, n->a->a);
	if (r->end != JINJA_TEXT)
		return UNDEFINED;
	if (of.kind == VALUE_STRING)
		return string_method(r, n, of.u.s);
	if (of.kind == VALUE_DICT)
		return dict_method(r, n, of.u.dict);
	return run_unknown(r, n, "such a method");
}

static struct value tojson(struct run *r, const struct node *n,
			   const struct value *v)
{
	static const char *const names[ARGS] = { "ensure_ascii", "indent" };
	struct str s = STR_INIT;
	struct args a;
	int indent = -1;

	if (read_args(r, n, names, 2, &a))
		return UNDEFINED;
	if (a.v[1].kind == VALUE_INT && a.v[1].u.i > 0 && a.v[1].u.i <= 64)
		indent = (int)a.v[1].u.i;
	else if (a.v[1].kind != VALUE_UNDEFINED && a.v[1].kind != VALUE_NONE)
		return run_unknown(r, n, "such an argument");
	if (value_true(&a.v[0]) || value_tojson(v, indent, &s)) {
		str_release(&s);
		return run_unknown(r, n, "such a value as JSON");
	}
	return run_keep(r, n, &s);
}

static struct value join(struct run *r, const struct node *n,
			 const struct value *v)
{
	static const char *const names[ARGS] = { "d" };
	struct str s = STR_INIT;
	struct piece by = { "", 0 };
	struct args a;

	if (read_args(r, n, names, 1, &a) ||
	    (a.n && as_text(r, n, &a.v[0], &by)))
		return UNDEFINED;
	if (!is_list(v) && v->kind != VALUE_UNDEFINED)
		return run_unknown(r, n, "such a value joined");
	for (size_t i = 0; is_list(v) && i < v->u.list->n; i++) {
		if (i)
			str_add(&s, by.p, by.len);
		if (value_print(&v->u.list->item[i], &s)) {
			str_release(&s);
			return run_unknown(r, n, "such a value joined");
		}
	}
	return run_keep(r, n, &s);
}

static struct value or_default(struct run *r, const struct node *n,
			       const struct value *v)
{
	static const char *const names[ARGS] = { "default_value", "boolean" };
	struct args a;
	int absent = v->kind == VALUE_UNDEFINED;

	if (read_args(r, n, names, 2, &a))
		return UNDEFINED;
	if (value_true(&a.v[1]) > 0)
		absent |= !value_true(v);
	if (!absent)
		return *v;
	return a.n > a.given || !a.n ? value_string("", 0) : a.v[0];
}

static struct value end_of(struct run *r, const struct node *n,
			   const struct value *v, int last)
{
	if (!is_list(v))
		return run_unknown(r, n, "an element of such a value");
	if (!v->u.list->n)
		return UNDEFINED;
	return v->u.list->item[last ? v->u.list->n - 1 : 0];
}

static struct value as_list(struct run *r, const struct node *n,
			    const struct value *v, int pairs)
{
	static const struct dict empty;
	struct value out = *v;

	if (v->kind == VALUE_UNDEFINED || v->kind == VALUE_DICT) {
		out = dict_view(r, n, v->kind == VALUE_DICT ? v->u.dict :
				&empty, pairs ? ITEMS : KEYS);
		if (pairs && r->end == JINJA_TEXT) {
			out.u.list->once = 1;
			return out;
		}
	} else if (pairs || (!is_list(v) && v->kind != VALUE_VIEW) ||
		   v->u.list->once) {
		return run_unknown(r, n, "such a value as a list");
	}
	out.kind = r->end == JINJA_TEXT ? VALUE_LIST : VALUE_UNDEFINED;
	return out;
}

/* Filters of str(v). */
static struct value text_filter(struct run *r, const struct node *n,
				const struct value *v)
{
	static const char *const none[ARGS], *const chars[ARGS] = { "chars" };
	struct piece name = n->text, s;
	int trims = piece_is(name, "trim");
	struct args a;

	if (read_args(r, n, trims ? chars : none, ARGS, &a) ||
	    as_text(r, n, v, &s))
		return UNDEFINED;
	if (trims && a.n < 2)
		return strip(r, n, s, &a, LEFT | RIGHT);
	if (piece_is(name, "replace"))
		return replace(r, n, s, &a);
	if (piece_is(name, "upper") && !a.n)
		return change_case(r, n, s, 1);
	if (piece_is(name, "lower") && !a.n)
		return change_case(r, n, s, 0);
	if (piece_is(name, "string") && !a.n)
		return value_string(s.p, s.len);
	return run_unknown(r, n, "such a filter");
}

struct value run_filter(struct run *r, const struct node *n)
{
	struct value v = run_eval(r, n->a);
	struct piece name = n->text;
	int64_t len;

	if (r->end != JINJA_TEXT)
		return UNDEFINED;
	if (piece_is(name, "tojson"))
		return tojson(r, n, &v);
	if (piece_is(name, "join"))
		return join(r, n, &v);
	if (piece_is(name, "default") || piece_is(name, "d"))
		return or_default(r, n, &v);
	if (n->kids)
		return text_filter(r, n, &v);
	if (piece_is(name, "length") || piece_is(name, "count")) {
		len = value_length(&v);
		return len < 0 ? run_unknown(r, n, "such a length") :
				 value_int(len);
	}
	if (piece_is(name, "first") || piece_is(name, "last"))
		return end_of(r, n, &v, piece_is(name, "last"));
	if (piece_is(name, "items") || piece_is(name, "list"))
		return as_list(r, n, &v, piece_is(name, "items"));
	return text_filter(r, n, &v);
}

/* Tests of what a value is: bits of its possible kinds. */
static const struct {
	const char *name;
	unsigned kinds;
} kind_tests[] = {
#define K(x) (1u << VALUE_##x)
	{ "undefined", K(UNDEFINED) },
	{ "defined", ~K(UNDEFINED) },
	{ "none", K(NONE) },
	{ "boolean", K(BOOL) },
	{ "integer", K(INT) },
	{ "float", K(FLOAT) },
	{ "number", K(BOOL) | K(INT) | K(FLOAT) },
	{ "string", K(STRING) },
	{ "mapping", K(DICT) },
	{ "iterable", K(UNDEFINED) | K(STRING) | K(LIST) | K(TUPLE) |
	  K(DICT) },
	{ "sequence", K(UNDEFINED) | K(STRING) | K(LIST) | K(TUPLE) |
	  K(DICT) },
};

/* Tests with an argument, which compare. */
static struct value compare(struct run *r, const struct node *n,
			    const struct value *v)
{
	struct value what = run_eval(r, n->kids);
	int rc = -1;

	if (r->end != JINJA_TEXT)
		return UNDEFINED;
	if (n->kids->next || n->kids->text2.p)
		return run_unknown(r, n, "such an argument");
	if (piece_is(n->text, "eq") || piece_is(n->text, "equalto"))
		rc = value_equal(v, &what);
	else if (piece_is(n->text, "in"))
		rc = value_contains(&what, v);
	return rc < 0 ? run_unknown(r, n, "such a test") : value_bool(rc);
}

struct value run_test(struct run *r, const struct node *n)
{
	struct value v = run_eval(r, n->a);

	if (r->end != JINJA_TEXT)
		return UNDEFINED;
	if (n->kids)
		return compare(r, n, &v);
	if (piece_is(n->text, "true"))
		return value_bool(v.kind == VALUE_BOOL && v.u.i);
	if (piece_is(n->text, "false"))
		return value_bool(v.kind == VALUE_BOOL && !v.u.i);
	for (size_t i = 0; i < sizeof kind_tests / sizeof *kind_tests; i++) {
		if (!piece_is(n->text, kind_tests[i].name))
			continue;
		if (v.kind >= VALUE_SPACE && i > 1)
			break;
		return value_bool(kind_tests[i].kinds >> v.kind & 1);
	}
	return run_unknown(r, n, "such a test");
}
