/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/rec: the JSON wall, the writer, the canonical form.
 */
#include "tests.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/rand.h"
#include "rec/json.h"

static int check(const char *text, size_t len, size_t *at, struct err *e)
{
	return json_check(text, len, JSON_MAX_LINE, at, e);
}

static const char digits63[] =
	"123456789012345678901234567890123456789012345678901234567890123";

static void good_text_is_accepted(void **state)
{
	static const char *const text[] = {
		"0", "-0", "-1.5e+10", "1E-400", "true", "false", "null",
		"\"\"", "\"\\u00e9\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
		"[]", "{}", " [ 1 , 2 ] \r\n\t", "{\"a\":{\"a\":1},\"A\":2}",
		"\"\x7f\xc3\xa9\xf0\x9f\x98\x80\"", "{\"\":1}",
		"1.7976931348623157e308", digits63,
	};
	struct err e = ERR_INIT;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof text / sizeof *text; i++) {
		struct json *j = json_parse(text[i], strlen(text[i]),
					    JSON_MAX_LINE, NULL, &e);

		if (!j)
			fail_msg("%s: %s", text[i], e.msg);
		json_free(j);
	}
}

static void bad_text_is_refused_at_its_byte(void **state)
{
	static const struct {
		const char *text;
		size_t at;
		const char *what;
	} t[] = {
		{ "", 1, "empty" }, { "  ", 3, "empty" },
		{ "[1,]", 4, "unexpected character" },
		{ "[1 2]", 4, "expected ',' or ']'" },
		{ "{\"a\" 1}", 6, "expected ':'" },
		{ "{\"a\":1,}", 8, "expected a key" },
		{ "{a:1}", 2, "expected a key" },
		{ "{\"a\":1", 7, "expected ',' or '}'" },
		{ "{\"a\":", 6, "unexpected end" },
		{ "{\"a\":1,\"b\":2,\"a\":3}", 14, "duplicate key" },
		{ "{\"a\":1,\"\\u0061\":3}", 8, "duplicate key" },
		{ "[{\"k\":[{}]},{\"k\":1,\"k\":2}]", 20, "duplicate key" },
		{ "\"abc", 1, "unterminated string" },
		{ "\"abc\\", 5, "unterminated string" },
		{ "\"a\nb\"", 3, "control character" },
		{ "\"\\x\"", 2, "bad escape" },
		{ "\"\\u12g4\"", 2, "bad \\u escape" },
		{ "\"\\u12", 2, "bad \\u escape" },
		{ "\"\\u0000\"", 2, "\\u0000" },
		{ "\"\\ud800\"", 2, "lone surrogate" },
		{ "\"\\udc00\"", 2, "lone surrogate" },
		{ "\"\\ud800\\u0041\"", 2, "lone surrogate" },
		{ "\"a\xff\"", 3, "invalid UTF-8" },
		{ "\"\xed\xa0\x80\"", 2, "invalid UTF-8" },
		{ "\"\xc3\"", 2, "invalid UTF-8" },
		{ "\xef\xbb\xbf{}", 1, "unexpected character" },
		{ "1 2", 3, "trailing bytes" }, { "{}x", 3, "trailing bytes" },
		{ "01", 2, "trailing bytes" }, { "1.", 3, "bad number" },
		{ ".5", 1, "unexpected character" }, { "-", 2, "bad number" },
		{ "1e", 3, "bad number" }, { "+1", 1, "unexpected" },
		{ "1e400", 1, "out of range" }, { "-1e400", 1, "out of" },
		{ "12345678901234567890123456789012345678901234567890123456789"
		  "01234", 1, "more than 63" },
		{ "NaN", 1, "unexpected" }, { "nul", 1, "unexpected" },
		{ "Infinity", 1, "unexpected" }, { "'a'", 1, "unexpected" },
		{ "[1]//", 4, "trailing bytes" },
	};
	struct err e = ERR_INIT;
	size_t i, at;

	(void)state;
	for (i = 0; i < sizeof t / sizeof *t; i++) {
		assert_int_equal(check(t[i].text, strlen(t[i].text), &at, &e),
				 -1);
		assert_int_equal(e.code, CA_DATAERR);
		if (at != t[i].at || !strstr(e.msg, t[i].what))
			fail_msg("%s: byte %zu, %s", t[i].text, at, e.msg);
	}
	assert_int_equal(check("\"a\0b\"", 5, &at, &e), -1);
	assert_string_equal(e.msg, "byte 3: NUL byte");
	assert_int_equal(check("{}\0", 3, &at, &e), -1);
}

static void depth_and_length_are_limited(void **state)
{
	char deep[2 * JSON_MAX_DEPTH + 2];
	struct err e = ERR_INIT;
	size_t n = JSON_MAX_DEPTH, at;

	(void)state;
	memset(deep, '[', n);
	memset(deep + n, ']', n);
	assert_int_equal(check(deep, 2 * n, &at, &e), 0);
	n++;
	memset(deep, '[', n);
	memset(deep + n, ']', n - 1);
	assert_int_equal(check(deep, 2 * n - 1, &at, &e), -1);
	assert_string_equal(e.msg, "byte 129: nested too deeply");
	assert_int_equal(json_check("[1,2]", 5, 4, &at, &e), -1);
	assert_int_equal(at, 5);
	assert_non_null(strstr(e.msg, "longer than 4 bytes"));
}

static void many_keys_are_compared(void **state)
{
	struct str s = STR_INIT;
	struct err e = ERR_INIT;
	size_t at, dup;
	int i;

	(void)state;
	str_adds(&s, "{");
	for (i = 0; i < 5000; i++)
		str_addf(&s, "\"k%d\":{\"x\":1},", i);
	str_adds(&s, "\"last\":1}");
	assert_int_equal(check(s.buf, s.len, &at, &e), 0);
	s.len--;
	dup = s.len + 2;
	str_adds(&s, ",\"k17\":1}");
	assert_int_equal(check(s.buf, s.len, &at, &e), -1);
	assert_int_equal(at, dup);
	str_release(&s);
}

static void lookups_are_exact(void **state)
{
	static const char text[] =
		"{\"Name\":1,\"name\":\"x\",\"n\":9007199254740993,"
		"\"i\":-9007199254740992,\"f\":1.5,\"t\":true,\"z\":null,"
		"\"a\":[1,\"2\",{}],\"o\":{\"p\":{\"q\":7}},"
		"\"u\":\"18446744073709551615\",\"bad\":\"-1\",\"b2\":\"1x\"}";
	struct json *j = json_parse(text, sizeof text - 1, JSON_MAX_LINE, NULL,
				    NULL);
	const struct json *m;
	uint64_t u = 0;

	(void)state;
	assert_non_null(j);
	assert_string_equal(json_get_str(j, "name", NULL), "x");
	assert_null(json_get(j, "NAME"));
	assert_int_equal(json_get_int(j, "Name", 0), 1);
	assert_int_equal(json_get_int(j, "f", -7), -7);
	assert_true(json_get_int(j, "i", 0) == -9007199254740992);
	assert_int_equal(json_get_bool(j, "t", 0), 1);
	assert_int_equal(json_get_bool(j, "f", 5), 5);
	assert_int_equal(json_type(json_get(j, "z")), JSON_NULL);
	assert_int_equal(json_len(json_get(j, "a")), 3);
	m = json_next(json_first(json_get(j, "a")));
	assert_string_equal(json_str(m, ""), "2");
	assert_int_equal(json_int(json_path(j, "o.p.q"), 0), 7);
	assert_null(json_path(j, "o.p.q.r"));
	assert_null(json_path(j, "o.x.q"));
	assert_null(json_path(NULL, "o"));
	assert_int_equal(json_u64(json_get(j, "u"), &u), 0);
	assert_true(u == UINT64_MAX);
	assert_int_equal(json_u64(json_get(j, "bad"), &u), -1);
	assert_int_equal(json_u64(json_get(j, "b2"), &u), -1);
	assert_int_equal(json_u64(json_get(j, "f"), &u), -1);
	assert_int_equal(json_type(NULL), JSON_NONE);
	assert_null(json_first(json_get(j, "name")));
	json_free(j);
}

static void the_writer_prints_what_reads_back(void **state)
{
	struct str s = STR_INIT;
	struct jw w;

	(void)state;
	jw_init(&w, &s);
	jw_obj(&w);
	jw_kstr(&w, "s", "a\"\\\n\x01\xc3\xa9\xff/");
	jw_kstr(&w, "z", NULL);
	jw_kint(&w, "i", INT64_MIN);
	jw_ku64(&w, "u", UINT64_MAX);
	jw_knum(&w, "d", 0.1);
	jw_knum(&w, "nan", NAN);
	jw_kbool(&w, "b", 1);
	jw_key(&w, "a");
	jw_arr(&w);
	jw_obj(&w);
	jw_end_obj(&w);
	jw_arr(&w);
	jw_end_arr(&w);
	jw_b64(&w, "\0\xff\x10zz", 5);
	jw_b64(&w, "", 0);
	jw_raw(&w, "{\"r\":1}", 7);
	jw_strn(&w, "x\0y", 3);
	jw_end_arr(&w);
	jw_end_obj(&w);
	assert_string_equal(s.buf, "{\"s\":\"a\\\"\\\\\\n\\u0001\xc3\xa9"
		"\xef\xbf\xbd/\",\"z\":null,\"i\":-9223372036854775808,"
		"\"u\":\"18446744073709551615\",\"d\":0.1,\"nan\":null,"
		"\"b\":true,\"a\":[{},[],\"AP8Qeno=\",\"\",{\"r\":1},"
		"\"x\xef\xbf\xbdy\"]}");
	assert_int_equal(check(s.buf, s.len, NULL, NULL), 0);
	str_release(&s);
}

static void doubles_survive(void **state)
{
	static const double edge[] = { 0.1, 1e22, 5e-324, DBL_MAX, DBL_MIN,
				       1.0 / 3, 9007199254740993.0, 100, 1e100,
				       123456789.123456789 };
	struct rng r;
	struct str s = STR_INIT;
	struct jw w;
	int i;

	(void)state;
	rng_seeded(&r, 1);
	for (i = 0; i < 20000; i++) {
		uint64_t bits = rng_u64(&r);
		double v, back;
		char *end;

		memcpy(&v, &bits, sizeof v);
		if (i < 10)
			v = edge[i];
		if (!isfinite(v))
			continue;
		str_reset(&s);
		jw_init(&w, &s);
		jw_num(&w, v);
		back = strtod(s.buf, &end);
		assert_true(back == v && *end == '\0');
		assert_int_equal(check(s.buf, s.len, NULL, NULL), 0);
	}
	str_release(&s);
}

static void trees_print_again(void **state)
{
	static const char text[] = "{\"a\":[1,2.5,\"x\",null,true,false,[],{}]"
				   ",\"b\":{\"c\":-1e-07}}";
	struct json *j = json_parse(text, sizeof text - 1, JSON_MAX_LINE, NULL,
				    NULL);
	struct str s = STR_INIT;
	struct jw w;

	(void)state;
	jw_init(&w, &s);
	jw_node(&w, j);
	assert_string_equal(s.buf, text);
	json_free(j);
	str_release(&s);
}

static void canonical_text_is_one(void **state)
{
	static const struct {
		const char *in, *out;
	} t[] = {
		{ " { \"b\" : 1 , \"a\" : [ 1.0 , {\"y\":2,\"x\":1} ] } ",
		  "{\"a\":[1.0,{\"x\":1,\"y\":2}],\"b\":1}" },
		{ "{\"\\u0062\":\"\\u00e9\\/\\u000A\\u001f\",\"a\":\"\"}",
		  "{\"a\":\"\",\"b\":\"\xc3\xa9/\\n\\u001f\"}" },
		{ "{\"ab\":1,\"a\":2,\"\xc3\xa9\":3,\"B\":4}",
		  "{\"B\":4,\"a\":2,\"ab\":1,\"\xc3\xa9\":3}" },
		{ "\"\\ud83d\\ude00]\"", "\"\xf0\x9f\x98\x80]\"" },
		{ "[ [ ] , { } ,\"}\" ]", "[[],{},\"}\"]" },
		{ " 1e5 ", "1e5" },
	};
	struct str s = STR_INIT;
	struct err e = ERR_INIT;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof t / sizeof *t; i++) {
		str_reset(&s);
		assert_int_equal(json_canon(t[i].in, strlen(t[i].in), &s, &e),
				 0);
		assert_string_equal(s.buf, t[i].out);
	}
	str_reset(&s);
	assert_int_equal(json_canon_without("{\"mac\":1,\"a\":{\"mac\":2}}",
					    23, "mac", &s, &e), 0);
	assert_string_equal(s.buf, "{\"a\":{\"mac\":2}}");
	assert_int_equal(json_canon("{\"a\":1,}", 8, &s, &e), -1);
	str_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_text_is_accepted),
		cmocka_unit_test(bad_text_is_refused_at_its_byte),
		cmocka_unit_test(depth_and_length_are_limited),
		cmocka_unit_test(many_keys_are_compared),
		cmocka_unit_test(lookups_are_exact),
		cmocka_unit_test(the_writer_prints_what_reads_back),
		cmocka_unit_test(doubles_survive),
		cmocka_unit_test(trees_print_again),
		cmocka_unit_test(canonical_text_is_one),
	};

	return RUN_TESTS(tests);
}
