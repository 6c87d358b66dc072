/* SPDX-License-Identifier: Apache-2.0 */
#include "judge/families.h"

#include "tests.h"

static const struct family_traits all = { 1, 1, 1, 1 };

static size_t count(const struct verify_round *r, size_t n, enum family f)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += r[i].family == f && !r[i].other_weights;
	return sum;
}

static void every_family_has_a_round(void **s)
{
	struct verify_round r[FAMILY_ROUNDS];
	struct rng rng;
	size_t n;

	(void)s;
	rng_seeded(&rng, 1);
	n = families_plan(&rng, &all, 5, 0, r);
	assert_int_equal(n, 5 + 3 + 8 + 1);
	assert_int_equal(count(r, n, FAMILY_PLAIN), 5);
	assert_int_equal(count(r, n, FAMILY_SCALE), 3);
	for (int f = FAMILY_SIGN; f < FAMILY_COUNT; f++)
		assert_int_equal(count(r, n, (enum family)f),
				 f == FAMILY_BLOCKS ? 2 : f != FAMILY_PART);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(r[i].by_norm, r[i].family != FAMILY_PLAIN);
		assert_int_equal(r[i].deciding, i + 1 < n);
		assert_int_equal(r[i].other_weights, i + 1 == n);
		if (r[i].family != FAMILY_SCALE)
			assert_true(r[i].factor == 1);
		for (size_t k = 0; k < i; k++)
			assert_true(r[i].seed != r[k].seed);
	}
}

static void factors_cover_four_decades(void **s)
{
	struct verify_round r[FAMILY_ROUNDS];
	struct rng rng;

	(void)s;
	for (uint64_t seed = 0; seed < 200; seed++) {
		rng_seeded(&rng, seed);
		families_plan(&rng, &all, 5, 0, r);
		assert_true(r[5].factor >= 0.01 && r[5].factor < 0.2155);
		assert_true(r[6].factor >= 0.2154 && r[6].factor < 4.642);
		assert_true(r[7].factor >= 4.641 && r[7].factor < 100);
	}
}

static void rounds_that_would_change_nothing_are_left_out(void **s)
{
	static const struct family_traits none, ints = { 0, 1, 0, 0 };
	struct verify_round r[FAMILY_ROUNDS];
	struct rng rng;

	(void)s;
	rng_seeded(&rng, 1);
	assert_int_equal(families_plan(&rng, &none, 0, 0, r), FAMILY_FRESH);
	assert_int_equal(families_plan(&rng, &ints, 5, 0, r), 6);
	assert_int_equal(r[5].family, FAMILY_PERMUTE);
	assert_int_equal(families_plan(&rng, &all, 7, 1, r), 8);
	assert_true(families_plan(&rng, &all, 1000, 0, r) <= FAMILY_ROUNDS);
}

static void the_same_seed_gives_the_same_plan(void **s)
{
	struct verify_round a[FAMILY_ROUNDS], b[FAMILY_ROUNDS];
	struct rng rng;
	size_t n;

	(void)s;
	rng_seeded(&rng, 77);
	n = families_plan(&rng, &all, 5, 0, a);
	rng_seeded(&rng, 77);
	assert_int_equal(families_plan(&rng, &all, 5, 0, b), n);
	assert_memory_equal(a, b, n * sizeof(*a));
}

static void names_and_requests(void **s)
{
	struct verify_round r = { FAMILY_SCALE, 0.25, 0, 1, 1,
				  18446744073709551615u, 2 };
	struct str out = STR_INIT;
	struct jw w;

	(void)s;
	for (int f = 0; f < FAMILY_COUNT; f++)
		assert_int_equal(family_parse(family_name((enum family)f)), f);
	assert_int_equal(family_parse("huge"), FAMILY_COUNT);
	assert_int_equal(family_parse(NULL), FAMILY_COUNT);
	jw_init(&w, &out);
	jw_obj(&w);
	family_write(&w, &r);
	jw_end_obj(&w);
	assert_string_equal(out.buf, "{\"seed\":\"18446744073709551615\","
			    "\"family\":\"scale\",\"factor\":0.25}");
	str_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_family_has_a_round),
		cmocka_unit_test(factors_cover_four_decades),
		cmocka_unit_test(rounds_that_would_change_nothing_are_left_out),
		cmocka_unit_test(the_same_seed_gives_the_same_plan),
		cmocka_unit_test(names_and_requests),
	};

	return RUN_TESTS(tests);
}
