/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside lib/jinja: the tokens and the tree of a template.
 */
#ifndef CA_JINJA_SYNTAX_H
#define CA_JINJA_SYNTAX_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* Bytes of a template, or of what it makes; not NUL-terminated. */
struct piece {
	const char *p;
	size_t len;
};

int piece_is(struct piece a, const char *text);

enum token_kind {
	TOKEN_TEXT,			/* outside of all tags, not empty */
	TOKEN_PRINT, TOKEN_PRINT_END,	/* {{ and }} */
	TOKEN_TAG, TOKEN_TAG_END,	/* {% and %} */
	TOKEN_NAME, TOKEN_STRING, TOKEN_INT, TOKEN_OP, TOKEN_END
};

struct token {
	enum token_kind kind;
	struct piece text;		/* of strings: what they mean */
	int64_t number;
	int line;
};

/* The tokens of a text, the last of which is TOKEN_END, in the arena; NULL
 * with CA_CONFIG. */
struct token *jinja_lex(const char *text, size_t len, struct arena *mem,
			struct err *e);

enum node_kind {
	/* Expressions. */
	NODE_UNDEFINED, NODE_NONE, NODE_BOOL, NODE_INT, NODE_STRING,
	NODE_NAME, NODE_FUNCTION,	/* a global one */
	NODE_LIST, NODE_TUPLE,		/* of `kids` */
	NODE_DICT,			/* kids: key, value, key, ... */
	NODE_ATTR,			/* a.text */
	NODE_ITEM,			/* a[b] */
	NODE_SLICE,			/* a[b:c:d] */
	NODE_CALL,			/* FUNCTION or ATTR a, of `kids` */
	NODE_FILTER,			/* a | text(kids) */
	NODE_TEST,			/* a is text(kids) */
	NODE_NOT, NODE_NEGATIVE, NODE_AND, NODE_OR,
	NODE_ADD, NODE_SUB, NODE_MUL, NODE_FLOOR, NODE_MOD, NODE_JOIN,
	NODE_EQ, NODE_NE, NODE_LT, NODE_LE, NODE_GT, NODE_GE, NODE_IN,
	NODE_COND,			/* b if a else c */
	/* Statements. */
	NODE_TEXT, NODE_PRINT,		/* text; a */
	NODE_IF,			/* a, kids, other */
	NODE_FOR,			/* text, text2 in a if b: kids, other */
	NODE_SET,			/* text = a */
	NODE_SET_ATTR,			/* text.text2 = a */
	NODE_CAPTURE,			/* text = what kids print */
	NODE_SCOPE,			/* kids, names of their own */
	NODE_BREAK, NODE_CONTINUE
};

struct node {
	enum node_kind kind;
	int line;
	struct piece text, text2;	/* text2 of an argument: its name */
	int64_t number;
	struct node *a, *b, *c, *d;
	struct node *kids, *other;	/* first of a list */
	struct node *next;		/* in such a list */
};

#define SYNTAX_DEPTH 100		/* of nesting, as it is written */

struct jinja {
	struct arena mem;
	struct node *body;
};

#endif
