/* SPDX-License-Identifier: Apache-2.0
 *
 * Running the guard: the oracle's answers for fixed seeds, brought to the
 * host, and the result kept per task, device and torch.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/weaken.h"
#include "judge/memo.h"
#include "judge/trial.h"

#define GUARD_VERSION "3"
#define SEED_STATE 0x5eed0001u
#define SEED_OTHER_STATE 0x5eed0002u
#define SEED_INPUTS 0x5eed1000u
#define SEED_OTHER_INPUTS 0x5eed2000u
#define MAX_INPUTS 64
#define HUGE_PAGE ((size_t)2 << 20)

/* One forward's results on the host. */
struct image {
	struct ca_msg m;
	char *bytes;
	struct view v[CA_LEAVES];
	size_t n;
};

struct gathered {
	struct image want[GUARD_CASES_MAX], loose[GUARD_CASES_MAX];
	struct image other_input[GUARD_CASES_MAX], part[GUARD_CASES_MAX];
	struct image other_weights[GUARD_CASES_MAX];
	char *inputs[GUARD_CASES_MAX];
	struct view in[MAX_INPUTS];	/* data: offsets until fixed up */
	size_t offset[MAX_INPUTS], nin;
	struct view inviews[GUARD_CASES_MAX][MAX_INPUTS];
};

static int no_memory(struct fail *f)
{
	return fail_set(f, ST_INFRA_ERROR, 0, "out of memory");
}

/* Room for n bytes; what of it nobody looks at takes no memory.  In large
 * pages, where there are any: half of the time of a download goes into
 * touching small ones. */
static int make_room(size_t n, char **out, struct fail *f)
{
	void *p = NULL;

	if (n < HUGE_PAGE)
		p = malloc(n ? n : 1);
	else if (posix_memalign(&p, HUGE_PAGE, n))
		p = NULL;
	else
		(void)madvise(p, n, MADV_HUGEPAGE);
	*out = p;
	return p ? 0 : no_memory(f);
}

/* What is looked at of a dense tensor at an offset, brought home. */
static int grab(struct judge *j, const struct mem *m, size_t at,
		const struct view *v, char *to, struct fail *f)
{
	struct err e = ERR_INIT;
	uint64_t n, bytes;

	if (view_count(v, &n, &bytes) || at > m->bytes ||
	    bytes > m->bytes - at)
		return fail_set(f, ST_INFRA_ERROR, 0,
				"a tensor lies beside its memory");
	bytes = guard_bytes(v);
	if (bytes && j->dev->ops->download(j->dev, to + at, m, at, bytes, &e))
		return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	return 0;
}

/* Runs the reference on the inputs it holds and brings the results home. */
static int forward(struct judge *j, struct oracle *o, const char *precision,
		   struct image *im, struct fail *f)
{
	int rc = oracle_expect(j, o, SEED_INPUTS, precision, &im->m, f);

	if (rc)
		return rc;
	if (make_room(o->expect.bytes, &im->bytes, f))
		return -1;
	for (uint32_t i = 0; i < im->m.nleaf; i++) {
		size_t at = im->m.leaf[i].offset;

		struct view *v = &im->v[im->n];

		if (cmp_leaf_view(&im->m.leaf[i], im->bytes, at, v))
			continue;
		im->n++;
		/* A number lies in the leaf itself. */
		if ((const char *)v->data == im->bytes + at &&
		    grab(j, &o->expect, at, v, im->bytes, f))
			return -1;
	}
	return 0;
}

/* Collects the dense tensors among the inputs. */
static void walk(struct gathered *g, const struct json *storages,
		 const struct json *node)
{
	const struct json *shape = json_get(node, "shape"), *d, *st;
	const char *t = json_get_str(node, "t", "");
	struct view *v = &g->in[g->nin];
	int64_t expect = 1;
	size_t nd = json_len(shape), i = 0;
	int64_t stride[CA_NDIM];

	if (!strcmp(t, "list") || !strcmp(t, "tuple")) {
		for (d = json_first(json_get(node, "v")); d; d = json_next(d))
			walk(g, storages, d);
		return;
	}
	if (strcmp(t, "tensor") || g->nin == MAX_INPUTS || nd > CA_NDIM)
		return;
	memset(v, 0, sizeof(*v));
	v->dtype = dtype_parse(json_get_str(node, "dtype", ""));
	v->ndim = (uint32_t)nd;
	for (d = json_first(shape); d; d = json_next(d))
		v->shape[i++] = json_int(d, 0);
	i = 0;
	st = json_first(json_get(node, "stride"));
	for (; st && i < nd; st = json_next(st))
		stride[i++] = json_int(st, -1);
	for (i = nd; i-- > 0; ) {
		if (v->shape[i] != 1 && stride[i] != expect)
			return;
		expect *= v->shape[i];
	}
	st = json_first(storages);
	for (int64_t k = json_get_int(node, "storage", 0); st && k > 0; k--)
		st = json_next(st);
	g->offset[g->nin++] = (size_t)json_get_int(st, "offset", 0) +
		(size_t)json_get_int(node, "offset", 0) *
		dtype_size(v->dtype);
}

static int seeds(struct judge *j, struct oracle *o, uint64_t base, size_t c,
		 enum family family, struct fail *f)
{
	return oracle_inputs(j, o, base + c, family_name(family), 1, f);
}

static int grab_inputs(struct judge *j, struct oracle *o, struct gathered *g,
		       size_t c, struct fail *f)
{
	if (make_room(o->input_bytes, &g->inputs[c], f))
		return -1;
	for (size_t i = 0; i < g->nin; i++)
		if (grab(j, &o->inputs, g->offset[i], &g->in[i], g->inputs[c],
			 f))
			return -1;
	return 0;
}

static int gather(struct judge *j, struct oracle *o, struct gathered *g,
		  size_t ncase, int part, struct fail *f)
{
	if (oracle_state(j, o, SEED_STATE, 1, f))
		return -1;
	for (size_t c = 0; c < ncase; c++) {
		if (seeds(j, o, SEED_INPUTS, c, FAMILY_PLAIN, f) ||
		    grab_inputs(j, o, g, c, f) ||
		    forward(j, o, "native", &g->want[c], f) ||
		    forward(j, o, "loose", &g->loose[c], f) < 0 ||
		    (part && (seeds(j, o, SEED_INPUTS, c, FAMILY_PART, f) ||
			      forward(j, o, "native", &g->part[c], f))) ||
		    seeds(j, o, SEED_OTHER_INPUTS, c, FAMILY_PLAIN, f) ||
		    forward(j, o, "native", &g->other_input[c], f))
			return -1;
	}
	if (!o->param_bytes)
		return 0;
	if (oracle_state(j, o, SEED_OTHER_STATE, 1, f))
		return -1;
	for (size_t c = 0; c < ncase; c++)
		if (seeds(j, o, SEED_INPUTS, c, FAMILY_PLAIN, f) ||
		    forward(j, o, "native", &g->other_weights[c], f))
			return -1;
	return 0;
}

static void as_case(struct gathered *g, size_t c, int state,
		    struct guard_case *gc)
{
	memset(gc, 0, sizeof(*gc));
	gc->want = g->want[c].v;
	gc->other_input = g->other_input[c].v;
	gc->part = g->part[c].n == g->want[c].n ? g->part[c].v : NULL;
	gc->other_weights = state ? g->other_weights[c].v : NULL;
	if (g->loose[c].n == g->want[c].n && g->loose[c].n) {
		gc->loose[0] = g->loose[c].v;
		gc->nloose = 1;
	}
	for (size_t i = 0; i < g->nin; i++) {
		g->inviews[c][i] = g->in[i];
		g->inviews[c][i].data = g->inputs[c] + g->offset[i];
	}
	gc->inputs = g->inviews[c];
	gc->ninputs = g->nin;
}

static void release(struct gathered *g)
{
	for (size_t c = 0; c < GUARD_CASES_MAX; c++) {
		free(g->want[c].bytes);
		free(g->loose[c].bytes);
		free(g->other_input[c].bytes);
		free(g->part[c].bytes);
		free(g->other_weights[c].bytes);
		free(g->inputs[c]);
	}
	free(g);
}

/*
 * Whether the reference raises on a distribution.  Where it did, CUDA or its
 * process may be gone: it is started anew.  One that was killed or found no
 * memory is no proof, since what is found here is remembered: once more, and
 * then it is a fault.
 */
static int raises(struct judge *j, struct oracle *o, enum family k,
		  struct fail *f)
{
	double factor = k == FAMILY_SCALE ? 100 : 1;
	struct ca_msg m;
	int killed = 1;

	for (int i = 0; killed && i < 2; i++) {
		if (!oracle_inputs(j, o, SEED_INPUTS, family_name(k), factor,
				   f) &&
		    !oracle_expect(j, o, SEED_INPUTS, "native", &m, f))
			return 0;
		if (f->status != ST_INVALID_REFERENCE)
			return -1;
		killed = f->killed || f->oom;
		memset(f, 0, sizeof(*f));
		if (oracle_again(j, o, f) ||
		    oracle_state(j, o, SEED_STATE, 1, f))
			return -1;
	}
	if (!killed)
		return 1;
	fail_set(f, ST_INFRA_ERROR, 0, "the reference found no memory, or was "
		 "killed, on %s inputs", family_name(k));
	f->fault = f->oom = 1;
	return -1;
}

/* On which it does, once per task. */
static int try_families(struct judge *j, struct oracle *o,
			uint32_t *refused, struct fail *f)
{
	for (int k = FAMILY_PLAIN + 1; k < FAMILY_COUNT; k++) {
		int rc = raises(j, o, (enum family)k, f);

		if (rc < 0)
			return -1;
		*refused |= (uint32_t)rc << k;
	}
	return 0;
}

/* On the one that the guard itself draws from. */
static int try_part(struct judge *j, struct oracle *o, uint32_t *refused,
		    struct fail *f)
{
	int rc = raises(j, o, FAMILY_PART, f);

	*refused |= (uint32_t)(rc > 0) << FAMILY_PART;
	return rc < 0 ? -1 : 0;
}

/* The guard's leaves are those with a value; give each leaf its own. */
static void spread(const struct ca_msg *m, struct guard_result *g)
{
	struct guard_leaf compact[CA_LEAVES];
	size_t k = 0;

	memcpy(compact, g->leaf, sizeof(compact));
	for (uint32_t i = 0; i < m->nleaf; i++) {
		struct view v;

		if (!cmp_leaf_view(&m->leaf[i], NULL, 0, &v) && k < g->nleaf)
			g->leaf[i] = compact[k++];
		else
			g->leaf[i] = (struct guard_leaf){ .factor = 1,
				.limit = 1, .nearest = GUARD_NONE,
				.trivial = GUARD_NONE, .passes = GUARD_NONE };
	}
	g->nleaf = m->nleaf;
}

/* `whole`: on which distributions the reference raises, too. */
static int run(struct judge *j, struct oracle *o, int whole,
	       struct guard_result *out, struct fail *f)
{
	struct gathered *g = calloc(1, sizeof(*g));
	struct guard_case gc[GUARD_CASES_MAX];
	uint32_t refused = 0;
	const struct json *in = json_get(o->spec, "inputs"), *a;
	struct err e = ERR_INIT;
	uint64_t elements = 0;
	size_t ncase;
	int rc = -1;

	if (!g)
		return no_memory(f);
	for (uint32_t i = 0; i < o->first.nleaf; i++) {
		uint64_t n, bytes;
		struct view v;

		if (!cmp_leaf_view(&o->first.leaf[i], NULL, 0, &v) &&
		    !view_count(&v, &n, &bytes))
			elements += n;
	}
	ncase = guard_cases(elements);
	for (a = json_first(json_get(in, "args")); a; a = json_next(a))
		walk(g, json_get(in, "storages"), a);
	if (oracle_state(j, o, SEED_STATE, 1, f) ||
	    (whole ? try_families(j, o, &refused, f) :
	     try_part(j, o, &refused, f)) ||
	    gather(j, o, g, ncase, !(refused >> FAMILY_PART & 1), f))
		goto out;
	for (size_t c = 0; c < ncase; c++)
		as_case(g, c, o->param_bytes > 0, &gc[c]);
	if (judge_turn(j, TURN_REST, f))
		goto out;
	rc = guard_run(gc, ncase, g->want[0].n, CMP_TOL, CMP_TOL, out, &e);
	out->refused = refused;
	if (rc)
		fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	else
		spread(&g->want[0].m, out);
	if (!rc)
		rc = judge_turn(j, TURN_BACK, f);
out:
	release(g);
	return rc;
}

/* Whether it is remembered, or switched off. */
static int remembered(struct judge *j, const struct oracle *o,
		      const char *task, struct guard_result *g)
{
	struct json *known = memo_get(j, "guard", task, GUARD_VERSION);
	int have = known && !guard_read(known, g) &&
		   g->nleaf == o->first.nleaf;

	if (known && !have)
		mention("what was remembered of the task's guard does not "
			"fit: it is found out anew");
	json_free(known);
	if (weakened("guard"))
		memset(g, 0, sizeof(*g));
	return have || weakened("guard");
}

int guard_look(struct judge *j, struct oracle *o, const char *task,
	       struct guard_result *g, struct fail *f)
{
	return remembered(j, o, task, g) ? 0 : run(j, o, 0, g, f);
}

int guard_task(struct judge *j, struct oracle *o, const char *task,
	       struct guard_result *g, struct fail *f)
{
	struct str s = STR_INIT;
	struct jw w;

	if (remembered(j, o, task, g))
		return 0;
	if (run(j, o, 1, g, f))
		return -1;
	jw_init(&w, &s);
	guard_write(&w, g);
	memo_put(j, "guard", task, GUARD_VERSION, &s);
	str_release(&s);
	return 0;
}
