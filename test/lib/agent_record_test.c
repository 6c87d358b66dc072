/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of a rollout's events: budgets, what is sent and what is left
 * out of a record; and trajectories as text, whole and broken ones.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/rollout.h"
#include "agent/show.h"

static void event(struct state *s, const char *text)
{
	struct json *j = json_parse(text, strlen(text), JSON_MAX_LINE, NULL,
				    NULL);
	struct err e = ERR_INIT;

	assert_non_null(j);
	assert_int_equal(state_apply(s, j, &e), 0);
	json_free(j);
}

static const struct agent_opts limits = { .turns = 3, .ctx = 1000,
					  .out_tokens = -1 };

static void budgets_end_it(void **state)
{
	struct agent_opts o = limits;
	struct state s;

	(void)state;
	state_init(&s);
	event(&s, "{\"e\":\"begin\",\"messages\":[{\"role\":\"user\","
	      "\"content\":\"go\"}]}");
	assert_int_equal(state_used_up(&s, &o), STOP_NONE);
	event(&s, "{\"e\":\"turn\",\"n\":1,\"got\":{\"role\":\"assistant\","
	      "\"content\":\"a\"},\"usage\":{\"prompt\":900,"
	      "\"completion\":35}}");
	assert_int_equal(state_used_up(&s, &o), STOP_NONE);
	o.out_tokens = 36;
	assert_int_equal(state_used_up(&s, &o), STOP_NONE);
	o.out_tokens = 35;
	assert_int_equal(state_used_up(&s, &o), STOP_COST);
	o = limits;
	o.ctx = 999;
	assert_int_equal(state_used_up(&s, &o), STOP_CONTEXT);
	o = limits;
	o.turns = 1;
	assert_int_equal(state_used_up(&s, &o), STOP_MAX_TURNS);
	/* However few tokens the server calls it. */
	while (s.messages.len < HISTORY_MAX)
		str_adds(&s.messages, ",\"0123456789abcdef0123456789abcdef"
			 "0123456789abcdef0123456789ab\"");
	assert_int_equal(state_used_up(&s, &limits), STOP_CONTEXT);
	state_release(&s);
}

static void calls_with_one_id_are_told_apart(void **state)
{
	struct state s;

	(void)state;
	state_init(&s);
	event(&s, "{\"e\":\"begin\",\"messages\":[]}");
	event(&s, "{\"e\":\"turn\",\"n\":1,\"got\":{\"role\":\"assistant\","
	      "\"content\":null,\"tool_calls\":["
	      "{\"id\":\"x\",\"function\":{\"name\":\"Glob\",\"arguments\":"
	      "\"{\\\"pattern\\\":\\\"a\\\"}\"}},"
	      "{\"id\":\"x\",\"function\":{\"name\":\"Glob\",\"arguments\":"
	      "\"{\\\"pattern\\\":\\\"b\\\"}\"}}]},\"usage\":{}}");
	assert_int_equal(s.calls.n, 2);
	assert_string_equal(s.calls.c[0].id, "x");
	assert_string_not_equal(s.calls.c[1].id, "x");
	assert_non_null(strstr(s.messages.buf, s.calls.c[1].id));
	state_release(&s);
}

static void ids_can_be_left_out_of_turns(void **state)
{
	struct str out = STR_INIT;
	struct json *j;
	struct state s;

	(void)state;
	state_init(&s);
	event(&s, "{\"e\":\"begin\",\"messages\":[]}");
	for (int i = 1; i < 4; i++)
		event(&s, "{\"e\":\"turn\",\"got\":{\"role\":\"assistant\","
		      "\"content\":\"a\"},\"finish\":\"stop\",\"usage\":"
		      "{\"prompt\":1},\"tokens\":{\"n\":1,\"ids\":\"AAAA\"},"
		      "\"prov\":{\"model_s\":1}}");
	str_addc(&out, '[');
	spans_leave_out(&s.tokens, &s.turns, &out);
	str_addc(&out, ']');
	assert_null(strstr(out.buf, "ids"));
	j = json_parse(out.buf, out.len, JSON_MAX_LINE, NULL, NULL);
	assert_int_equal(json_len(j), 3);
	assert_int_equal(json_get_int(json_first(j), "turn", 0), 1);
	assert_non_null(json_get(json_first(j), "prov"));
	json_free(j);
	str_release(&out);
	state_release(&s);
}

/* The text of a trajectory. */
static const char *shown(const char *text, const struct show_opts *o)
{
	static struct str out;
	struct json *j = json_parse(text, strlen(text), JSON_MAX_LINE, NULL,
				    NULL);

	assert_non_null(j);
	str_reset(&out);
	show_trajectory(j, o, &out);
	json_free(j);
	return out.buf;
}

/* A model may try as often as it likes: what is kept has an end. */
static void tries_beyond_the_room_leave_their_verdict(void **state)
{
	struct rollout *r = calloc(1, sizeof(*r));
	struct str line = STR_INIT;
	struct err e = ERR_INIT;
	struct rec c;
	size_t at, i;

	(void)state;
	assert_non_null(r);
	state_init(&r->s);
	r->log.fd = memfd_create("log", 0);
	str_adds(&line, "{\"kind\":\"candidate\",\"v\":1,\"id\":\"x\",\"task\":"
		 "{\"id\":\"t\"},\"verify\":{\"status\":\"ok\"},\"files\":"
		 "{\"a\":\"");
	while (line.len < TRIED_MAX / 5)
		str_adds(&line, "0123456789abcdef0123456789abcdef");
	str_adds(&line, "\"}}");
	rec_init(&c);
	assert_int_equal(rec_parse(&c, line.buf, line.len, &at, &e), 0);
	for (i = 0; i < 6; i++)
		assert_int_equal(log_verdict(r, ASK_VERIFY, "", &c, 0, &e), 0);
	assert_int_equal(log_verdict(r, ASK_REWARD, "final", &c, 0, &e), 0);
	assert_int_equal(r->s.neval, 7);
	for (i = 0; i < 7; i++) {
		const struct evaluation *v = &r->s.eval[i];

		assert_int_equal(v->bare, i == 4 || i == 5);
		assert_int_equal(strlen(v->line) > 100, !v->bare);
		assert_int_equal(v->verified, 1);
		assert_string_equal(v->id, "x");
	}
	rec_release(&c);
	str_release(&line);
	state_release(&r->s);
	log_close(&r->log);
	free(r);
}

static void has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in '%s'", part, text);
}

/* Columns are counted, not bytes; what is cut is whole. */
static void lines_are_folded_at_the_width(void **state)
{
	static const char wide[] = "{\"kind\":\"trajectory\",\"messages\":["
		"{\"role\":\"assistant\",\"content\":\"\"},"
		"{\"role\":\"tool\",\"content\":\"\xe8\xaa\x9e\xe8\xaa\x9e"
		"\xe8\xaa\x9e\xe8\xaa\x9e\xe8\xaa\x9e\xe8\xaa\x9e\xe8\xaa\x9e"
		"\xe8\xaa\x9e\xe8\xaa\x9e\xe8\xaa\x9e\xe8\xaa\x9e"
		"a\\tb\\u001bc\"}]}";
	const struct show_opts narrow = { 0, 0, 1 }, any = { 0, 0, 0 };
	struct str text = STR_INIT;

	(void)state;
	has(shown(wide, &narrow), "  | \xe8\xaa\x9e\xe8\xaa\x9e\xe8\xaa\x9e"
	    "\xe8\xaa\x9e\xe8\xaa\x9e\xe8\xaa\x9e\xe8\xaa\x9e\xe8\xaa\x9e"
	    "\xe8\xaa\x9e\xe8\xaa\x9e\n  | \xe8\xaa\x9e" "a\tb\\x1bc\n");
	has(shown(wide, &any), "\xe8\xaa\x9e" "a\tb\\x1bc\n");
	str_adds(&text, "{\"messages\":[{\"role\":\"assistant\","
		 "\"content\":\"");
	for (int i = 0; i < 401; i++)
		str_adds(&text, "\xe8\xaa\x9e");
	str_adds(&text, "\"}]}");
	has(shown(text.buf, &any), "\xe8\xaa\x9e ...\n");
	assert_null(strstr(shown(text.buf, &any), "\\x"));
	str_release(&text);
}

static const char *const broken[] = {
	"{}", "{\"messages\":3,\"turns\":\"x\",\"evaluations\":{}}",
	"{\"messages\":[1,null,\"x\",[],{}],\"turns\":[1],"
	"\"evaluations\":[2,{\"candidate\":[]}]}",
	"{\"messages\":[{\"role\":7,\"content\":{}},{\"role\":\"assistant\","
	"\"content\":[],\"tool_calls\":[3,{\"function\":4},{\"function\":"
	"{\"name\":5,\"arguments\":\"[\"}},{\"function\":{\"name\":\"f\","
	"\"arguments\":\"[1]\"}}]},{\"role\":\"tool\"}],"
	"\"outcome\":[],\"cost\":1}",
	"{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}],\"outcome\":"
	"{\"final\":3,\"best\":{\"rejudged\":[]},\"reward\":\"1\"}}",
	NULL
};

static void broken_ones_are_shown_as_far_as_they_go(void **state)
{
	const struct show_opts o = { 1, 1, 80 };

	(void)state;
	for (const char *const *p = broken; *p; p++)
		has(shown(*p, &o), "===");
}

static void exported_lines_are_json(void **state)
{
	struct str out = STR_INIT;
	struct json *j;

	(void)state;
	for (const char *const *p = broken; *p; p++)
		for (int f = EXPORT_ATIF; f <= EXPORT_SHAREGPT; f++) {
			j = json_parse(*p, strlen(*p), JSON_MAX_LINE, NULL,
				       NULL);
			str_reset(&out);
			if (!export_trajectory(j, (enum export_format)f,
					       &out))
				assert_int_equal(json_check(out.buf, out.len -
					1, JSON_MAX_LINE, NULL, NULL), 0);
			else
				assert_int_equal(out.len, 0);
			json_free(j);
		}
	str_release(&out);
}

/* With the members of all records (ca-record(5)). */
static void one_that_left_no_record_gets_a_whole_one(void **state)
{
	static const char *const members[] = {
		"id", "task", "seed", "mode", "model", "messages", "segments",
		"turns", "evaluations", "redundant_loop", "schema_violations",
		"outcome", "cost", "prov"
	};
	const struct agent_opts o = { .model = "m", .device = "cpu",
				      .temperature = -1, .top_p = -1,
				      .top_k = -1, .eval = 1 };
	const struct agent_task t = { .id = "i", .task = "t", .code = "x" };
	struct str line = STR_INIT;
	struct json *j;

	(void)state;
	rollout_failure(&o, &t, STOP_KILLED, "it died", &line);
	assert_int_equal(line.buf[line.len - 1], '\n');
	j = json_parse(line.buf, line.len - 1, JSON_MAX_LINE, NULL, NULL);
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
		assert_non_null(json_get(j, members[i]));
	assert_string_equal(json_str(json_path(j, "outcome.stop_reason"), ""),
			    "killed");
	assert_string_equal(json_str(json_path(j, "outcome.why"), ""),
			    "it died");
	assert_int_equal(json_type(json_path(j, "outcome.reward")), JSON_NULL);
	json_free(j);
	str_release(&line);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(budgets_end_it),
		cmocka_unit_test(calls_with_one_id_are_told_apart),
		cmocka_unit_test(ids_can_be_left_out_of_turns),
		cmocka_unit_test(tries_beyond_the_room_leave_their_verdict),
		cmocka_unit_test(lines_are_folded_at_the_width),
		cmocka_unit_test(broken_ones_are_shown_as_far_as_they_go),
		cmocka_unit_test(exported_lines_are_json),
		cmocka_unit_test(one_that_left_no_record_gets_a_whole_one),
	};

	return RUN_TESTS(tests);
}
