/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by store.c and match.c.
 */
#ifndef CA_AST_INTERNAL_H
#define CA_AST_INTERNAL_H

#include "ast/store.h"

struct ast_node {
	uint32_t kind;		/* label << 16 | number of children */
	uint32_t first;		/* in `kids` */
	uint32_t size;		/* nodes of the tree */
};

#define KIND_KIDS(kind) ((kind) & 0xffffu)
#define KIND_LABEL(kind) ((kind) >> 16)

/* What two trees, neither a leaf and not equal, have in common. */
struct ast_pair {
	uint64_t key;		/* 0: empty */
	uint32_t value;
};

struct ast_store {
	struct ast_node *node;	/* node 0 is not used */
	uint32_t nnode, node_alloc;
	uint32_t *kid;
	uint32_t nkid, kid_alloc;
	uint32_t *table;	/* of nodes; 0: empty */
	uint32_t slots;		/* a power of two */
	char **label;		/* names; label 0 is not used */
	uint32_t nlabel, label_alloc;
	uint32_t *ltable, lslots;
	struct ast_pair *pair;
	size_t npair, pair_slots;
};

/* Children stand in this order: by kind, then by number. */
int ast_order(const struct ast_store *s, uint32_t a, uint32_t b);

#endif
