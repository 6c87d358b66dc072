/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers and their comparison.
 */
#include "synth/shot.h"

#include <stdio.h>
#include <string.h>

int shot_take(struct judge *j, struct oracle *o, uint64_t seed,
	      const char *precision, struct shot *s, struct fail *f)
{
	struct device *d = j->dev;
	struct err e = ERR_INIT;
	int rc = oracle_expect(j, o, seed, precision, &s->m, f);

	if (rc)
		return rc;
	if (s->mem.bytes < o->expect.bytes) {
		shot_release(j, s);
		if (d->ops->private_mem(d, o->expect.bytes, &s->mem, &e))
			return fail_device(f, &e);
	}
	if (o->expect.bytes && d->ops->copy(d, &s->mem, 0, &o->expect, 0,
					    o->expect.bytes, &e))
		return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	return 0;
}

void shot_release(struct judge *j, struct shot *s)
{
	if (s->mem.bytes)
		j->dev->ops->release(j->dev, &s->mem);
	s->mem = (struct mem)MEM_NONE;
}

/* What rounding may make of a whole tensor, in norm. */
static double rounding(enum ca_dtype t)
{
	switch (t) {
	case DT_F16:
		return 4e-3;
	case DT_BF16:
		return 3e-2;
	case DT_F8E4M3:
	case DT_F8E5M2:
		return 0.3;
	default:
		return 1e-4;
	}
}

static void add_leaf(struct shot_cmp *c, const struct view *ref,
		     const struct cmp_result *r)
{
	double ratio = r->ref_norm > 0 ? r->err_norm / r->ref_norm :
		       r->err_norm > 0;

	c->finite &= !r->n || r->comparable;
	if (dtype_is_float(ref->dtype) || dtype_is_complex(ref->dtype)) {
		c->same &= ratio <= rounding(ref->dtype) &&
			(r->passed || !r->non_finite);
		if (ratio > c->worst)
			c->worst = ratio;
	} else {
		c->same &= !r->misses;
	}
	if (!r->passed && c->accepted)
		cmp_describe(ref, r, c->text, sizeof(c->text));
	c->accepted &= r->passed;
}

static int compare_leaf(struct judge *j, const struct shot *got,
			const struct shot *want, const struct shot *fp64,
			uint32_t i, struct shot_cmp *c, struct fail *f)
{
	const struct cmp_rule rule = { .atol = CMP_TOL, .rtol = CMP_TOL };
	const struct ca_leaf *g = &got->m.leaf[i], *w = &want->m.leaf[i];
	int tensor = w->kind == LEAF_TENSOR, rc;
	struct view a, b, wide;
	struct err e = ERR_INIT;
	struct cmp_result r;

	if (cmp_leaf_view(g, got->mem.p, g->offset, &a) ||
	    cmp_leaf_view(w, want->mem.p, w->offset, &b))
		return 0;
	if (fp64 && (!tensor || cmp_leaf_view(&fp64->m.leaf[i], fp64->mem.p,
					      fp64->m.leaf[i].offset, &wide)))
		fp64 = NULL;
	rc = tensor ? j->dev->ops->compare(j->dev, &rule, &a, &b,
					   fp64 ? &wide : NULL, &r, &e) :
	     compare(&rule, &a, &b, NULL, 1, &r, &e);
	if (rc)
		return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	if (r.n)
		add_leaf(c, &b, &r);
	return r.n > 0;
}

int shot_compare(struct judge *j, const struct shot *got,
		 const struct shot *want, const struct shot *fp64,
		 struct shot_cmp *c, struct fail *f)
{
	int any = 0;
	uint32_t leaf;

	memset(c, 0, sizeof(*c));
	c->accepted = c->same = c->finite = 1;
	if (cmp_leaves(&got->m, &want->m, &leaf, c->text, sizeof(c->text)) !=
	    ST_OK) {
		c->accepted = c->same = 0;
		return 0;
	}
	for (uint32_t i = 0; i < want->m.nleaf; i++) {
		int rc = compare_leaf(j, got, want, fp64, i, c, f);

		if (rc < 0)
			return -1;
		any |= rc;
	}
	c->finite &= any;
	return 0;
}
