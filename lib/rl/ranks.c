/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "rl/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

#define LEAVE_S	  60

struct ranks {
	struct comm *comm;
	pid_t pid[COMM_MAX];		/* rank 0: of the others */
	int in[COMM_MAX];		/* rank 0: their input */
};

/* What a forked rank is. */
static int become(struct ranks *r, int rank, int in, pid_t parent,
		  struct err *e)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	comm_become(r->comm, rank);
	for (int i = 1; i < rank; i++)
		close(r->in[i]);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		return err_set(e, CA_SOFTWARE, "rank 0 is gone");
	if (null < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    dup2(in, STDIN_FILENO) < 0)
		return err_sys(e, CA_SOFTWARE, "cannot set up a rank");
	close(null);
	close(in);
	warn_quiet(1);
	return 0;
}

/* 1 in the new rank, 0 in rank 0. */
static int start_one(struct ranks *r, int rank, struct err *e)
{
	pid_t parent = getpid();
	int fd[2];

	if (pipe2(fd, O_CLOEXEC))
		return err_sys(e, CA_SOFTWARE, "cannot make a pipe");
	r->pid[rank] = fork();
	if (r->pid[rank] < 0) {
		close(fd[0]);
		close(fd[1]);
		r->pid[rank] = 0;
		return err_sys(e, CA_SOFTWARE, "cannot fork");
	}
	if (!r->pid[rank]) {
		close(fd[1]);
		return become(r, rank, fd[0], parent, e) ? -1 : 1;
	}
	close(fd[0]);
	r->in[rank] = fd[1];
	comm_born(r->comm, rank, r->pid[rank]);
	/* One that hangs is to be noticed. */
	if (fcntl(fd[1], F_SETFL, O_NONBLOCK))
		return err_sys(e, CA_SOFTWARE, "cannot set up a pipe");
	return 0;
}

int ranks_start(struct ranks **out, int n, struct err *e)
{
	struct ranks *r;
	int rc = 0;

	*out = NULL;
	if (n < 2)
		return 0;
	r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, CA_SOFTWARE, "no memory");
	r->comm = comm_new(n, e);
	if (!r->comm) {
		free(r);
		return -1;
	}
	*out = r;
	for (int i = 1; i < n && !rc; i++)
		rc = start_one(r, i, e);
	return rc < 0 ? -1 : 0;
}

struct comm *ranks_comm(const struct ranks *r)
{
	return r ? r->comm : NULL;
}

/* To a rank that reads when it gets round to it. */
static int feed(struct ranks *r, int rank, const char *p, size_t n,
		struct err *e)
{
	struct pollfd f = { .fd = r->in[rank], .events = POLLOUT };

	while (n) {
		ssize_t k = write(r->in[rank], p, n);

		if (k > 0) {
			p += k;
			n -= (size_t)k;
		} else if (k < 0 && errno == EAGAIN) {
			poll(&f, 1, 1000);
			if (comm_check(r->comm, COMM_FED, e))
				return -1;
		} else if (k < 0 && errno != EINTR) {
			return comm_seek(r->comm, e) ? -1 :
			       err_set(e, CA_UNAVAILABLE, "rank %d does not "
				       "read", rank);
		}
	}
	return 0;
}

int ranks_tell(struct ranks *r, const char *line, size_t len, struct err *e)
{
	for (int i = 1; r && !comm_mine(r->comm) && i < comm_count(r->comm);
	     i++)
		if (feed(r, i, line, len, e) || feed(r, i, "\n", 1, e))
			return -1;
	return 0;
}

void ranks_end(struct ranks *r)
{
	for (int i = 1; r && i < comm_count(r->comm); i++) {
		if (r->in[i] && !comm_mine(r->comm))
			close(r->in[i]);
		r->in[i] = 0;
	}
}

/* Waits for a rank that has no more input; one that stays is killed. */
static int reap(struct ranks *r, int rank, struct err *e)
{
	int64_t end = deadline_in(LEAVE_S);
	const struct timespec pause = { 0, 10000000 };
	int status = 0;
	pid_t got;

	while ((got = waitpid(r->pid[rank], &status, WNOHANG)) == 0 &&
	       now_ns() < end)
		nanosleep(&pause, NULL);
	if (!got) {
		kill(r->pid[rank], SIGKILL);
		waitpid(r->pid[rank], &status, 0);
	}
	/* One that comm_check has seen the end of failed there. */
	if (got < 0 || !status)
		return 0;
	return err_set(e, CA_UNAVAILABLE, "rank %d: it ended %s %d", rank,
		       WIFSIGNALED(status) ? "by signal" : "with status",
		       WIFSIGNALED(status) ? WTERMSIG(status) :
		       WEXITSTATUS(status));
}

int ranks_finish(struct ranks *r, int failed, struct err *e)
{
	int rc = 0;

	if (!r)
		return 0;
	ranks_end(r);
	for (int i = 1; i < comm_count(r->comm) && !comm_mine(r->comm); i++)
		if (r->pid[i] && failed)
			kill(r->pid[i], SIGKILL);
	for (int i = 1; i < comm_count(r->comm) && !comm_mine(r->comm); i++)
		if (r->pid[i] && reap(r, i, rc || failed ? NULL : e))
			rc = -1;
	comm_free(r->comm);
	free(r);
	return failed ? 0 : rc;
}
