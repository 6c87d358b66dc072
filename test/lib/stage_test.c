/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/rec: the stage loop, in processes of its own.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <sys/stat.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/sig.h"
#include "rec/stage.h"

static char dir[256];

static const char *in_dir(const char *name)
{
	static char path[16][512];
	static int next;
	char *p = path[next++ % 16];

	snprintf(p, sizeof path[0], "%s/%s", dir, name);
	return p;
}

/* Sets `seen`; "fail" makes it fail, "wait" waits for a signal, "big" makes
 * the record too long. */
static int record(void *ctx, struct rec *r, struct err *e)
{
	int64_t us = json_get_int(r->root, "us", 0);
	int i;

	(void)ctx;
	if (us)
		usleep((useconds_t)us);
	if (json_get_bool(r->root, "fail", 0)) {
		rec_set(r, "seen", "0", 1);
		rec_refresh(r, e);
		return err_set(e, CA_UNAVAILABLE, "told to");
	}
	if (json_get_bool(r->root, "infra", 0))
		return rec_set(r, "verify", "{\"status\":\"infra_error\"}", 24);
	if (json_get_bool(r->root, "big", 0)) {
		char *big = malloc(JSON_MAX_LINE);

		memset(big, '1', JSON_MAX_LINE);
		memset(big, '"', 1);
		memset(big + JSON_MAX_LINE - 1, '"', 1);
		i = rec_set(r, "seen", big, JSON_MAX_LINE);
		free(big);
		return i;
	}
	if (json_get_bool(r->root, "wait", 0))
		for (i = 0; i < 3000 && !stage_interrupted(); i++)
			usleep(10000);
	return rec_set(r, "seen", "1", 1);
}

static int directory(void *ctx, const char *path, struct rec *r,
		     struct err *e)
{
	(void)ctx;
	if (strstr(path, "bad"))
		return err_set(e, CA_NOINPUT, "not good");
	return rec_set(r, "kind", "\"candidate\"", 11) ||
	       rec_set(r, "v", "1", 1);
}

static int wants(void *ctx, enum rec_kind k)
{
	(void)ctx;
	return k == REC_CANDIDATE;
}

static int keep(void *ctx, const struct rec *r)
{
	(void)ctx;
	return !json_get_bool(r->root, "hide", 0);
}

static const struct stage_ops ops = {
	.name = "test", .record = record, .directory = directory,
	.wants = wants, .keep = keep
};

/* Redirects as a shell would, runs the loop and exits with its code. */
static void child(const char *in, const char *out, const struct common *c,
		  char **operands) CA_NORETURN;
static void child(const char *in, const char *out, const struct common *c,
		  char **operands)
{
	char name[] = "test", *argv[8] = { name };
	int argc = 1;

	dup2(open(in, O_RDWR | O_NONBLOCK), 0);
	fcntl(0, F_SETFL, 0);
	if (out)
		dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
	dup2(open(in_dir("err"), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
	while (operands && *operands)
		argv[argc++] = *operands++;
	exit(stage_run(&ops, c, argc, argv, 1));
}

/* The exit code for this input; what it wrote is in the file "out". */
static int run_to(const char *input, size_t len, const char *out,
		  struct common c, char **operands)
{
	int status;
	pid_t pid;

	c.limit = c.limit ? c.limit : -1;
	c.out = c.out ? c.out : "-";
	assert_int_equal(write_file_atomic(in_dir("in"), input, len, 0600,
					   NULL), 0);
	pid = fork();
	if (pid == 0)
		child(in_dir("in"), out, &c, operands);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int run(const char *input, int64_t jobs)
{
	struct common c = { .jobs = jobs };

	return run_to(input, strlen(input), in_dir("out"), c, NULL);
}

static void assert_file(const char *name, const char *want)
{
	struct str s = STR_INIT;

	assert_int_equal(read_file(in_dir(name), 1 << 26, &s, NULL), 0);
	assert_string_equal(s.buf ? s.buf : "", want);
	str_release(&s);
}

static void assert_in_file(const char *name, const char *want)
{
	struct str s = STR_INIT;

	assert_int_equal(read_file(in_dir(name), 1 << 26, &s, NULL), 0);
	assert_non_null(s.buf);
	if (!strstr(s.buf, want))
		fail_msg("no '%s' in: %s", want, s.buf);
	str_release(&s);
}

#define C "{\"kind\":\"candidate\",\"v\":1"
#define OTHER "{\"kind\":\"x\",\"v\":1"

static void one_in_one_out(void **state)
{
	int jobs;

	(void)state;
	for (jobs = 1; jobs <= 4; jobs += 3) {
		assert_int_equal(run(C "}\n{ \"kind\" : \"x\",\"v\":1}\nbad\n\n"
				     C ",\"fail\":true}\n" C ",\"hide\":true}\n"
				     C ",\"q\":1 }\n", jobs), CA_DATAERR);
		assert_file("out", C ",\"seen\":1}\n"
			    "{ \"kind\" : \"x\",\"v\":1}\n"
			    "{\"kind\":\"error\",\"v\":1,\"line\":3,\"byte\":1,"
			    "\"message\":\"not an object\"}\n"
			    "{\"kind\":\"error\",\"v\":1,\"line\":4,\"byte\":1,"
			    "\"message\":\"empty\"}\n"
			    C ",\"fail\":true}\n"
			    C ",\"q\":1,\"seen\":1 }\n");
		assert_in_file("err", "stdin:3: cannot parse record at byte 1:"
			       " not an object\n");
		assert_in_file("err", "stdin:5: told to\n");
	}
}

static void exit_codes_have_their_order(void **state)
{
	(void)state;
	assert_int_equal(run("", 1), 0);
	assert_int_equal(run(C "}\n", 1), 0);
	assert_int_equal(run(C "}", 1), CA_DATAERR);
	assert_file("out", C ",\"seen\":1}\n");
	assert_int_equal(run(C ",\"fail\":true}\n", 1), CA_UNAVAILABLE);
	assert_int_equal(run(C ",\"infra\":true}\n" C ",\"fail\":true}\n", 1),
			 CA_TEMPFAIL);
	assert_int_equal(run(C ",\"infra\":true}\nx\n", 1), CA_DATAERR);
	assert_int_equal(run(C ",\"build\":{\"log\":\"infra_error\"}}\n", 1),
			 0);
	assert_int_equal(run(C ",\"build\":{\"status\":\"infra_error\"}}\n", 2),
			 CA_TEMPFAIL);
}

static void order_is_kept_whatever_the_pace(void **state)
{
	struct str in = STR_INIT, want = STR_INIT;
	int i;

	(void)state;
	for (i = 0; i < 300; i++) {
		/* What is not for us overtakes nothing. */
		if (i % 3 == 2) {
			str_addf(&in, OTHER ",\"i\":%d}\n", i);
			str_addf(&want, OTHER ",\"i\":%d}\n", i);
			continue;
		}
		str_addf(&in, C ",\"us\":%d,\"i\":%d}\n", i * 7919 % 2000, i);
		str_addf(&want, C ",\"us\":%d,\"i\":%d,\"seen\":1}\n",
			 i * 7919 % 2000, i);
	}
	assert_int_equal(run(in.buf, 8), 0);
	assert_file("out", want.buf);
	str_release(&in);
	str_release(&want);
}

static void long_lines_are_answered(void **state)
{
	size_t n = JSON_MAX_LINE + 3;
	char *in = malloc(n + 100);

	(void)state;
	memset(in, 'x', n);
	strcpy(in + n, "\n" C "}\n");
	assert_int_equal(run(in, 1), CA_DATAERR);
	assert_in_file("out", "\"line\":1,\"byte\":16777217");
	assert_in_file("out", C ",\"seen\":1}\n");
	memcpy(in, C ",\"p\":\"", sizeof C + 5);
	strcpy(in + JSON_MAX_LINE - 2, "\"}\n");
	assert_int_equal(run(in, 1), CA_DATAERR);
	strcpy(in + JSON_MAX_LINE - 40, "\",\"big\":true}\n");
	assert_int_equal(run(in, 1), CA_DATAERR);
	assert_in_file("err", "record would be longer than");
	assert_file("out", in);
	free(in);
}

static void operands_are_worked_on_in_turn(void **state)
{
	char good[512], bad[512], f[512], none[512], want[2048];
	char in[] = "-", *operands[] = { good, bad, f, none, in, NULL };
	struct common c = { 0 };

	(void)state;
	strcpy(good, in_dir("good"));
	strcpy(bad, in_dir("bad"));
	strcpy(f, in_dir("f"));
	strcpy(none, in_dir("none"));
	mkdir(good, 0700);
	mkdir(bad, 0700);
	write_file_atomic(f, C ",\"f\":1}\n", strlen(C ",\"f\":1}\n"), 0600,
			  NULL);
	assert_int_equal(run_to("x\n", 2, in_dir("out"), c, operands),
			 CA_DATAERR);
	/* A directory that makes no record has an answer too. */
	snprintf(want, sizeof(want), C ",\"seen\":1}\n{\"kind\":\"error\","
		 "\"v\":1,\"file\":\"%s\",\"line\":0,\"byte\":0,"
		 "\"message\":\"not good\"}\n" C ",\"f\":1,\"seen\":1}\n"
		 "{\"kind\":\"error\",\"v\":1,\"line\":1,\"byte\":1,"
		 "\"message\":\"not an object\"}\n", bad);
	assert_file("out", want);
	assert_int_equal(run_to("", 0, in_dir("out"), c, operands),
			 CA_NOINPUT);
	assert_in_file("err", "none': No such file");
	c.limit = 1;
	operands[1] = operands[3] = f;
	assert_int_equal(run_to("", 0, in_dir("out"), c, operands), 0);
	assert_file("out", C ",\"seen\":1}\n");
}

static void writing_fails_loudly(void **state)
{
	struct common c = { 0 };
	struct stat st;

	(void)state;
	assert_int_equal(run_to(C "}\n", strlen(C "}\n"), "/dev/full", c,
				NULL), CA_IOERR);
	assert_in_file("err", "cannot write 'stdout'");
	c.jobs = 3;
	assert_int_equal(run_to(C "}\n", strlen(C "}\n"), "/dev/full", c,
				NULL), CA_IOERR);
	c.out = in_dir("whole");
	assert_int_equal(run_to(C "}\n", strlen(C "}\n"), in_dir("out"), c,
				NULL), 0);
	assert_file("whole", C ",\"seen\":1}\n");
	c.out = in_dir("nowhere/f");
	assert_int_equal(run_to(C "}\n", strlen(C "}\n"), in_dir("out"), c,
				NULL), CA_CANTCREAT);
	assert_int_equal(stat(in_dir("out"), &st), 0);
	assert_int_equal(st.st_size, 0);
}

/* A reader that leaves: no message, and the loop returns so that the tool
 * cleans up. */
static void a_reader_may_leave(void **state)
{
	int jobs;

	(void)state;
	for (jobs = 1; jobs <= 3; jobs += 2) {
		struct common c = { .jobs = jobs, .limit = -1, .out = "-" };
		int fd[2], status;
		pid_t pid;

		write_file_atomic(in_dir("in"), C "}\n", strlen(C "}\n"), 0600,
				  NULL);
		assert_int_equal(pipe(fd), 0);
		pid = fork();
		if (pid == 0) {
			dup2(fd[1], 1);
			close(fd[0]);
			close(fd[1]);
			child(in_dir("in"), NULL, &c, NULL);
		}
		close(fd[0]);
		close(fd[1]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(WEXITSTATUS(status), 128 + SIGPIPE);
		assert_file("err", "");
	}
}

/* Starts a loop on a FIFO that holds `input`; 0 writes nothing more. */
static pid_t start_on_fifo(const char *input, int64_t jobs, int *keep_open)
{
	struct common c = { .jobs = jobs, .limit = -1, .out = in_dir("out") };
	pid_t pid;

	unlink(in_dir("fifo"));
	unlink(in_dir("out"));
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	*keep_open = open(in_dir("fifo"), O_RDWR | O_CLOEXEC);
	assert_int_equal(write_full(*keep_open, input, strlen(input), NULL),
			 0);
	pid = fork();
	if (pid == 0)
		child(in_dir("fifo"), in_dir("stdout"), &c, NULL);
	return pid;
}

static void signals_end_it_in_order(void **state)
{
	static const int number[] = { SIGINT, SIGTERM };
	int i, fd, status;

	(void)state;
	for (i = 0; i < 4; i++) {
		pid_t pid = start_on_fifo(C ",\"i\":1}\n" C ",\"wait\":true}\n"
					  C ",\"i\":3}\n", i < 2 ? 1 : 3, &fd);

		usleep(300000);
		kill(pid, number[i % 2]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(WEXITSTATUS(status), 128 + number[i % 2]);
		assert_file("out", i < 2 ? C ",\"i\":1,\"seen\":1}\n" :
			    C ",\"i\":1,\"seen\":1}\n"
			    C ",\"i\":3,\"seen\":1}\n");
		close(fd);
	}
}

static int setup(void **state)
{
	(void)state;
	return make_temp_dir("stage_test", dir, sizeof dir, NULL);
}

static int teardown(void **state)
{
	(void)state;
	return remove_tree(dir, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_in_one_out),
		cmocka_unit_test(exit_codes_have_their_order),
		cmocka_unit_test(order_is_kept_whatever_the_pace),
		cmocka_unit_test(long_lines_are_answered),
		cmocka_unit_test(operands_are_worked_on_in_turn),
		cmocka_unit_test(writing_fails_loudly),
		cmocka_unit_test(a_reader_may_leave),
		cmocka_unit_test(signals_end_it_in_order),
	};

	return cmocka_run_group_tests_name(__FILE__, tests, setup, teardown);
}
