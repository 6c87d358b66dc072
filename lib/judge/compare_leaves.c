/* SPDX-License-Identifier: Apache-2.0
 *
 * Structure of results.  `got` comes from a worker: every number in it may be
 * anything.
 */
#include "judge/compare.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "torch/torch.h"

static const char *kind_name(uint32_t kind)
{
	static const char *const names[] = {
		[LEAF_TENSOR] = "a tensor", [LEAF_INT] = "an integer",
		[LEAF_FLOAT] = "a float", [LEAF_BOOL] = "a bool",
		[LEAF_NONE] = "None", [LEAF_STR] = "a string",
	};

	if (kind < LEAF_TENSOR || kind > LEAF_STR)
		return "nothing known";
	return names[kind];
}

static void shape_text(const struct ca_leaf *l, char out[256])
{
	size_t at = 0;

	out[at++] = '(';
	for (uint32_t i = 0; i < l->ndim && i < CA_NDIM; i++)
		at += (size_t)snprintf(out + at, 256 - at, "%s%" PRId64,
				       i ? ", " : "", l->shape[i]);
	snprintf(out + at, 256 - at, "%s)",
		 l->ndim > CA_NDIM ? ", ..." : "");
}

static int same_dims(const struct ca_leaf *a, const struct ca_leaf *b)
{
	if (a->ndim != b->ndim || a->ndim > CA_NDIM)
		return 0;
	return !memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0]));
}

static enum status tensor_leaf(const struct ca_leaf *g,
			       const struct ca_leaf *r, uint32_t i,
			       char *text, size_t textlen)
{
	char gs[256], rs[256];

	if (!same_dims(g, r)) {
		shape_text(g, gs);
		shape_text(r, rs);
		snprintf(text, textlen,
			 "result %" PRIu32 " has shape %s, not %s", i, gs, rs);
		return ST_WRONG_SHAPE;
	}
	if (g->dtype != r->dtype) {
		snprintf(text, textlen, "result %" PRIu32 " is %s, not %s", i,
			 dtype_name((enum ca_dtype)g->dtype),
			 dtype_name((enum ca_dtype)r->dtype));
		return ST_WRONG_DTYPE;
	}
	return ST_OK;
}

static int is_number(uint32_t kind)
{
	return kind == LEAF_INT || kind == LEAF_FLOAT || kind == LEAF_BOOL;
}

static enum status one_leaf(const struct ca_leaf *g, const struct ca_leaf *r,
			    uint32_t i, char *text, size_t textlen)
{
	if (g->kind != r->kind) {
		snprintf(text, textlen, "result %" PRIu32 " is %s, not %s", i,
			 kind_name(g->kind), kind_name(r->kind));
		return is_number(g->kind) && is_number(r->kind) ?
			ST_WRONG_DTYPE : ST_WRONG_SHAPE;
	}
	if (g->kind == LEAF_TENSOR)
		return tensor_leaf(g, r, i, text, textlen);
	if (g->kind == LEAF_STR && g->bits != r->bits) {
		snprintf(text, textlen, "result %" PRIu32 " is another string",
			 i);
		return ST_WRONG_VALUE;
	}
	return ST_OK;
}

enum status cmp_leaves(const struct ca_msg *got, const struct ca_msg *ref,
		       uint32_t *leaf, char *text, size_t textlen)
{
	uint32_t n = got->nleaf < ref->nleaf ? got->nleaf : ref->nleaf;

	if (n > CA_LEAVES)
		n = CA_LEAVES;
	*leaf = n;
	if (got->nleaf != ref->nleaf || got->nleaf > CA_LEAVES) {
		snprintf(text, textlen, "%" PRIu32 " results, not %" PRIu32,
			 got->nleaf, ref->nleaf);
		return ST_WRONG_SHAPE;
	}
	for (uint32_t i = 0; i < n; i++) {
		enum status s = one_leaf(&got->leaf[i], &ref->leaf[i], i, text,
					 textlen);

		*leaf = i;
		if (s != ST_OK)
			return s;
	}
	*leaf = 0;
	if (memcmp(got->structure, ref->structure, sizeof(ref->structure))) {
		snprintf(text, textlen,
			 "the container of the results differs "
			 "(list, tuple or dict, or its keys)");
		return ST_WRONG_SHAPE;
	}
	return ST_OK;
}

int cmp_leaf_view(const struct ca_leaf *l, const void *base, uint64_t at,
		  struct view *v)
{
	static const enum ca_dtype number[] = {
		[LEAF_INT] = DT_I64, [LEAF_FLOAT] = DT_F64,
		[LEAF_BOOL] = DT_BOOL,
	};

	memset(v, 0, sizeof(*v));
	if (is_number(l->kind)) {
		v->dtype = number[l->kind];
		v->data = &l->bits;
		return 0;
	}
	if (l->kind != LEAF_TENSOR || l->ndim > CA_NDIM)
		return -1;
	v->dtype = (enum ca_dtype)l->dtype;
	v->ndim = l->ndim;
	memcpy(v->shape, l->shape, l->ndim * sizeof(l->shape[0]));
	v->data = (const unsigned char *)base + at;
	return 0;
}
