/* SPDX-License-Identifier: Apache-2.0
 *
 * The handler notes the number and fills a pipe that nobody empties.
 */
#define _GNU_SOURCE
#include "base/sig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

#define LOOK_NS 100000000

/* Atomic: any thread may run the handler, and others ask. */
static atomic_int caught;
static _Atomic int64_t caught_at;
static int pipe_fd[2] = { -1, -1 };

static void on_signal(int signo)
{
	int saved = errno;

	if (!caught) {
		caught = signo;
		caught_at = now_ns();
		/* A full pipe is as readable as one more byte. */
		if (write(pipe_fd[1], "", 1) < 0)
			errno = 0;
	} else if (now_ns() - caught_at > 1000000000) {
		/* timeout(1) sends to the process and again to its group, so
		 * only a later one is a second request. */
		signal(signo, SIG_DFL);
		raise(signo);
	}
	errno = saved;
}

static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };

int sig_catch(struct err *e)
{
	struct sigaction sa, old;
	size_t i;

	if (pipe_fd[0] >= 0)
		return 0;
	if (pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK))
		return err_sys(e, CA_SOFTWARE, "cannot make a pipe");
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_signal;
	sigemptyset(&sa.sa_mask);
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		sigaction(numbers[i], NULL, &old);
		if (old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &sa, NULL);
	}
	return 0;
}

static sigset_t ours(void)
{
	sigset_t set;
	size_t i;

	sigemptyset(&set);
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&set, numbers[i]);
	return set;
}

pid_t sig_fork(void)
{
	sigset_t set = ours(), old;
	pid_t pid;
	int saved;

	pthread_sigmask(SIG_BLOCK, &set, &old);
	pid = fork();
	saved = errno;
	if (pid)
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = saved;
	return pid;
}

int sig_forked(struct err *e)
{
	sigset_t set = ours();

	if (pipe_fd[0] >= 0) {
		close(pipe_fd[0]);
		close(pipe_fd[1]);
	}
	pipe_fd[0] = pipe_fd[1] = -1;
	caught = 0;
	if (sig_catch(e))
		return -1;
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	return 0;
}

int sig_caught(void)
{
	return caught;
}

int sig_fd(void)
{
	return pipe_fd[0];
}

void sig_wait(pthread_cond_t *changed, pthread_mutex_t *lock)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_nsec += LOOK_NS;
	at.tv_sec += at.tv_nsec / 1000000000;
	at.tv_nsec %= 1000000000;
	pthread_cond_timedwait(changed, lock, &at);
}
