/* SPDX-License-Identifier: Apache-2.0
 *
 * The grammar is jinja2's, less what chat templates of our families do
 * without: macros, calls of blocks, includes, assignments of tuples, chains of
 * comparisons.
 */
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/syntax.h"

struct parser {
	struct token *t;		/* the next one */
	struct arena *mem;
	struct err *e;
	int depth;
	int loops;			/* that surround this place */
};

static struct node *expression(struct parser *p);
static struct node *unary(struct parser *p, int filters);
static int body(struct parser *p, const char *const *ends,
		struct node **out);

/* Fails with NULL. */
static struct node *no(struct parser *p, const char *what)
{
	struct piece t = p->t->text;

	err_set(p->e, CA_CONFIG, "line %d: %s at '%.*s'", p->t->line, what,
		(int)(t.len < 40 ? t.len : 40), t.p);
	return NULL;
}

static int fail(struct parser *p, const char *what)
{
	no(p, what);
	return -1;
}

static struct node *node(struct parser *p, enum node_kind kind)
{
	struct node *n = arena_alloc(p->mem, 1, sizeof *n);

	if (!n) {
		err_set(p->e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	n->kind = kind;
	n->line = p->t->line;
	return n;
}

static struct node *pair(struct parser *p, enum node_kind kind,
			 struct node *a, struct node *b)
{
	struct node *n = a && b ? node(p, kind) : NULL;

	if (n) {
		n->a = a;
		n->b = b;
	}
	return n;
}

static int at_op(const struct parser *p, const char *op)
{
	return p->t->kind == TOKEN_OP && piece_is(p->t->text, op);
}

static int at_name(const struct parser *p, const char *name)
{
	return p->t->kind == TOKEN_NAME && piece_is(p->t->text, name);
}

static int take_op(struct parser *p, const char *op)
{
	if (!at_op(p, op))
		return 0;
	p->t++;
	return 1;
}

static int take_name(struct parser *p, const char *name)
{
	if (!at_name(p, name))
		return 0;
	p->t++;
	return 1;
}

static int in_words(struct piece name, const char *const *words)
{
	for (; *words; words++)
		if (piece_is(name, *words))
			return 1;
	return 0;
}

static const char *const functions[] = { "namespace", "range",
	"raise_exception", "strftime_now", NULL };
/* What means something else, or what we have not. */
static const char *const reserved[] = { "and", "or", "not", "in", "is", "if",
	"else", "elif", "self", "super", "caller", "varargs", "kwargs",
	"dict", "lipsum", "cycler", "joiner", "_", "gettext", NULL };
static const char *const constants[] = { "true", "True", "false", "False",
	"none", "None", NULL };

/* All that jinja2 knows: another one would not even compile there. */
static const char *const filters[] = { "abs", "attr", "batch", "capitalize",
	"center", "count", "d", "default", "dictsort", "e", "escape",
	"filesizeformat", "first", "float", "forceescape", "format",
	"groupby", "indent", "int", "items", "join", "last", "length",
	"list", "lower", "map", "max", "min", "pprint", "random", "reject",
	"rejectattr", "replace", "reverse", "round", "safe", "select",
	"selectattr", "slice", "sort", "string", "striptags", "sum",
	"title", "tojson", "trim", "truncate", "unique", "upper",
	"urlencode", "urlize", "wordcount", "wordwrap", "xmlattr", NULL };
static const char *const tests[] = { "odd", "even", "divisibleby", "defined",
	"undefined", "filter", "test", "none", "boolean", "false", "true",
	"integer", "float", "lower", "upper", "string", "mapping", "number",
	"sequence", "iterable", "callable", "sameas", "escaped", "in", "eq",
	"equalto", "ne", "gt", "greaterthan", "ge", "lt", "lessthan", "le",
	NULL };

static struct node *constant(struct parser *p, struct piece name)
{
	int yes = piece_is(name, "true") || piece_is(name, "True");
	int none = piece_is(name, "none") || piece_is(name, "None");
	struct node *n = node(p, none ? NODE_NONE : NODE_BOOL);

	if (n)
		n->number = yes;
	return n;
}

static struct node *name(struct parser *p)
{
	struct piece text = p->t->text;
	struct node *n;

	if (in_words(text, reserved))
		return no(p, "what is not computed here");
	if (in_words(text, constants)) {
		n = constant(p, text);
	} else {
		n = node(p, in_words(text, functions) ? NODE_FUNCTION :
							NODE_NAME);
		if (n)
			n->text = text;
	}
	p->t++;
	return n;
}

/* Strings side by side are one. */
static struct node *string(struct parser *p)
{
	struct node *n = node(p, NODE_STRING);
	size_t len = 0;
	char *own;

	if (!n)
		return NULL;
	if (p->t[1].kind != TOKEN_STRING) {
		n->text = p->t++->text;
		return n;
	}
	for (struct token *t = p->t; t->kind == TOKEN_STRING; t++)
		len += t->text.len;
	own = arena_alloc(p->mem, len + 1, 1);
	if (!own)
		return no(p, "no memory");
	n->text = (struct piece){ own, len };
	for (; p->t->kind == TOKEN_STRING; p->t++) {
		memcpy(own, p->t->text.p, p->t->text.len);
		own += p->t->text.len;
	}
	return n;
}

/* Expressions and commas up to a bracket; `trailing`: how many commas. */
static int items(struct parser *p, const char *close, struct node **out,
		 int *commas)
{
	*commas = 0;
	while (!take_op(p, close)) {
		*out = expression(p);
		if (!*out)
			return -1;
		out = &(*out)->next;
		if (take_op(p, ","))
			++*commas;
		else if (!at_op(p, close))
			return fail(p, "no comma");
	}
	return 0;
}

static struct node *list(struct parser *p)
{
	struct node *n = node(p, NODE_LIST);
	int commas;

	p->t++;
	return n && !items(p, "]", &n->kids, &commas) ? n : NULL;
}

static struct node *parens(struct parser *p)
{
	struct node *n = node(p, NODE_TUPLE);
	int commas;

	p->t++;
	if (!n || items(p, ")", &n->kids, &commas))
		return NULL;
	return n->kids && !commas ? n->kids : n;
}

static struct node *dict(struct parser *p)
{
	struct node *n = node(p, NODE_DICT), **out;

	p->t++;
	if (!n)
		return NULL;
	for (out = &n->kids; !take_op(p, "}"); ) {
		*out = expression(p);
		if (!*out || !take_op(p, ":"))
			return *out ? no(p, "no colon") : NULL;
		out = &(*out)->next;
		*out = expression(p);
		if (!*out)
			return NULL;
		out = &(*out)->next;
		if (!take_op(p, ",") && !at_op(p, "}"))
			return no(p, "no comma");
	}
	return n;
}

static struct node *primary(struct parser *p)
{
	struct node *n;

	switch (p->t->kind) {
	case TOKEN_NAME:
		return name(p);
	case TOKEN_STRING:
		return string(p);
	case TOKEN_INT:
		n = node(p, NODE_INT);
		if (n)
			n->number = p->t->number;
		p->t++;
		return n;
	default:
		if (at_op(p, "("))
			return parens(p);
		if (at_op(p, "["))
			return list(p);
		if (at_op(p, "{"))
			return dict(p);
		return no(p, "no expression");
	}
}

/* Behind "(": positional ones, then ones with names. */
static int arguments(struct parser *p, struct node **out)
{
	int named = 0;

	while (!take_op(p, ")")) {
		struct piece key = { 0 };

		if (p->t->kind == TOKEN_NAME && p->t[1].kind == TOKEN_OP &&
		    piece_is(p->t[1].text, "=")) {
			key = p->t->text;
			p->t += 2;
			named = 1;
		} else if (named) {
			return fail(p, "an argument without a name");
		}
		*out = expression(p);
		if (!*out)
			return -1;
		/* The node may stand in parentheses, but nowhere else. */
		(*out)->text2 = key;
		out = &(*out)->next;
		if (!take_op(p, ",") && !at_op(p, ")"))
			return fail(p, "no comma");
	}
	return 0;
}

static struct node *call(struct parser *p, struct node *callee)
{
	struct node *n = node(p, NODE_CALL);

	if (callee->kind != NODE_FUNCTION && callee->kind != NODE_ATTR)
		return no(p, "a call of what is not computed here");
	p->t++;
	if (!n || arguments(p, &n->kids))
		return NULL;
	n->a = callee;
	return n;
}

/* A part of a slice, if there is one. */
static int bound(struct parser *p, struct node **out)
{
	if (at_op(p, ":") || at_op(p, "]"))
		return 0;
	*out = expression(p);
	return *out ? 0 : -1;
}

static struct node *subscript(struct parser *p, struct node *of)
{
	struct node *n = node(p, NODE_ITEM);

	p->t++;
	if (!n || bound(p, &n->b))
		return NULL;
	n->a = of;
	if (take_op(p, ":")) {
		n->kind = NODE_SLICE;
		if (bound(p, &n->c) || (take_op(p, ":") && bound(p, &n->d)))
			return NULL;
	}
	if (!take_op(p, "]") || (n->kind == NODE_ITEM && !n->b))
		return no(p, "no subscript");
	return n;
}

static struct node *attribute(struct parser *p, struct node *of)
{
	struct node *n = node(p, NODE_ATTR);

	p->t++;
	if (p->t->kind != TOKEN_NAME)
		return no(p, "no name of a member");
	if (!n)
		return NULL;
	n->a = of;
	n->text = p->t++->text;
	return n;
}

static struct node *postfix(struct parser *p, struct node *n)
{
	while (n) {
		if (at_op(p, "."))
			n = attribute(p, n);
		else if (at_op(p, "["))
			n = subscript(p, n);
		else if (at_op(p, "("))
			n = call(p, n);
		else
			break;
	}
	return n;
}

static struct node *filter(struct parser *p, struct node *of)
{
	struct node *n = node(p, NODE_FILTER);

	p->t++;
	if (p->t->kind != TOKEN_NAME || !in_words(p->t->text, filters))
		return no(p, "no filter");
	if (!n)
		return NULL;
	n->a = of;
	n->text = p->t++->text;
	return take_op(p, "(") && arguments(p, &n->kids) ? NULL : n;
}

static int begins_argument(const struct parser *p)
{
	static const char *const words[] = { "and", "or", "else", NULL };

	if (p->t->kind == TOKEN_NAME)
		return !in_words(p->t->text, words);
	return p->t->kind == TOKEN_STRING || p->t->kind == TOKEN_INT ||
	       at_op(p, "[") || at_op(p, "{");
}

static struct node *test(struct parser *p, struct node *of)
{
	struct node *n = node(p, NODE_TEST), *not;
	int negated;

	p->t++;
	negated = take_name(p, "not");
	if (p->t->kind != TOKEN_NAME || !in_words(p->t->text, tests))
		return no(p, "no test");
	if (!n)
		return NULL;
	n->a = of;
	n->text = p->t++->text;
	if (take_op(p, "(")) {
		if (arguments(p, &n->kids))
			return NULL;
	} else if (begins_argument(p)) {
		n->kids = postfix(p, primary(p));
		if (!n->kids)
			return NULL;
	}
	if (!negated)
		return n;
	not = node(p, NODE_NOT);
	if (not)
		not->a = n;
	return not;
}

static struct node *filtered(struct parser *p, struct node *n)
{
	while (n) {
		if (at_op(p, "|"))
			n = filter(p, n);
		else if (at_name(p, "is"))
			n = test(p, n);
		else if (at_op(p, "("))
			n = call(p, n);
		else
			break;
	}
	return n;
}

static struct node *unary(struct parser *p, int with_filters)
{
	struct node *n;

	if (p->depth++ > SYNTAX_DEPTH)
		return no(p, "too deep an expression");
	if (at_op(p, "+"))
		return no(p, "a sign");
	if (take_op(p, "-")) {
		n = node(p, NODE_NEGATIVE);
		if (n && !(n->a = unary(p, 0)))
			n = NULL;
	} else {
		n = primary(p);
	}
	n = postfix(p, n);
	if (with_filters)
		n = filtered(p, n);
	p->depth--;
	return n;
}

/* Operators from the tightest to the loosest; all lean to the left. */
static const struct {
	const char *op;
	enum node_kind kind;
	int level;
} operators[] = {
	{ "*", NODE_MUL, 0 }, { "//", NODE_FLOOR, 0 }, { "%", NODE_MOD, 0 },
	{ "~", NODE_JOIN, 1 }, { "+", NODE_ADD, 2 }, { "-", NODE_SUB, 2 },
};

static struct node *arithmetic(struct parser *p, int level)
{
	struct node *n = level ? arithmetic(p, level - 1) : unary(p, 1);
	size_t i, count = sizeof operators / sizeof *operators;

	while (n) {
		for (i = 0; i < count; i++)
			if (operators[i].level == level &&
			    take_op(p, operators[i].op))
				break;
		if (i == count)
			break;
		n = pair(p, operators[i].kind, n, level ?
			 arithmetic(p, level - 1) : unary(p, 1));
	}
	return n;
}

/* The comparison that begins here; NODE_UNDEFINED: none. */
static enum node_kind comparison(struct parser *p, int *negated)
{
	static const struct {
		const char *op;
		enum node_kind kind;
	} all[] = {
		{ "==", NODE_EQ }, { "!=", NODE_NE }, { "<", NODE_LT },
		{ "<=", NODE_LE }, { ">", NODE_GT }, { ">=", NODE_GE },
	};

	*negated = 0;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (take_op(p, all[i].op))
			return all[i].kind;
	if (at_name(p, "not") && p->t[1].kind == TOKEN_NAME &&
	    piece_is(p->t[1].text, "in")) {
		*negated = 1;
		p->t += 2;
		return NODE_IN;
	}
	return take_name(p, "in") ? NODE_IN : NODE_UNDEFINED;
}

static struct node *compare(struct parser *p)
{
	struct node *n = arithmetic(p, 2), *not;
	int negated, again;
	enum node_kind kind;

	if (!n || (kind = comparison(p, &negated)) == NODE_UNDEFINED)
		return n;
	n = pair(p, kind, n, arithmetic(p, 2));
	if (n && comparison(p, &again) != NODE_UNDEFINED)
		return no(p, "a chain of comparisons");
	if (!n || !negated)
		return n;
	not = node(p, NODE_NOT);
	if (not)
		not->a = n;
	return not;
}

static struct node *negation(struct parser *p)
{
	struct node *first = NULL, **out = &first, *n;

	while (take_name(p, "not")) {
		*out = node(p, NODE_NOT);
		if (!*out)
			return NULL;
		out = &(*out)->a;
	}
	n = compare(p);
	*out = n;
	return n ? first : NULL;
}

static struct node *conjunction(struct parser *p)
{
	struct node *n = negation(p);

	while (n && take_name(p, "and"))
		n = pair(p, NODE_AND, n, negation(p));
	return n;
}

static struct node *condition(struct parser *p)
{
	struct node *n = conjunction(p);

	while (n && take_name(p, "or"))
		n = pair(p, NODE_OR, n, conjunction(p));
	return n;
}

static struct node *expression(struct parser *p)
{
	struct node *n, *cond;

	if (p->depth++ > SYNTAX_DEPTH)
		return no(p, "too deep an expression");
	n = condition(p);
	while (n && take_name(p, "if")) {
		cond = node(p, NODE_COND);
		if (!cond || !(cond->a = condition(p)))
			return NULL;
		cond->b = n;
		cond->c = take_name(p, "else") ? expression(p) :
						 node(p, NODE_UNDEFINED);
		n = cond->c ? cond : NULL;
	}
	p->depth--;
	return n;
}

static int end_tag(struct parser *p)
{
	if (p->t->kind == TOKEN_TAG_END) {
		p->t++;
		return 0;
	}
	return fail(p, "the end of a tag is missing");
}

/* A name that can be given a value. */
static int target(struct parser *p, struct piece *out)
{
	*out = p->t->text;
	if (p->t->kind != TOKEN_NAME || in_words(*out, reserved) ||
	    in_words(*out, constants) || in_words(*out, functions) ||
	    piece_is(*out, "loop"))
		return fail(p, "no name for a value");
	p->t++;
	return 0;
}

/* Behind "if" or "elif". */
static struct node *if_tag(struct parser *p)
{
	static const char *const ends[] = { "elif", "else", "endif", NULL };
	struct node *first = NULL, **out = &first;

	do {
		*out = node(p, NODE_IF);
		if (!*out || !((*out)->a = condition(p)) || end_tag(p) ||
		    body(p, ends, &(*out)->kids))
			return NULL;
		out = &(*out)->other;
	} while (take_name(p, "elif"));
	if (take_name(p, "else") &&
	    (end_tag(p) || body(p, ends + 2, out)))
		return NULL;
	p->t++;				/* endif */
	return end_tag(p) ? NULL : first;
}

static struct node *for_tag(struct parser *p)
{
	static const char *const ends[] = { "else", "endfor", NULL };
	struct node *n = node(p, NODE_FOR);
	int rc;

	if (!n || target(p, &n->text) ||
	    (take_op(p, ",") && target(p, &n->text2)))
		return NULL;
	if (!take_name(p, "in"))
		return no(p, "no 'in'");
	if (!(n->a = condition(p)) ||
	    (take_name(p, "if") && !(n->b = expression(p))) || end_tag(p))
		return NULL;
	p->loops++;
	rc = body(p, ends, &n->kids);
	p->loops--;
	if (rc || (take_name(p, "else") &&
		   (end_tag(p) || body(p, ends + 1, &n->other))))
		return NULL;
	p->t++;				/* endfor */
	return end_tag(p) ? NULL : n;
}

/* A body that is run apart: its loops are its own. */
static int apart(struct parser *p, const char *const *ends,
		 struct node **out)
{
	int loops = p->loops, rc;

	p->loops = 0;
	rc = end_tag(p) || body(p, ends, out) ? -1 : 0;
	p->loops = loops;
	if (rc)
		return -1;
	p->t++;
	return end_tag(p);
}

static struct node *set_tag(struct parser *p)
{
	static const char *const ends[] = { "endset", NULL };
	struct node *n = node(p, NODE_SET);

	if (!n || target(p, &n->text))
		return NULL;
	if (p->t->kind == TOKEN_TAG_END) {
		n->kind = NODE_CAPTURE;
		return apart(p, ends, &n->kids) ? NULL : n;
	}
	if (take_op(p, ".")) {
		n->kind = NODE_SET_ATTR;
		n->text2 = p->t->text;
		if (p->t++->kind != TOKEN_NAME)
			return no(p, "no name of a member");
	}
	if (!take_op(p, "="))
		return no(p, "no '='");
	n->a = expression(p);
	return n->a && !end_tag(p) ? n : NULL;
}

static struct node *generation_tag(struct parser *p)
{
	static const char *const ends[] = { "endgeneration", NULL };
	struct node *n = node(p, NODE_SCOPE);

	return n && !apart(p, ends, &n->kids) ? n : NULL;
}

/* Behind "{%". */
static struct node *tag(struct parser *p)
{
	struct node *n;

	if (take_name(p, "if"))
		return if_tag(p);
	if (take_name(p, "for"))
		return for_tag(p);
	if (take_name(p, "set"))
		return set_tag(p);
	if (take_name(p, "generation"))
		return generation_tag(p);
	if ((at_name(p, "break") || at_name(p, "continue")) && p->loops) {
		n = node(p, at_name(p, "break") ? NODE_BREAK :
						  NODE_CONTINUE);
		p->t++;
		return end_tag(p) ? NULL : n;
	}
	return no(p, "a tag that is not computed here");
}

static struct node *statement(struct parser *p)
{
	struct node *n;

	if (p->t->kind == TOKEN_TEXT) {
		n = node(p, NODE_TEXT);
		if (n)
			n->text = p->t->text;
		p->t++;
		return n;
	}
	if (p->t++->kind == TOKEN_TAG)
		return tag(p);
	n = node(p, NODE_PRINT);
	if (!n || !(n->a = expression(p)))
		return NULL;
	if (p->t->kind != TOKEN_PRINT_END)
		return no(p, "no '}}'");
	p->t++;
	return n;
}

/* Statements up to a tag with one of these names, which is then the next
 * token; without names, up to the end. */
static int body(struct parser *p, const char *const *ends, struct node **out)
{
	if (p->depth++ > SYNTAX_DEPTH)
		return fail(p, "too deep a nesting");
	while (p->t->kind != TOKEN_END) {
		if (ends && p->t->kind == TOKEN_TAG &&
		    p->t[1].kind == TOKEN_NAME &&
		    in_words(p->t[1].text, ends)) {
			p->t++;
			p->depth--;
			return 0;
		}
		*out = statement(p);
		if (!*out)
			return -1;
		out = &(*out)->next;
	}
	p->depth--;
	return ends ? fail(p, "a tag is not closed") : 0;
}

struct jinja *jinja_parse(const char *text, size_t len, struct err *e)
{
	struct jinja *j = calloc(1, sizeof *j);
	struct parser p = { .e = e };

	if (!j) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	p.mem = &j->mem;
	if (memchr(text, 0, len))
		err_set(e, CA_CONFIG, "it holds a NUL");
	else if ((p.t = jinja_lex(text, len, &j->mem, e)) &&
		 !body(&p, NULL, &j->body))
		return j;
	jinja_free(j);
	return NULL;
}

void jinja_free(struct jinja *j)
{
	if (!j)
		return;
	arena_release(&j->mem);
	free(j);
}
