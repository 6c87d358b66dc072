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
	expect_no_schema("{\"$ref\":\"#/$defs/a\",\"minLength\":1,\"$defs\":"
			 "{\"a\":{}}}", "minLength");
	expect_no_schema("{\"anyOf\":[{}],\"required\":[]}", "required");
	expect_no_schema("{\"anyOf\":[{}],\"maxLength\":1}", "maxLength");
	expect_no_schema("{\"enum\":[1],\"minItems\":1}", "minItems");
	expect_no_schema("{\"enum\":[1.5,\"a\"],\"type\":\"integer\"}",
			 "enum");
	expect_no_schema("{\"const\":1,\"type\":[\"null\",\"object\"]}",
			 "const");
	expect_no_schema("{\"const\":1,\"type\":\"whole\"}", "whole");
	expect_no_schema("{\"minLength\":1,\"items\":{}}", "type");
}

static void what_is_said_is_meant(void **state)
{
	(void)state;
	expect("{\"enum\":[1,\"a\",null,2.5],\"type\":[\"integer\","
	       "\"null\"]}", "1", WHOLE);
	expect("{\"enum\":[1,\"a\",null,2.5],\"type\":[\"integer\","
	       "\"null\"]}", "2", REFUSED);
	expect("{\"enum\":[1,\"a\"],\"type\":\"integer\"}", "\"",
	       REFUSED);
	expect("{\"minLength\":2}", "\"ab\"", WHOLE);
	expect("{\"minLength\":2}", "\"a\"", REFUSED);
	expect("{\"minLength\":2}", "1", REFUSED);
	expect("{\"maxItems\":0}", "[]", WHOLE);
	expect("{\"maxItems\":0}", "[1", REFUSED);
	expect("{\"additionalProperties\":false}", "{}", WHOLE);
	expect("{\"additionalProperties\":false}", "{\"", REFUSED);
}

#define DEF(def) "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":" def "}}"
#define TO_T "{\"$ref\":\"#/$defs/t\"}"

static void what_needs_itself_is_refused(void **state)
{
	(void)state;
	expect_no_schema(DEF("{\"properties\":{\"a\":" TO_T "},"
			     "\"required\":[\"a\"]}"), "no value");
	expect_no_schema(DEF("{\"items\":" TO_T ",\"minItems\":1}"),
			 "no value");
	/* Not so if it is optional; then it is not begun. */
	expect(DEF("{\"properties\":{\"a\":" TO_T ",\"b\":{\"items\":"
		   "{\"$ref\":\"#/$defs/u\"}}},\"required\":[\"b\"]},\"u\":"
		   "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/u\"}},"
		   "\"required\":[\"a\"]}"), "{\"b\":[{", REFUSED);
	expect(DEF("{\"anyOf\":[{\"properties\":{\"a\":" TO_T "},"
		   "\"required\":[\"a\"]},{\"type\":\"null\"}]}"),
	       "{\"a\":{\"a\":null}}", WHOLE);
}

/* A tower of objects that need each other, n high. */
static struct json *tower(int n)
{
	struct str s = STR_INIT;
	struct json *j;

	str_adds(&s, "{\"$ref\":\"#/$defs/x0\",\"$defs\":{");
	for (int i = 0; i < n - 1; i++)
		str_addf(&s, "\"x%d\":{\"properties\":{\"a\":{\"$ref\":"
			 "\"#/$defs/x%d\"}},\"required\":[\"a\"]},", i,
			 i + 1);
	str_addf(&s, "\"x%d\":{\"type\":\"null\"}}}", n - 1);
	j = json_parse(s.buf, s.len, JSON_MAX_LINE, NULL, NULL);
	str_release(&s);
	assert_non_null(j);
	return j;
}

static void towers_are_as_high_as_the_frames(void **state)
{
	const int heights[] = { 1, SHAPE_DEPTH, SHAPE_DEPTH + 1, 500, 1000,
				2000 };

	(void)state;
	for (size_t i = 0; i < sizeof heights / sizeof *heights; i++) {
		struct json *j = tower(heights[i]);
		struct fault f = { 0 };
		struct shape *s = shape_json(j, "x", &f);

		assert_int_equal(s != NULL, heights[i] <= SHAPE_DEPTH);
		assert_int_equal(f.status, s ? 0 : 400);
		shape_free(s);
		json_free(j);
	}
}

/* A call of a strict tool with these parameters. */
static void expect_arguments(const char *schema, const char *text,
			     enum end end)
{
	struct fault f = { 0 };
	struct str all = STR_INIT;
	struct json *j;
	struct shape *s;

	str_addf(&all, "[{\"function\":{\"name\":\"f\",\"strict\":true,"
		 "\"parameters\":%s}}]", schema);
	j = tree(all.buf);
	s = shape_call(j, NULL, 0, &f);
	assert_non_null(s);
	str_reset(&all);
	str_addf(&all, "{\"name\": \"f\", \"parameters\": %s%s", text,
		 end == WHOLE ? "}" : "");
	assert_int_equal(follow(s, all.buf, all.len), end);
	str_release(&all);
	shape_free(s);
	json_free(j);
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
	expect_arguments("{}", "{\"x\":1}", WHOLE);
	expect_arguments("{}", "\"x\"", REFUSED);
	expect_arguments("{\"anyOf\":[{\"type\":\"null\"},{\"properties\":"
			 "{\"a\":{}}}]}", "{\"a\":null}", WHOLE);
	expect_arguments("{\"anyOf\":[{\"type\":\"null\"},{\"properties\":"
			 "{\"a\":{}}}]}", "n", REFUSED);
	assert_null(shape_call(j, "g", 0, &f));
	assert_string_equal(f.param, "tool_choice");
	shape_free(marked);
	shape_free(bare);
	json_free(j);
}

/* Draws bytes among those that may come until it is whole; in the end only
 * such as end something.  Whatever was drawn, one of them may. */
static size_t draw(const struct shape *s, struct rng *r, char *text,
		   size_t size)
{
	static const char ends[2][9] = { "n}],:\"0e", "\"}],:0ae" };
	struct shape_at at, next;
	size_t n = 0;

	shape_begin(s, &at);
	while (n < size && !(shape_whole(s, &at) &&
			     (!at.depth || rng_below(r, 2)))) {
		unsigned first = (unsigned)rng_below(r, 256), i;
		const char *end = ends[shape_room(s, &at) > 0];
		int close = n > 200 || rng_below(r, 3);

		for (i = 0; i < 256 + 8; i++) {
			unsigned char c = (unsigned char)(i < 8 && close ?
				(unsigned char)end[i] : first + i);

			memcpy(&next, &at, sizeof at);
			if (!shape_step(s, &next, c))
				continue;
			memcpy(&at, &next, sizeof at);
			text[n++] = (char)c;
			break;
		}
		if (i < 256 + 8)
			continue;
		if (!shape_whole(s, &at))
			print_error("nothing goes on with %.*s\n", (int)n,
				    text);
		assert_true(shape_whole(s, &at));
		break;
	}
	return n;
}

/* Whatever bytes are drawn among those that may be, it is JSON in the end. */
static void what_is_drawn_is_json(void **state)
{
	static const char *const schemas[] = { MAN, NULL, "{}",
		DEF("{\"type\":[\"array\",\"number\"],\"minItems\":1,"
		    "\"items\":" TO_T "}"),
		DEF("{\"properties\":{\"v\":{\"type\":\"number\"},"
		    "\"l\":{\"items\":" TO_T ",\"minItems\":1},"
		    "\"r\":{\"anyOf\":[" TO_T ",{\"type\":\"null\"}]}},"
		    "\"required\":[\"v\",\"r\"]}") };
	static char text[4096];
	struct rng r;

	(void)state;
	rng_seeded(&r, 7);
	for (size_t k = 0; k < sizeof schemas / sizeof *schemas; k++) {
		struct shape *s = shape_of(schemas[k]);
		int whole = 0;

		for (int round = 0; round < 300; round++) {
			size_t n = draw(s, &r, text, sizeof text);
			struct err e = ERR_INIT;

			if (n == sizeof text)
				continue;
			whole++;
			/* Keys that repeat are all that is not liked. */
			if (json_check(text, n, JSON_MAX_LINE, NULL, &e) &&
			    !strstr(e.msg, "duplicate")) {
				print_error("%.*s: %s\n", (int)n, text,
					    e.msg);
				assert_true(0);
			}
		}
		assert_true(whole > 100);
		shape_free(s);
	}
}

/* States that go on alike are of one class, others are not. */
static int one_class(const char *schema, const char *a, const char *b)
{
	struct shape *s = shape_of(schema);
	struct shape_at x[2], class[2];
	const char *text[2] = { a, b };

	for (int i = 0; i < 2; i++) {
		shape_begin(s, &x[i]);
		for (const char *p = text[i]; *p; p++)
			assert_true(shape_step(s, &x[i],
					       (unsigned char)*p));
		shape_class(s, &x[i], 4, &class[i]);
	}
	shape_free(s);
	return shape_size(&class[0]) == shape_size(&class[1]) &&
	       !memcmp(&class[0], &class[1], shape_size(&class[0]));
}

static void counts_matter_near_their_bounds(void **state)
{
	static const char text[] = "{\"minLength\":8,\"maxLength\":16}";
	static const char list[] = "{\"minItems\":1,\"maxItems\":9}";

	(void)state;
	assert_true(one_class(text, "\"a", "\"abc"));
	assert_false(one_class(text, "\"a", "\"abcde"));
	assert_true(one_class(text, "\"abcdefghi", "\"abcdefghijk"));
	assert_false(one_class(text, "\"abcdefghi", "\"abcdefghijklm"));
	assert_false(one_class(text, "\"abcdefghijklm", "\"abcdefghijklmn"));
	assert_true(one_class(list, "[1,2", "[1,2,3"));
	assert_false(one_class(list, "[1,2", "[1,2,3,4,5,6"));
	/* Digits of an escape are not kept. */
	assert_true(one_class("{}", "\"\\u00e", "\"\\u12a"));
	assert_false(one_class("{}", "\"\\u000", "\"\\u12a"));
	assert_false(one_class("{}", "\"\\ud", "\"\\u1"));
	assert_true(one_class("{}", "\"\\u00e9", "\"x"));
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
		cmocka_unit_test(what_is_said_is_meant),
		cmocka_unit_test(what_needs_itself_is_refused),
		cmocka_unit_test(towers_are_as_high_as_the_frames),
		cmocka_unit_test(counts_matter_near_their_bounds),
		cmocka_unit_test(calls_are_of_the_tools),
		cmocka_unit_test(what_is_drawn_is_json),
		cmocka_unit_test(depth_ends),
	};

	return RUN_TESTS(tests);
}
