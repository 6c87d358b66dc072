/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that watch each other, where it matters which of them is at fault.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "gpu/comm.h"

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
}

/* Rank 1, on a device that waits in the first operation of all ranks. */
static pid_t start_waiter(struct comm *c)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	comm_become(c, 1);
	for (uint64_t n = comm_meet(c);; nap())
		comm_meeting(c, n);
}

/* As one that waits for rank 1 does, for a while. */
static int watch(struct comm *c, double seconds, struct err *e)
{
	int64_t end = deadline_in(seconds);

	while (now_ns() < end) {
		if (comm_check(c, COMM_WAITING, e))
			return -1;
		nap();
	}
	return 0;
}

static struct comm *with_waiter(const char *patience, pid_t *pid)
{
	struct err e = ERR_INIT;
	struct comm *c;

	setenv("CA_RANK_PATIENCE", patience, 1);
	c = comm_new(2, &e);
	assert_non_null(c);
	*pid = start_waiter(c);
	assert_true(*pid > 0);
	comm_born(c, 1, *pid);
	comm_strict(c);
	return c;
}

static void end_waiter(struct comm *c, pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	comm_free(c);
}

/* While another has not come, waiting for it is no hang; once all are there, it
 * is. */
static void waiting_for_another_is_no_hang(void **state)
{
	struct err e = ERR_INIT;
	struct comm *c;
	pid_t pid;

	(void)state;
	/* On a busy machine it may be long before the other has its turn. */
	c = with_waiter("4", &pid);
	assert_int_equal(watch(c, 4.5, &e), 0);
	end_waiter(c, pid);
	c = with_waiter("0.1", &pid);
	comm_meeting(c, comm_meet(c));
	assert_int_equal(watch(c, 60, &e), -1);
	assert_int_equal(e.code, CA_UNAVAILABLE);
	assert_non_null(strstr(e.msg, "rank 1: it hangs"));
	assert_int_equal(comm_failed(c), 1);
	end_waiter(c, pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waiting_for_another_is_no_hang),
	};

	return RUN_TESTS(tests);
}
