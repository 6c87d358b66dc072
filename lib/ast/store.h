/* SPDX-License-Identifier: Apache-2.0
 *
 * Syntax trees, every distinct one once.  A node is its label and its
 * children; the order of children is forgotten, since similarity assigns them
 * to each other as it likes.  Equal trees have equal numbers, so comparing
 * two is an integer comparison, and what was found out about a pair serves
 * all files in which it occurs.
 */
#ifndef CA_AST_STORE_H
#define CA_AST_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Beyond these a file is refused. */
#define AST_NODES 20000
#define AST_SIGNIFICANT 2000
#define AST_BUCKETS 64

/* A subtree that counts: an import, a function, a branch, … */
struct ast_part {
	uint32_t node;
	uint32_t weight;	/* in tenths */
};

/*
 * One file.  Sums are in tenths, so that they are integers.  `part` is
 * malloc'd, ordered as children are.
 */
struct ast_doc {
	struct ast_part *part;
	size_t n;
	uint64_t weight;	/* of all nodes of all parts */
	uint32_t bucket[AST_BUCKETS];	/* the same, by kinds from a part down
					 * to a node, hashed */
	int16_t small[AST_BUCKETS];	/* the same again, unless one of them */
	int large;			/* does not fit */
};

struct ast_store;

struct ast_store *ast_store_new(void);	/* NULL when memory is short */
void ast_store_free(struct ast_store *s);

/* The number of a label's name; 0 when memory is short. */
uint32_t ast_label(struct ast_store *s, const char *name, size_t len);

/*
 * Reads nodes as ast.py writes them (pre-order, three u16 each).  label[i] is
 * the number of its label i + 1.  Makes the tree as it stands and the
 * normalised one.  0; 1 when the file is beyond the limits above (said in
 * `e`); -1 when these bytes are no tree, or memory is short.
 */
int ast_read(struct ast_store *s, const uint32_t *label, size_t nlabel,
	     const void *nodes, size_t len, struct ast_doc *paper,
	     struct ast_doc *normal, struct err *e);
void ast_doc_release(struct ast_doc *d);

/*
 * Forgets all trees that came after the mark, once they take much memory;
 * docs that hold any are then void.
 */
size_t ast_store_mark(const struct ast_store *s);
void ast_store_trim(struct ast_store *s, size_t mark);

#endif
