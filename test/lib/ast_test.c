/* SPDX-License-Identifier: Apache-2.0
 *
 * Trees: reading, matching against a plain implementation of the definition,
 * bounds, nearest and exceeding members of a set.
 */
#include "tests.h"

#include "ast/match.h"
#include "base/rand.h"

#define NAMES 6
#define MOST 80

/* Labels as the parser would send them; the first four are significant. */
static const char *const names[NAMES] = { "FunctionDef", "If", "Import",
					  "Return", "Name", "Load" };
static const double weight[NAMES] = { 1.2, 0.5, 0.3, 1, 0, 0 };

struct plain {
	uint16_t code[3 * MOST];
	int kids[MOST][4], nkids[MOST], label[MOST];
	int n;
};

static int grow(struct plain *p, struct rng *r, int depth)
{
	int me = p->n++, want = depth > 3 ? 0 : (int)rng_below(r, 4);

	p->label[me] = me ? (int)rng_below(r, NAMES) : 4;
	p->nkids[me] = 0;
	for (int i = 0; i < want && p->n < MOST - 8; i++) {
		int kid = grow(p, r, depth + 1);

		p->kids[me][p->nkids[me]++] = kid;
	}
	p->code[3 * me] = p->code[3 * me + 2] =
		(uint16_t)(p->label[me] + 1);
	p->code[3 * me + 1] = (uint16_t)p->nkids[me];
	return me;
}

static int match(const struct plain *a, int x, const struct plain *b, int y);

/* The best assignment of kids i.. of x to kids of y not in `used`. */
static int assign(const struct plain *a, int x, int i, const struct plain *b,
		  int y, unsigned used)
{
	int best = 0;

	if (i == a->nkids[x])
		return 0;
	for (int k = 0; k < b->nkids[y]; k++) {
		int v;

		if (used & 1u << k)
			continue;
		v = match(a, a->kids[x][i], b, b->kids[y][k]) +
			assign(a, x, i + 1, b, y, used | 1u << k);
		if (v > best)
			best = v;
	}
	return best;
}

static int match(const struct plain *a, int x, const struct plain *b, int y)
{
	if (a->label[x] != b->label[y] || a->nkids[x] != b->nkids[y])
		return 0;
	return 1 + assign(a, x, 0, b, y, 0);
}

static int size_of(const struct plain *p, int x)
{
	int n = 1;

	for (int i = 0; i < p->nkids[x]; i++)
		n += size_of(p, p->kids[x][i]);
	return n;
}

/* The best weighted assignment of significant parts, by trying all. */
static double parts(const struct plain *a, int x, const struct plain *b,
		    uint64_t used)
{
	double best;

	while (x < a->n && !(weight[a->label[x]] > 0))
		x++;
	if (x == a->n)
		return 0;
	best = parts(a, x + 1, b, used);
	for (int y = 0; y < b->n; y++) {
		int v = used & (uint64_t)1 << y ? 0 : match(a, x, b, y);
		double sum;

		if (!v)
			continue;
		sum = v * weight[a->label[x]] +
			parts(a, x + 1, b, used | (uint64_t)1 << y);
		if (sum > best)
			best = sum;
	}
	return best;
}

static double total(const struct plain *p, int *n)
{
	double sum = 0;

	*n = 0;
	for (int x = 0; x < p->n; x++) {
		sum += weight[p->label[x]] * size_of(p, x);
		*n += weight[p->label[x]] > 0;
	}
	return sum;
}

static double by_definition(const struct plain *a, const struct plain *b)
{
	int na, nb;
	double all = total(a, &na) + total(b, &nb);

	return na < 2 || nb < 2 ? 0 : 2 * parts(a, 0, b, 0) / all;
}

static struct ast_store *store;
static uint32_t label[NAMES];

static int setup(void **state)
{
	(void)state;
	store = ast_store_new();
	assert_non_null(store);
	for (int i = 0; i < NAMES; i++)
		label[i] = ast_label(store, names[i], strlen(names[i]));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ast_store_free(store);
	return 0;
}

static int read_codes(const uint16_t *code, size_t n, struct ast_doc *doc,
		      struct ast_doc *normal)
{
	return ast_read(store, label, NAMES, code, n * 6, doc, normal, NULL);
}

/* Small ones, since the definition takes its time. */
static struct plain random_plain(struct rng *r)
{
	struct plain p;
	int n = 99;

	while (p.n = 0, grow(&p, r, 0), total(&p, &n), n > 7 || p.n > 24)
		;
	return p;
}

static void same_as_the_definition(void **state)
{
	struct rng r;
	int alike = 0;

	(void)state;
	rng_seeded(&r, 7);
	for (int i = 0; i < 3000; i++) {
		struct plain a = random_plain(&r), b = random_plain(&r);
		struct ast_doc x, y, nx, ny;
		double want = by_definition(&a, &b), got;

		assert_int_equal(read_codes(a.code, (size_t)a.n, &x, &nx), 0);
		assert_int_equal(read_codes(b.code, (size_t)b.n, &y, &ny), 0);
		got = ast_similarity(store, &x, &y);
		assert_true(got >= want - 0.00005001 &&
			    got <= want + 0.00005001);
		assert_true(ast_bound(&x, &y) >= want - 1e-9);
		assert_true(ast_similarity(store, &y, &x) == got);
		assert_true(ast_similarity(store, &nx, &ny) == got);
		alike += got > 0.3;
		ast_doc_release(&x);
		ast_doc_release(&y);
		ast_doc_release(&nx);
		ast_doc_release(&ny);
	}
	assert_true(alike > 30);
}

static void nearest_and_exceeding(void **state)
{
	struct ast_doc doc[40], normal;
	struct ast_set set;
	struct rng r;

	(void)state;
	rng_seeded(&r, 11);
	for (int i = 0; i < 40; i++) {
		struct plain p = random_plain(&r);

		assert_int_equal(read_codes(p.code, (size_t)p.n, &doc[i],
					    &normal), 0);
		ast_doc_release(&normal);
	}
	assert_int_equal(ast_set_init(&set, doc, 30, NULL), 0);
	for (int i = 25; i < 40; i++) {
		size_t best = SIZE_MAX, which = SIZE_MAX;
		double most = -1;

		for (size_t k = 0; k < 30; k++) {
			double v = ast_similarity(store, &doc[i], &doc[k]);

			if (v > most) {
				most = v;
				best = k;
			}
		}
		assert_true(ast_nearest(store, &set, &doc[i], &which) ==
			    most);
		assert_int_equal(which, best);
		for (double limit = 0.05; limit < 1; limit += 0.05) {
			int over = ast_exceeds(store, &set, &doc[i], limit,
					       &which);

			assert_int_equal(over, most > limit);
			if (over)
				assert_true(ast_similarity(store, &doc[i],
					&doc[which]) > limit);
		}
	}
	ast_set_release(&set);
	for (int i = 0; i < 40; i++)
		ast_doc_release(&doc[i]);
}

/* What is no tree is refused, whatever is cut or changed. */
static void broken(void **state)
{
	/* Name(Return(Load, Load), Load) */
	static const uint16_t good[] = { 5, 2, 5, 4, 2, 4, 6, 0, 6, 6, 0, 6,
					 6, 0, 6 };
	static const struct {
		size_t at;
		uint16_t value;
	} change[] = { { 1, 1 }, { 1, 3 }, { 4, 3 }, { 4, 0 }, { 7, 1 },
		       { 0, 0 }, { 0, 7 }, { 2, 7 }, { 2, 0 }, { 13, 1 },
		       { 1, 60000 } };
	uint16_t code[15];
	struct ast_doc x, y;

	(void)state;
	for (size_t n = 0; n < 5; n++)
		assert_int_equal(read_codes(good, n, &x, &y), -1);
	assert_int_equal(ast_read(store, label, NAMES, good, 29, &x, &y,
				  NULL), -1);
	for (size_t i = 0; i < sizeof(change) / sizeof(*change); i++) {
		memcpy(code, good, sizeof(code));
		code[change[i].at] = change[i].value;
		assert_int_equal(read_codes(code, 5, &x, &y), -1);
		assert_null(x.part);
	}
	assert_int_equal(read_codes(good, 5, &x, &y), 0);
	assert_int_equal(x.n, 1);
	assert_int_equal(x.weight, 30);
	ast_doc_release(&x);
	ast_doc_release(&y);
}

/* A dropped subtree is absent from the normalised tree only. */
static void dropped(void **state)
{
	static const uint16_t code[] = { 5, 3, 5, 4, 1, 4, 6, 0, 6,
					 4, 1, 0, 6, 0, 0, 4, 0, 4 };
	struct ast_doc x, y;

	(void)state;
	assert_int_equal(read_codes(code, 6, &x, &y), 0);
	assert_int_equal(x.n, 3);
	assert_int_equal(y.n, 2);
	assert_int_equal(x.weight, 50);
	assert_int_equal(y.weight, 30);
	ast_doc_release(&x);
	ast_doc_release(&y);
}

/* A function of many statements of three kinds, and files that are too long. */
static void crowds(void **state)
{
	static uint16_t code[3 * 20001];
	struct ast_doc x[2], normal;

	(void)state;
	for (int side = 0; side < 2; side++) {
		uint16_t *at = code;
		static const uint16_t head[] = { 1, 3002, 1, 4, 0, 4,
						 4, 0, 4 };

		memcpy(at, head, sizeof(head));
		at += 9;
		for (int i = 0; i < 3000; i++) {
			int n = i % 3 + 1;

			for (int k = -1; k < n; k++) {
				at[0] = at[2] = (uint16_t)(k < 0 ? 5 :
					5 + ((i + side * 7) >> k & 1));
				at[1] = (uint16_t)(k < 0 ? n : 0);
				at += 3;
			}
		}
		assert_int_equal(read_codes(code, (size_t)(at - code) / 3,
					    &x[side], &normal), 0);
		ast_doc_release(&normal);
	}
	assert_true(ast_similarity(store, &x[0], &x[1]) > 0.9);
	ast_doc_release(&x[0]);
	ast_doc_release(&x[1]);
	assert_int_equal(read_codes(code, 20001, &x[1], &normal), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(same_as_the_definition,
						setup, teardown),
		cmocka_unit_test_setup_teardown(nearest_and_exceeding, setup,
						teardown),
		cmocka_unit_test_setup_teardown(broken, setup, teardown),
		cmocka_unit_test_setup_teardown(dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(crowds, setup, teardown),
	};

	return RUN_TESTS(tests);
}
