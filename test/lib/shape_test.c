/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes of answers, byte by byte.
 */
#include "tests.h"

#include <stdio.h>

#include "base/rand.h"
#include "serve/shape.h"

static struct json *tree(const char *text)
{
	struct json *j = json_parse(text, strlen(text), JSON_MAX_LINE, NULL,
				    NULL);

	if (!j)
		print_error("no JSON: %s\n", text);
	assert_non_null(j);
	return j;
}

static struct shape *shape_of(const char *schema)
{
	struct fault f = { 0 };
	struct json *j = schema ? tree(schema) : NULL;
	struct shape *s = shape_json(j, "response_format", &f);

	if (!s)
		print_error("%s\n", f.text);
	assert_non_null(s);
	json_free(j);
	return s;
}

enum end { WHOLE, BEGUN, REFUSED };

static enum end follow(const struct shape *s, const char *text, size_t len)
{
	struct shape_at at;

	shape_begin(s, &at);
	for (size_t i = 0; i < len; i++)
		if (!shape_step(s, &at, (unsigned char)text[i]))
			return REFUSED;
	return shape_whole(s, &at) ? WHOLE : BEGUN;
}

static void expect(const char *schema, const char *text, enum end end)
{
	struct shape *s = shape_of(schema);
	enum end got = follow(s, text, strlen(text));

	if (got != end)
		print_error("%s: %s: %d\n", schema ? schema : "-", text, got);
	assert_int_equal(got, end);
	shape_free(s);
}

static void any_object_is_json(void **state)
{
	static const char *const whole[] = { "{}", " {\n}",
		"{\"a\":1}", "{\"a\" : [ 1.5e-3 , -0, true,false,null ] }",
		"{\"\\u00e9\\n\\\"\":{\"b\":[[],{}]}}",
		"{\"\xc3\xa9\xf0\x9f\x98\x80\":\"\xed\x9f\xbf\"}" };
	static const char *const refused[] = { "[", "x", "{,", "{a", "{1",
		"{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":01", "{\"a\":.5",
		"{\"a\":1.}", "{\"a\":1.e", "{\"a\":+", "{\"a\":--",
		"{\"a\":1e}", "{\"a\":[1,]", "{\"a\":[,", "{\"a\":[1}",
		"{\"a\":tru ", "{\"a\":nul}", "{\"\n", "{\"\\x", "{\"\\u00g",
		"{\"\\ud8", "{\"\\u0000", "{\"\xff", "{\"\xc3\"",
		"{\"\xc0\x80", "{\"\xed\xa0", "{\"\xf4\x90", "{} ", "{}x",
		"{\"a\":1234567890123456", "{\"a\":1e100" };

	(void)state;
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
		expect(NULL, whole[i], WHOLE);
		json_free(tree(whole[i]));
	}
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		expect(NULL, refused[i], REFUSED);
	expect(NULL, "{\"a\":[1", BEGUN);
}

#define MAN "{\"type\":\"object\",\"properties\":{" \
	"\"name\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":3}," \
	"\"names\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}," \
	"\"minItems\":1,\"maxItems\":2}," \
	"\"sex\":{\"enum\":[\"m\",\"mf\",1,12,null]}," \
	"\"boss\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}}," \
	"\"required\":[\"name\"],\"additionalProperties\":false}"

static void schemas_are_kept(void **state)
{
	static const char *const whole[] = { "{\"name\":\"abc\"}",
		"{ \"names\" : [1, 2], \"name\":\"\xc3\xa9\\u00e9\\n\" }",
		"{\"name\":\"a\",\"sex\":\"m\"}",
		"{\"name\":\"a\",\"sex\":\"mf\"}",
		"{\"name\":\"a\",\"sex\":1}", "{\"name\":\"a\",\"sex\":12}",
		"{\"name\":\"a\",\"sex\": 12 }",
		"{\"name\":\"a\",\"sex\":null}",
		"{\"boss\":{\"name\":\"b\",\"boss\":null},\"name\":\"a\"}" };
	static const char *const refused[] = { "{}", "{\"names\":[1]}",
		"{\"nam\"", "{\"other\"", "{\"name\":\"\"", "{\"name\":1",
		"{\"name\":\"abcd", "{\"name\":\"a\",\"name\"",
		"{\"names\":[]", "{\"names\":[1,2,", "{\"names\":[1.",
		"{\"names\":[\"", "{\"sex\":2", "{\"sex\":\"f", "{\"sex\":13",
		"{\"boss\":{}", "{\"boss\":1" };

	(void)state;
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		expect(MAN, whole[i], WHOLE);
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		expect(MAN, refused[i], REFUSED);
	expect("{\"type\":\"integer\"}", "-12", WHOLE);
	expect("{\"type\":\"integer\"}", "-", BEGUN);
	expect("{\"type\":\"integer\"}", "12 ", REFUSED);
	expect("{\"type\":[\"number\",\"integer\"]}", "1.5", WHOLE);
	expect("{\"const\":{\"a\":[1]}}", "{\"a\":[1]}", WHOLE);
	expect("{\"type\":\"object\",\"additionalProperties\":"
	       "{\"type\":\"boolean\"}}", "{\"x\":true,\"y\":false}", WHOLE);
	expect("{\"type\":\"object\",\"additionalProperties\":"
	       "{\"type\":\"boolean\"}}", "{\"x\":1", REFUSED);
	expect("{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\","
	       "\"items\":{\"$ref\":\"#/$defs/t\"}}}}", "[[],[[]]]", WHOLE);
	expect("{}", "\"x\"", WHOLE);
}

static void expect_no_schema(const char *schema, const char *word)
{
	struct fault f = { 0 };
	struct json *j = tree(schema);

	assert_null(shape_json(j, "response_format", &f));
	assert_int_equal(f.status, 400);
	assert_string_equal(f.param, "response_format");
	if (!strstr(f.text, word))
		print_error("%s: %s\n", schema, f.text);
	assert_non_null(strstr(f.text, word));
	json_free(j);
}

static void what_is_not_done_is_refused_by_name(void **state)
{
	(void)state;
	expect_no_schema("{\"type\":\"string\",\"pattern\":\"a\"}",
			 "pattern");
	expect_no_schema("{\"type\":\"array\",\"items\":{\"minimum\":1}}",
			 "minimum");
	expect_no_schema("{\"type\":\"thing\"}", "thing");
	expect_no_schema("{\"type\":[]}", "type");
	expect_no_schema("{\"enum\":[]}", "enum");
	expect_no_schema("{\"$ref\":\"#/$defs/x\"}", "#/$defs/x");
	expect_no_schema("{\"$ref\":\"#\"}", "#");
	expect_no_schema("{\"anyOf\":[{\"type\":\"string\"},"
			 "{\"enum\":[\"a\"]}]}", "anyOf");
	expect_no_schema("{\"oneOf\":[{\"$ref\":\"#\"}]}", "oneOf");
	expect_no_schema("{\"type\":\"object\",\"required\":[\"a\"]}", "'a'");
	expect_no_schema("{\"type\":\"array\",\"minItems\":2,\"maxItems\":1}",
			 "maxItems");
	expect_no_schema("{\"type\":\"array\",\"items\":false}", "items");
}

static void calls_are_of_the_tools(void **state)
{
	static const char tools[] = "[{\"type\":\"function\",\"function\":"
		"{\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":"
		"\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
		"\"required\":[\"a\"]}}},{\"type\":\"function\",\"function\":"
		"{\"name\":\"ff\"}}]";
	static const char one[] = "<tool_call>\n{\"name\": \"f\", "
		"\"arguments\": {\"a\":1}}\n</tool_call>";
	static const char other[] = "{\"name\": \"ff\", \"parameters\": "
		"{\"x\":[]}}";
	struct json *j = tree(tools);
	struct fault f = { 0 };
	struct shape *marked = shape_call(j, NULL, 1, &f);
	struct shape *bare = shape_call(j, "ff", 0, &f);

	(void)state;
	assert_int_equal(follow(marked, one, strlen(one)), WHOLE);
	assert_int_equal(follow(marked, one, strlen(one) - 1), BEGUN);
	assert_int_equal(follow(marked, one, 40), BEGUN);
	assert_int_equal(follow(marked, other, 5), REFUSED);
	assert_int_equal(follow(bare, other, strlen(other)), WHOLE);
	assert_int_equal(follow(bare, "{\"name\": \"f\"", 12), REFUSED);
	assert_null(shape_call(j, "g", 0, &f));
	assert_string_equal(f.param, "tool_choice");
	shape_free(marked);
	shape_free(bare);
	json_free(j);
}

/* Whatever bytes are drawn among those that may be, it is JSON in the end. */
static void what_is_drawn_is_json(void **state)
{
	struct shape *s = shape_of(MAN);
	int whole = 0;
	struct rng r;

	(void)state;
	rng_seeded(&r, 7);
	for (int round = 0; round < 2000; round++) {
		struct shape_at at, next;
		char text[512];
		size_t n = 0;

		shape_begin(s, &at);
		for (int tries = 0; at.depth && n < sizeof text &&
		     tries < 1000000; tries++) {
			/* Ends are likelier than they would be. */
			static const char ends[] = "\"}],:";
			uint64_t x = rng_below(&r, 256 + 64);
			unsigned char c = x < 256 ? (unsigned char)x :
				(unsigned char)ends[x % 5];

			next = at;
			if (!shape_step(s, &next, c))
				continue;
			at = next;
			text[n++] = (char)c;
		}
		if (at.depth)
			continue;
		whole++;
		if (json_check(text, n, JSON_MAX_LINE, NULL, NULL))
			print_error("%.*s\n", (int)n, text);
		assert_int_equal(json_check(text, n, JSON_MAX_LINE, NULL,
					    NULL), 0);
	}
	assert_true(whole > 100);
	shape_free(s);
}

static void depth_ends(void **state)
{
	struct shape *s = shape_of("{}");
	char deep[SHAPE_DEPTH + 8];

	(void)state;
	memset(deep, '[', sizeof deep);
	assert_int_equal(follow(s, deep, SHAPE_DEPTH - 1), BEGUN);
	assert_int_equal(follow(s, deep, sizeof deep), REFUSED);
	shape_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_object_is_json),
		cmocka_unit_test(schemas_are_kept),
		cmocka_unit_test(what_is_not_done_is_refused_by_name),
		cmocka_unit_test(calls_are_of_the_tools),
		cmocka_unit_test(what_is_drawn_is_json),
		cmocka_unit_test(depth_ends),
	};

	return RUN_TESTS(tests);
}
