/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the server that need neither a model nor a socket.
 */
#include "tests.h"

#include "base/utf8.h"
#include "serve/query.h"
#include "serve/recall.h"
#include "serve/tools.h"
#include "serve/want.h"

static const struct want_defaults defaults = { .temperature = 1, .top_p = 1 };

static struct json *tree(const char *text)
{
	struct json *j = json_parse(text, strlen(text), JSON_MAX_LINE, NULL,
				    NULL);

	assert_non_null(j);
	return j;
}

#define F(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"

static void expect_calls(const char *text, size_t n, const char *content,
			 const char *arguments)
{
	struct json *tools = tree("[" F("f") "," F("g") "]");
	struct tools_calls c;

	assert_int_equal(tools_find(tools, text, strlen(text), &c), 0);
	assert_int_equal(c.n, n);
	assert_int_equal(c.content, strlen(content));
	assert_memory_equal(text, content, c.content);
	if (n)
		assert_string_equal(c.call[n - 1].arguments, arguments);
	tools_release(&c);
	json_free(tools);
}

static void calls_are_found(void **state)
{
	(void)state;
	/* As a stream has told it; not so what is no JSON at all. */
	expect_calls("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1,"
		     "\"a\":2}}\n</tool_call>", 1, "",
		     "{\"a\":1,\"a\":2}");
	expect_calls("{\"name\": \"g\", \"parameters\": {\"a\":1,\"a\":2}}",
		     1, "", "{\"a\":1,\"a\":2}");
	expect_calls("{\"name\": \"g\", \"parameters\": {a}}", 0,
		     "{\"name\": \"g\", \"parameters\": {a}}", NULL);
	expect_calls("a <tool_call>\n{\"name\": \"f\", \"arguments\": "
		     "{\"x\": \"<tool_call>\"}}\n</tool_call>", 1, "a ",
		     "{\"x\": \"<tool_call>\"}");
	expect_calls("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
		     "\n<tool_call>{\"name\":\"g\",\"arguments\":\"{1\"}",
		     2, "", "{1");
	expect_calls("<tool_call>[{\"name\":\"f\",\"arguments\":{}},"
		     "{\"name\":\"g\"}]</tool_call>", 2, "", "{}");
	expect_calls("\n{\"name\": \"g\", \"parameters\": {\"y\": 1}}", 1, "",
		     "{\"y\": 1}");
	expect_calls("<|python_tag|>{\"name\": \"g\", \"parameters\": {}}", 1,
		     "", "{}");
}

static void what_is_no_call_is_content(void **state)
{
	static const char *const texts[] = {
		"", "{", "{\"name\": \"f\"", "{\"name\": \"h\"}",
		"{\"name\": \"f\", \"arguments\": 3}",
		"see {\"name\": \"f\", \"arguments\": {}}",
		"<tool_call>{\"name\": \"h\", \"arguments\": {}}</tool_call>",
		"<tool_call>nothing</tool_call>", "<tool_call>",
	};

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		expect_calls(texts[i], 0, texts[i], NULL);
}

/* What a stream tells of calls, byte by byte: "name(arguments)" for each, "!"
 * where it gives up. */
static void follow(const char *text, const char *expected)
{
	struct json *tools = tree("[" F("f") "," F("g") "]");
	struct tools_scan s = { .state = TOOLS_CONTENT };
	struct str out = STR_INIT;
	size_t told = 0, from = 0;

	for (size_t n = 0; n <= strlen(text); n++) {
		while (tools_follow(&s, tools, text, n)) {
			if (told < s.calls) {
				str_add(&out, text + s.name, s.name_len);
				str_addc(&out, '(');
				from = s.from;
			}
			told = s.calls;
			str_add(&out, text + from, s.to - from);
			from = s.to;
			if (s.state != TOOLS_TAIL)
				break;
			str_addc(&out, ')');
		}
	}
	if (s.state == TOOLS_LOST)
		str_addc(&out, '!');
	assert_string_equal(out.buf ? out.buf : "", expected);
	str_release(&out);
	json_free(tools);
}

static void calls_are_told_while_they_grow(void **state)
{
	(void)state;
	follow("a <tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
	       "\"}\\\"{\", \"y\": [{}, 1]}}\n</tool_call>",
	       "f({\"x\": \"}\\\"{\", \"y\": [{}, 1]})");
	follow("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
	       "<tool_call>{\"name\":\"g\",\"arguments\":{\"a\":1",
	       "f({})g({\"a\":1");
	follow("<|python_tag|>{\"name\": \"g\", \"parameters\": {}}",
	       "g({})");
	follow("\n{\"name\": \"g\", \"parameters\": {\"y\": 1}}",
	       "g({\"y\": 1})");
	follow("\n\n\n\n\n\n\n\n\n\n\n\n\n{\"name\":\"g\",\"arguments\":{}}",
	       "g({})");
	follow("<tool_call>{\"name\":\"h\",\"arguments\":{}}</tool_call>", "!");
	follow("<tool_call>{\"arguments\":{},\"name\":\"f\"}</tool_call>", "!");
	follow("<tool_call>[{\"name\":\"f\",\"arguments\":{}}]", "!");
	follow("<tool_call>{\"name\":\"f\",\"arguments\":\"{}\"}", "!");
	follow("nothing <tool of that", "");
	follow("see {\"name\": \"f\", \"arguments\": {}}", "");
}

static void streams_hold_back_what_may_be_a_call(void **state)
{
	static const char text[] = "ab <tool_call>{";

	(void)state;
	assert_int_equal(tools_content(text, 3), 3);
	assert_int_equal(tools_content(text, 4), 3);
	assert_int_equal(tools_content(text, 8), 3);
	assert_int_equal(tools_content(text, sizeof text - 1), 3);
	assert_int_equal(tools_content("a <b", 4), 4);
	assert_int_equal(tools_content(" {\"name", 7), 0);
	assert_int_equal(tools_content("<|pyth", 6), 0);
	assert_int_equal(tools_content("<|user", 6), 6);
}

static void expect_parse(enum want_kind kind, const char *text, int status,
			 const char *param)
{
	struct fault f = { 0 };
	struct want w;
	int rc = want_parse(&w, kind, text, strlen(text), &defaults, &f);

	want_release(&w);
	assert_int_equal(rc, status ? -1 : 0);
	assert_int_equal(f.status, status);
	assert_string_equal(f.param, param);
}

static void requests_are_checked(void **state)
{
	(void)state;
	expect_parse(WANT_TEXT, "{\"prompt\":\"\"}", 0, "");
	expect_parse(WANT_TEXT, "{\"prompt\":[]}", 400, "prompt");
	expect_parse(WANT_TEXT, "{\"prompt\":[1,2]}", 0, "");
	expect_parse(WANT_TEXT, "{\"prompt\":[1,\"a\"]}", 400, "prompt");
	expect_parse(WANT_TEXT, "{\"prompt\":[-1]}", 400, "prompt");
	expect_parse(WANT_TEXT, "{\"prompt\":[[1],[]]}", 0, "");
	expect_parse(WANT_TEXT, "{\"prompt\":\"a\",\"suffix\":\"b\"}", 400,
		     "suffix");
	expect_parse(WANT_TEXT, "{\"prompt\":\"a\",\"echo\":1}", 400, "echo");
	expect_parse(WANT_TEXT, "{\"prompt\":[\"a\",\"b\"],\"n\":100}", 400,
		     "n");
	expect_parse(WANT_TEXT, "{\"prompt\":\"a\",\"tools\":[]}", 400,
		     "tools");
	expect_parse(WANT_TEXT, "{\"prompt\":\"a\",\"seed\":\"x\"}", 400,
		     "seed");
	expect_parse(WANT_TEXT, "{\"prompt\":\"a\",\"seed\":-3,\"top_k\":-1}",
		     0, "");
	expect_parse(WANT_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", 400,
		     "messages");
	expect_parse(WANT_CHAT, "{\"messages\":[{\"role\":\"assistant\","
		     "\"content\":null,\"tool_calls\":[]}]}", 0, "");
}

/* Tokens are read without a tree where they are plain numbers, and by way of
 * one else: what comes out is the same. */
static void tokens_are_read(void **state)
{
	static const struct {
		const char *text;
		size_t plain;
	} row[] = {
		{ "{\"n\":2,\"prompt\":[ 5 ,0, 999999999\n] }", 3 },
		{ "{\"prompt\":[7],\"n\":2}", 1 },
		{ "{\"prompt\":[7,1e1],\"n\":2}", 0 },
		{ "{\"prompt\":[1000000000],\"n\":2}", 0 },
		{ "{\"prompt\":[[1,2]],\"n\":2}", 0 },
		{ "{\"pr\\u006fmpt\":[3],\"n\":2}", 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct fault f = { 0 };
		struct want w;

		assert_int_equal(want_parse(&w, WANT_TEXT, row[i].text,
					    strlen(row[i].text), &defaults,
					    &f), 0);
		assert_int_equal(w.ids.n, row[i].plain);
		assert_int_equal(!w.prompts, row[i].plain > 0);
		assert_int_equal(w.nprompts, 1);
		assert_int_equal(w.n, 2);
		want_release(&w);
	}
	expect_parse(WANT_TEXT, "{\"prompt\":[1],\"prompt\":[2]}", 400, "");
	expect_parse(WANT_TEXT, "{\"prompt\":[1,2]", 400, "");
	expect_parse(WANT_TEXT, "{\"prompt\":[01]}", 400, "");
	expect_parse(WANT_TEXT, "{\"prompt\":[1,]}", 400, "");
	expect_parse(WANT_TEXT, "{\"prompt\":[2147483648]}", 400, "prompt");
	expect_parse(WANT_TEXT, "{\"a\":{\"prompt\":[1]}}", 400, "a");
}

static void key_of(struct recall *r, struct recall_key *k,
		   const char *const *messages)
{
	assert_int_equal(recall_begin(r, k, NULL), 0);
	for (; *messages; messages++) {
		struct json *m = tree(*messages);

		assert_int_equal(recall_add(r, k, m), 0);
		json_free(m);
	}
}

static void answers_are_remembered(void **state)
{
	static const char user[] = "{\"role\":\"user\",\"content\":\"q\"}";
	static const char said[] = "{\"role\":\"assistant\",\"content\":\"a\"}";
	static const char *const same = "{\"content\":\"a \\n\",\"refusal\":"
		"null,\"role\":\"assistant\",\"tool_calls\":[],\"audio\":null}";
	static const char *const others[][2] = {
		{ "{\"role\":\"user\",\"content\":\"q \"}", said },
		{ "{\"role\":\"user\",\"content\":\"q\",\"name\":\"n\"}",
		  said },
		{ user, "{\"role\":\"assistant\",\"content\":\"a\","
			"\"reasoning_content\":\"r\"}" },
		{ user, "{\"role\":\"assistant\",\"content\":\"a\","
			"\"tool_calls\":[{\"function\":{\"name\":\"f\","
			"\"arguments\":{}}}]}" },
	};
	int32_t prompt[] = { 1, 2, 3 }, answer[] = { 4, 5 };
	struct tok_ids p = { prompt, 3, 3 }, got = TOK_IDS_INIT;
	struct recall *r = recall_new();
	struct recall_key k;
	int home = -1;

	(void)state;
	assert_non_null(r);
	key_of(r, &k, (const char *const[]){ user, said, NULL });
	recall_put(r, &k, &p, answer, 2, 3);
	recall_put(r, &k, &p, answer, 2, 5);
	key_of(r, &k, (const char *const[]){ user, same, NULL });
	assert_int_equal(recall_get(r, &k, &got, &home), 1);
	assert_int_equal(got.n, 5);
	assert_int_equal(got.id[4], 5);
	assert_int_equal(home, 5);
	key_of(r, &k, (const char *const[]){ said, user, NULL });
	assert_int_equal(recall_get(r, &k, &got, &home), 0);
	/* What else a template may show tells conversations apart. */
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		key_of(r, &k, (const char *const[]){ others[i][0], others[i][1],
						  NULL });
		assert_int_equal(recall_get(r, &k, &got, &home), 0);
	}
	assert_int_equal(got.n, 5);
	tok_ids_release(&got);
	recall_free(r);
}

/* The oldest goes when there are too many ids, not the one in use. */
static void memory_of_answers_ends(void **state)
{
	enum { N = 1 << 20 };
	int32_t *ids = calloc(N, sizeof *ids);
	struct tok_ids p = { ids, N, N }, got = TOK_IDS_INIT;
	struct recall *r = recall_new();
	struct recall_key k = { { 0 } };
	int home;

	(void)state;
	assert_true(ids && r);
	for (unsigned char i = 0; i < 40; i++) {
		k.sum[1] = i;
		recall_put(r, &k, &p, NULL, 0, 0);
		k.sum[1] = 0;
		got.n = 0;
		assert_int_equal(recall_get(r, &k, &got, &home), 1);
	}
	k.sum[1] = 1;
	assert_int_equal(recall_get(r, &k, &got, &home), 0);
	k.sum[1] = 39;
	assert_int_equal(recall_get(r, &k, &got, &home), 1);
	tok_ids_release(&got);
	recall_free(r);
	free(ids);
}

static void half_characters_wait(void **state)
{
	(void)state;
	assert_int_equal(utf8_whole("a\xc3", 2), 1);
	assert_int_equal(utf8_whole("a\xc3\xa4", 3), 3);
	assert_int_equal(utf8_whole("\xf0\x9f\x98", 3), 0);
	assert_int_equal(utf8_whole("\xf0\x9f\x98\x80", 4), 4);
	assert_int_equal(utf8_whole("\x80\x80", 2), 2);
	assert_int_equal(utf8_whole("a\xff", 2), 2);
	assert_int_equal(utf8_whole("", 0), 0);
}

static void no_wake(void *ctx)
{
	(void)ctx;
}

/* Its end is then no clean one, however much more there would be. */
static void a_stream_without_room_stays_torn(void **state)
{
	struct core c = { .ntellers = 1 };
	struct query *q;
	char buf[8];

	(void)state;
	pthread_mutex_init(&c.lock, NULL);
	q = query_new(&c, WANT_CHAT, 0, no_wake, NULL);
	assert_non_null(q);
	assert_int_equal(query_read(q, buf, sizeof buf), 0);
	q->out.cap = 6;
	assert_int_equal(str_adds(&q->out, "data: "), 0);
	assert_int_equal(str_adds(&q->out, "more"), -1);
	assert_int_equal(query_read(q, buf, 4), 4);
	assert_int_equal(query_read(q, buf, 4), 2);
	str_adds(&q->out, "x");
	assert_int_equal(query_read(q, buf, 4), -2);
	q->done = 1;
	assert_int_equal(query_read(q, buf, 4), -2);
	query_leave(q);
	pthread_mutex_destroy(&c.lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_are_found),
		cmocka_unit_test(what_is_no_call_is_content),
		cmocka_unit_test(calls_are_told_while_they_grow),
		cmocka_unit_test(streams_hold_back_what_may_be_a_call),
		cmocka_unit_test(requests_are_checked),
		cmocka_unit_test(tokens_are_read),
		cmocka_unit_test(answers_are_remembered),
		cmocka_unit_test(memory_of_answers_ends),
		cmocka_unit_test(half_characters_wait),
		cmocka_unit_test(a_stream_without_room_stays_torn),
	};

	return RUN_TESTS(tests);
}
