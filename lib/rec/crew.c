/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of a crew answer frames with frames, one at a time each.
 */
#define _GNU_SOURCE
#include "rec/crew.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/child.h"
#include "base/io.h"
#include "base/sig.h"

#define LEAVE_SECONDS 30

struct member {
	pid_t pid;
	int fd;			/* -1: it is gone */
	int busy;
};

struct crew {
	struct crew_ops o;
	struct member *m;
	size_t n, gone, turn;
	pthread_mutex_t lock;
	pthread_cond_t free;
};

struct frame {
	uint64_t len;		/* of the text that follows */
	uint64_t lineno;
	int32_t code;		/* an answer: 0, or why the text is a message
				 * and no record */
	int32_t pad;
};

static int send_frame(int fd, struct frame *f, const char *text, size_t len,
		      struct err *e)
{
	f->len = len;
	return write_full(fd, f, sizeof(*f), e) ||
	       write_full(fd, text, len, e) ? -1 : 0;
}

/* -1: the other side is gone, or it talks nonsense. */
static int take_frame(int fd, struct frame *f, struct str *text)
{
	char buf[65536];
	size_t left;

	str_reset(text);
	if (read_full(fd, f, sizeof(*f), NULL) != sizeof(*f) ||
	    f->len > JSON_MAX_LINE)
		return -1;
	for (left = f->len; left; ) {
		size_t n = left < sizeof(buf) ? left : sizeof(buf);

		if (read_full(fd, buf, n, NULL) != (ssize_t)n)
			return -1;
		str_add(text, buf, n);
		left -= n;
	}
	return text->failed ? -1 : 0;
}

/* -- a member's side */

static int work(const struct crew_ops *o, const struct frame *f,
		const struct str *line, struct rec *r, struct str *out,
		struct err *e)
{
	if (rec_parse(r, line->buf ? line->buf : "", line->len, NULL, e))
		return -1;
	r->lineno = f->lineno;
	if (o->record(o->ctx, r, e))
		return -1;
	if (rec_write(r, out))
		return err_set(e, CA_DATAERR, "record would be longer than "
			       "%zu bytes", JSON_MAX_LINE);
	return 0;
}

static void serve(const struct crew_ops *o, int fd)
{
	struct str line = STR_INIT, out = STR_INIT;
	struct err e = ERR_INIT;
	struct frame f;
	struct rec r;

	rec_init(&r);
	while (wait_unless_signal(fd, INT64_MAX, NULL) > 0 &&
	       !take_frame(fd, &f, &line)) {
		str_reset(&out);
		err_clear(&e);
		f.code = 0;
		if (work(o, &f, &line, &r, &out, &e)) {
			f.code = e.code ? e.code : CA_SOFTWARE;
			str_reset(&out);
			str_adds(&out, e.msg);
		}
		rec_reset(&r);
		/* What a signal cut short is nobody's answer. */
		if (sig_caught() ||
		    send_frame(fd, &f, out.buf ? out.buf : "", out.len, &e))
			break;
		if (o->rest)
			o->rest(o->ctx);
	}
	rec_release(&r);
	str_release(&line);
	str_release(&out);
	if (o->leave)
		o->leave(o->ctx);
}

static void member(struct crew *c, size_t i, int fd, pid_t parent)
{
	int null;

	setpgid(0, 0);
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent)
		_exit(0);
	for (size_t k = 0; k <= i; k++)
		close(c->m[k].fd);
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || sig_forked(NULL))
		_exit(CA_SOFTWARE);
	signal(SIGPIPE, SIG_IGN);
	if (c->o.begin)
		c->o.begin(c->o.ctx, i);
	serve(&c->o, fd);
	_exit(0);
}

/* -- ours */

static int start(struct crew *c, size_t i, struct err *e)
{
	pid_t parent = getpid();
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd))
		return err_sys(e, CA_UNAVAILABLE, "cannot make a socket pair");
	c->m[i].fd = fd[0];
	c->m[i].pid = sig_fork();
	if (!c->m[i].pid)
		member(c, i, fd[1], parent);
	close(fd[1]);
	if (c->m[i].pid > 0)
		return 0;
	close(fd[0]);
	c->m[i].fd = -1;
	return err_sys(e, CA_UNAVAILABLE, "cannot fork");
}

struct crew *crew_open(size_t n, const struct crew_ops *o, struct err *e)
{
	struct crew *c = calloc(1, sizeof(*c));
	int rc = 0;

	if (c)
		c->m = calloc(n, sizeof(*c->m));
	if (!c || !c->m) {
		free(c);
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	c->o = *o;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->free, NULL);
	for (; c->n < n && !rc; c->n += !rc)
		rc = start(c, c->n, e);
	if (!rc)
		return c;
	crew_close(c);
	return NULL;
}

/* NULL when no member is left. */
static struct member *take(struct crew *c)
{
	struct member *m = NULL;

	pthread_mutex_lock(&c->lock);
	while (!m && c->gone < c->n) {
		/* In turn: who was asked last may not have rested yet. */
		for (size_t i = 0; i < c->n && !m; i++) {
			struct member *next = &c->m[c->turn++ % c->n];

			if (!next->busy && next->fd >= 0)
				m = next;
		}
		if (!m)
			pthread_cond_wait(&c->free, &c->lock);
	}
	if (m)
		m->busy = 1;
	pthread_mutex_unlock(&c->lock);
	return m;
}

static void give(struct crew *c, struct member *m, int lost)
{
	pthread_mutex_lock(&c->lock);
	m->busy = 0;
	if (lost) {
		close(m->fd);
		m->fd = -1;
		c->gone++;
	}
	pthread_cond_broadcast(&c->free);
	pthread_mutex_unlock(&c->lock);
}

/* Waits for an answer's first byte, or its end; passes a signal on. */
static void await(const struct member *m)
{
	struct pollfd p[2] = { { .fd = m->fd, .events = POLLIN },
			       { .fd = sig_fd(), .events = POLLIN } };

	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
	if (p[1].revents)
		kill(m->pid, SIGTERM);
}

static int ask(struct member *m, const struct rec *r, struct frame *f,
	       struct str *text, struct err *e)
{
	*f = (struct frame){ .lineno = r->lineno };
	if (rec_write(r, text))
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (!send_frame(m->fd, f, text->buf, text->len, NULL)) {
		await(m);
		if (!take_frame(m->fd, f, text))
			return 0;
	}
	if (sig_caught())
		return err_set(e, CA_TEMPFAIL, "interrupted");
	return err_set(e, CA_SOFTWARE, "process %d, which worked on it, ended",
		       (int)m->pid);
}

/* The answer takes the place of what r was. */
static int become(struct rec *r, const struct str *text, struct err *e)
{
	struct rec now;

	rec_init(&now);
	if (rec_parse(&now, text->buf, text->len, NULL, e)) {
		rec_release(&now);
		return -1;
	}
	now.lineno = r->lineno;
	rec_release(r);
	*r = now;
	return 0;
}

int crew_record(struct crew *c, struct rec *r, struct err *e)
{
	struct member *m = take(c);
	struct str text = STR_INIT;
	struct frame f;
	int rc, lost;

	if (!m)
		return err_set(e, CA_SOFTWARE, "no process is left to work "
			       "on it");
	mention("record %llu: process %d begins",
		(unsigned long long)r->lineno, (int)m->pid);
	rc = ask(m, r, &f, &text, e);
	lost = rc != 0;
	if (!rc)
		mention("record %llu: process %d is done",
			(unsigned long long)r->lineno, (int)m->pid);
	give(c, m, lost);
	if (!rc && f.code)
		rc = err_set(e, f.code, "%s", text.buf ? text.buf : "");
	else if (!rc)
		rc = become(r, &text, e);
	str_release(&text);
	return rc;
}

void crew_close(struct crew *c)
{
	int status;

	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++)
		if (c->m[i].fd >= 0)
			close(c->m[i].fd);
	for (size_t i = 0; i < c->n; i++)
		child_finish(c->m[i].pid, deadline_in(LEAVE_SECONDS), &status);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->free);
	free(c->m);
	free(c);
}
