/* SPDX-License-Identifier: Apache-2.0
 *
 * How many frames the shortest values take, so that none is begun that has no
 * room to end.
 */
#include <string.h>

#include "serve/shapes.h"

static unsigned one_more(const struct shape *s, int node)
{
	unsigned n = node < 0 ? SHAPE_NEVER : s->node[node].need;

	return n < SHAPE_DEPTH ? n + 1 : SHAPE_NEVER;
}

/* Of the shortest value of a kind that this node is of. */
static unsigned need_of(const struct shape *s, const struct shape_node *p,
			int kind)
{
	unsigned most = 1;

	if (p->is_enum)
		return 1;
	if (kind == KIND_ARRAY)
		return p->least ? one_more(s, p->items) : 1;
	for (int k = 0; kind == KIND_OBJECT && k < p->ntexts; k++) {
		unsigned n = one_more(s, p->text[k].node);

		if (p->required >> k & 1 && n > most)
			most = n;
	}
	return most;
}

static int lower(const struct shape *s, struct shape_node *p)
{
	int changed = 0;

	for (int k = 0; k < KINDS; k++) {
		unsigned n = p->is[k] < 0 ? SHAPE_NEVER :
			     need_of(s, &s->node[p->is[k]], k);

		changed |= n < p->needs[k];
		if (n < p->needs[k])
			p->needs[k] = (uint8_t)n;
		if (n < p->need)
			p->need = (uint8_t)n;
	}
	return changed;
}

unsigned shape_needs(struct shape *s)
{
	const struct shape_node *root = &s->node[s->root];
	unsigned most = s->tail ? 1 : SHAPE_NEVER, n;
	int changed = 1;

	for (int i = 0; i < s->n; i++) {
		s->node[i].need = SHAPE_NEVER;
		memset(s->node[i].needs, SHAPE_NEVER,
		       sizeof s->node[i].needs);
	}
	/* From above; a round finds all values that are a frame deeper, and
	 * more than SHAPE_DEPTH frames are as bad as none. */
	while (changed) {
		changed = 0;
		for (int i = 0; i < s->n; i++)
			changed |= lower(s, &s->node[i]);
	}
	for (int k = 0; s->tail && k < root->ntexts; k++) {
		n = one_more(s, root->text[k].node);
		most = n > most ? n : most;
	}
	return s->tail ? most : root->need;
}
