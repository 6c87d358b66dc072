/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "rl/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

#define WINDOW	  ((size_t)1 << 18)	/* numbers summed at once */
#define WAIT_S	  600
#define LEAVE_S	  60

struct shared {
	pthread_mutex_t lock;
	pthread_cond_t all_here;
	int here;			/* ranks that wait */
	unsigned round;
};

struct ranks {
	int n, mine;
	pid_t pid[RANKS_MAX];		/* rank 0: of the others; 0: reaped */
	int in[RANKS_MAX];		/* rank 0: their input */
	struct shared *s;
	float *window;			/* n + 1 of them; the last: sums */
	size_t bytes;
};

static size_t shared_size(void)
{
	return (sizeof(struct shared) + 63) / 64 * 64;
}

static int init_shared(struct shared *s, struct err *e)
{
	pthread_mutexattr_t m;
	pthread_condattr_t c;
	int bad;

	pthread_mutexattr_init(&m);
	pthread_condattr_init(&c);
	bad = pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED) ||
	      pthread_mutexattr_setrobust(&m, PTHREAD_MUTEX_ROBUST) ||
	      pthread_condattr_setpshared(&c, PTHREAD_PROCESS_SHARED) ||
	      pthread_condattr_setclock(&c, CLOCK_MONOTONIC) ||
	      pthread_mutex_init(&s->lock, &m) ||
	      pthread_cond_init(&s->all_here, &c);
	pthread_mutexattr_destroy(&m);
	pthread_condattr_destroy(&c);
	return bad ? err_set(e, CA_SOFTWARE, "cannot make a barrier") : 0;
}

/* What a forked rank is. */
static int become(struct ranks *r, int rank, int in, pid_t parent,
		  struct err *e)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	r->mine = rank;
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
	return 0;
}

static void unmap(struct ranks *r)
{
	if (r->s)
		munmap(r->s, r->bytes);
	free(r);
}

int ranks_start(struct ranks **out, int n, struct err *e)
{
	struct ranks *r;
	void *p;
	int rc = 0;

	*out = NULL;
	if (n < 2)
		return 0;
	r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, CA_SOFTWARE, "no memory");
	r->n = n;
	r->bytes = shared_size() + ((size_t)n + 1) * WINDOW * sizeof(float);
	p = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		free(r);
		return err_sys(e, CA_UNAVAILABLE, "cannot share memory");
	}
	r->s = p;
	r->window = (float *)(void *)((char *)p + shared_size());
	if (init_shared(r->s, e)) {
		unmap(r);
		return -1;
	}
	*out = r;
	for (int i = 1; i < n && !rc; i++)
		rc = start_one(r, i, e);
	return rc < 0 ? -1 : 0;
}

int ranks_mine(const struct ranks *r)
{
	return r ? r->mine : 0;
}

int ranks_count(const struct ranks *r)
{
	return r ? r->n : 1;
}

int ranks_tell(struct ranks *r, const char *line, size_t len, struct err *e)
{
	if (!r || r->mine)
		return 0;
	for (int i = 1; i < r->n; i++)
		if (write_full(r->in[i], line, len, e) ||
		    write_full(r->in[i], "\n", 1, e))
			return err_wrap(e, "rank %d", i);
	return 0;
}

void ranks_end(struct ranks *r)
{
	for (int i = 1; r && i < r->n && !r->mine; i++) {
		if (r->in[i])
			close(r->in[i]);
		r->in[i] = 0;
	}
}

static int report_gone(int rank, int status, struct err *e)
{
	return err_set(e, CA_UNAVAILABLE, "rank %d ended %s %d", rank,
		       WIFSIGNALED(status) ? "by signal" : "with status",
		       WIFSIGNALED(status) ? WTERMSIG(status) :
		       WEXITSTATUS(status));
}

/* Rank 0: whether all others are alive.  They die with it. */
static int check_alive(struct ranks *r, struct err *e)
{
	int status;

	for (int i = 1; i < r->n && !r->mine; i++)
		if (r->pid[i] && waitpid(r->pid[i], &status, WNOHANG) ==
		    r->pid[i]) {
			r->pid[i] = 0;
			return report_gone(i, status, e);
		}
	return 0;
}

/* Waits until all ranks are here. */
static int barrier(struct ranks *r, struct err *e)
{
	int64_t end = deadline_in(WAIT_S);
	struct shared *s = r->s;
	unsigned round;
	int rc = 0;

	/* One that dies inside leaves it locked, and that is reported. */
	if (pthread_mutex_lock(&s->lock))
		return err_set(e, CA_UNAVAILABLE, "a rank is gone");
	round = s->round;
	if (++s->here == r->n) {
		s->here = 0;
		s->round++;
		pthread_cond_broadcast(&s->all_here);
	}
	while (round == s->round && !rc) {
		struct timespec t;

		clock_gettime(CLOCK_MONOTONIC, &t);
		t.tv_sec++;
		if (pthread_cond_timedwait(&s->all_here, &s->lock, &t) !=
		    ETIMEDOUT)
			continue;
		rc = check_alive(r, e);
		if (!rc && now_ns() > end)
			rc = err_set(e, CA_UNAVAILABLE, "a rank did not come "
				     "within %d s", WAIT_S);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* Every rank sums its part of the window, in the order of the ranks. */
static void sum_part(struct ranks *r, size_t n)
{
	size_t from = n * (size_t)r->mine / (size_t)r->n;
	size_t to = n * ((size_t)r->mine + 1) / (size_t)r->n;
	float *sum = r->window + (size_t)r->n * WINDOW;

	memcpy(sum + from, r->window + from, (to - from) * sizeof *sum);
	for (int k = 1; k < r->n; k++) {
		const float *x = r->window + (size_t)k * WINDOW;

		for (size_t i = from; i < to; i++)
			sum[i] += x[i];
	}
}

int ranks_sum(struct ranks *r, float *x, size_t n, struct err *e)
{
	for (size_t at = 0; r && at < n; at += WINDOW) {
		size_t k = n - at < WINDOW ? n - at : WINDOW;

		memcpy(r->window + (size_t)r->mine * WINDOW, x + at,
		       k * sizeof *x);
		if (barrier(r, e))
			return -1;
		sum_part(r, k);
		if (barrier(r, e))
			return -1;
		memcpy(x + at, r->window + (size_t)r->n * WINDOW,
		       k * sizeof *x);
	}
	return 0;
}

int ranks_any(struct ranks *r, int *flag, struct err *e)
{
	float x = *flag != 0;

	if (ranks_sum(r, &x, 1, e))
		return -1;
	*flag = x > 0;
	return 0;
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
	return status ? report_gone(rank, status, e) : 0;
}

int ranks_finish(struct ranks *r, struct err *e)
{
	int rc = 0;

	if (!r)
		return 0;
	ranks_end(r);
	for (int i = 1; i < r->n && !r->mine; i++)
		if (r->pid[i] && reap(r, i, rc ? NULL : e))
			rc = -1;
	unmap(r);
	return rc;
}
