/* SPDX-License-Identifier: Apache-2.0
 *
 * The store of trees, and reading them.
 */
#include "ast/internal.h"

#include <stdlib.h>
#include <string.h>

#define LABELS_MAX 0xffffu
#define TRIM_NODES ((uint32_t)4 << 20)
#define TRIM_PAIRS ((size_t)16 << 20)

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 29;
}

struct ast_store *ast_store_new(void)
{
	struct ast_store *s = calloc(1, sizeof(*s));

	if (s)
		s->nnode = s->nlabel = 1;
	return s;
}

void ast_store_free(struct ast_store *s)
{
	if (!s)
		return;
	for (uint32_t i = 1; i < s->nlabel; i++)
		free(s->label[i]);
	free(s->label);
	free(s->ltable);
	free(s->node);
	free(s->kid);
	free(s->table);
	free(s->pair);
	free(s);
}

/* Makes room for n items in all. */
static int grow(void **p, uint32_t *alloc, size_t n, size_t size)
{
	size_t want = *alloc ? *alloc : 256;
	void *q;

	if (n <= *alloc)
		return 0;
	while (want < n)
		want *= 2;
	if (want > UINT32_MAX / 2)
		return -1;
	q = realloc(*p, want * size);
	if (!q)
		return -1;
	*p = q;
	*alloc = (uint32_t)want;
	return 0;
}

static uint64_t text_hash(const char *name, size_t len)
{
	uint64_t h = len;

	for (size_t i = 0; i < len; i++)
		h = mix(h, (unsigned char)name[i]);
	return h;
}

static void label_place(struct ast_store *s, uint32_t id)
{
	const char *name = s->label[id];
	uint32_t at = (uint32_t)text_hash(name, strlen(name));

	while (s->ltable[at & (s->lslots - 1)])
		at++;
	s->ltable[at & (s->lslots - 1)] = id;
}

static int label_rehash(struct ast_store *s)
{
	uint32_t slots = s->lslots ? s->lslots * 2 : 1024;
	uint32_t *t = calloc(slots, sizeof(*t));

	if (!t)
		return -1;
	free(s->ltable);
	s->ltable = t;
	s->lslots = slots;
	for (uint32_t i = 1; i < s->nlabel; i++)
		label_place(s, i);
	return 0;
}

uint32_t ast_label(struct ast_store *s, const char *name, size_t len)
{
	uint32_t at = (uint32_t)text_hash(name, len), id;
	void *p = s->label;

	for (; s->lslots && (id = s->ltable[at & (s->lslots - 1)]); at++)
		if (!strncmp(s->label[id], name, len) && !s->label[id][len])
			return id;
	/* Too many kinds of attributes: from here on they are all one. */
	if (s->nlabel > LABELS_MAX)
		return LABELS_MAX;
	if (s->nlabel * 2 >= s->lslots && label_rehash(s))
		return 0;
	if (grow(&p, &s->label_alloc, (size_t)s->nlabel + 1, sizeof(char *)))
		return 0;
	s->label = p;
	s->label[s->nlabel] = strndup(name, len);
	if (!s->label[s->nlabel])
		return 0;
	label_place(s, s->nlabel);
	return s->nlabel++;
}

static uint64_t node_hash(uint32_t kind, const uint32_t *kid)
{
	uint64_t h = kind;

	for (uint32_t i = 0; i < KIND_KIDS(kind); i++)
		h = mix(h, kid[i]);
	return mix(h, 1);
}

static void node_place(struct ast_store *s, uint32_t id)
{
	const struct ast_node *n = &s->node[id];
	uint32_t at = (uint32_t)node_hash(n->kind, s->kid + n->first);

	while (s->table[at & (s->slots - 1)])
		at++;
	s->table[at & (s->slots - 1)] = id;
}

static int node_rehash(struct ast_store *s, uint32_t slots)
{
	uint32_t *t = calloc(slots, sizeof(*t));

	if (!t)
		return -1;
	free(s->table);
	s->table = t;
	s->slots = slots;
	for (uint32_t i = 1; i < s->nnode; i++)
		node_place(s, i);
	return 0;
}

int ast_order(const struct ast_store *s, uint32_t a, uint32_t b)
{
	uint32_t ka = s->node[a].kind, kb = s->node[b].kind;

	if (ka != kb)
		return ka < kb ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* Insertion sort: most nodes have two children. */
static void sort_short(const struct ast_store *s, uint32_t *id, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		uint32_t x = id[i];
		size_t k = i;

		for (; k && ast_order(s, x, id[k - 1]) < 0; k--)
			id[k] = id[k - 1];
		id[k] = x;
	}
}

static void sort_ids(const struct ast_store *s, uint32_t *id, uint32_t *tmp,
		     size_t n)
{
	size_t half = n / 2, i = 0, k = half;

	if (n <= 16) {
		sort_short(s, id, n);
		return;
	}
	sort_ids(s, id, tmp, half);
	sort_ids(s, id + half, tmp, n - half);
	memcpy(tmp, id, n * sizeof(*id));
	for (size_t out = 0; out < n; out++)
		id[out] = i < half && (k == n || ast_order(s, tmp[i],
							   tmp[k]) <= 0) ?
			tmp[i++] : tmp[k++];
}

/* The node with this label and these children, which are in order. */
static uint32_t node_get(struct ast_store *s, uint32_t label,
			 const uint32_t *kid, uint32_t n)
{
	uint32_t kind = label << 16 | n, at, id;
	void *node = s->node, *kids = s->kid;
	uint32_t size = 1;

	if (s->nnode * 2 >= s->slots &&
	    node_rehash(s, s->slots ? s->slots * 2 : 4096))
		return 0;
	at = (uint32_t)node_hash(kind, kid);
	for (; (id = s->table[at & (s->slots - 1)]); at++)
		if (s->node[id].kind == kind &&
		    (!n || !memcmp(s->kid + s->node[id].first, kid,
				   n * sizeof(*kid))))
			return id;
	if (grow(&node, &s->node_alloc, (size_t)s->nnode + 1,
		 sizeof(*s->node)))
		return 0;
	s->node = node;
	if (grow(&kids, &s->kid_alloc, (size_t)s->nkid + n + 1,
		 sizeof(*s->kid)))
		return 0;
	s->kid = kids;
	for (uint32_t i = 0; i < n; i++) {
		s->kid[s->nkid + i] = kid[i];
		size += s->node[kid[i]].size;
	}
	s->node[s->nnode] = (struct ast_node){ kind, s->nkid, size };
	s->nkid += n;
	s->table[at & (s->slots - 1)] = s->nnode;
	return s->nnode++;
}

/* Reading. */
struct frame {
	uint32_t label, normal;		/* numbers of the store's */
	uint32_t left;			/* children to come */
	uint32_t kids, pkids;		/* where the normalised tree's and
					 * the tree's are on the stacks */
};

struct reading {
	struct ast_store *s;
	const uint32_t *label;
	size_t nlabel;
	const uint16_t *at;
	size_t left;			/* nodes */
	struct frame *frame;
	size_t depth;
	uint32_t *plain, *normal, *tmp;	/* stacks of finished children */
	uint32_t nplain, nnormal;
	struct ast_doc *doc[2];
};

static const struct {
	const char *name;
	uint32_t weight;
} significant[] = {
	{ "Import", 3 }, { "FunctionDef", 12 }, { "If", 5 },
	{ "ClassDef", 10 }, { "While", 10 }, { "For", 10 },
	{ "comprehension", 10 }, { "Return", 10 },
};

static uint32_t weight_of(const struct ast_store *s, uint32_t label)
{
	size_t n = sizeof(significant) / sizeof(*significant);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(s->label[label], significant[i].name))
			return significant[i].weight;
	return 0;
}

static int beyond(struct err *e, const char *what)
{
	err_set(e, CA_DATAERR, "%s", what);
	return 1;
}

/* Notes a finished tree if it is one that counts. */
static int note(struct reading *r, struct ast_doc *d, uint32_t id,
		struct err *e)
{
	struct ast_store *s = r->s;
	uint32_t w = weight_of(s, KIND_LABEL(s->node[id].kind));

	if (!w)
		return 0;
	if (d->n == AST_SIGNIFICANT)
		return beyond(e, "too many functions and branches");
	d->part[d->n].node = id;
	d->part[d->n++].weight = w;
	return 0;
}

static int close_tree(struct reading *r, int which, uint32_t label,
		      uint32_t *stack, uint32_t *top, uint32_t kids,
		      struct err *e)
{
	uint32_t n = *top - kids, id;

	sort_ids(r->s, stack + kids, r->tmp, n);
	id = node_get(r->s, label, stack + kids, n);
	if (!id)
		return err_set(e, CA_SOFTWARE, "out of memory");
	*top = kids;
	stack[(*top)++] = id;
	return note(r, r->doc[which], id, e);
}

/* Makes the nodes whose children are complete. */
static int close_frames(struct reading *r, struct err *e)
{
	int rc = 0;

	while (!rc && r->depth && !r->frame[r->depth - 1].left) {
		struct frame *f = &r->frame[--r->depth];

		rc = close_tree(r, 0, f->label, r->plain, &r->nplain,
				f->pkids, e);
		if (!rc && f->normal)
			rc = close_tree(r, 1, f->normal, r->normal,
					&r->nnormal, f->kids, e);
		if (r->depth)
			r->frame[r->depth - 1].left--;
	}
	return rc;
}

static int read_nodes(struct reading *r, struct err *e)
{
	static const char broken[] = "the parser's answer is no tree";
	int rc = 0;

	for (; !rc && r->left; r->left--, r->at += 3) {
		uint32_t label = r->at[0], own = r->at[2];
		struct frame *f = &r->frame[r->depth];

		if (!label || label > r->nlabel || own > r->nlabel ||
		    r->at[1] >= r->left || (!r->depth && r->nplain) ||
		    (own && r->depth && !f[-1].normal))
			return err_set(e, CA_SOFTWARE, "%s", broken);
		f->label = r->label[label - 1];
		f->normal = own ? r->label[own - 1] : 0;
		f->left = r->at[1];
		f->pkids = r->nplain;
		f->kids = r->nnormal;
		r->depth++;
		rc = close_frames(r, e);
	}
	if (!rc && (r->depth || !r->nplain))
		return err_set(e, CA_SOFTWARE, "%s", broken);
	return rc;
}

/* Nodes match only where all above them does: so they count by the kinds from
 * the part's own down to theirs. */
static void weigh(const struct ast_store *s, struct ast_doc *d,
		  const uint32_t *id, size_t n, uint64_t above,
		  uint32_t weight)
{
	for (size_t i = 0; i < n; i++) {
		const struct ast_node *x = &s->node[id[i]];
		uint64_t h = mix(x->kind, above);

		d->bucket[h >> 40 & (AST_BUCKETS - 1)] += weight;
		weigh(s, d, s->kid + x->first, KIND_KIDS(x->kind), h, weight);
	}
}

/* Puts the parts in order and adds up. */
static void finish_doc(struct reading *r, struct ast_doc *d)
{
	const struct ast_store *s = r->s;

	for (size_t i = 0; i < d->n; i++)
		r->plain[i] = d->part[i].node;
	sort_ids(s, r->plain, r->tmp, d->n);
	for (size_t i = 0; i < d->n; i++) {
		uint32_t id = r->plain[i];
		uint32_t w = weight_of(s, KIND_LABEL(s->node[id].kind));

		d->part[i].node = id;
		d->part[i].weight = w;
		d->weight += (uint64_t)w * s->node[id].size;
		weigh(s, d, &id, 1, 7, w);
	}
	for (int i = 0; i < AST_BUCKETS; i++) {
		d->small[i] = (int16_t)d->bucket[i];
		d->large |= d->bucket[i] > INT16_MAX;
	}
}

static int read_into(struct reading *r, struct err *e)
{
	size_t n = r->left + 1;
	size_t np = n < AST_SIGNIFICANT ? n : AST_SIGNIFICANT;
	int rc;

	r->frame = malloc(n * sizeof(*r->frame));
	r->plain = malloc(n * sizeof(*r->plain));
	r->normal = malloc(n * sizeof(*r->normal));
	r->tmp = malloc(n * sizeof(*r->tmp));
	for (int i = 0; i < 2; i++)
		r->doc[i]->part = malloc(np * sizeof(struct ast_part));
	if (!r->frame || !r->plain || !r->normal || !r->tmp ||
	    !r->doc[0]->part || !r->doc[1]->part)
		return err_set(e, CA_SOFTWARE, "out of memory");
	rc = read_nodes(r, e);
	for (int i = 0; i < 2 && !rc; i++)
		finish_doc(r, r->doc[i]);
	return rc;
}

int ast_read(struct ast_store *s, const uint32_t *label, size_t nlabel,
	     const void *nodes, size_t len, struct ast_doc *paper,
	     struct ast_doc *normal, struct err *e)
{
	struct reading r = { .s = s, .label = label, .nlabel = nlabel,
			     .at = nodes, .left = len / 6,
			     .doc = { paper, normal } };
	int rc;

	memset(paper, 0, sizeof(*paper));
	memset(normal, 0, sizeof(*normal));
	if (len % 6 || !len)
		return err_set(e, CA_SOFTWARE, "the parser's answer is cut");
	if (r.left > AST_NODES)
		return beyond(e, "too long");
	rc = read_into(&r, e);
	free(r.frame);
	free(r.plain);
	free(r.normal);
	free(r.tmp);
	if (rc) {
		ast_doc_release(paper);
		ast_doc_release(normal);
	}
	return rc;
}

void ast_doc_release(struct ast_doc *d)
{
	free(d->part);
	memset(d, 0, sizeof(*d));
}

size_t ast_store_mark(const struct ast_store *s)
{
	return s->nnode;
}

void ast_store_trim(struct ast_store *s, size_t mark)
{
	if (s->nnode < TRIM_NODES + mark && s->npair < TRIM_PAIRS)
		return;
	if (s->nnode > mark) {
		s->nkid = s->node[mark].first;
		s->nnode = (uint32_t)mark;
		memset(s->table, 0, s->slots * sizeof(*s->table));
		for (uint32_t i = 1; i < s->nnode; i++)
			node_place(s, i);
	}
	free(s->pair);
	s->pair = NULL;
	s->npair = s->pair_slots = 0;
}
