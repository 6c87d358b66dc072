/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/gpu and lib/nn/pages without a GPU: plans of memory, the kernels' text,
 * who holds which page.  Results of operations: test/models, test/gpu.
 */
#include "tests.h"

#include <stdio.h>

#include "gpu/cuda.h"
#include "gpu/gpu.h"
#include "nn/pages.h"

static void a_plan_is_one_allocation(void **state)
{
	struct gpu_plan p = GPU_PLAN_INIT;
	struct err e = ERR_INIT;
	struct gpu *g = gpu_open("cpu", GPU_F32, 0, &e);
	struct str table = STR_INIT;
	void *a, *b, *c;

	(void)state;
	gpu_plan_add(&p, "small", &a, 3, 4);
	gpu_plan_add(&p, "large", &b, 1 << 20, 4);
	gpu_plan_add(&p, "small", &c, 5, 4);
	gpu_plan_print(&p, &table);
	assert_string_equal(table.buf, "         4.0 MiB  large\n"
			    "         0.0 MiB  small\n"
			    "         4.0 MiB  in all\n");
	assert_int_equal(gpu_plan_commit(g, &p, &e), 0);
	assert_int_equal((char *)b - (char *)a, 256);
	assert_int_equal((char *)c - (char *)b, 4 << 20);
	assert_int_equal(((int *)c)[4], 0);
	gpu_plan_release(g, &p);
	gpu_plan_add(&p, "all", &a, (size_t)1 << 50, 4);
	assert_int_equal(gpu_plan_commit(g, &p, &e), -1);
	assert_int_equal(e.code, CA_UNAVAILABLE);
	assert_non_null(strstr(e.msg, "MiB are needed"));
	gpu_plan_add(&p, "too much", &b, SIZE_MAX / 2, 4);
	assert_int_equal(gpu_plan_commit(g, &p, &e), -1);
	assert_non_null(strstr(e.msg, "overflowed"));
	gpu_plan_release(g, &p);
	str_release(&table);
	assert_int_equal(gpu_record(g), 0);
	gpu_close(g);
}

static void devices_have_names(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_null(gpu_open("gpu", GPU_F32, 0, &e));
	assert_int_equal(e.code, CA_USAGE);
	assert_null(gpu_open("cuda:x", GPU_BF16, 0, &e));
	assert_int_equal(e.code, CA_USAGE);
	assert_null(gpu_open("cpu", GPU_BF16, 0, &e));
	assert_int_equal(e.code, CA_CONFIG);
}

static void kernels_compile(void **state)
{
	struct str cubin = STR_INIT;
	struct err e = ERR_INIT;

	(void)state;
	for (enum gpu_type t = GPU_F32; t <= GPU_BF16; t++) {
		int rc = cuda_text_compile(9, 0, t, &cubin, &e);

		if (rc && e.code == CA_UNAVAILABLE) {
			print_message("# %s\n", e.msg);
			skip();
		}
		if (rc)
			fail_msg("%s", e.msg);
		str_reset(&cubin);
	}
	str_release(&cubin);
}

static void count(int32_t *token, int n, int from)
{
	for (int i = 0; i < n; i++)
		token[i] = from + i;
}

static void beginnings_are_shared(void **state)
{
	struct pages *p = pages_new(10);
	int32_t a[64], b[64], ta[8], tb[8];
	struct pages_at at;

	(void)state;
	count(a, 64, 0);
	count(b, 64, 0);
	b[40] = -1;
	/* Four pages of prompt, one more to grow. */
	assert_int_equal(pages_take(p, a, 64, 80, ta, &at), 0);
	assert_int_equal(pages_avail(p), 5);
	pages_publish(p, a, 64, ta, &at);
	/* Two whole pages are the same. */
	assert_int_equal(pages_take(p, b, 64, 64, tb, &at), 32);
	assert_int_equal(tb[0], ta[0]);
	assert_int_equal(tb[1], ta[1]);
	assert_true(tb[2] != ta[2]);
	assert_int_equal(pages_avail(p), 3);
	pages_drop(p, tb, 64);
	pages_drop(p, ta, 80);
	assert_int_equal(pages_avail(p), 10);
	/* Free pages remember; the last token is computed again. */
	assert_int_equal(pages_take(p, a, 64, 64, ta, &at), 48);
	assert_int_equal(pages_take(p, a, 64, 200, tb, &at), -1);
	assert_int_equal(pages_avail(p), 6);
	pages_drop(p, ta, 64);
	pages_forget(p);
	assert_int_equal(pages_take(p, a, 64, 64, ta, &at), 0);
	pages_free(p);
}

/* Pages alike behind beginnings that differ, even where simple hashes of these
 * do not. */
static void ends_belong_to_their_beginnings(void **state)
{
	static const int32_t first[2][4] = {
		{ 0, 16, 21, 21 }, { 0, 20, 21, 17 },
	};
	struct pages *p = pages_new(16);
	int32_t token[2][64], table[2][4], again[4];
	struct pages_at at;

	(void)state;
	for (int i = 0; i < 2; i++) {
		count(token[i], 64, 100);
		memcpy(token[i], first[i], sizeof first[i]);
		assert_int_equal(pages_take(p, token[i], 64, 64, table[i],
					    &at), 0);
		pages_publish(p, token[i], 64, table[i], &at);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pages_take(p, token[i], 64, 64, again, &at),
				 48);
		assert_memory_equal(again, table[i], 3 * sizeof again[0]);
		assert_true(again[1] != table[!i][1]);
		pages_drop(p, again, 64);
	}
	pages_free(p);
}

/* Whatever is taken and dropped, nobody gets a page that another writes. */
static void pages_never_mix(void **state)
{
	enum { HOLDERS = 6, PAGES = 24 };
	struct pages *p = pages_new(PAGES);
	int32_t token[HOLDERS][96], table[HOLDERS][6];
	int len[HOLDERS] = { 0 }, own[HOLDERS] = { 0 };
	struct pages_at at[HOLDERS];

	(void)state;
	srand(4);
	for (int step = 0; step < 20000; step++) {
		int h = rand() % HOLDERS, n = 1 + rand() % 96;
		int writers[PAGES] = { 0 };

		if (len[h]) {
			pages_publish(p, token[h], len[h], table[h], &at[h]);
			pages_drop(p, table[h], len[h]);
			len[h] = 0;
			continue;
		}
		count(token[h], 96, 0);
		token[h][rand() % 96] = rand() % 3 - 5;
		own[h] = pages_take(p, token[h], n, n, table[h], &at[h]);
		len[h] = own[h] < 0 ? 0 : n;
		for (int i = 0; i < HOLDERS; i++)
			for (int k = own[i] / GPU_PAGE;
			     len[i] && k < pages_for(len[i]); k++)
				assert_int_equal(writers[table[i][k]]++, 0);
	}
	for (int h = 0; h < HOLDERS; h++)
		if (len[h])
			pages_drop(p, table[h], len[h]);
	assert_int_equal(pages_avail(p), PAGES);
	pages_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plan_is_one_allocation),
		cmocka_unit_test(devices_have_names),
		cmocka_unit_test(kernels_compile),
		cmocka_unit_test(beginnings_are_shared),
		cmocka_unit_test(ends_belong_to_their_beginnings),
		cmocka_unit_test(pages_never_mix),
	};

	return RUN_TESTS(tests);
}
