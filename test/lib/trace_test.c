/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading what an untrusted child has written about its kernels.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "cu/trace.h"
#include "judge/kernels.h"

static char *region;
static struct trace_head *head;
static struct trace_rec *rec;

static int setup(void **state)
{
	(void)state;
	region = calloc(1, TRACE_BYTES);
	if (!region)
		return -1;
	head = (struct trace_head *)region;
	rec = (struct trace_rec *)(region + sizeof(*head) + TRACE_NAMES);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(region);
	return 0;
}

static uint32_t name(const char *text)
{
	uint32_t at = (uint32_t)head->names;

	strcpy(region + sizeof(*head) + at, text);
	head->names += strlen(text) + 1;
	return at;
}

static void add(uint32_t kind, uint64_t start, uint64_t end, uint64_t bytes,
		uint32_t at)
{
	struct trace_rec *r = &rec[head->records++];

	memset(r, 0, sizeof(*r));
	r->kind = kind;
	r->start = start;
	r->end = end;
	r->bytes = bytes;
	r->name = at;
}

static void begin(void)
{
	memset(region, 0, TRACE_BYTES);
	head->magic = TRACE_MAGIC;
	head->names = 1;
}

static void sums_and_rows(void **state)
{
	struct trace_table t;
	struct err e = ERR_INIT;
	uint32_t a, b;

	(void)state;
	begin();
	a = name("_Z1aPf");
	b = name("_Z1bPf");
	/* CUPTI delivers late, so marks do not stand before their kernels. */
	add(TRACE_KERNEL, 50, 60, 0, a);	/* before any iteration */
	add(TRACE_KERNEL, 110, 1110, 0, a);
	add(TRACE_KERNEL, 2010, 5010, 0, b);
	add(TRACE_KERNEL, 2020, 2120, 0, a);
	add(TRACE_COPY, 3010, 3020, 4096, 0);
	add(TRACE_MARK, 100, 0, 1, 0);
	add(TRACE_MARK, 2000, 0, 2, 0);
	add(TRACE_MARK, 3000, 0, 3, 0);
	assert_int_equal(trace_read(region, TRACE_BYTES, 1, 3, 1, &t, &e), 0);
	assert_int_equal(t.iterations, 3);
	assert_int_equal(t.n, 3);
	assert_string_equal(t.row[0].name, "_Z1bPf");
	assert_int_equal(t.row[0].ns, 3000);
	assert_int_equal(t.row[1].calls, 2);
	assert_int_equal(t.row[1].ns, 1100);
	assert_string_equal(t.row[2].name, "[copy]");
	assert_int_equal(t.row[2].bytes, 4096);
	assert_true(t.median_us == 1.0);
	trace_free(&t);
	assert_int_equal(trace_read(region, TRACE_BYTES, 2, 2, 1, &t, &e), 0);
	assert_int_equal(t.iterations, 1);
	assert_true(t.median_us == 3.1);
	trace_free(&t);
	assert_int_equal(trace_read(region, TRACE_BYTES, 1, 3, 2, &t, &e), 0);
	assert_int_equal(t.iterations, 2);
	assert_int_equal(t.n, 2);
	trace_free(&t);
}

static void the_used_part_says_as_much(void **state)
{
	struct trace_table t;
	size_t used;
	char *part;

	(void)state;
	begin();
	add(TRACE_MARK, 100, 0, 1, 0);
	add(TRACE_KERNEL, 110, 120, 0, name("_Z1aPf"));
	used = trace_used(region, TRACE_BYTES);
	assert_int_equal(used, (char *)&rec[2] - region);
	part = malloc(used);
	assert_non_null(part);
	memcpy(part, region, used);
	assert_int_equal(trace_read(part, used, 1, 1, 1, &t, NULL), 0);
	assert_int_equal(t.lost, 0);
	assert_int_equal(t.row[0].ns, 10);
	trace_free(&t);
	free(part);
	head->records = UINT64_MAX;
	assert_int_equal(trace_used(region, TRACE_BYTES), TRACE_BYTES);
	assert_int_equal(trace_used(region, 8), 8);
}

static void nonsense(void **state)
{
	struct trace_table t;
	struct err e = ERR_INIT;
	struct rng r;

	(void)state;
	memset(region, 0, TRACE_BYTES);
	assert_int_equal(trace_read(region, TRACE_BYTES, 0, 9, 1, &t, &e), -1);
	assert_int_equal(e.code, CA_DATAERR);
	begin();
	assert_int_equal(trace_read(region, 64, 0, 9, 1, &t, &e), -1);
	/* Ends before it starts, a name outside, more records than fit. */
	add(TRACE_MARK, 100, 0, 1, 0);
	add(TRACE_KERNEL, 200, 100, 0, 0);
	add(TRACE_KERNEL, 200, 300, 0, 0xffffffff);
	add(77, 200, 300, 0, 0);
	assert_int_equal(trace_read(region, TRACE_BYTES, 0, 9, 1, &t, &e), 0);
	assert_int_equal(t.lost, 1);
	trace_free(&t);
	head->records = UINT64_MAX;
	assert_int_equal(trace_read(region, TRACE_BYTES, 0, 9, 1, &t, &e), 0);
	assert_true(t.lost > 1000000);
	trace_free(&t);
	rng_seeded(&r, 3);
	rng_fill(&r, region + 64, TRACE_BYTES - 64);
	head->magic = TRACE_MAGIC;
	for (size_t i = 0; i < 200000; i++)
		rec[i].kind %= 6;
	if (!trace_read(region, TRACE_BYTES, 0, UINT64_MAX, 1, &t, &e))
		trace_free(&t);
}

static void names(void **state)
{
	static const char *const want[][2] = {
		{ "_Z5axpbyPKfS0_Pfxff", "axpby" },
		{ "axpby", "axpby" },
		{ "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_1E",
		  "at::native::vectorized_elementwise_kernel" },
		{ "_ZN2at54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_"
		  "000000033fooE", "at::foo" },
		{ "_Z", "_Z" }, { "_Z99999999999999999999x", "x" },
		{ "", "" }, { "_ZN", "_ZN" },
		{ "void at::native::(anonymous namespace)::foo<4, float>(int)",
		  "at::native::foo" },
		{ "Memcpy DtoD (Device -> Device)", "Memcpy DtoD" },
		{ "triton_poi_fused_relu_0", "triton_poi_fused_relu_0" },
	};
	char out[64];

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		kernels_name(want[i][0], out, sizeof(out));
		assert_string_equal(out, want[i][1]);
	}
	kernels_name("_ZN2at6native29vectorized_elementwise_kernelE", out, 9);
	assert_string_equal(out, "at::nati");
}

/* What a baseline tells, too, is checked before it is passed on. */
static void told(void **state)
{
	static const char text[] = "{\"rows\":["
		"{\"name\":\"void gemm<1>(int)\",\"op\":\"aten::mm\","
		"\"calls\":1,\"us\":30,\"bytes\":6e6,\"grid\":[2,1,1],"
		"\"block\":[128,1]},"
		"{\"name\":\"a\\u001b[1m\\nb\",\"op\":7,\"calls\":-1,"
		"\"us\":10,\"bytes\":1e300,\"grid\":{},\"block\":[]},7]}";
	struct json *rows = json_parse(text, strlen(text), 4096, NULL, NULL);
	struct str out = STR_INIT, table = STR_INIT;
	struct json *p;
	struct jw w;

	(void)state;
	assert_non_null(rows);
	str_adds(&out, "{\"status\":\"ok\",\"bytes\":4000000,\"eager\":"
		 "{\"median_us\":50},\"kernels\":{\"eager\":");
	jw_init(&w, &out);
	kernels_told(rows, &w);
	str_adds(&out, "}}");
	json_free(rows);
	p = json_parse(out.buf, out.len, 65536, NULL, NULL);
	assert_non_null(p);
	kernels_table(p, "x\033y\n", 1e12, &table);
	json_free(p);
	assert_non_null(strstr(table.buf, "x\\x1by : ok\n"));
	assert_non_null(strstr(table.buf, " mm: gemm "));
	assert_non_null(strstr(table.buf, " 30.0  75.0%      6.00  200.00"
			       "    20%  2,1,1 x 128,1,1\n"));
	assert_non_null(strstr(table.buf, " a\\x1b[1m b "));
	assert_non_null(strstr(table.buf, " 10.0  25.0%         -       -"
			       "      -\n"));
	assert_non_null(strstr(table.buf, " 40.0 100.0%\n"));
	assert_non_null(strstr(table.buf, " 50.0             4.00   80.00"
			       "     8%\n"));
	for (const char *c = table.buf; *c; c++)
		assert_true(*c == '\n' || (*c >= ' ' && *c < 127));
	str_release(&table);
	str_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_and_rows),
		cmocka_unit_test(the_used_part_says_as_much),
		cmocka_unit_test(nonsense),
		cmocka_unit_test(names),
		cmocka_unit_test(told),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
