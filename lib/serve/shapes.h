/* SPDX-License-Identifier: Apache-2.0
 *
 * What a shape is made of; for shape.c, which makes it, and follow.c.
 */
#ifndef CA_SERVE_SHAPES_H
#define CA_SERVE_SHAPES_H

#include "serve/shape.h"

/* Kinds of values, told apart by their first byte. */
enum shape_kind { KIND_OBJECT, KIND_ARRAY, KIND_STRING, KIND_NUMBER, KIND_BOOL,
		  KIND_NULL, KINDS };

struct shape_text {
	char *p;			/* as it is written */
	size_t len;
	int node;			/* of what follows */
};

struct shape_node {
	int is[KINDS];			/* node of values of this kind; or -1 */
	/* Members of an object, values of an enum, beginnings of calls. */
	struct shape_text *text;
	int ntexts;
	int is_enum;
	uint64_t required;
	int extra;			/* of other members; -1: none */
	int items;
	uint32_t least, most;		/* items or characters */
	int whole;			/* numbers without a fraction */
	/* Frames that its shortest value of a kind takes, and the least of
	 * them; SHAPE_NEVER: no frames are enough. */
	uint8_t needs[KINDS], need;
};

#define SHAPE_NEVER 255

struct shape {
	struct shape_node *node;
	int n, alloc;
	int root;
	const char *tail;		/* of a call; NULL: none */
};

/* Finds what every node's values need, and returns what the whole does. */
unsigned shape_needs(struct shape *s);

#endif
