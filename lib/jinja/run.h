/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside lib/jinja: a template that is being rendered.
 */
#ifndef CA_JINJA_RUN_H
#define CA_JINJA_RUN_H

#include "jinja/jinja.h"
#include "jinja/value.h"

struct run {
	struct arena mem;
	struct str *out;		/* of what surrounds this place */
	struct frame *frame;		/* names, the innermost first */
	struct err *e;
	enum jinja_end end;		/* but JINJA_TEXT: nothing goes on */
	enum node_kind jump;		/* BREAK or CONTINUE, on its way */
	int depth;
	long steps;
};

/* The value of an expression; undefined when r->end says why. */
struct value run_eval(struct run *r, const struct node *n);

/* Ends it all: this is not computed here.  Returns undefined. */
struct value run_unknown(struct run *r, const struct node *n,
			 const char *what);

/* A string of bytes in the arena, or of what `s` holds, which is released. */
char *run_alloc(struct run *r, const struct node *n, size_t len);
struct value run_keep(struct run *r, const struct node *n, struct str *s);

/* Filters, tests, methods of values, and global functions. */
struct value run_filter(struct run *r, const struct node *n);
struct value run_test(struct run *r, const struct node *n);
struct value run_call(struct run *r, const struct node *n);

#endif
