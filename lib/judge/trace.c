/* SPDX-License-Identifier: Apache-2.0
 *
 * ptrace from outside: see trace.h.
 */
#define _GNU_SOURCE
#include "judge/trace.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/proc.h"

#define MAX_THREADS 4096
#define OPTIONS (PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | \
		 PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC)

struct thread {
	pid_t tid;
	int stopped;
	int dead;		/* a leader that ended before its threads */
	int sig;		/* to deliver at the next resume */
};

struct trace {
	pid_t pid;
	int sigfd;
	int status;		/* of pid, -1 while it lives */
	int fatal;		/* the signal it was killed for, 0 */
	struct thread *th;
	size_t n, alloc;
};

static struct thread *find(struct trace *t, pid_t tid)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->th[i].tid == tid)
			return &t->th[i];
	return NULL;
}

static struct thread *add(struct trace *t, pid_t tid)
{
	struct thread *th = find(t, tid);

	if (th)
		return th;
	if (t->n == t->alloc) {
		size_t alloc = t->alloc ? 2 * t->alloc : 16;
		struct thread *p;

		if (alloc > MAX_THREADS)
			return NULL;
		p = realloc(t->th, alloc * sizeof(*p));
		if (!p)
			return NULL;
		t->th = p;
		t->alloc = alloc;
	}
	th = &t->th[t->n++];
	memset(th, 0, sizeof(*th));
	th->tid = tid;
	return th;
}

static void drop(struct trace *t, struct thread *th)
{
	*th = t->th[--t->n];
}

/* Whether the kernel shows the task as a zombie (an ended group leader). */
static int is_zombie(pid_t pid, pid_t tid)
{
	char text[512];
	const char *p = proc_stat(text, sizeof(text), "/proc/%d/task/%d/stat",
				  (int)pid, (int)tid);

	return !p || *p == 'Z' || *p == 'X';
}

/*
 * Adds tasks that are not known yet: seizes those that escaped the clone
 * option (CLONE_UNTRACED).  Returns how many were new, -1 if there are too
 * many or the process is gone.
 */
static int list_tasks(struct trace *t)
{
	char path[64];
	struct dirent *de;
	int fresh = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)t->pid);
	d = opendir(path);
	if (!d)
		return -1;
	while ((de = readdir(d))) {
		pid_t tid = (pid_t)atoi(de->d_name);

		if (tid <= 0 || find(t, tid))
			continue;
		/* EPERM: ours already, by the clone option. */
		if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)OPTIONS) < 0 &&
		    errno != EPERM)
			continue;
		if (!add(t, tid)) {
			fresh = -1;
			break;
		}
		fresh++;
	}
	closedir(d);
	return fresh;
}

/* Whether the process catches or ignores a signal, by /proc/PID/status. */
static int is_handled(pid_t pid, int sig)
{
	static const char *const names[] = { "SigIgn", "SigCgt" };
	unsigned long long handled = 0;
	char mask[64];

	for (int i = 0; i < 2; i++)
		if (!proc_line(mask, sizeof(mask), names[i],
			       "/proc/%d/status", (int)pid))
			handled |= strtoull(mask, NULL, 16);
	return handled >> (sig - 1) & 1;
}

/*
 * A signal that would end the process.  The first process of a pid namespace
 * does not die of it while it is traced (the kernel spares a debugged init),
 * so the judge does what the signal would have done.
 */
static int is_fatal(struct trace *t, int sig)
{
	switch (sig) {
	case SIGCHLD: case SIGCONT: case SIGURG: case SIGWINCH:
	case SIGSTOP: case SIGTSTP: case SIGTTIN: case SIGTTOU:
		return 0;
	default:
		return !is_handled(t->pid, sig);
	}
}

/* A stop of one thread, as waitpid reported it. */
static void on_stop(struct trace *t, struct thread *th, int status)
{
	int event = status >> 16, sig = WSTOPSIG(status);
	unsigned long msg = 0;

	th->stopped = 1;
	if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK ||
	    event == PTRACE_EVENT_VFORK) {
		if (!ptrace(PTRACE_GETEVENTMSG, th->tid, NULL, &msg) && msg)
			add(t, (pid_t)msg);
	} else if (!event && sig != SIGTRAP) {
		th->sig = sig;	/* on its way: delivered on resume */
		if (!t->fatal && is_fatal(t, sig)) {
			t->fatal = sig;
			kill(t->pid, SIGKILL);
		}
	}
}

/* Fetches what the kernel has to say about one thread.  1: something. */
static int poll_thread(struct trace *t, size_t i)
{
	struct thread *th = &t->th[i];
	int status;
	pid_t got = waitpid(th->tid, &status, __WALL | WNOHANG);

	if (got == 0)
		return 0;
	if (got < 0) {
		/* Not reported and not ours any more: gone with its group. */
		drop(t, th);
		return 1;
	}
	if (WIFSTOPPED(status)) {
		/* on_stop may grow the array: no use of th behind it. */
		on_stop(t, th, status);
		return 1;
	}
	if (th->tid == t->pid)
		t->status = t->fatal ? t->fatal : status;
	drop(t, th);
	return 1;
}

/*
 * A thread that was being made when its process was killed is traced, yet
 * nobody was told of it, and until it is fetched its leader is not reported.
 * So an ended leader that seems to be alone is asked for others.
 */
static int find_stragglers(struct trace *t)
{
	return t->n == 1 && !t->th[0].stopped && t->status == -1 &&
	       is_zombie(t->pid, t->pid) && list_tasks(t) > 0;
}

static void drain(int sigfd)
{
	struct signalfd_siginfo si[16];

	while (read(sigfd, si, sizeof(si)) > 0)
		;
}

static int gone(const struct trace *t)
{
	return t->status != -1 || !t->n;
}

static void cont(struct thread *th)
{
	int sig = th->sig;

	th->sig = 0;
	th->stopped = 0;
	ptrace(PTRACE_CONT, th->tid, NULL, (void *)(long)sig);
}

static void serve_each(struct trace *t)
{
	for (size_t i = 0; i < t->n && !gone(t); ) {
		size_t before = t->n;

		poll_thread(t, i);
		if (t->n < before)
			continue;
		if (t->th[i].stopped)
			cont(&t->th[i]);
		i++;
	}
}

/* One pass: a process that stops again and again must not keep the judge from
 * its deadline.  What comes after the drain leaves a signal to poll for. */
int trace_serve(struct trace *t)
{
	drain(t->sigfd);
	serve_each(t);
	if (!gone(t) && find_stragglers(t))
		serve_each(t);
	return gone(t);
}

/* Asks running threads to stop; 1 when all stand still already. */
static int interrupt_all(struct trace *t, int first)
{
	int still = 1;

	for (size_t i = 0; i < t->n; i++) {
		struct thread *th = &t->th[i];

		if (th->stopped || th->dead)
			continue;
		if (first && ptrace(PTRACE_INTERRUPT, th->tid, NULL, NULL) &&
		    is_zombie(t->pid, th->tid)) {
			th->dead = 1;
			continue;
		}
		still = 0;
	}
	return still;
}

/*
 * Fetches what there is to say about each thread: about those that stand
 * still too, since a kill ends them, and before they are fetched an ended
 * leader is not reported.  1: something.
 */
static int poll_all(struct trace *t)
{
	int progress = 0;

	for (size_t i = 0; i < t->n; ) {
		size_t before = t->n;

		progress |= poll_thread(t, i);
		if (t->n >= before)
			i++;
	}
	return progress;
}

/* Waits until all known threads stand still.  0, 1 gone, -1 deadline. */
static int settle(struct trace *t, int64_t deadline)
{
	struct pollfd p = { .fd = t->sigfd, .events = POLLIN };

	for (int first = 1; ; ) {
		int still = interrupt_all(t, first), progress = poll_all(t);
		int64_t left;

		if (still || gone(t))
			return gone(t);
		left = deadline - now_ns();
		if (left <= 0)
			return -1;
		first = find_stragglers(t);
		if (progress || first)
			continue;
		/* Short waits: a SIGCHLD may have been merged with one that
		 * was read before its thread was looked at. */
		poll(&p, 1, left > 2000000 ? 2 : 1);
		drain(t->sigfd);
	}
}

int trace_stop(struct trace *t, int64_t deadline, int64_t *when)
{
	for (;;) {
		int rc = settle(t, deadline);

		*when = now_ns();
		if (rc)
			return rc;
		rc = list_tasks(t);
		if (rc < 0)
			return gone(t) ? 1 : -1;
		if (rc == 0)
			return 0;
	}
}

void trace_resume(struct trace *t)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->th[i].stopped)
			cont(&t->th[i]);
}

int trace_look(struct trace *t, int64_t deadline, trace_seen *fn, void *ctx)
{
	struct user_regs_struct regs;
	int64_t when;
	int rc = trace_stop(t, deadline, &when);

	if (rc)
		return rc;
	for (size_t i = 0; i < t->n; i++)
		if (t->th[i].stopped && !ptrace(PTRACE_GETREGS, t->th[i].tid,
						NULL, &regs) &&
		    (long long)regs.orig_rax == -1)
			fn(ctx, t->th[i].tid, regs.rip, regs.rsp);
	trace_resume(t);
	return 0;
}

int trace_status(const struct trace *t)
{
	return t->status;
}

struct trace *trace_seize(pid_t pid, int sigfd, struct err *e)
{
	struct trace *t = calloc(1, sizeof(*t));

	if (!t) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	t->pid = pid;
	t->sigfd = sigfd;
	t->status = -1;
	if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)OPTIONS) < 0) {
		err_sys(e, CA_UNAVAILABLE, "cannot trace the worker (pid %d)",
			(int)pid);
		free(t);
		return NULL;
	}
	if (!add(t, pid) || list_tasks(t) < 0) {
		err_set(e, CA_SOFTWARE, "cannot list the worker's threads");
		trace_kill(t);
		return NULL;
	}
	return t;
}

int trace_kill(struct trace *t)
{
	struct pollfd p = { .fd = t->sigfd, .events = POLLIN };
	int64_t end = deadline_in(10);
	int status;

	trace_serve(t);
	status = t->status;
	if (t->status == -1)
		kill(t->pid, SIGKILL);
	while (t->n && now_ns() < end) {
		if (poll_all(t) || find_stragglers(t))
			continue;
		poll(&p, 1, 2);
		drain(t->sigfd);
	}
	if (t->fatal)
		status = t->fatal;
	free(t->th);
	free(t);
	return status;
}
