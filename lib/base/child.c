/* SPDX-License-Identifier: Apache-2.0
 *
 * Child processes.  Between fork and exec only async-signal-safe calls are
 * made, since the caller may have threads; what went wrong there comes back
 * through a pipe that exec closes.
 */
#define _GNU_SOURCE
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/sig.h"

#define KEEP_MAX 64
#define FORK_SECONDS 3

/* What the child side needs, made ready before the fork. */
struct plan {
	const struct child_opts *o;
	int std[3];
	int report;		/* errno goes here */
	pid_t parent;
	int keep[KEEP_MAX];	/* ascending */
	size_t nkeep;
};

static int int_order(const void *a, const void *b)
{
	return *(const int *)a < *(const int *)b ? -1 :
	       *(const int *)a > *(const int *)b;
}

static int plan_keep(struct plan *p, struct err *e)
{
	size_t i;

	if (p->o->nkeep > KEEP_MAX)
		return err_set(e, CA_SOFTWARE, "too many descriptors");
	for (i = 0; i < p->o->nkeep; i++)
		if (p->o->keep[i] > 2)
			p->keep[p->nkeep++] = p->o->keep[i];
	qsort(p->keep, p->nkeep, sizeof *p->keep, int_order);
	return 0;
}

/* Closes all but 0, 1, 2, the kept ones and the report pipe (close on exec);
 * kept ones lose their close-on-exec flag. */
static void child_close(const struct plan *p)
{
	unsigned next = 3;
	size_t i;

	for (i = 0; i < p->nkeep; i++) {
		unsigned fd = (unsigned)p->keep[i];

		if (fd > next)
			close_range(next, fd - 1, CLOSE_RANGE_CLOEXEC);
		fcntl(p->keep[i], F_SETFD, 0);
		next = fd + 1;
	}
	close_range(next, ~0u, CLOSE_RANGE_CLOEXEC);
}

/* The three standard descriptors may be among 0..2 themselves, so they move
 * out of the way first. */
static int child_std(const struct plan *p)
{
	int i, high[3];

	for (i = 0; i < 3; i++) {
		high[i] = fcntl(p->std[i], F_DUPFD_CLOEXEC, 3);
		if (high[i] < 0)
			return -1;
	}
	for (i = 0; i < 3; i++)
		if (dup2(high[i], i) < 0)
			return -1;
	return 0;
}

static void child_side(const struct plan *p) CA_NORETURN;
static void child_side(const struct plan *p)
{
	struct sigaction dfl, old;
	sigset_t none;
	int error;

	setpgid(0, 0);
	memset(&dfl, 0, sizeof dfl);
	dfl.sa_handler = SIG_DFL;
	sigaction(SIGPIPE, &dfl, NULL);
	sigaction(SIGINT, &dfl, NULL);
	sigaction(SIGTERM, &dfl, NULL);
	if (!sigaction(SIGHUP, NULL, &old) && old.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &dfl, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != p->parent)
		_exit(127);
	if (child_std(p) == 0 && (!p->o->dir || chdir(p->o->dir) == 0)) {
		child_close(p);
		if (!p->o->before_exec ||
		    p->o->before_exec(p->o->before_arg) == 0)
			execvpe(p->o->argv[0], (char *const *)p->o->argv,
				p->o->env ? (char *const *)p->o->env :
					    environ);
	}
	error = errno;
	while (write(p->report, &error, sizeof error) < 0 && errno == EINTR)
		;
	_exit(127);
}

pid_t child_fork(void)
{
	const struct timespec nap = { 0, 100000000 };
	int64_t end = deadline_in(FORK_SECONDS);
	pid_t pid = sig_fork();

	while (pid < 0 && errno == EAGAIN && now_ns() < end && !sig_caught()) {
		nanosleep(&nap, NULL);
		pid = sig_fork();
	}
	return pid;
}

/* Forks and waits until exec happened or failed. */
static pid_t launch(struct plan *p, struct err *e)
{
	int fd[2], error = 0;
	ssize_t n;
	pid_t pid;

	if (plan_keep(p, e))
		return -1;
	if (pipe2(fd, O_CLOEXEC))
		return err_sys(e, CA_SOFTWARE, "cannot make a pipe");
	p->report = fd[1];
	p->parent = getpid();
	pid = child_fork();
	if (pid == 0)
		child_side(p);
	close(fd[1]);
	if (pid < 0) {
		close(fd[0]);
		return err_sys(e, CA_SOFTWARE, "cannot fork");
	}
	setpgid(pid, pid);	/* both sides, so that neither is too late */
	n = read_full(fd[0], &error, sizeof error, NULL);
	close(fd[0]);
	if (n == 0)
		return pid;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	errno = n == sizeof error ? error : EIO;
	return err_sys(e, CA_UNAVAILABLE, "cannot run '%s'", p->o->argv[0]);
}

/* A running child and the streams that are read from it. */
struct run {
	const struct child_opts *o;
	struct child_result *r;
	pid_t pid;
	int pidfd;		/* -1: not supported, poll by time */
	struct stream {
		int fd;		/* -1: closed or none */
		struct str *to;
		size_t start;
	} s[2];
};

/* Reads what is there.  1 when the stream has written too much. */
static int drain(const struct run *c, struct stream *s)
{
	size_t cap = c->o->outcap;
	char buf[16384];
	ssize_t n;

	while (s->fd >= 0) {
		n = read(s->fd, buf, sizeof buf);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0) {
			close(s->fd);
			s->fd = -1;
			return 0;
		}
		if (cap && s->to->len - s->start + (size_t)n > cap) {
			str_add(s->to, buf, cap - (s->to->len - s->start));
			return 1;
		}
		if (str_add(s->to, buf, (size_t)n))
			return 1;
	}
	return 0;
}

static int poll_ms(const struct run *c)
{
	int ms = c->o->deadline ? deadline_ms(c->o->deadline) : -1;

	if (c->pidfd < 0 && (ms < 0 || ms > 10))
		ms = 10;
	return ms;
}

/* Whether the leader is a zombie; it stays one, so that its number and that
 * of its group cannot be taken by others before they are killed. */
static int has_ended(pid_t pid)
{
	siginfo_t si;

	memset(&si, 0, sizeof si);
	return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) ||
	       si.si_pid == pid;
}

/* Until the leader ended or must be killed; says which. */
static enum child_end supervise(struct run *c)
{
	for (;;) {
		struct pollfd p[4] = {
			{ c->s[0].fd, POLLIN, 0 }, { c->s[1].fd, POLLIN, 0 },
			{ c->pidfd, POLLIN, 0 }, { sig_fd(), POLLIN, 0 },
		};

		if (poll(p, 4, poll_ms(c)) < 0 && errno != EINTR)
			return CHILD_TIMEOUT;
		if (drain(c, &c->s[0]) || drain(c, &c->s[1]))
			return CHILD_OUTPUT;
		if (has_ended(c->pid))
			return CHILD_EXITED;
		if (sig_caught())
			return CHILD_INTERRUPTED;
		if (c->o->deadline && now_ns() >= c->o->deadline)
			return CHILD_TIMEOUT;
	}
}

/* Kills what is left of the group, takes the rest of the output and the
 * leader's status. */
static void conclude(struct run *c, enum child_end how)
{
	struct rusage ru;
	int status = 0, i;

	kill(-c->pid, SIGKILL);
	while (wait4(c->pid, &status, 0, &ru) < 0 && errno == EINTR)
		;
	for (i = 0; i < 2; i++)
		if (drain(c, &c->s[i]) && how == CHILD_EXITED)
			how = CHILD_OUTPUT;
	if (how == CHILD_EXITED && WIFSIGNALED(status))
		how = CHILD_SIGNALED;
	c->r->how = how;
	c->r->code = WIFSIGNALED(status) ? WTERMSIG(status) :
					   WEXITSTATUS(status);
	c->r->maxrss_kib = ru.ru_maxrss;
}

static int dup_of(int fd, struct err *e)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return copy >= 0 ? copy : err_sys(e, CA_SOFTWARE,
					  "cannot pass descriptor %d", fd);
}

/* stdin as a memory file: no writing, so no deadlock and no SIGPIPE. */
static int open_stdin(const struct child_opts *o, struct err *e)
{
	int fd;

	if (o->pass)
		return dup_of(STDIN_FILENO, e);
	if (!o->in) {
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return fd >= 0 ? fd : err_sys(e, CA_SOFTWARE,
					      "cannot open '/dev/null'");
	}
	fd = memfd_create("stdin", MFD_CLOEXEC);
	if (fd < 0)
		return err_sys(e, CA_SOFTWARE, "cannot make a memory file");
	if (write_full(fd, o->in, o->inlen, e) || lseek(fd, 0, SEEK_SET)) {
		close(fd);
		return err_wrap(e, "input of '%s'", o->argv[0]);
	}
	return fd;
}

/* The child's end of an output stream; ours goes to s. */
static int open_stream(struct stream *s, struct str *to, struct err *e)
{
	int fd[2];

	s->fd = -1;
	s->to = to;
	if (!to) {
		fd[1] = open("/dev/null", O_WRONLY | O_CLOEXEC);
		return fd[1] >= 0 ? fd[1] : err_sys(e, CA_SOFTWARE,
						    "cannot open '/dev/null'");
	}
	s->start = to->len;
	if (pipe2(fd, O_CLOEXEC))
		return err_sys(e, CA_SOFTWARE, "cannot make a pipe");
	fcntl(fd[0], F_SETFL, O_NONBLOCK);
	s->fd = fd[0];
	return fd[1];
}

int child_run(const struct child_opts *o, struct child_result *r,
	      struct err *e)
{
	struct plan p = { o, { -1, -1, -1 }, -1, 0, { 0 }, 0 };
	struct run c = { o, r, -1, -1, { { -1, NULL, 0 }, { -1, NULL, 0 } } };
	int64_t start = now_ns();
	int i, same = o->out && o->out == o->errout, rc = -1;

	memset(r, 0, sizeof *r);
	p.std[0] = open_stdin(o, e);
	if (p.std[0] < 0)
		goto out;
	p.std[1] = o->pass ? dup_of(STDOUT_FILENO, e) :
			     open_stream(&c.s[0], o->out, e);
	if (p.std[1] < 0)
		goto out;
	p.std[2] = same ? p.std[1] : o->pass ? dup_of(STDERR_FILENO, e) :
		   open_stream(&c.s[1], o->errout, e);
	if (p.std[2] < 0)
		goto out;
	c.pid = launch(&p, e);
	if (c.pid < 0)
		goto out;
	c.pidfd = (int)syscall(SYS_pidfd_open, c.pid, 0);
	/* Our copies must go, or the pipes would never end. */
	for (i = 0; i < 3; i++)
		if (i < 2 || !same)
			close(p.std[i]);
	p.std[0] = p.std[1] = p.std[2] = -1;
	conclude(&c, supervise(&c));
	r->wall_ns = now_ns() - start;
	rc = 0;
out:
	for (i = 0; i < 3; i++)
		if (p.std[i] >= 0 && (i < 2 || !same))
			close(p.std[i]);
	for (i = 0; i < 2; i++)
		if (c.s[i].fd >= 0)
			close(c.s[i].fd);
	if (c.pidfd >= 0)
		close(c.pidfd);
	return rc;
}

pid_t child_start(const struct child_opts *o, struct err *e)
{
	struct plan p = { o, { -1, STDERR_FILENO, STDERR_FILENO }, -1, 0,
			  { 0 }, 0 };
	pid_t pid;

	p.std[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (p.std[0] < 0)
		return err_sys(e, CA_SOFTWARE, "cannot open '/dev/null'");
	pid = launch(&p, e);
	close(p.std[0]);
	return pid;
}

pid_t child_coprocess(const struct child_opts *o, int *to, int *from,
		      struct err *e)
{
	struct plan p = { o, { -1, -1, STDERR_FILENO }, -1, 0, { 0 }, 0 };
	int in[2], out[2];
	pid_t pid;

	if (pipe2(in, O_CLOEXEC))
		return err_sys(e, CA_SOFTWARE, "cannot make a pipe");
	if (pipe2(out, O_CLOEXEC)) {
		close(in[0]);
		close(in[1]);
		return err_sys(e, CA_SOFTWARE, "cannot make a pipe");
	}
	p.std[0] = in[0];
	p.std[1] = out[1];
	pid = launch(&p, e);
	close(in[0]);
	close(out[1]);
	if (pid < 0) {
		close(in[1]);
		close(out[0]);
		return -1;
	}
	*to = in[1];
	*from = out[0];
	return pid;
}

int child_finish(pid_t pid, int64_t deadline, int *status)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), killed = 0;
	struct pollfd p = { pidfd, POLLIN, 0 };

	while (!has_ended(pid)) {
		int ms = deadline_ms(deadline);

		if (ms == 0) {
			killed = 1;
			break;
		}
		poll(&p, 1, pidfd < 0 && ms > 10 ? 10 : ms);
	}
	kill(-pid, SIGKILL);
	while (waitpid(pid, status, 0) < 0 && errno == EINTR)
		;
	if (pidfd >= 0)
		close(pidfd);
	return killed;
}
