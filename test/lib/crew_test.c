/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/rec: records worked on by processes side by side.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/wait.h>

#include "base/io.h"
#include "base/sig.h"
#include "rec/crew.h"
#include "rec/stage.h"

static int turn[2], left[2];
static struct crew *crew;

/* "wait" goes on when another record, "wake", has been begun. */
static int record(void *ctx, struct rec *r, struct err *e)
{
	char c = 0, pid[16];

	(void)ctx;
	if (json_get_bool(r->root, "wait", 0) &&
	    read_full(turn[0], &c, 1, e) != 1)
		return -1;
	if (json_get_bool(r->root, "wake", 0) &&
	    write_full(turn[1], "x", 1, e))
		return -1;
	if (json_get_bool(r->root, "fail", 0))
		return err_set(e, CA_UNAVAILABLE, "told to");
	if (json_get_bool(r->root, "die", 0))
		_exit(3);
	if (json_get_bool(r->root, "hang", 0))
		for (int i = 0; i < 3000 && !sig_caught(); i++)
			usleep(10000);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (json_get_bool(r->root, "who", 0))
		return rec_set(r, "pid", pid, strlen(pid));
	return rec_set(r, "line", r->lineno == 2 ? "2" : "1", 1);
}

static void leave(void *ctx)
{
	(void)ctx;
	if (write(left[1], "x", 1) != 1)
		_exit(4);
}

static const struct crew_ops ops = { .record = record, .leave = leave };

static int pass_on(void *ctx, struct rec *r, struct err *e)
{
	(void)ctx;
	return crew_record(crew, r, e);
}

static int open_two(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (pipe2(turn, O_CLOEXEC) || pipe2(left, O_CLOEXEC))
		return -1;
	signal(SIGPIPE, SIG_IGN);
	crew = crew_open(2, &ops, &e);
	return crew ? 0 : -1;
}

static int close_two(void **state)
{
	(void)state;
	crew_close(crew);
	for (int i = 0; i < 2; i++) {
		close(turn[i]);
		close(left[i]);
	}
	return 0;
}

/* Works on one line; what r is afterwards, or NULL and e. */
static const char *one(const char *line, uint64_t lineno, struct err *e)
{
	static char text[512];
	struct str out = STR_INIT;
	struct rec r;
	int rc;

	err_clear(e);
	rec_init(&r);
	assert_int_equal(rec_parse(&r, line, strlen(line), NULL, e), 0);
	r.lineno = lineno;
	rc = crew_record(crew, &r, e);
	assert_int_equal(r.lineno, lineno);
	assert_int_equal(rec_write(&r, &out), 0);
	snprintf(text, sizeof(text), "%s", out.buf);
	str_release(&out);
	rec_release(&r);
	return rc ? NULL : text;
}

static void answers_take_the_place_of_records(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_string_equal(one("{\"kind\":\"x\", \"v\":1}", 2, &e),
			    "{\"kind\":\"x\", \"v\":1,\"line\":2}");
	assert_null(one("{\"kind\":\"x\",\"v\":1,\"fail\":true}", 1, &e));
	assert_int_equal(e.code, CA_UNAVAILABLE);
	assert_string_equal(e.msg, "told to");
}

/* Who was asked last may still be at what follows an answer. */
static void they_are_asked_in_turn(void **state)
{
	struct err e = ERR_INIT;
	const char *text;
	int first = 0;

	(void)state;
	for (int i = 0; i < 4; i++) {
		text = one("{\"kind\":\"x\",\"v\":1,\"who\":true}", 1, &e);
		assert_non_null(text);
		text = strstr(text, "\"pid\":");
		assert_non_null(text);
		if (i)
			assert_int_equal(atoi(text + 6) == first, i == 2);
		else
			first = atoi(text + 6);
	}
}

static void one_that_ends_costs_its_record_only(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_null(one("{\"kind\":\"x\",\"v\":1,\"die\":true}", 1, &e));
	assert_int_equal(e.code, CA_SOFTWARE);
	assert_non_null(strstr(e.msg, "ended"));
	assert_non_null(one("{\"kind\":\"x\",\"v\":1}", 1, &e));
	assert_null(one("{\"kind\":\"x\",\"v\":1,\"die\":true}", 1, &e));
	assert_null(one("{\"kind\":\"x\",\"v\":1}", 1, &e));
	assert_non_null(strstr(e.msg, "no process is left"));
}

/* The first record cannot end before the second one is begun. */
static void they_work_side_by_side_and_keep_the_order(void **state)
{
	static const char in[] = "{\"kind\":\"x\",\"v\":1,\"wait\":true}\n"
				 "{\"kind\":\"x\",\"v\":1,\"wake\":true}\n";
	static const char want[] =
		"{\"kind\":\"x\",\"v\":1,\"wait\":true,\"line\":1}\n"
		"{\"kind\":\"x\",\"v\":1,\"wake\":true,\"line\":2}\n";
	const struct stage_ops stage = { .name = "test", .record = pass_on };
	struct common c = { .jobs = 2, .limit = -1, .out = "-" };
	char name[] = "test", *argv[] = { name, NULL }, got[256] = "";
	int from[2], to[2], status;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(from, O_CLOEXEC) || pipe2(to, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		dup2(from[0], 0);
		dup2(to[1], 1);
		close(from[1]);
		_exit(stage_run(&stage, &c, 1, argv, 1));
	}
	close(to[1]);
	assert_int_equal(write_full(from[1], in, strlen(in), NULL), 0);
	close(from[1]);
	assert_int_equal(read_full(to[0], got, sizeof(got), NULL),
			 strlen(want));
	assert_string_equal(got, want);
	close(to[0]);
	close(from[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_signal_ends_what_is_under_way(void **state)
{
	struct err e = ERR_INIT;
	pid_t pid;
	int status;

	(void)state;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		struct err own = ERR_INIT;

		sig_catch(NULL);
		kill(getpid(), SIGTERM);
		_exit(!one("{\"kind\":\"x\",\"v\":1,\"hang\":true}", 1, &own) &&
		      own.code == CA_TEMPFAIL ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	/* The other one goes on. */
	assert_null(one("{\"kind\":\"x\",\"v\":1}", 1, &e));
	assert_non_null(one("{\"kind\":\"x\",\"v\":1}", 1, &e));
}

static void members_leave_at_the_end(void **state)
{
	char c[3];

	crew_close(crew);
	crew = NULL;
	close(left[1]);
	left[1] = dup(left[0]);
	assert_int_equal(read_full(left[0], c, sizeof(c), NULL), 2);
	(void)state;
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_two, close_two)
	const struct CMUnitTest tests[] = {
		TEST(answers_take_the_place_of_records),
		TEST(they_are_asked_in_turn),
		TEST(one_that_ends_costs_its_record_only),
		TEST(they_work_side_by_side_and_keep_the_order),
		TEST(a_signal_ends_what_is_under_way),
		TEST(members_leave_at_the_end),
	};

	return RUN_TESTS(tests);
}
