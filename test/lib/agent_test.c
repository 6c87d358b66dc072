/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the agent that need neither a model nor a jail: calls in messages,
 * replacing text, going round in circles, what a stop is worth, whose a
 * verdict is.
 */
#include "tests.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/answer.h"
#include "agent/call.h"
#include "agent/edit.h"
#include "agent/judges.h"
#include "agent/loop.h"
#include "agent/try.h"
#include "base/io.h"

static void expect_mended(const char *text, int rc, const char *mended)
{
	struct str out = STR_INIT;

	assert_int_equal(call_mend(text, strlen(text), &out), rc);
	if (rc >= 0)
		assert_string_equal(out.buf, mended);
	str_release(&out);
}

static void arguments_are_mended_never_completed(void **state)
{
	(void)state;
	expect_mended("{\"a\": [1, \"}\"]}", 0, "{\"a\": [1, \"}\"]}");
	expect_mended("{\"a\": \"x\ny\tz\"}", 1, "{\"a\": \"x\\ny\\tz\"}");
	expect_mended("{\"a\": \"\\\"{\"} </tool>", 1, "{\"a\": \"\\\"{\"}");
	expect_mended("{\"a\": {\"b\": 1}", -1, NULL);
	expect_mended("{\"a\": \"b", -1, NULL);
	expect_mended("{a: 1}", -1, NULL);
	expect_mended("", -1, NULL);
}

static void find(const char *message, struct calls *out)
{
	struct json *m = json_parse(message, strlen(message), JSON_MAX_LINE,
				    NULL, NULL);
	struct err e = ERR_INIT;

	assert_non_null(m);
	assert_int_equal(calls_find(m, 3, out, &e), 0);
	json_free(m);
}

static void calls_come_from_the_server_or_the_text(void **state)
{
	struct calls c;

	(void)state;
	find("{\"role\":\"assistant\",\"content\":\"see\","
	     "\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\","
	     "\"function\":{\"name\":\"Bash\","
	     "\"arguments\":\"{\\\"command\\\": \\\"ls\\\"}\"}}]}", &c);
	assert_int_equal(c.n, 1);
	assert_string_equal(c.c[0].id, "a");
	assert_int_equal(c.c[0].tool, TOOL_BASH);
	assert_int_equal(c.c[0].flags, 0);
	assert_string_equal(json_get_str(c.c[0].args, "command", ""), "ls");
	calls_release(&c);

	find("{\"role\":\"assistant\",\"content\":\"<tool_call>{\\\"name\\\": "
	     "\\\"Read\\\", \\\"arguments\\\": {\\\"file_path\\\": \\\"a\\\"}}"
	     "</tool_call>\"}", &c);
	assert_int_equal(c.n, 1);
	assert_int_equal(c.c[0].tool, TOOL_READ);
	assert_true(c.c[0].flags & CALL_TEXT);
	assert_true(*c.c[0].id);
	calls_release(&c);

	find("{\"role\":\"assistant\",\"content\":\"int f() { return 1; }\"}",
	     &c);
	assert_int_equal(c.n, 0);
	calls_release(&c);
}

static void calls_that_cannot_be_are_told_why(void **state)
{
	struct calls c;

	(void)state;
	find("{\"role\":\"assistant\",\"content\":null,\"tool_calls\":["
	     "{\"function\":{\"name\":\"Fly\",\"arguments\":\"{}\"}},"
	     "{\"function\":{\"name\":\"Bash\",\"arguments\":\"{}\"}},"
	     "{\"function\":{\"name\":\"Bash\",\"arguments\":\"{\\\"comm\"}}]}",
	     &c);
	assert_int_equal(c.n, 3);
	for (size_t i = 0; i < c.n; i++) {
		assert_null(c.c[i].args);
		assert_non_null(c.c[i].error);
		assert_true(*c.c[i].id);
		assert_true(c.c[i].flags & (CALL_INVALID | CALL_BROKEN));
	}
	assert_int_equal(c.c[0].tool, TOOL_NONE);
	assert_non_null(strstr(c.c[0].error, "MultiEdit"));
	assert_true(c.c[2].flags & CALL_BROKEN);
	calls_release(&c);
	assert_int_equal(tool_find("KillShell"), TOOL_KILL_BASH);
	assert_int_equal(tool_find("bashful"), TOOL_NONE);
}

static void expect_edit(const char *text, const char *old, const char *by,
			int all, int rc, const char *result)
{
	struct str out = STR_INIT;
	struct err e = ERR_INIT;

	assert_int_equal(edit_text(text, strlen(text), old, by, all, &out, &e),
			 rc);
	assert_string_equal(rc < 0 ? e.msg : out.buf, result);
	str_release(&out);
}

static void text_is_replaced_once_or_everywhere(void **state)
{
	(void)state;
	expect_edit("a b c", "b", "x", 0, 1, "a x c");
	expect_edit("a b b", "b", "", 1, 2, "a  ");
	expect_edit("aaa", "aa", "b", 1, 1, "ba");
	expect_edit("a\r\nb\r\n", "a\nb", "x\ny", 0, 1, "x\r\ny\r\n");
	expect_edit("a\r\nb\n", "b\n", "c\n", 0, 1, "a\r\nc\n");
	expect_edit("a", "a", "a", 0, -1,
		    "old_string and new_string are the same");
	expect_edit("a", "", "b", 0, -1,
		    "old_string is empty; Write makes new files");
	expect_edit("x\nb\nb\n", "b", "c", 0, -1, "old_string occurs 2 times "
		    "(lines 2, 3); give more of the text around it, or set "
		    "replace_all");
	expect_edit("int one;\nint two;\n", "int twos;", "x", 0, -1,
		    "old_string is not in the file; the nearest is line 2: "
		    "'int two;'");
}

static void circles_are_noticed_progress_is_not(void **state)
{
	struct loop l = { 0 };
	char result[16];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_false(loop_add(&l, "Bash", "ls", "took 0.1 s"));
	assert_true(loop_add(&l, "Bash", "ls", "took 0.2 s"));
	l = (struct loop){ 0 };
	for (int i = 0; i < 5; i++)
		assert_false(loop_add(&l, "Bash", i % 2 ? "a" : "b", "x"));
	assert_true(loop_add(&l, "Bash", "a", "x"));
	l = (struct loop){ 0 };
	for (int i = 0; i < 20; i++) {
		snprintf(result, sizeof result, "%d files", i);
		assert_false(loop_add(&l, "Bash", "ls", result));
	}
}

static void faults_are_no_lessons(void **state)
{
	(void)state;
	for (int s = STOP_FINAL; s < STOP_COUNT; s++) {
		assert_int_equal(stop_parse(stop_name((enum stop)s)), s);
		assert_int_equal(stop_is_fault((enum stop)s) != 0,
				 s == STOP_API_ERROR ||
				 s == STOP_INFRA_ERROR || s == STOP_KILLED);
	}
}

/* Every option that makes another rollout gives it another id. */
static void another_budget_is_another_rollout(void **state)
{
	const struct agent_opts base = {
		.model = "m", .rules = "paper", .device = "cpu",
		.turns = 9, .ctx = 9, .max_tokens = 9, .out_tokens = 9,
		.gpu_calls = 9, .disk = 9
	};
	struct agent_opts o[9];
	char id[9][REC_ID_LEN];
	size_t i, k;

	(void)state;
	for (i = 0; i < 9; i++)
		o[i] = base;
	o[1].wall_s = 2;
	o[2].disk = 8;
	o[3].turns = 8;
	o[4].ctx = 8;
	o[5].max_tokens = 8;
	o[6].out_tokens = 8;
	o[7].gpu_calls = 8;
	o[8].wall_s = 60;
	for (i = 0; i < 9; i++) {
		agent_id(&o[i], "t", 0, id[i]);
		for (k = 0; k < i; k++)
			assert_string_not_equal(id[i], id[k]);
	}
}

/* A candidate whose only file says `file`, with further members; its id is
 * that of one whose file says `as`. */
static const char *candidate(const char *file, const char *as,
			     const char *more)
{
	static char line[512];
	struct json *files;
	char task[REC_ID_LEN], id[REC_ID_LEN], text[64];

	snprintf(text, sizeof(text), "{\"model_new.py\":\"%s\"}", as);
	files = json_parse(text, strlen(text), sizeof(text), NULL, NULL);
	task_id("x", 1, task);
	assert_int_equal(candidate_id(task, files, id), 0);
	json_free(files);
	snprintf(line, sizeof(line), "{\"kind\":\"candidate\",\"v\":1,"
		 "\"id\":\"%s\",\"task\":{\"code\":\"x\"},"
		 "\"files\":{\"model_new.py\":\"%s\"}%s}", id, file, more);
	return line;
}

/* As a judge would hand it back. */
static const char *verdict(char file, const char *status)
{
	char text[2] = { file, '\0' }, more[64];

	snprintf(more, sizeof(more), ",\"verify\":{\"status\":\"%s\"}",
		 status);
	return candidate(text, text, more);
}

static void send_verdict(int fd, uint32_t n, char file, const char *status)
{
	const char *line = verdict(file, status);

	assert_int_equal(wire_send(fd, n, line, strlen(line), NULL), 0);
}

/* The number of the question that came. */
static uint32_t hear_question(int fd, struct str *in)
{
	struct wire_msg m;

	assert_int_equal(wire_read(fd, in, &m), 1);
	wire_drop(in);
	return m.n;
}

/* Asks about candidate "a": the verdict, or why there is none. */
static const char *ask(struct tries *t, struct rec *r, struct err *e)
{
	const char *line = verdict('a', "asked");
	size_t at;

	rec_reset(r);
	*e = (struct err)ERR_INIT;
	assert_int_equal(rec_parse(r, line, strlen(line), &at, e), 0);
	if (tries_judge(t, ASK_VERIFY, r, e))
		return e->msg;
	return json_str(json_path(r->root, "verify.status"), "none");
}

static void a_late_verdict_is_of_no_other_question(void **state)
{
	char path[64];
	struct tries_opts o = { .socket = path, .judge_s = 0.05 };
	struct err e = ERR_INIT;
	struct str in = STR_INIT;
	struct tries *t;
	struct rec r;
	uint32_t n;
	int s[2];

	(void)state;
	rec_init(&r);
	snprintf(path, sizeof(path), "/tmp/agent_test.%d", (int)getpid());
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	o.judge = s[1];
	t = tries_open(&o, &e);
	assert_non_null(t);
	assert_string_equal(ask(t, &r, &e),
			    "the judge did not answer in time");
	n = hear_question(s[0], &in);
	send_verdict(s[0], n, 'a', "late");
	send_verdict(s[0], n + 1, 'a', "ok");
	assert_string_equal(ask(t, &r, &e), "ok");
	assert_int_equal(hear_question(s[0], &in), n + 1);
	send_verdict(s[0], n + 2, 'b', "ok");
	assert_string_equal(ask(t, &r, &e),
			    "the judge answered another question");
	tries_close(t);
	rec_release(&r);
	str_release(&in);
	close(s[0]);
	close(s[1]);
}

/* Why this is no verdict on candidate "a" at that stage; "": it is one. */
static const char *fault(enum ask stage, const char *line)
{
	struct question q = { .stage = stage };
	static char text[256];
	const char *why;
	struct rec r;
	size_t at;

	rec_init(&r);
	assert_int_equal(rec_parse(&r, candidate("a", "a", ""),
				   strlen(candidate("a", "a", "")), &at,
				   NULL), 0);
	answer_id(&r, q.id);
	rec_reset(&r);
	assert_int_equal(rec_parse(&r, line, strlen(line), &at, NULL), 0);
	why = answer_fault(&q, &r);
	snprintf(text, sizeof(text), "%s", why ? why : "");
	rec_release(&r);
	return text;
}

static const char *fault_of(enum ask stage, const char *more)
{
	char line[512];

	snprintf(line, sizeof(line), "%s", candidate("a", "a", more));
	return fault(stage, line);
}

static void has(const char *text, const char *part)
{
	if (!strstr(text, part) || (!*part && *text))
		fail_msg("'%s' is not in '%s'", part, text);
}

#define OK_ ",\"verify\":{\"status\":\"ok\"}"
#define WRONG ",\"verify\":{\"status\":\"wrong_value\"}"
#define PAID(v) ",\"reward\":{\"value\":" v "}"
#define TIMED(s) ",\"profile\":{\"status\":\"" s "\"}"

static void only_what_was_sent_has_a_verdict(void **state)
{
	char line[512];

	(void)state;
	has(fault_of(ASK_VERIFY, OK_), "");
	snprintf(line, sizeof(line), "%s", candidate("b", "b", OK_));
	has(fault(ASK_VERIFY, line), "another question");
	/* By the id that was asked for, but with another file. */
	snprintf(line, sizeof(line), "%s", candidate("b", "a", OK_));
	has(fault(ASK_VERIFY, line), "are not those");
	snprintf(line, sizeof(line), "%s", candidate("a", "a", OK_));
	strstr(line, "\"code\":\"x")[8] = 'y';
	has(fault(ASK_VERIFY, line), "are not those");
	has(fault_of(ASK_VERIFY, ",\"rules\":\"lax\"" OK_),
	    "are not those");
	has(fault_of(ASK_VERIFY, ",\"ask\":{\"stage\":\"profile\"}" OK_),
	    "another question");
	has(fault(ASK_VERIFY, "{\"kind\":\"task\",\"v\":1,\"code\":\"x\"}"),
	    "no candidate");
	has(fault(ASK_VERIFY, "{\"kind\":\"error\",\"v\":1,"
			      "\"message\":\"alas\"}"), "alas");
}

static void what_was_asked_for_has_to_be_there(void **state)
{
	(void)state;
	for (int s = ASK_COMPILE; s < ASK_COUNT; s++)
		has(fault_of((enum ask)s, ""), "no known status");
	has(fault_of(ASK_VERIFY, ",\"verify\":{\"status\":\"fine\"}"),
	    "no known status");
	has(fault_of(ASK_COMPILE, ",\"build\":{\"status\":\"ok\"}"), "");
	has(fault_of(ASK_REFERENCE, ",\"reference\":{\"status\":\"ok\"}"),
	    "");
	has(fault_of(ASK_PROFILE, OK_), "'profile' has no known status");
	has(fault_of(ASK_PROFILE, WRONG), "");
	has(fault_of(ASK_PROFILE, OK_ TIMED("ok")), "");
	has(fault_of(ASK_REWARD, OK_), "'reward' has no value");
	has(fault_of(ASK_REWARD, OK_ ",\"reward\":5"), "has no value");
	has(fault_of(ASK_REWARD, OK_ ",\"reward\":{}"), "has no value");
	has(fault_of(ASK_REWARD, OK_ PAID("\"abc\"")), "has no value");
	has(fault_of(ASK_REWARD, OK_ PAID("null")), "");
	has(fault_of(ASK_REWARD, PAID("3")), "no known status");
}

static void rewards_go_with_statuses(void **state)
{
	static const char *const no[] = { "99", "0", "-2", "1.5", "1e300" };

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++) {
		char more[128];

		snprintf(more, sizeof(more), OK_ PAID("%s"), no[i]);
		has(fault_of(ASK_REWARD, more), "none of its scheme");
	}
	has(fault_of(ASK_REWARD, OK_ PAID("3")), "");
	has(fault_of(ASK_REWARD, OK_ TIMED("ok") PAID("1")), "");
	has(fault_of(ASK_REWARD, OK_ TIMED("inconclusive_time") PAID("2")),
	    "");
	has(fault_of(ASK_REWARD, OK_ TIMED("below_floor") PAID("2")),
	    "does not go with");
	has(fault_of(ASK_REWARD, WRONG PAID("-1")), "");
	has(fault_of(ASK_REWARD, WRONG PAID("3")), "does not go with");
	has(fault_of(ASK_REWARD, ",\"build\":{\"status\":\"compile_error\"}"
		     OK_ PAID("1")), "does not go with");
	has(fault_of(ASK_REWARD, OK_ ",\"reward\":{\"scheme\":\"raw\","
		     "\"value\":1.37}"), "");
	has(fault_of(ASK_REWARD, WRONG ",\"reward\":{\"scheme\":\"raw\","
		     "\"value\":1.37}"), "does not go with");
}

static void count_answer(void *ctx, int who, uint32_t n, const char *line,
			 size_t len)
{
	uint32_t *got = ctx;

	assert_int_equal(who, 7);
	assert_int_equal(len, 2);
	assert_memory_equal(line, "{}", 2);
	got[0]++;
	got[1] = n;
}

static void who_asks_again_waits_for_that_alone(void **state)
{
	const char *command[] = { "cat" };
	const struct opt_list list = { .item = command, .n = 1 };
	uint32_t got[2] = { 0, 0 };
	struct judges_opts o = { .commands = &list, .seconds = 60,
				 .answer = count_answer, .ctx = got };
	struct wire_msg m = { .p = (char[]){ "{}" }, .len = 2 };
	int64_t end = deadline_in(60);
	struct err e = ERR_INIT;
	struct judges *j = judges_open(&o, &e);
	struct pollfd p[2];

	(void)state;
	assert_non_null(j);
	for (m.n = 1; m.n <= 3; m.n++)
		assert_int_equal(judges_ask(j, 7, &m), 0);
	while (!got[0] && now_ns() < end) {
		poll(p, judges_fds(j, p, 2), 100);
		judges_run(j);
	}
	assert_int_equal(got[0], 1);
	assert_int_equal(got[1], 3);
	judges_close(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments_are_mended_never_completed),
		cmocka_unit_test(calls_come_from_the_server_or_the_text),
		cmocka_unit_test(calls_that_cannot_be_are_told_why),
		cmocka_unit_test(text_is_replaced_once_or_everywhere),
		cmocka_unit_test(circles_are_noticed_progress_is_not),
		cmocka_unit_test(faults_are_no_lessons),
		cmocka_unit_test(another_budget_is_another_rollout),
		cmocka_unit_test(a_late_verdict_is_of_no_other_question),
		cmocka_unit_test(only_what_was_sent_has_a_verdict),
		cmocka_unit_test(what_was_asked_for_has_to_be_there),
		cmocka_unit_test(rewards_go_with_statuses),
		cmocka_unit_test(who_asks_again_waits_for_that_alone),
	};

	return RUN_TESTS(tests);
}
