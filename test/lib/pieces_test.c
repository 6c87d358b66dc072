/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pieces.h"

#include "tests.h"

#include <stdatomic.h>

#define PARTS 1000

static atomic_int seen[PARTS];

static void mark(void *ctx, uint64_t i)
{
	assert_ptr_equal(ctx, seen);
	assert_true(i < PARTS);
	atomic_fetch_add(&seen[i], 1);
}

static void each_part_is_done_once(void **state)
{
	static const unsigned threads[] = { 0, 1, 3, 1000 };

	(void)state;
	for (size_t k = 0; k < sizeof(threads) / sizeof(*threads); k++) {
		for (size_t i = 0; i < PARTS; i++)
			seen[i] = 0;
		pieces_run(mark, seen, PARTS - k, threads[k]);
		for (size_t i = 0; i < PARTS; i++)
			assert_int_equal(seen[i], i < PARTS - k);
	}
}

static void no_parts_are_no_work(void **state)
{
	(void)state;
	pieces_run(NULL, NULL, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_part_is_done_once),
		cmocka_unit_test(no_parts_are_no_work),
	};

	return RUN_TESTS(tests);
}
