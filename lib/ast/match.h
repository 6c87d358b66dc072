/* SPDX-License-Identifier: Apache-2.0
 *
 * Similarity of files by their syntax trees, as the metric that the CUDA
 * Agent paper uses (PythonASTSimilarity of continuous-eval) defines it:
 *
 *   match(a, b) = 0 when type or number of children differ, else 1 plus the
 *   best one-to-one assignment of children to children;
 *   score = 2 * (the best assignment of significant subtrees, weighted) /
 *   (weighted nodes of all significant subtrees of both), to 4 digits; 0
 *   where a side has fewer than two.
 *
 * Why it is fast and still exact.  Equal trees match in full; and since
 * matches compose (what x shares with y and with z, y and z share too), some
 * best assignment pairs equal children with each other.  Only trees of one
 * kind share anything, so what is left falls into small blocks.
 */
#ifndef CA_AST_MATCH_H
#define CA_AST_MATCH_H

#include "ast/store.h"

/* The score, rounded to 4 digits as Python rounds.  -1 when memory is short or
 * too many children of one kind stand against each other. */
double ast_similarity(struct ast_store *s, const struct ast_doc *a,
		      const struct ast_doc *b);

/* What it cannot exceed (before rounding); costs some nanoseconds. */
double ast_bound(const struct ast_doc *a, const struct ast_doc *b);

/* An ordered set of files to compare with. */
struct ast_set {
	const struct ast_doc **doc;	/* by weight */
	size_t *index;		/* the caller's number of each */
	size_t n;
};
int ast_set_init(struct ast_set *set, const struct ast_doc *docs, size_t n,
		 struct err *e);
void ast_set_release(struct ast_set *set);

/*
 * The largest similarity to a member, and the first member (in the caller's
 * numbers) that has it, in *which; SIZE_MAX for an empty set.  -1 as above.
 */
double ast_nearest(struct ast_store *s, const struct ast_set *set,
		   const struct ast_doc *d, size_t *which);

/* Whether some member is more similar than `limit`: 1 with its number in
 * *which, 0, or -1 as above. */
int ast_exceeds(struct ast_store *s, const struct ast_set *set,
		const struct ast_doc *d, double limit, size_t *which);

#endif
