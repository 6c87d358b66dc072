/* SPDX-License-Identifier: Apache-2.0
 *
 * Indices among equal values.  Sixteen bits make many of them in inputs that
 * nobody meant to tie, and which one argmax, topk or sort names is nobody's
 * rule.  A result that misses is looked at again: each of its elements has to
 * be what the reference gives in double precision, with equal inputs told
 * apart by less than a rounding, the first or the last of them being larger.
 */
#include <string.h>

#include "judge/rules.h"
#include "judge/trial.h"
#include "torch/torch.h"

#define CHUNK ((size_t)16384)

static int is_index(const struct ca_leaf *l)
{
	enum ca_dtype t = (enum ca_dtype)l->dtype;

	return l->kind == LEAF_TENSOR && t != DT_BOOL && !dtype_is_float(t) &&
	       !dtype_is_complex(t);
}

static int wanted(const struct trial *t, uint32_t i,
		  const struct cmp_result *r)
{
	return is_index(&t->want.leaf[i]) && !r[i].passed;
}

/* The reference's results with equal inputs told apart; in o->expect, extents
 * in ext.  1: there are none. */
static int told_apart(struct trial *t, const struct verify_round *round,
		      const char *how, struct extent ext[CA_LEAVES],
		      struct fail *f)
{
	struct ca_msg m;
	int rc = oracle_expect(t->j, t->o, round->forward_seed, how, &m, f);

	if (rc)
		return rc;
	if (m.nleaf != t->want.nleaf ||
	    leaves_check(&m, t->o->expect.bytes, ext))
		return 1;
	for (uint32_t i = 0; i < m.nleaf; i++)
		if (is_index(&t->want.leaf[i]) &&
		    m.leaf[i].dtype != t->want.leaf[i].dtype)
			return 1;
	return 0;
}

/* Whether each element of the result is also that of one of two others, of
 * which one lies in t->ref.  Result: 1, 0, or -1. */
static int each_is_one(struct trial *t, const struct extent *got, size_t ref,
		       const struct extent *other, size_t size,
		       struct fail *f)
{
	const struct device_ops *d = t->j->dev->ops;
	char g[CHUNK], a[CHUNK], b[CHUNK];
	struct err e = ERR_INIT;

	for (size_t at = 0, n; at < got->bytes; at += n) {
		n = got->bytes - at < CHUNK ? got->bytes - at : CHUNK;
		if (d->download(t->j->dev, g, &t->got, got->offset + at, n,
				&e) ||
		    d->download(t->j->dev, a, &t->ref, ref + at, n, &e) ||
		    d->download(t->j->dev, b, &t->o->expect,
				other->offset + at, n, &e))
			return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
		for (size_t k = 0; k + size <= n; k += size)
			if (memcmp(g + k, a + k, size) &&
			    memcmp(g + k, b + k, size))
				return 0;
	}
	return 1;
}

/* Copies what is wanted to t->ref, as large as the reference's own results are,
 * and says where it lies there. */
static int aside(struct trial *t, struct extent ext[CA_LEAVES],
		 const struct cmp_result *r, struct fail *f)
{
	struct err e = ERR_INIT;
	size_t to = 0;

	for (uint32_t i = 0; i < t->want.nleaf; i++) {
		if (!wanted(t, i, r))
			continue;
		if (ext[i].bytes > t->ref.bytes - to)
			return 1;
		if (t->j->dev->ops->copy(t->j->dev, &t->ref, to,
					 &t->o->expect, ext[i].offset,
					 ext[i].bytes, &e))
			return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
		ext[i].offset = to;
		to += ext[i].bytes;
	}
	return 0;
}

static int look(struct trial *t, const struct verify_round *round,
		const struct bracket_result *res, struct cmp_result *r,
		struct fail *f)
{
	struct extent first[CA_LEAVES], last[CA_LEAVES];
	int rc = told_apart(t, round, "falling", first, f);

	if (!rc)
		rc = aside(t, first, r, f);
	if (!rc)
		rc = told_apart(t, round, "rising", last, f);
	if (rc)
		return rc < 0 ? -1 : 0;
	for (uint32_t i = 0; i < t->want.nleaf; i++) {
		if (!wanted(t, i, r) || first[i].bytes != res->got[i].bytes ||
		    last[i].bytes != res->got[i].bytes)
			continue;
		rc = each_is_one(t, &res->got[i], first[i].offset, &last[i],
				 dtype_size((enum ca_dtype)
					    t->want.leaf[i].dtype), f);
		if (rc < 0)
			return -1;
		if (!rc)
			continue;
		r[i].passed = 1;
		r[i].relieved = r[i].misses;
		r[i].misses = 0;
		r[i].first = UINT64_MAX;
	}
	return 0;
}

int trial_ties(struct trial *t, const struct verify_round *round,
	       const struct bracket_result *res, struct cmp_result *r,
	       struct fail *f)
{
	for (uint32_t i = 0; i < t->want.nleaf; i++)
		if (wanted(t, i, r))
			return trial_again(t, round, f) ?
				-1 : look(t, round, res, r, f);
	return 0;
}
