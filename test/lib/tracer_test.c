/* SPDX-License-Identifier: Apache-2.0
 *
 * Stopping real processes: threads, timers that wake themselves, threads
 * made meanwhile, processes that end.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "judge/trace.h"

#define WORDS 64

static volatile uint64_t *shared;
static int sigfd;

static int setup(void **state)
{
	sigset_t chld;

	(void)state;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	return shared == MAP_FAILED || sigfd < 0;
}

static void nap(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

static void *count(void *p)
{
	volatile uint64_t *word = p;

	for (;;)
		++*word;
	return NULL;
}

static void wake_myself(int sig)
{
	(void)sig;
	kill(getpid(), SIGCONT);
}

/* Three counting threads, and a timer that sends SIGCONT all the time. */
static void stubborn(void)
{
	struct itimerval it = { { 0, 500 }, { 0, 500 } };
	pthread_t th;

	signal(SIGALRM, wake_myself);
	setitimer(ITIMER_REAL, &it, NULL);
	for (int i = 1; i < 3; i++)
		pthread_create(&th, NULL, count, (void *)&shared[i]);
	count((void *)&shared[0]);
}

/* Makes threads without end; each counts once and goes. */
static void *blink(void *p)
{
	++*(volatile uint64_t *)p;
	return NULL;
}

static void breeder(void)
{
	pthread_t th;

	for (;;)
		if (!pthread_create(&th, NULL, blink, (void *)&shared[0]))
			pthread_join(th, NULL);
}

static pid_t begin(void (*body)(void))
{
	pid_t pid;

	for (int i = 0; i < WORDS; i++)
		shared[i] = 0;
	pid = fork();
	if (!pid) {
		body();
		_exit(0);
	}
	while (!shared[0])
		nap(1);
	return pid;
}

static void stays_still(void (*body)(void), int times)
{
	struct err e = ERR_INIT;
	pid_t pid = begin(body);
	struct trace *t = trace_seize(pid, sigfd, &e);
	int64_t end = deadline_in(60), when;

	assert_non_null(t);
	for (int k = 0; k < times; k++) {
		uint64_t before[3];

		assert_int_equal(trace_stop(t, deadline_in(5), &when), 0);
		for (int i = 0; i < 3; i++)
			before[i] = shared[i];
		nap(3);
		for (int i = 0; i < 3; i++)
			assert_int_equal(before[i], shared[i]);
		trace_resume(t);
		/* The first thread may get nowhere for all its signals. */
		while (shared[0] + shared[1] == before[0] + before[1] &&
		       now_ns() < end) {
			nap(1);
			assert_int_equal(trace_serve(t), 0);
		}
		assert_true(shared[0] + shared[1] > before[0] + before[1]);
	}
	trace_kill(t);
	assert_int_equal(kill(pid, 0), -1);	/* reaped as well */
}

static void test_threads_and_timers(void **state)
{
	(void)state;
	stays_still(stubborn, 20);
}

static void test_threads_come_and_go(void **state)
{
	(void)state;
	stays_still(breeder, 20);
}

static void leaver(void)
{
	shared[0] = 1;
	nap(30);
	_exit(7);
}

static void test_end_is_seen(void **state)
{
	struct err e = ERR_INIT;
	pid_t pid = begin(leaver);
	struct trace *t = trace_seize(pid, sigfd, &e);
	int64_t end = deadline_in(10), when;

	(void)state;
	assert_non_null(t);
	while (!trace_serve(t) && now_ns() < end)
		nap(2);
	assert_true(WIFEXITED(trace_status(t)));
	assert_int_equal(WEXITSTATUS(trace_status(t)), 7);
	assert_int_equal(trace_stop(t, deadline_in(1), &when), 1);
	trace_kill(t);
}

/* Many threads that end in some order, the first of them too. */
static void crowd(void)
{
	pthread_t th;

	for (int i = 1; i < 24; i++)
		pthread_create(&th, NULL, count, (void *)&shared[i]);
	count((void *)&shared[0]);
}

/* Whenever somebody kills it, that is noticed at once: threads that have
 * ended are fetched, or their leader would never be reported. */
static void is_seen_killed(void (*body)(void), int times)
{
	struct err e = ERR_INIT;

	for (int k = 0; k < times; k++) {
		pid_t pid = begin(body);
		struct trace *t = trace_seize(pid, sigfd, &e);
		int64_t when;
		int rc;

		assert_non_null(t);
		kill(pid, SIGKILL);
		if (k % 3)
			sched_yield();
		if (k % 2)
			nap(1);
		do
			rc = trace_stop(t, deadline_in(5), &when);
		while (rc == 0 && trace_status(t) == -1 && !kill(pid, 0) &&
		       (trace_resume(t), nap(1), 1));
		assert_int_not_equal(rc, -1);
		assert_int_equal(trace_kill(t), SIGKILL);
		assert_int_equal(kill(pid, 0), -1);	/* reaped as well */
	}
}

static void test_a_kill_is_seen(void **state)
{
	(void)state;
	is_seen_killed(crowd, 12);
}

/* A thread that was being made just then is traced, and nobody was told. */
static void test_a_kill_in_birth_is_seen(void **state)
{
	(void)state;
	is_seen_killed(breeder, 100);
}

/* A thread that counts, and the first one in a wait from which only a kill
 * brings it back. */
static void in_vfork(void)
{
	pthread_t th;

	pthread_create(&th, NULL, count, (void *)&shared[1]);
	while (!shared[1])
		nap(1);
	if (!vfork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		shared[0] = 1;
		for (;;)
			pause();
	}
}

/* When some stand still already, and others do not yet. */
static void test_a_kill_in_a_stop_is_seen(void **state)
{
	struct err e = ERR_INIT;
	pid_t pid = begin(in_vfork), killer;
	struct trace *t = trace_seize(pid, sigfd, &e);
	int64_t when;

	(void)state;
	assert_non_null(t);
	killer = fork();
	if (!killer) {
		nap(100);
		kill(pid, SIGKILL);
		_exit(0);
	}
	assert_int_equal(trace_stop(t, deadline_in(20), &when), 1);
	assert_int_equal(trace_kill(t), SIGKILL);
	assert_int_equal(waitpid(killer, NULL, 0), killer);
}

static void test_no_such_process(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_null(trace_seize(0x7ffffffe, sigfd, &e));
	assert_int_equal(e.code, CA_UNAVAILABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_and_timers),
		cmocka_unit_test(test_threads_come_and_go),
		cmocka_unit_test(test_end_is_seen),
		cmocka_unit_test(test_a_kill_is_seen),
		cmocka_unit_test(test_a_kill_in_birth_is_seen),
		cmocka_unit_test(test_a_kill_in_a_stop_is_seen),
		cmocka_unit_test(test_no_such_process),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
