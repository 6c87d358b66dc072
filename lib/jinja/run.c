/* SPDX-License-Identifier: Apache-2.0
 *
 * Names are looked for from the innermost frame on: bodies of loops, captured
 * texts and what is generated have frames of their own, bodies of conditions
 * have not.
 */
#include "jinja/run.h"

#include <string.h>

#define STEPS_MAX  50000000
#define DEPTH_MAX  600
#define MEMORY_MAX ((size_t)512 << 20)

struct bound_name {
	struct piece name;
	struct value value;
	struct bound_name *next;
};

struct frame {
	struct frame *up;
	struct bound_name *first;
};

struct value run_unknown(struct run *r, const struct node *n,
			 const char *what)
{
	if (r->end == JINJA_TEXT) {
		err_set(r->e, CA_CONFIG, "line %d: %s", n->line, what);
		r->end = JINJA_UNKNOWN;
	}
	return UNDEFINED;
}

char *run_alloc(struct run *r, const struct node *n, size_t len)
{
	char *p = arena_alloc(&r->mem, len + 1, 1);

	if (!p)
		run_unknown(r, n, "too much memory");
	return p;
}

struct value run_keep(struct run *r, const struct node *n, struct str *s)
{
	struct value v = UNDEFINED;
	char *p = run_alloc(r, n, s->len);

	if (s->failed)
		run_unknown(r, n, "too long a text");
	if (p && s->len)
		memcpy(p, s->buf, s->len);
	if (p)
		v = value_string(p, s->len);
	str_release(s);
	return v;
}

/* Binds a name in the innermost frame. */
static void bind(struct run *r, const struct node *n, struct piece name,
		 struct value v)
{
	struct bound_name *b = r->frame->first;

	while (b && !(b->name.len == name.len &&
		      !memcmp(b->name.p, name.p, name.len)))
		b = b->next;
	if (!b) {
		b = arena_alloc(&r->mem, 1, sizeof *b);
		if (!b) {
			run_unknown(r, n, "too much memory");
			return;
		}
		b->name = name;
		b->next = r->frame->first;
		r->frame->first = b;
	}
	b->value = v;
}

static struct value look_up(const struct run *r, struct piece name)
{
	for (const struct frame *f = r->frame; f; f = f->up)
		for (const struct bound_name *b = f->first; b; b = b->next)
			if (b->name.len == name.len &&
			    !memcmp(b->name.p, name.p, name.len))
				return b->value;
	return UNDEFINED;
}

static int truth(struct run *r, const struct node *n)
{
	struct value v = run_eval(r, n);
	int yes = value_true(&v);

	if (yes < 0)
		run_unknown(r, n, "truth of such a value");
	return yes > 0;
}

static struct value eval_list(struct run *r, const struct node *n)
{
	struct value v;
	size_t len = 0;

	for (const struct node *k = n->kids; k; k = k->next)
		len++;
	v = value_list(&r->mem, n->kind == NODE_LIST ? VALUE_LIST :
						       VALUE_TUPLE, len);
	if (!v.u.list)
		return run_unknown(r, n, "too much memory");
	for (const struct node *k = n->kids; k; k = k->next)
		v.u.list->item[v.u.list->n++] = run_eval(r, k);
	return v;
}

static struct value eval_dict(struct run *r, const struct node *n)
{
	struct dict *d = arena_alloc(&r->mem, 1, sizeof *d);

	if (!d)
		return run_unknown(r, n, "too much memory");
	for (const struct node *k = n->kids; k; k = k->next->next) {
		struct value key = run_eval(r, k);
		struct value value = run_eval(r, k->next);

		if (key.kind != VALUE_STRING)
			return run_unknown(r, n, "a key that is no text");
		if (dict_put(&r->mem, d, key.u.s, value))
			return run_unknown(r, n, "too much memory");
	}
	return (struct value){ .kind = VALUE_DICT, .u.dict = d };
}

/* What Python's dict has under such a name, or its guards refuse. */
static int is_dict_method(struct piece name)
{
	static const char *const all[] = { "clear", "copy", "fromkeys",
		"get", "items", "keys", "pop", "popitem", "setdefault",
		"update", "values" };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (piece_is(name, all[i]))
			return 1;
	return name.len && *name.p == '_';
}

static struct value loop_member(struct run *r, const struct node *n,
				const struct loop *l, struct piece name)
{
	size_t count = l->over->n, at = l->at;

	if (at >= count)
		return run_unknown(r, n, "a loop that is over");
	if (piece_is(name, "index"))
		return value_int((int64_t)at + 1);
	if (piece_is(name, "index0"))
		return value_int((int64_t)at);
	if (piece_is(name, "first"))
		return value_bool(at == 0);
	if (piece_is(name, "last"))
		return value_bool(at + 1 == count);
	if (piece_is(name, "length"))
		return value_int((int64_t)count);
	if (piece_is(name, "revindex"))
		return value_int((int64_t)(count - at));
	if (piece_is(name, "revindex0"))
		return value_int((int64_t)(count - at) - 1);
	if (piece_is(name, "previtem"))
		return at ? l->over->item[at - 1] : UNDEFINED;
	if (piece_is(name, "nextitem"))
		return at + 1 < count ? l->over->item[at + 1] : UNDEFINED;
	return run_unknown(r, n, "such a member of loop");
}

/* of.name, and of[name] where `item`. */
static struct value member(struct run *r, const struct node *n,
			   const struct value *of, struct piece name,
			   int item)
{
	const struct value *v;

	switch (of->kind) {
	case VALUE_DICT:
		if (!item && is_dict_method(name))
			break;
		v = dict_get(of->u.dict, name);
		if (v)
			return *v;
		if (is_dict_method(name))
			break;
		return UNDEFINED;
	case VALUE_SPACE:
		if (*name.p == '_')
			break;
		v = dict_get(of->u.dict, name);
		return v ? *v : UNDEFINED;
	case VALUE_NONE:
		if (*name.p == '_')
			break;
		return UNDEFINED;
	case VALUE_LOOP:
		return loop_member(r, n, of->u.loop, name);
	default:
		break;
	}
	return run_unknown(r, n, "such a member of such a value");
}

static struct value eval_item(struct run *r, const struct node *n)
{
	struct value of = run_eval(r, n->a), at = run_eval(r, n->b);
	int is_list = of.kind == VALUE_LIST || of.kind == VALUE_TUPLE;
	int64_t i, len;

	if (r->end != JINJA_TEXT)
		return UNDEFINED;
	if (at.kind == VALUE_STRING && at.u.s.len)
		return member(r, n, &of, at.u.s, 1);
	if (at.kind != VALUE_INT || !is_list)
		return run_unknown(r, n, "such a subscript");
	len = (int64_t)of.u.list->n;
	i = at.u.i < 0 ? at.u.i + len : at.u.i;
	return i >= 0 && i < len ? of.u.list->item[i] : UNDEFINED;
}

/* One of a slice's numbers, bounded as Python bounds it. */
static int slice_bound(struct run *r, const struct node *n, int64_t len,
		       int64_t low, int64_t high, int64_t dflt, int64_t *out)
{
	struct value v;

	*out = dflt;
	if (!n)
		return 0;
	v = run_eval(r, n);
	if (v.kind == VALUE_NONE)
		return 0;
	if (v.kind != VALUE_INT) {
		run_unknown(r, n, "such a slice");
		return -1;
	}
	*out = v.u.i < 0 ? v.u.i + len : v.u.i;
	*out = *out < low ? low : *out > high ? high : *out;
	return 0;
}

static struct value eval_slice(struct run *r, const struct node *n)
{
	struct value of = run_eval(r, n->a), out;
	int64_t len, from, to, step = 1, back;
	struct value by = { .kind = VALUE_NONE };

	if (of.kind != VALUE_LIST)
		return run_unknown(r, n, "a slice of such a value");
	if (n->d)
		by = run_eval(r, n->d);
	if (by.kind == VALUE_INT)
		step = by.u.i;
	else if (by.kind != VALUE_NONE)
		step = 0;
	if (!step || step > INT32_MAX || step < -INT32_MAX)
		return run_unknown(r, n, "such a slice");
	len = (int64_t)of.u.list->n;
	back = step < 0;
	if (slice_bound(r, n->b, len, -back, len - back,
			back ? len - 1 : 0, &from) ||
	    slice_bound(r, n->c, len, -back, len - back,
			back ? -1 : len, &to))
		return UNDEFINED;
	out = value_list(&r->mem, VALUE_LIST, (size_t)len);
	if (!out.u.list)
		return run_unknown(r, n, "too much memory");
	for (; back ? from > to : from < to; from += step)
		out.u.list->item[out.u.list->n++] = of.u.list->item[from];
	return out;
}

static struct value add_lists(struct run *r, const struct node *n,
			      const struct list *a, const struct list *b)
{
	struct value v = value_list(&r->mem, VALUE_LIST, a->n + b->n);

	if (!v.u.list)
		return run_unknown(r, n, "too much memory");
	memcpy(v.u.list->item, a->item, a->n * sizeof *a->item);
	memcpy(v.u.list->item + a->n, b->item, b->n * sizeof *b->item);
	v.u.list->n = a->n + b->n;
	return v;
}

static struct value add_strings(struct run *r, const struct node *n,
				struct piece a, struct piece b)
{
	char *p;

	if (!a.len || !b.len)
		return a.len ? value_string(a.p, a.len) :
			       value_string(b.p, b.len);
	p = run_alloc(r, n, a.len + b.len);
	if (!p)
		return UNDEFINED;
	memcpy(p, a.p, a.len);
	memcpy(p + a.len, b.p, b.len);
	return value_string(p, a.len + b.len);
}

/* Python's division of integers rounds down. */
static int divide(enum node_kind kind, int64_t a, int64_t b, int64_t *out)
{
	int64_t rest;

	if (!b || (a == INT64_MIN && b == -1))
		return -1;
	rest = a % b;
	if (rest && (rest < 0) != (b < 0))
		rest += b;
	*out = kind == NODE_MOD ? rest : (a - rest) / b;
	return 0;
}

static struct value eval_arithmetic(struct run *r, const struct node *n)
{
	struct value a = run_eval(r, n->a), b = run_eval(r, n->b);
	int64_t i = 0;
	int bad;

	if (r->end != JINJA_TEXT)
		return UNDEFINED;
	if (n->kind == NODE_ADD && a.kind == b.kind) {
		if (a.kind == VALUE_STRING)
			return add_strings(r, n, a.u.s, b.u.s);
		if (a.kind == VALUE_LIST)
			return add_lists(r, n, a.u.list, b.u.list);
	}
	if (a.kind != VALUE_INT || b.kind != VALUE_INT)
		return run_unknown(r, n, "arithmetic with such values");
	if (n->kind == NODE_ADD)
		bad = __builtin_add_overflow(a.u.i, b.u.i, &i);
	else if (n->kind == NODE_SUB)
		bad = __builtin_sub_overflow(a.u.i, b.u.i, &i);
	else if (n->kind == NODE_MUL)
		bad = __builtin_mul_overflow(a.u.i, b.u.i, &i);
	else
		bad = divide(n->kind, a.u.i, b.u.i, &i);
	return bad ? run_unknown(r, n, "such a number") : value_int(i);
}

static struct value eval_join(struct run *r, const struct node *n)
{
	struct value a = run_eval(r, n->a), b = run_eval(r, n->b);
	struct str s = STR_INIT;

	if (value_print(&a, &s) || value_print(&b, &s)) {
		str_release(&s);
		return run_unknown(r, n, "the text of such a value");
	}
	return run_keep(r, n, &s);
}

static struct value eval_comparison(struct run *r, const struct node *n)
{
	struct value a = run_eval(r, n->a), b = run_eval(r, n->b);
	int rc, sign;

	if (r->end != JINJA_TEXT)
		return UNDEFINED;
	if (n->kind == NODE_IN || n->kind == NODE_EQ || n->kind == NODE_NE) {
		rc = n->kind == NODE_IN ? value_contains(&b, &a) :
					  value_equal(&a, &b);
		return rc < 0 ? run_unknown(r, n, "such a comparison") :
		       value_bool(n->kind == NODE_NE ? !rc : rc);
	}
	if (!value_order(&a, &b, &sign))
		return run_unknown(r, n, "such a comparison");
	return value_bool(n->kind == NODE_LT ? sign < 0 :
			  n->kind == NODE_LE ? sign <= 0 :
			  n->kind == NODE_GT ? sign > 0 : sign >= 0);
}

/* and, or, not, if. */
static struct value eval_choice(struct run *r, const struct node *n)
{
	struct value v;
	int yes;

	if (n->kind == NODE_NOT)
		return value_bool(!truth(r, n->a));
	if (n->kind == NODE_COND)
		return run_eval(r, truth(r, n->a) ? n->b : n->c);
	v = run_eval(r, n->a);
	yes = value_true(&v);
	if (yes < 0)
		return run_unknown(r, n, "truth of such a value");
	return yes == (n->kind == NODE_AND) ? run_eval(r, n->b) : v;
}

static struct value eval_negative(struct run *r, const struct node *n)
{
	struct value v = run_eval(r, n->a);

	if (v.kind != VALUE_INT || v.u.i == INT64_MIN)
		return run_unknown(r, n, "minus such a value");
	return value_int(-v.u.i);
}

static struct value eval_attr(struct run *r, const struct node *n)
{
	struct value of = run_eval(r, n->a);

	return r->end != JINJA_TEXT ? UNDEFINED :
	       member(r, n, &of, n->text, 0);
}

static struct value eval(struct run *r, const struct node *n)
{
	switch (n->kind) {
	case NODE_UNDEFINED: return UNDEFINED;
	case NODE_NONE: return (struct value){ .kind = VALUE_NONE };
	case NODE_BOOL: return value_bool((int)n->number);
	case NODE_INT: return value_int(n->number);
	case NODE_STRING: return value_string(n->text.p, n->text.len);
	case NODE_NAME: return look_up(r, n->text);
	case NODE_FUNCTION: return (struct value){ .kind = VALUE_FUNCTION };
	case NODE_LIST:
	case NODE_TUPLE: return eval_list(r, n);
	case NODE_DICT: return eval_dict(r, n);
	case NODE_ATTR: return eval_attr(r, n);
	case NODE_ITEM: return eval_item(r, n);
	case NODE_SLICE: return eval_slice(r, n);
	case NODE_CALL: return run_call(r, n);
	case NODE_FILTER: return run_filter(r, n);
	case NODE_TEST: return run_test(r, n);
	case NODE_NEGATIVE: return eval_negative(r, n);
	case NODE_NOT:
	case NODE_AND:
	case NODE_OR:
	case NODE_COND: return eval_choice(r, n);
	case NODE_JOIN: return eval_join(r, n);
	case NODE_ADD:
	case NODE_SUB:
	case NODE_MUL:
	case NODE_FLOOR:
	case NODE_MOD: return eval_arithmetic(r, n);
	default: return eval_comparison(r, n);
	}
}

struct value run_eval(struct run *r, const struct node *n)
{
	struct value v;

	if (r->end != JINJA_TEXT)
		return UNDEFINED;
	if (++r->steps > STEPS_MAX || r->depth >= DEPTH_MAX)
		return run_unknown(r, n, "too much work");
	r->depth++;
	v = eval(r, n);
	r->depth--;
	return r->end == JINJA_TEXT ? v : UNDEFINED;
}

static void run_body(struct run *r, const struct node *n);

/* With names of its own. */
static void run_apart(struct run *r, const struct node *kids)
{
	struct frame own = { .up = r->frame };

	r->frame = &own;
	run_body(r, kids);
	r->frame = own.up;
}

/* The elements that a loop goes through; NULL: none can be. */
static const struct list *elements(struct run *r, const struct node *n,
				   const struct value *v)
{
	struct value keys;

	if (v->kind == VALUE_LIST || v->kind == VALUE_TUPLE)
		return v->u.list;
	if (v->kind == VALUE_VIEW && v->u.list->once < 2) {
		v->u.list->once *= 2;
		return v->u.list;
	}
	if (v->kind != VALUE_DICT && v->kind != VALUE_UNDEFINED) {
		run_unknown(r, n, "a loop over such a value");
		return NULL;
	}
	keys = value_list(&r->mem, VALUE_LIST, v->kind == VALUE_DICT ?
			  v->u.dict->n : 0);
	if (!keys.u.list) {
		run_unknown(r, n, "too much memory");
		return NULL;
	}
	for (size_t i = 0; v->kind == VALUE_DICT && i < v->u.dict->n; i++) {
		struct piece k = v->u.dict->entry[i].key;

		keys.u.list->item[keys.u.list->n++] =
			value_string(k.p, k.len);
	}
	return keys.u.list;
}

/* Binds the loop's one or two names. */
static void bind_element(struct run *r, const struct node *n,
			 const struct value *v)
{
	if (!n->text2.p) {
		bind(r, n, n->text, *v);
		return;
	}
	if ((v->kind != VALUE_TUPLE && v->kind != VALUE_LIST) ||
	    v->u.list->n != 2) {
		run_unknown(r, n, "a pair from such a value");
		return;
	}
	bind(r, n, n->text, v->u.list->item[0]);
	bind(r, n, n->text2, v->u.list->item[1]);
}

/* Those for which the loop's condition holds. */
static const struct list *chosen(struct run *r, const struct node *n,
				 const struct list *all)
{
	struct value v = value_list(&r->mem, VALUE_LIST, all->n);

	if (!v.u.list) {
		run_unknown(r, n, "too much memory");
		return NULL;
	}
	for (size_t i = 0; i < all->n && r->end == JINJA_TEXT; i++) {
		struct frame own = { .up = r->frame };

		r->frame = &own;
		bind_element(r, n, &all->item[i]);
		if (truth(r, n->b))
			v.u.list->item[v.u.list->n++] = all->item[i];
		r->frame = own.up;
	}
	return v.u.list;
}

static void run_for(struct run *r, const struct node *n)
{
	struct value over = run_eval(r, n->a);
	const struct list *all = r->end != JINJA_TEXT ? NULL :
				 elements(r, n, &over);
	struct loop *l = arena_alloc(&r->mem, 1, sizeof *l);

	if (all && n->b)
		all = chosen(r, n, all);
	if (!l)
		run_unknown(r, n, "too much memory");
	if (!l || !all)
		return;
	l->over = all;
	for (; l->at < all->n && r->end == JINJA_TEXT; l->at++) {
		struct frame own = { .up = r->frame };

		r->frame = &own;
		bind_element(r, n, &all->item[l->at]);
		bind(r, n, (struct piece){ "loop", 4 },
		     (struct value){ .kind = VALUE_LOOP, .u.loop = l });
		run_body(r, n->kids);
		r->frame = own.up;
		if (r->jump == NODE_BREAK)
			break;
		r->jump = NODE_UNDEFINED;
	}
	l->at = all->n;
	r->jump = NODE_UNDEFINED;
	if (!all->n)
		run_apart(r, n->other);
}

static void run_print(struct run *r, const struct node *n)
{
	struct value v = run_eval(r, n->a);

	if (r->end == JINJA_TEXT && value_print(&v, r->out))
		run_unknown(r, n, "the text of such a value");
}

static void run_capture(struct run *r, const struct node *n)
{
	struct str s = STR_INIT, *was = r->out;

	r->out = &s;
	run_apart(r, n->kids);
	r->out = was;
	bind(r, n, n->text, run_keep(r, n, &s));
}

static void run_set_attr(struct run *r, const struct node *n)
{
	struct value of = look_up(r, n->text), v = run_eval(r, n->a);

	if (of.kind != VALUE_SPACE)
		run_unknown(r, n, "a member of such a value set");
	else if (dict_put(&r->mem, of.u.dict, n->text2, v))
		run_unknown(r, n, "too much memory");
}

static void run_one(struct run *r, const struct node *n)
{
	switch (n->kind) {
	case NODE_TEXT:
		str_add(r->out, n->text.p, n->text.len);
		break;
	case NODE_PRINT:
		run_print(r, n);
		break;
	case NODE_IF:
		run_body(r, truth(r, n->a) ? n->kids : n->other);
		break;
	case NODE_FOR:
		run_for(r, n);
		break;
	case NODE_SET:
		bind(r, n, n->text, run_eval(r, n->a));
		break;
	case NODE_SET_ATTR:
		run_set_attr(r, n);
		break;
	case NODE_CAPTURE:
		run_capture(r, n);
		break;
	case NODE_SCOPE:
		run_apart(r, n->kids);
		break;
	default:
		r->jump = n->kind;
	}
}

static void run_body(struct run *r, const struct node *n)
{
	if (n && (++r->steps > STEPS_MAX || r->depth >= DEPTH_MAX)) {
		run_unknown(r, n, "too much work");
		return;
	}
	r->depth++;
	for (; n && r->end == JINJA_TEXT && r->jump == NODE_UNDEFINED;
	     n = n->next)
		run_one(r, n);
	r->depth--;
}

static void give(struct run *r, const char *name, struct value v)
{
	static const struct node nowhere = { .line = 0 };

	bind(r, &nowhere, (struct piece){ name, strlen(name) }, v);
}

static void give_text(struct run *r, const char *name, const char *text)
{
	give(r, name, value_string(text, strlen(text)));
}

static int give_all(struct run *r, const struct jinja_vars *v)
{
	struct value messages = value_list(&r->mem, VALUE_LIST,
					   json_len(v->messages));
	struct value none = { .kind = VALUE_NONE }, tools = none;
	const struct json *m = json_first(v->messages);

	if (!messages.u.list)
		return -1;
	for (size_t i = 0; m && i < v->n; m = json_next(m), i++)
		if (value_json(&r->mem, m, &messages.u.list->item[
			       messages.u.list->n++]))
			return -1;
	if (v->tools && value_json(&r->mem, v->tools, &tools))
		return -1;
	give(r, "messages", messages);
	give(r, "tools", tools);
	give(r, "documents", none);
	give(r, "add_generation_prompt", value_bool(v->open));
	give_text(r, "bos_token", v->bos);
	give_text(r, "eos_token", v->eos);
	return 0;
}

enum jinja_end jinja_render(const struct jinja *j, const struct jinja_vars *v,
			    struct str *out, struct err *e)
{
	struct str text = STR_INIT;
	struct frame given = { 0 }, own = { .up = &given };
	struct run r = { .out = &text, .frame = &given, .e = e };

	r.mem.cap = MEMORY_MAX;
	if (give_all(&r, v)) {
		err_set(e, CA_CONFIG, "too much memory");
		r.end = JINJA_UNKNOWN;
	}
	r.frame = &own;
	run_body(&r, j->body);
	if (r.end == JINJA_TEXT && (text.failed ||
				    str_add(out, text.buf ? text.buf : "",
					    text.len))) {
		err_set(e, CA_CONFIG, "too long a text");
		r.end = JINJA_UNKNOWN;
	}
	str_release(&text);
	arena_release(&r.mem);
	return r.end;
}
