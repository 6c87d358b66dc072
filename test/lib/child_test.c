/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/base: children are reaped, bounded and take their group with them.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <sys/wait.h>

#include "base/child.h"
#include "base/io.h"
#include "base/sig.h"

/* Runs a shell script; output of both streams goes to s. */
static struct child_result sh(const char *script, struct str *s,
			      struct child_opts o)
{
	const char *argv[] = { "sh", "-c", script, NULL };
	struct child_result r;
	struct err e = ERR_INIT;

	o.argv = argv;
	o.out = o.errout = s;
	assert_int_equal(child_run(&o, &r, &e), 0);
	return r;
}

static struct child_opts plain(void)
{
	return (struct child_opts){ .deadline = deadline_in(60) };
}

static void output_and_status_come_back(void **state)
{
	struct str s = STR_INIT;
	struct child_opts o = plain();
	struct child_result r;

	(void)state;
	o.in = "from stdin\n";
	o.inlen = 11;
	o.dir = "/";
	r = sh("cat; pwd; echo err >&2; exit 3", &s, o);
	assert_int_equal(r.how, CHILD_EXITED);
	assert_int_equal(r.code, 3);
	assert_string_equal(s.buf, "from stdin\n/\nerr\n");
	str_reset(&s);
	r = sh("kill -SEGV $$", &s, plain());
	assert_int_equal(r.how, CHILD_SIGNALED);
	assert_int_equal(r.code, SIGSEGV);
	str_release(&s);
}

static void a_child_that_cannot_start_says_why(void **state)
{
	const char *argv[] = { "/nonexistent/prog", NULL };
	struct child_opts o = { .argv = argv };
	struct child_result r;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(child_run(&o, &r, &e), -1);
	assert_int_equal(e.code, CA_UNAVAILABLE);
	assert_non_null(strstr(e.msg, "No such file"));
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static void deadlines_kill_the_whole_group(void **state)
{
	struct str s = STR_INIT;
	struct child_opts o = { .deadline = deadline_in(0.3) };
	struct child_result r = sh("sleep 99 & echo $!; wait", &s, o);
	pid_t grandchild = (pid_t)atoi(s.buf);
	int i;

	(void)state;
	assert_int_equal(r.how, CHILD_TIMEOUT);
	assert_true(grandchild > 1);
	/* It is reaped by init; wait until it is gone or a zombie. */
	for (i = 0; i < 500; i++) {
		char path[64], state_of = 0;
		FILE *f;

		snprintf(path, sizeof path, "/proc/%d/stat", (int)grandchild);
		f = fopen(path, "r");
		if (!f)
			break;
		if (fscanf(f, "%*d %*s %c", &state_of) != 1)
			state_of = 'Z';
		fclose(f);
		if (state_of == 'Z')
			break;
		usleep(10000);
	}
	assert_true(i < 500);
	str_release(&s);
}

/* A grandchild that keeps the pipes open does not hold us up. */
static void the_leaders_end_is_the_end(void **state)
{
	struct str s = STR_INIT;
	struct child_result r = sh("setsid sleep 5 & echo done", &s, plain());

	(void)state;
	assert_int_equal(r.how, CHILD_EXITED);
	assert_string_equal(s.buf, "done\n");
	assert_true(r.wall_ns < 4000000000);
	str_release(&s);
}

static void output_is_bounded(void **state)
{
	struct str s = STR_INIT;
	struct child_opts o = plain();
	struct child_result r;

	(void)state;
	o.outcap = 1000;
	r = sh("yes", &s, o);
	assert_int_equal(r.how, CHILD_OUTPUT);
	assert_int_equal(s.len, 1000);
	str_reset(&s);
	r = sh("head -c 1000 /dev/zero", &s, o);
	assert_int_equal(r.how, CHILD_EXITED);
	assert_int_equal(s.len, 1000);
	str_release(&s);
}

static void only_named_descriptors_pass(void **state)
{
	struct str s = STR_INIT;
	struct child_opts o = plain();
	/* The shell's own numbers are low. */
	int a = fcntl(0, F_DUPFD, 71), b = fcntl(0, F_DUPFD, 81);
	char want[64];

	(void)state;
	assert_true(a > 0 && b > 0);
	o.keep = &b;
	o.nkeep = 1;
	fcntl(b, F_SETFD, FD_CLOEXEC);
	sh("echo; for f in /proc/$$/fd/*; do echo ${f##*/}; done", &s, o);
	snprintf(want, sizeof want, "\n%d\n", b);
	assert_non_null(strstr(s.buf, want));
	snprintf(want, sizeof want, "\n%d\n", a);
	assert_null(strstr(s.buf, want));
	assert_int_equal(fcntl(b, F_GETFD), FD_CLOEXEC);
	close(a);
	close(b);
	str_release(&s);
}

static void signals_are_as_new(void **state)
{
	struct str s = STR_INIT;
	void (*old)(int) = signal(SIGPIPE, SIG_IGN);

	(void)state;
	sh("sed -n 's/^SigIgn:.//p' /proc/self/status", &s, plain());
	signal(SIGPIPE, old);
	assert_int_equal(strtoull(s.buf, NULL, 16) >> (SIGPIPE - 1) & 1, 0);
	str_release(&s);
}

static void started_children_are_finished(void **state)
{
	const char *quick[] = { "true", NULL }, *slow[] = { "sleep", "99",
							    NULL };
	struct child_opts o = { .argv = quick };
	struct err e = ERR_INIT;
	int status;
	pid_t pid = child_start(&o, &e);

	(void)state;
	assert_true(pid > 0);
	assert_int_equal(child_finish(pid, deadline_in(30), &status), 0);
	assert_int_equal(status, 0);
	o.argv = slow;
	pid = child_start(&o, &e);
	assert_true(pid > 0);
	assert_int_equal(child_finish(pid, deadline_in(0.05), &status), 1);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* Last: the caught signal stays caught. */
/* What comes to a child before it is ready is its own, and not lost. */
static void a_signal_waits_for_a_forked_child(void **state)
{
	struct err e = ERR_INIT;
	struct pollfd p;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(sig_catch(&e), 0);
	pid = sig_fork();
	if (!pid) {
		kill(getpid(), SIGTERM);
		if (sig_caught() || sig_forked(NULL))
			_exit(1);
		_exit(sig_caught() != SIGTERM);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(sig_caught(), 0);
	p = (struct pollfd){ sig_fd(), POLLIN, 0 };
	assert_int_equal(poll(&p, 1, 0), 0);
}

static void a_signal_ends_the_wait(void **state)
{
	struct str s = STR_INIT;
	struct err e = ERR_INIT;
	struct child_result r;
	char script[64];

	(void)state;
	assert_int_equal(sig_catch(&e), 0);
	snprintf(script, sizeof script, "kill -TERM %d; sleep 99",
		 (int)getpid());
	r = sh(script, &s, plain());
	assert_int_equal(r.how, CHILD_INTERRUPTED);
	assert_int_equal(sig_caught(), SIGTERM);
	str_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(output_and_status_come_back),
		cmocka_unit_test(a_child_that_cannot_start_says_why),
		cmocka_unit_test(deadlines_kill_the_whole_group),
		cmocka_unit_test(the_leaders_end_is_the_end),
		cmocka_unit_test(output_is_bounded),
		cmocka_unit_test(only_named_descriptors_pass),
		cmocka_unit_test(signals_are_as_new),
		cmocka_unit_test(started_children_are_finished),
		cmocka_unit_test(a_signal_waits_for_a_forked_child),
		cmocka_unit_test(a_signal_ends_the_wait),
	};

	return RUN_TESTS(tests);
}
