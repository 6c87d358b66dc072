/* SPDX-License-Identifier: Apache-2.0
 *
 * Matching of trees and of files.
 */
#include "ast/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ast/internal.h"

#define NOT_FOUND UINT32_MAX
/* Steps of one assignment that are still taken: a second or so. */
#define WORK 1e9

static uint32_t match(struct ast_store *s, uint32_t a, uint32_t b, int *bad);

/* Pairs of trees. */
static size_t pair_slot(const struct ast_store *s, uint64_t key)
{
	uint64_t h = key * 0x9e3779b97f4a7c15u;
	size_t at = (size_t)(h ^ h >> 31);

	for (;; at++) {
		const struct ast_pair *p = &s->pair[at & (s->pair_slots - 1)];

		if (!p->key || p->key == key)
			return at & (s->pair_slots - 1);
	}
}

static uint32_t pair_get(const struct ast_store *s, uint64_t key)
{
	const struct ast_pair *p;

	if (!s->pair_slots)
		return NOT_FOUND;
	p = &s->pair[pair_slot(s, key)];
	return p->key ? p->value : NOT_FOUND;
}

static int pair_grow(struct ast_store *s)
{
	size_t was = s->pair_slots, slots = was ? was * 2 : 4096;
	struct ast_pair *old = s->pair, *p = calloc(slots, sizeof(*p));

	if (!p)
		return -1;
	s->pair = p;
	s->pair_slots = slots;
	for (size_t i = 0; i < was; i++)
		if (old[i].key)
			p[pair_slot(s, old[i].key)] = old[i];
	free(old);
	return 0;
}

static int pair_put(struct ast_store *s, uint64_t key, uint32_t value)
{
	if (s->npair * 2 >= s->pair_slots && pair_grow(s))
		return -1;
	s->pair[pair_slot(s, key)] = (struct ast_pair){ key, value };
	s->npair++;
	return 0;
}

/* Potentials and the matching of the Hungarian method, rows <= columns;
 * arrays of columns + 1. */
struct hungary {
	int64_t *u, *v, *least;
	int *row, *way;
	char *used;
};

/* The column whose reduced cost from row i0 is least joins the tree. */
static int hungary_step(struct hungary *h, const uint32_t *value, int m,
			int j0)
{
	int i0 = h->row[j0], j1 = 0;
	int64_t delta = INT64_MAX;

	h->used[j0] = 1;
	for (int j = 1; j <= m; j++) {
		int64_t cost;

		if (h->used[j])
			continue;
		cost = -(int64_t)value[(size_t)(i0 - 1) * (size_t)m +
				       (size_t)j - 1] - h->u[i0] - h->v[j];
		if (cost < h->least[j]) {
			h->least[j] = cost;
			h->way[j] = j0;
		}
		if (h->least[j] < delta) {
			delta = h->least[j];
			j1 = j;
		}
	}
	for (int j = 0; j <= m; j++) {
		if (h->used[j]) {
			h->u[h->row[j]] += delta;
			h->v[j] -= delta;
		} else {
			h->least[j] -= delta;
		}
	}
	return j1;
}

static void hungary_row(struct hungary *h, const uint32_t *value, int m, int i)
{
	int j0 = 0;

	h->row[0] = i;
	for (int j = 0; j <= m; j++) {
		h->least[j] = INT64_MAX;
		h->used[j] = 0;
	}
	do
		j0 = hungary_step(h, value, m, j0);
	while (h->row[j0]);
	for (; j0; j0 = h->way[j0])
		h->row[j0] = h->row[h->way[j0]];
}

/* The largest sum of an assignment of n rows to m >= n columns. */
static uint32_t assignment(const uint32_t *value, size_t n, size_t m, int *bad)
{
	size_t k = m + 1;
	struct hungary h;
	char *p;
	uint32_t sum = 0;

	if (n == 2 && m == 2) {
		uint32_t x = value[0] + value[3], y = value[1] + value[2];

		return x > y ? x : y;
	}
	p = calloc(k, 3 * sizeof(int64_t) + 2 * sizeof(int) + 1);
	if (!p) {
		*bad = 1;
		return 0;
	}
	h.u = (int64_t *)(void *)p;
	h.v = h.u + k;
	h.least = h.v + k;
	h.row = (int *)(h.least + k);
	h.way = h.row + k;
	h.used = (char *)(h.way + k);
	for (size_t i = 1; i <= n; i++)
		hungary_row(&h, value, (int)m, (int)i);
	for (size_t j = 1; j <= m; j++)
		if (h.row[j])
			sum += value[(size_t)(h.row[j] - 1) * m + j - 1];
	free(p);
	return sum;
}

/* The best assignment of trees of one kind; na <= nb. */
static uint32_t block(struct ast_store *s, const uint32_t *a, size_t na,
		      const uint32_t *b, size_t nb, int *bad)
{
	uint32_t few[64], *value = few, best = 0;

	if (na == 1) {
		for (size_t i = 0; i < nb; i++) {
			uint32_t v = match(s, a[0], b[i], bad);

			if (v > best)
				best = v;
		}
		return best;
	}
	if ((double)na * (double)na * (double)nb > WORK) {
		*bad = 1;
		return 0;
	}
	if (na * nb > sizeof(few) / sizeof(*few))
		value = malloc(na * nb * sizeof(*value));
	if (!value) {
		*bad = 1;
		return 0;
	}
	for (size_t i = 0; i < na; i++)
		for (size_t k = 0; k < nb; k++)
			value[i * nb + k] = match(s, a[i], b[k], bad);
	best = assignment(value, na, nb, bad);
	if (value != few)
		free(value);
	return best;
}

/* Drops what both have (adding it to *sum) from runs of one kind. */
static void drop_equal(const struct ast_store *s, uint32_t *a, size_t *na,
		       uint32_t *b, size_t *nb, uint32_t *sum)
{
	size_t i = 0, k = 0, ia = 0, kb = 0;

	while (i < *na || k < *nb) {
		if (i < *na && k < *nb && a[i] == b[k]) {
			*sum += s->node[a[i]].size;
			i++;
			k++;
		} else if (k == *nb || (i < *na && a[i] < b[k])) {
			a[ia++] = a[i++];
		} else {
			b[kb++] = b[k++];
		}
	}
	*na = ia;
	*nb = kb;
}

static size_t run_of(const struct ast_store *s, const uint32_t *id, size_t n)
{
	size_t i = 1;

	while (i < n && s->node[id[i]].kind == s->node[id[0]].kind)
		i++;
	return i;
}

/* The best assignment of two runs of one kind. */
static uint32_t runs(struct ast_store *s, const uint32_t *a, size_t na,
		     const uint32_t *b, size_t nb, int *bad)
{
	uint32_t few[128], *copy = few, sum = 0;

	if (na == 1 && nb == 1)
		return match(s, a[0], b[0], bad);
	if (na + nb > sizeof(few) / sizeof(*few))
		copy = malloc((na + nb) * sizeof(*copy));
	if (!copy) {
		*bad = 1;
		return 0;
	}
	memcpy(copy, a, na * sizeof(*a));
	memcpy(copy + na, b, nb * sizeof(*b));
	a = copy;
	b = copy + na;
	drop_equal(s, copy, &na, copy + (b - a), &nb, &sum);
	if (na && nb)
		sum += na <= nb ? block(s, a, na, b, nb, bad) :
		       block(s, b, nb, a, na, bad);
	if (copy != few)
		free(copy);
	return sum;
}

static uint32_t match_kids(struct ast_store *s, uint32_t a, uint32_t b,
			   int *bad)
{
	const size_t n = KIND_KIDS(s->node[a].kind);
	const uint32_t *x = s->kid + s->node[a].first;
	const uint32_t *y = s->kid + s->node[b].first;
	size_t i = 0, k = 0;
	uint32_t sum = 0;

	while (i < n && k < n) {
		uint32_t kx = s->node[x[i]].kind, ky = s->node[y[k]].kind;
		size_t nx, ny;

		if (kx != ky) {
			i += kx < ky;
			k += kx > ky;
			continue;
		}
		nx = run_of(s, x + i, n - i);
		ny = run_of(s, y + k, n - k);
		sum += runs(s, x + i, nx, y + k, ny, bad);
		i += nx;
		k += ny;
	}
	return sum;
}

static uint32_t match(struct ast_store *s, uint32_t a, uint32_t b, int *bad)
{
	uint64_t key = a < b ? (uint64_t)a << 32 | b : (uint64_t)b << 32 | a;
	uint32_t v;

	if (a == b)
		return s->node[a].size;
	if (s->node[a].kind != s->node[b].kind || *bad)
		return 0;
	v = pair_get(s, key);
	if (v != NOT_FOUND)
		return v;
	v = 1 + match_kids(s, a, b, bad);
	if (!*bad && pair_put(s, key, v))
		*bad = 1;
	return v;
}

/* Runs of parts of one kind that both files have. */
struct common_run {
	size_t i, na, k, nb;
	uint64_t most;		/* what they cannot exceed, weighted */
};

static size_t part_run(const struct ast_store *s, const struct ast_doc *d,
		       size_t i, uint64_t *sum)
{
	uint32_t kind = s->node[d->part[i].node].kind;
	size_t n = 0;

	*sum = 0;
	for (; i + n < d->n; n++) {
		const struct ast_node *x = &s->node[d->part[i + n].node];

		if (x->kind != kind)
			break;
		*sum += x->size;
	}
	return n;
}

static size_t common_runs(const struct ast_store *s, const struct ast_doc *a,
			  const struct ast_doc *b, struct common_run *out,
			  uint64_t *most)
{
	size_t i = 0, k = 0, n = 0;

	*most = 0;
	while (i < a->n && k < b->n) {
		uint32_t ka = s->node[a->part[i].node].kind;
		uint32_t kb = s->node[b->part[k].node].kind;
		struct common_run *r = &out[n];
		uint64_t x, y;

		if (ka != kb) {
			i += ka < kb;
			k += ka > kb;
			continue;
		}
		r->i = i;
		r->k = k;
		r->na = part_run(s, a, i, &x);
		r->nb = part_run(s, b, k, &y);
		r->most = a->part[i].weight * (x < y ? x : y);
		*most += r->most;
		i += r->na;
		k += r->nb;
		n++;
	}
	return n;
}

static uint64_t match_run(struct ast_store *s, const struct ast_doc *a,
			  const struct ast_doc *b,
			  const struct common_run *r, int *bad)
{
	uint32_t x[AST_SIGNIFICANT], y[AST_SIGNIFICANT];

	for (size_t i = 0; i < r->na; i++)
		x[i] = a->part[r->i + i].node;
	for (size_t i = 0; i < r->nb; i++)
		y[i] = b->part[r->k + i].node;
	return (uint64_t)a->part[r->i].weight *
		runs(s, x, r->na, y, r->nb, bad);
}

/* The score, not rounded.  Once it cannot exceed `floor` the rest is not
 * looked at, and the answer is something up to floor.  -1 as in match.h. */
static double score(struct ast_store *s, const struct ast_doc *a,
		    const struct ast_doc *b, double floor)
{
	double per = 2.0 / (double)(a->weight + b->weight);
	struct common_run run[AST_SIGNIFICANT];
	uint64_t most;
	size_t n;
	int bad = 0;

	if (a->n < 2 || b->n < 2)
		return 0;
	n = common_runs(s, a, b, run, &most);
	for (size_t i = 0; i < n && (double)most * per > floor; i++)
		most -= run[i].most - match_run(s, a, b, &run[i], &bad);
	if (bad)
		return -1;
	return 2.0 * (double)most / (double)(a->weight + b->weight);
}

static double rounded(double x)
{
	char text[32];

	snprintf(text, sizeof(text), "%.4f", x);
	return strtod(text, NULL);
}

double ast_similarity(struct ast_store *s, const struct ast_doc *a,
		      const struct ast_doc *b)
{
	double x = score(s, a, b, -1);

	return x < 0 ? x : rounded(x);
}

static uint64_t common_large(const struct ast_doc *a, const struct ast_doc *b)
{
	uint64_t sum = 0;

	for (int i = 0; i < AST_BUCKETS; i++)
		sum += a->bucket[i] < b->bucket[i] ? a->bucket[i] :
		       b->bucket[i];
	return sum;
}

/* The same in 16 bits, of which a register holds many. */
static uint64_t common_small(const struct ast_doc *a, const struct ast_doc *b)
{
	int32_t sum = 0;

	for (int i = 0; i < AST_BUCKETS; i++)
		sum += a->small[i] < b->small[i] ? a->small[i] : b->small[i];
	return (uint64_t)sum;
}

double ast_bound(const struct ast_doc *a, const struct ast_doc *b)
{
	uint64_t sum = a->large || b->large ? common_large(a, b) :
		       common_small(a, b);

	if (!sum)
		return 0;
	return 2.0 * (double)sum / (double)(a->weight + b->weight);
}

/* Sets. */
struct rank {
	double by;
	size_t i;
};

static int by_value(const void *a, const void *b)
{
	const struct rank *x = a, *y = b;

	if (x->by != y->by)
		return x->by < y->by ? -1 : 1;
	return x->i < y->i ? -1 : x->i > y->i;
}

int ast_set_init(struct ast_set *set, const struct ast_doc *docs, size_t n,
		 struct err *e)
{
	struct rank *r = malloc((n + 1) * sizeof(*r));

	set->n = n;
	set->doc = malloc((n + 1) * sizeof(*set->doc));
	set->index = malloc((n + 1) * sizeof(*set->index));
	if (!r || !set->doc || !set->index) {
		free(r);
		ast_set_release(set);
		return err_set(e, CA_SOFTWARE, "out of memory");
	}
	for (size_t i = 0; i < n; i++)
		r[i] = (struct rank){ (double)docs[i].weight, i };
	qsort(r, n, sizeof(*r), by_value);
	for (size_t i = 0; i < n; i++) {
		set->doc[i] = &docs[r[i].i];
		set->index[i] = r[i].i;
	}
	free(r);
	return 0;
}

void ast_set_release(struct ast_set *set)
{
	free(set->doc);
	free(set->index);
	*set = (struct ast_set){ NULL, NULL, 0 };
}

double ast_nearest(struct ast_store *s, const struct ast_set *set,
		   const struct ast_doc *d, size_t *which)
{
	struct rank *r = malloc((set->n + 1) * sizeof(*r));
	double best = -1;

	*which = SIZE_MAX;
	if (!r)
		return -1;
	for (size_t i = 0; i < set->n; i++)
		r[i] = (struct rank){ -ast_bound(d, set->doc[i]), i };
	qsort(r, set->n, sizeof(*r), by_value);
	for (size_t i = 0; i < set->n; i++) {
		size_t at = set->index[r[i].i];
		double v;

		/* What rounds to the best found may stand earlier. */
		if (-r[i].by < best - 1e-4)
			break;
		v = score(s, d, set->doc[r[i].i], best - 1e-4);
		if (v < 0) {
			free(r);
			return -1;
		}
		if (v <= best - 1e-4)
			continue;
		v = rounded(v);
		if (v > best || (v == best && at < *which)) {
			best = v;
			*which = at;
		}
	}
	free(r);
	return set->n ? best : 0;
}

int ast_exceeds(struct ast_store *s, const struct ast_set *set,
		const struct ast_doc *d, double limit, size_t *which)
{
	double low = (double)d->weight * limit / (2 - limit);
	double high = limit > 0 ? (double)d->weight * (2 - limit) / limit :
		      1e300;
	size_t i = 0, end = set->n;

	/* The first that is heavy enough. */
	while (i < end) {
		size_t mid = i + (end - i) / 2;

		if ((double)set->doc[mid]->weight < low)
			i = mid + 1;
		else
			end = mid;
	}
	for (; i < set->n && (double)set->doc[i]->weight <= high; i++) {
		double v;

		if (ast_bound(d, set->doc[i]) <= limit)
			continue;
		v = score(s, d, set->doc[i], limit);
		if (v < 0)
			return -1;
		if (v > limit && rounded(v) > limit) {
			*which = set->index[i];
			return 1;
		}
	}
	return 0;
}
