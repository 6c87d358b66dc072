/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking the model.
 */
#define _GNU_SOURCE
#include "agent/model.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/io.h"
#include "base/sig.h"

/* From the end of its input to SIGTERM, and from that to SIGKILL. */
#define LEAVE_S 1
#define ANSWER_MAX ((size_t)32 << 20)	/* ids of a long prompt included */

struct model {
	const struct agent_opts *o;
	const struct net_idle *idle;	/* NULL: none yet */
	struct net_idle through;
	struct chat *chat;	/* NULL: the coprocess */
	pid_t pid, keeper;	/* 0: none */
	int to, from, life;
	struct str in;
};

/* Waits until the command has ended, which may be another's child. */
static int left(int pidfd)
{
	struct pollfd f = { pidfd, POLLIN, 0 };
	int64_t end = deadline_in(LEAVE_S);

	while (poll(&f, 1, deadline_ms(end)) < 0 && errno == EINTR)
		;
	return f.revents != 0;
}

/*
 * A process of its own with the caller's rights, which the rollout gives up
 * (then it may not kill the command, nor may its PDEATHSIG): ends the command
 * with its group once nobody holds the other end of `life` any more, however
 * the rollout ended.
 */
static void keep(const struct model *m, int life) CA_NORETURN;
static void keep(const struct model *m, int life)
{
	int pidfd = (int)syscall(SYS_pidfd_open, m->pid, 0);
	char none;

	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	/* The others' ends of pipes above all. */
	dup2(life, 0);
	dup2(pidfd, 1);
	syscall(SYS_close_range, 2, ~0U, 0);
	while (read(0, &none, 1) < 0 && errno == EINTR)
		;
	if (pidfd >= 0 && !left(1)) {
		kill(-m->pid, SIGTERM);
		left(1);
	}
	kill(-m->pid, SIGKILL);
	_exit(0);
}

static int start_keeper(struct model *m, struct err *e)
{
	int fd[2];

	if (pipe2(fd, O_CLOEXEC))
		return err_sys(e, CA_SOFTWARE, "cannot make a pipe");
	m->life = fd[1];
	m->keeper = child_fork();
	if (!m->keeper)
		keep(m, fd[0]);
	close(fd[0]);
	if (m->keeper > 0)
		return 0;
	m->keeper = 0;
	return err_sys(e, CA_SOFTWARE, "cannot fork");
}

static int start_command(struct model *m, struct err *e)
{
	const char *argv[] = { "sh", "-c", m->o->model_cmd, NULL };
	const struct child_opts o = { .argv = argv, .dir = m->o->cwd };

	m->pid = child_coprocess(&o, &m->to, &m->from, e);
	if (m->pid < 0)
		return -1;
	fcntl(m->to, F_SETFL, O_NONBLOCK);
	fcntl(m->from, F_SETFL, O_NONBLOCK);
	return start_keeper(m, e);
}

/* The chat is opened before there is anything to serve. */
static size_t through_fds(void *ctx, struct pollfd *p, size_t max)
{
	const struct net_idle *i = ((struct model *)ctx)->idle;

	return i ? i->fds(i->ctx, p, max) : 0;
}

static void through_ready(void *ctx)
{
	const struct net_idle *i = ((struct model *)ctx)->idle;

	if (i)
		i->ready(i->ctx);
}

void model_idle(struct model *m, const struct net_idle *idle)
{
	m->idle = idle;
}

struct model *model_open(const struct agent_opts *o, const char *endpoint,
			 struct err *e)
{
	struct chat_opts c = {
		.endpoint = endpoint, .key = o->key,
		.limits = { o->connect_s, o->first_s, o->idle_s, ANSWER_MAX },
		.attempts = (int)o->retries + 1
	};
	struct model *m = calloc(1, sizeof(*m));
	int rc;

	if (!m) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	m->o = o;
	m->through = (struct net_idle){ through_fds, through_ready, m };
	c.idle = &m->through;
	m->to = m->from = m->life = -1;
	m->in.cap = ANSWER_MAX;
	if (!endpoint) {
		rc = start_command(m, e);
	} else {
		m->chat = chat_open(&c, e);
		rc = m->chat ? 0 : -1;
	}
	if (!rc)
		return m;
	model_close(m);
	return NULL;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Its group goes before it is reaped, so that its number is still its own. */
static void end_command(struct model *m)
{
	int status;

	close_fd(&m->life);
	if (!m->keeper)
		kill(-m->pid, SIGKILL);
	while (m->keeper && waitpid(m->keeper, NULL, 0) < 0 && errno == EINTR)
		;
	child_finish(m->pid, now_ns(), &status);
}

void model_close(struct model *m)
{

	if (!m)
		return;
	chat_close(m->chat);
	close_fd(&m->to);
	close_fd(&m->from);
	if (m->pid > 0)
		end_command(m);
	str_release(&m->in);
	free(m);
}

/* Waits for the coprocess: 0, or how the wait ended. */
static enum chat_end wait_for(struct model *m, int fd, short events,
			      int64_t end, int64_t deadline)
{
	struct pollfd p[66] = { { fd, events, 0 }, { sig_fd(), POLLIN, 0 } };
	size_t n = 2;
	int ms;

	if (m->idle)
		n += m->idle->fds(m->idle->ctx, p + 2, 64);
	ms = deadline_ms(deadline && deadline < end ? deadline : end);
	poll(p, n, ms > 500 ? 500 : ms);
	if (m->idle)
		m->idle->ready(m->idle->ctx);
	if (sig_caught())
		return CHAT_SIGNAL;
	if (deadline && now_ns() >= deadline)
		return CHAT_DEADLINE;
	return now_ns() >= end ? CHAT_FAULT : CHAT_OK;
}

static enum chat_end send_line(struct model *m, const char *body, size_t len,
			       int64_t end, int64_t deadline)
{
	enum chat_end how;
	size_t at = 0;

	while (at < len + 1) {
		const char *p = at < len ? body + at : "\n";
		ssize_t n = write(m->to, p, at < len ? len - at : 1);

		if (n > 0) {
			at += (size_t)n;
			continue;
		}
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return CHAT_FAULT;
		how = wait_for(m, m->to, POLLOUT, end, deadline);
		if (how != CHAT_OK)
			return how;
	}
	return CHAT_OK;
}

/* The line without its LF stands in m->in. */
static enum chat_end read_line(struct model *m, int64_t end, int64_t deadline)
{
	enum chat_end how;
	char buf[65536];
	ssize_t n;

	str_reset(&m->in);
	for (;;) {
		n = read(m->from, buf, sizeof(buf));
		if (n > 0) {
			if (str_add(&m->in, buf, (size_t)n))
				return CHAT_FAULT;
			if (buf[n - 1] == '\n')
				break;
			continue;
		}
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return CHAT_FAULT;
		how = wait_for(m, m->from, POLLIN, end, deadline);
		if (how != CHAT_OK)
			return how;
	}
	m->in.buf[--m->in.len] = '\0';
	return CHAT_OK;
}

static int status_of(const char *body, size_t len)
{
	struct json *j;
	int64_t code;

	if (!len || !memmem(body, len < 64 ? len : 64, "\"error\"", 7))
		return 200;
	j = json_parse(body, len, JSON_MAX_FILE, NULL, NULL);
	code = json_int(json_path(j, "error.code"), 500);
	if (json_type(json_get(j, "error")) != JSON_OBJECT)
		code = 200;
	json_free(j);
	return (int)code;
}

static void ask_command(struct model *m, const char *body, size_t len,
			int64_t deadline, struct chat_answer *a)
{
	double limit = m->o->first_s > 0 ? m->o->first_s : 1800;
	int64_t end = deadline_in(limit), began = now_ns();

	a->how = send_line(m, body, len, end, deadline);
	if (a->how == CHAT_OK)
		a->how = read_line(m, end, deadline);
	if (a->how == CHAT_OK)
		chat_read(m->in.buf, m->in.len,
			  status_of(m->in.buf, m->in.len), a);
	else
		snprintf(a->text, sizeof(a->text), "%s", now_ns() >= end ?
			 "no answer in time" : "the model's command ended or "
			 "was ended");
	a->wall_ns = now_ns() - began;
}

int model_ask(struct model *m, const char *body, size_t len, int64_t deadline,
	      struct chat_answer *a, struct err *e)
{
	if (m->chat)
		return chat_ask(m->chat, body, len, deadline, a, e);
	memset(a, 0, sizeof(*a));
	ask_command(m, body, len, deadline, a);
	return 0;
}
