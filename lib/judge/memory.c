/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call leaves behind: inputs and state as the reference leaves them,
 * and nothing written beside them or beside results.
 */
#include "judge/rules.h"
#include "judge/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/weaken.h"

/* A region that the runner can write to, and what it should hold. */
struct region {
	const struct mem *got, *before;
	const struct mem *after;	/* NULL: as before */
	size_t bytes;
	const struct json *list;	/* {offset, bytes} of what lies there */
};

static int infra(struct fail *f, const struct err *e)
{
	return fail_set(f, ST_INFRA_ERROR, 0, "%s", e->msg);
}

static const struct json *nth(const struct json *list, int64_t i)
{
	const struct json *v = json_first(list);

	while (v && i-- > 0)
		v = json_next(v);
	return v;
}

/* The shape of a tensor that fills its n elements of memory in order. */
static void take_shape(const struct json *node, uint64_t n, struct view *v)
{
	const struct json *shape = json_get(node, "shape");
	const struct json *stride = json_get(node, "stride"), *d;
	int64_t dims[CA_NDIM], step = 1;
	uint64_t count = 1;
	uint32_t ndim = 0;

	if (json_len(shape) > CA_NDIM)
		return;
	for (d = json_first(shape); d; d = json_next(d)) {
		dims[ndim] = json_int(d, 0);
		count *= (uint64_t)dims[ndim++];
	}
	if (count != n || !n)
		return;
	for (uint32_t i = ndim; stride && i-- > 0; step *= dims[i])
		if (dims[i] != 1 && json_int(nth(stride, i), 0) != step)
			return;
	v->ndim = ndim;
	memcpy(v->shape, dims, ndim * sizeof(dims[0]));
}

/* Writes the place of a storage among the arguments, as "input 1['mask']",
 * behind the `at` bytes of text, and gives the first tensor there; NULL where
 * the node does not hold it. */
static const struct json *find_storage(const struct json *node,
				       int64_t storage, char *text, size_t len,
				       size_t at, int depth)
{
	const char *kind = json_get_str(node, "t", "");
	int dict = !strcmp(kind, "dict"), i = 0;

	if (!strcmp(kind, "tensor"))
		return json_get_int(node, "storage", -1) == storage ? node :
								      NULL;
	if ((!dict && strcmp(kind, "list") && strcmp(kind, "tuple")) ||
	    depth == 8)
		return NULL;
	for (const struct json *v = json_first(json_get(node, "v")); v;
	     v = json_next(v), i++) {
		const struct json *key = json_first(v), *found;
		int n = dict ?
			snprintf(text + at, len - at, "['%.40s']",
				 json_str(key, "?")) :
			snprintf(text + at, len - at, "[%d]", i);

		if (n < 0 || (size_t)n >= len - at)
			return NULL;
		found = find_storage(dict ? json_next(key) : v, storage, text,
				     len, at + (size_t)n, depth + 1);
		if (found)
			return found;
		text[at] = '\0';
	}
	return NULL;
}

static const struct json *name_input(const struct oracle *o, int64_t storage,
				     char *text, size_t len)
{
	const struct json *a = json_first(json_path(o->spec, "inputs.args"));
	const struct json *found;

	for (int i = 0; a; a = json_next(a), i++) {
		int n = snprintf(text, len, "input %d", i);

		found = find_storage(a, storage, text, len, (size_t)n, 0);
		if (found)
			return found;
	}
	snprintf(text, len, "an input");
	return NULL;
}

/*
 * By the tolerance that results without a guard have; bytes where the type
 * does not fit.  In rounds that change what inputs hold, what the reference
 * does not leave finite decides nothing, as among results.
 */
static int is_left(struct trial *t, const struct verify_round *round,
		   const struct region *g, size_t off, uint64_t n,
		   struct fail *f)
{
	struct trial_left *l = &t->left;
	size_t one = dtype_size(l->v.dtype);
	double tol = rules_tolerance(t->j->rules, l->v.dtype);
	const struct mem *want = g->after ? g->after : g->before;
	struct view a, b;
	struct err e = ERR_INIT;

	if (!one || n % one) {
		l->v.dtype = DT_U8;
		one = 1;
	}
	l->v.ndim = 1;
	l->v.shape[0] = (int64_t)(n / one);
	l->rule = (struct cmp_rule){ .atol = 0 };
	if (g->after) {
		l->rule.atol = l->rule.rtol = tol;
		l->rule.norm = round->by_norm ? CMP_NORM : 0;
	}
	a = b = l->v;
	a.data = (char *)g->got->p + off;
	b.data = (char *)want->p + off;
	if (t->j->dev->ops->compare(t->j->dev, &l->rule, &a, &b, NULL, &l->r,
				    &e))
		return infra(f, &e);
	return g->after && (l->r.passed || (round->family != FAMILY_PLAIN &&
					    l->r.comparable < l->r.n));
}

/* The first entry that is not as it should be: its number, and t->left but
 * for the name.  -1: none; -2: `f` says why nobody knows. */
static int first_off(struct trial *t, const struct verify_round *round,
		     const struct region *g, struct fail *f)
{
	const struct mem *want = g->after ? g->after : g->before;
	const struct json *s = json_first(g->list);
	struct err e = ERR_INIT;

	for (int i = 0; s; s = json_next(s), i++) {
		size_t off = (size_t)json_get_int(s, "offset", 0);
		size_t n = (size_t)json_get_int(s, "bytes", 0);
		int rc = t->j->dev->ops->differs(t->j->dev, g->got, off, want,
						 off, n, &e);

		if (!rc)
			continue;
		memset(&t->left, 0, sizeof(t->left));
		t->left.family = round->family;
		t->left.v.dtype = dtype_parse(json_get_str(s, "dtype", ""));
		if (rc < 0)
			infra(f, &e);
		else
			rc = !is_left(t, round, g, off, n, f);
		if (f->status != ST_OK)
			return -2;
		if (rc)
			return i;
	}
	return -1;
}

/* Looks at what lies between, before and behind the entries.  1: it changed,
 * and *which entry follows it. */
static int zones_differ(struct trial *t, const struct region *g, int *which,
			struct err *e)
{
	const struct json *s = json_first(g->list);
	size_t at = 0;

	for (*which = 0; at < g->bytes; s = json_next(s), ++*which) {
		size_t off = s ? (size_t)json_get_int(s, "offset", 0) :
				 g->bytes;
		size_t n = s ? (size_t)json_get_int(s, "bytes", 0) : 0;
		int d = off <= at ? 0 :
			t->j->dev->ops->differs(t->j->dev, g->got, at,
						g->before, at, off - at, e);

		if (d)
			return d;
		if (off + n > at)	/* else tied to an earlier one */
			at = off + n;
	}
	return 0;
}

/* 0: the region is as it should be.  1: entry *which is not.  2: what lies
 * beside its entries is not, before entry *which. */
static int look(struct trial *t, const struct verify_round *round,
		const struct region *g, int *which, struct fail *f)
{
	struct err e = ERR_INIT;
	int rc = g->after ? 1 :
		t->j->dev->ops->differs(t->j->dev, g->got, 0, g->before, 0,
					g->bytes, &e);

	if (rc > 0)
		rc = 2 * zones_differ(t, g, which, &e);
	else if (!rc)
		return 0;
	if (rc)
		return rc < 0 ? infra(f, &e) : rc;
	*which = first_off(t, round, g, f);
	return *which == -2 ? -1 : *which >= 0;
}

/* Of t->left, whose node gives the shape: how it is not as it should be. */
static int not_left(struct trial *t, enum status st, const struct json *node,
		    int modified, struct fail *f)
{
	struct trial_left *l = &t->left;
	char text[512];

	take_shape(node, l->r.n, &l->v);
	/* The place by dimension: it was compared as a row. */
	for (uint64_t at = l->r.first, i = l->v.ndim;
	     l->r.first != UINT64_MAX && i-- > 0;
	     at /= (uint64_t)l->v.shape[i])
		l->r.index[i] = (int64_t)(at % (uint64_t)l->v.shape[i]);
	cmp_describe(&l->v, &l->r, text, sizeof(text));
	return fail_set(f, st, PHASE_FORWARD, "%s was %s, %s inputs%s%s",
			l->name, modified ?
			"not left as the reference leaves it" : "modified",
			family_name(l->family), l->r.passed ? "" : ": ",
			l->r.passed ? "" : text);
}

static int judge_inputs(struct trial *t, const struct verify_round *round,
			unsigned set, int modified, struct fail *f)
{
	struct oracle *o = t->o;
	const struct region g = {
		&t->r->in[set], t->inputs, modified ? &o->after : NULL,
		o->input_bytes, json_path(o->spec, "inputs.storages"),
	};
	const struct json *node;
	char name[128];
	int which, rc = look(t, round, &g, &which, f);

	if (rc <= 0)
		return rc;
	if (rc == 2) {
		name_input(o, which ? which - 1 : 0, name, sizeof(name));
		return fail_set(f, ST_OUT_OF_BOUNDS, PHASE_FORWARD,
				"memory %s %s was written",
				which ? "behind" : "before", name);
	}
	node = name_input(o, which, t->left.name, sizeof(t->left.name));
	return not_left(t, ST_INPUT_MODIFIED, node, modified, f);
}

static int judge_state(struct trial *t, const struct verify_round *round,
		       int modified, struct fail *f)
{
	struct oracle *o = t->o;
	const struct region g = {
		&t->r->params, t->params, modified ? &o->params_after : NULL,
		o->param_bytes, json_get(o->spec, "state"),
	};
	const struct json *s;
	int which, rc = look(t, round, &g, &which, f);

	if (rc <= 0)
		return rc;
	if (rc == 2)
		return fail_set(f, ST_OUT_OF_BOUNDS, PHASE_FORWARD, "memory "
				"beside a parameter or buffer was written");
	s = nth(g.list, which);
	snprintf(t->left.name, sizeof(t->left.name), "%s '%.100s'",
		 strcmp(json_get_str(s, "kind", ""), "buffer") ? "parameter" :
		 "buffer", json_get_str(s, "name", "?"));
	return not_left(t, ST_TAMPERED, s, modified, f);
}

int trial_memory(struct trial *t, const struct verify_round *round,
		 const struct bracket_result *res, unsigned set,
		 struct fail *f)
{
	uint32_t modified = t->want.modified;	/* by the reference */
	int at = res->stray, rc;

	if (weakened("memory"))
		return 0;
	rc = judge_inputs(t, round, set, modified & 1, f);
	if (rc)
		return rc;
	t->rewrite = !!(modified & 2);
	rc = judge_state(t, round, modified & 2, f);
	if (rc)
		return rc;
	if (at && !strcmp(t->r->role, "worker"))
		return fail_set(f, ST_OUT_OF_BOUNDS, PHASE_FORWARD, "memory "
				"%s result %d was written",
				at > 0 ? "behind" : "before", abs(at) - 1);
	return 0;
}

void trial_write_left(const struct trial *t, struct jw *w)
{
	const struct trial_left *l = &t->left;

	if (!*l->name) {
		jw_null(w);
		return;
	}
	jw_obj(w);
	jw_kstr(w, "inputs", family_name(l->family));
	jw_key(w, "tensor");
	cmp_write(w, l->name, &l->v, &l->rule, 1, &l->r);
	jw_end_obj(w);
}
