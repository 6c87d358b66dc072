/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket of a rollout's jail, and the way to the judge.
 */
#define _GNU_SOURCE
#include "agent/try.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/answer.h"
#include "base/io.h"
#include "base/sig.h"
#include "build/workdir.h"

#define CLIENTS 8
#define LINE_CAP 4096
#define TELL_S 2

struct client {
	int fd;			/* -1: none */
	char line[LINE_CAP];
	size_t len;
	int ready;		/* its request is complete */
};

struct tries {
	struct tries_opts o;
	struct shells *shells;
	struct net_idle idle;
	int listener;
	struct client client[CLIENTS];
	struct client *current;	/* whose request is with the judge */
	int waiting;		/* an answer is due */
	uint32_t n;		/* the question's number */
	struct question asked;
	int64_t sent;
	struct str in;
	struct str notes;	/* what the last snapshot left out */
	struct rec *into;	/* of tries_judge; NULL: for a client */
	int done;		/* its answer has come: 1, or failed: -1 */
	char why[512];
	int64_t used;
	int exhausted;
};

static size_t idle_fds(void *ctx, struct pollfd *p, size_t max);
static void idle_ready(void *ctx);

static int listen_at(const char *path, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(a.sun_path))
		return err_set(e, CA_CONFIG, "'%s' is too long a name for a "
			       "socket", path);
	strcpy(a.sun_path, path);
	unlink(path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof(a)) &&
	    !chmod(path, 0666) && !listen(fd, CLIENTS))
		return fd;
	err_sys(e, CA_CANTCREAT, "cannot listen at '%s'", path);
	if (fd >= 0)
		close(fd);
	return -1;
}

struct tries *tries_open(const struct tries_opts *o, struct err *e)
{
	struct tries *t = calloc(1, sizeof(*t));
	size_t i;

	if (!t) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	t->o = *o;
	t->asked.rules = o->rules;
	t->idle = (struct net_idle){ idle_fds, idle_ready, t };
	t->in.cap = WIRE_MAX + 65536 + 8;
	for (i = 0; i < CLIENTS; i++)
		t->client[i].fd = -1;
	t->listener = listen_at(o->socket, e);
	if (t->listener >= 0)
		return t;
	free(t);
	return NULL;
}

static void drop_client(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	memset(c, 0, sizeof(*c));
	c->fd = -1;
}

void tries_close(struct tries *t)
{
	size_t i;

	if (!t)
		return;
	for (i = 0; i < CLIENTS; i++)
		drop_client(&t->client[i]);
	close(t->listener);
	unlink(t->o.socket);
	str_release(&t->in);
	str_release(&t->notes);
	free(t);
}

void tries_shells(struct tries *t, struct shells *s)
{
	t->shells = s;
}

const struct net_idle *tries_idle(struct tries *t)
{
	return &t->idle;
}

int64_t tries_used(const struct tries *t)
{
	return t->used;
}

void tries_set_used(struct tries *t, int64_t n)
{
	t->used = n;
}

int tries_exhausted(const struct tries *t)
{
	return t->exhausted;
}

static void left_out(void *ctx, const char *path, const char *why,
		     int source)
{
	struct tries *t = ctx;

	if (!source)
		return;
	str_adds(&t->notes, "left out: ");
	str_add_safe(&t->notes, path, strlen(path));
	str_addf(&t->notes, " (%s)\n", why);
}

/* What is there, named as the model knows it. */
static int read_place(struct tries *t, struct rec *r, struct err *e)
{
	const char *path = t->o.place->path;
	struct err why = ERR_INIT;
	size_t n = strlen(path);
	char *at;

	str_reset(&t->notes);
	if (!workdir_read_note(path, r, left_out, t, &why))
		return 0;
	at = strstr(why.msg, path);
	if (!at)
		return err_set(e, why.code, "%s", why.msg);
	*at = '\0';
	return err_set(e, why.code, "%s" PLACE_SHOWN "%s", why.msg, at + n);
}

int tries_snapshot(struct tries *t, struct rec *r, struct err *e)
{
	struct str task = STR_INIT;
	char id[REC_ID_LEN], rules[64];
	int n = snprintf(rules, sizeof(rules), "\"%s\"", t->o.rules);
	struct jw w;
	int rc = 0;

	if (read_place(t, r, e))
		return -1;
	/* The task is ours, whatever lies there. */
	task_id(t->o.code, strlen(t->o.code), id);
	jw_init(&w, &task);
	jw_obj(&w);
	jw_kstr(&w, "id", id);
	jw_kstr(&w, "code", t->o.code);
	jw_end_obj(&w);
	if (task.failed || rec_set(r, "task", task.buf, task.len) ||
	    rec_set(r, "rules", rules, (size_t)n) ||
	    rec_set(r, "name", "\"candidate\"", 11))
		rc = err_set(e, CA_SOFTWARE, "out of memory");
	str_release(&task);
	return rc ? -1 : rec_refresh(r, e);
}

/* Sends it on its way; the answer comes to `take`. */
static int ask(struct tries *t, enum ask s, struct rec *r, struct err *e)
{
	struct str line = STR_INIT;
	char text[64];
	int rc, n;

	n = snprintf(text, sizeof(text), "{\"stage\":\"%s\"}", ask_name(s));
	rc = rec_true_ids(r) || rec_set(r, "ask", text, (size_t)n) ||
	     rec_write(r, &line);
	if (rc)
		err_set(e, CA_DATAERR, "the candidate is too large");
	/* Before the judge knows of it: its clock may start at once.  Whatever
	 * is asked: it may be at another rollout's clock first, which waits for
	 * the lease that commands of this one have. */
	if (t->shells)
		shells_freeze(t->shells);
	if (!rc)
		rc = wire_send(t->o.judge, ++t->n, line.buf, line.len, e);
	str_release(&line);
	if (rc) {
		if (t->shells)
			shells_thaw(t->shells);
		return -1;
	}
	t->waiting = 1;
	t->asked.stage = s;
	answer_id(r, t->asked.id);
	t->sent = now_ns();
	if (t->o.asked)
		t->o.asked(t->o.ctx, s);
	return 0;
}

/* Sends without waiting long for a client that does not read, or slowly. */
static int tell_all(int fd, const char *p, size_t len, int64_t end)
{
	struct pollfd f = { fd, POLLOUT, 0 };

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -1;
		if (n < 0 && poll(&f, 1, deadline_ms(end)) <= 0)
			return -1;
		p += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
		if (len && now_ns() >= end)
			return -1;
	}
	return 0;
}

static void tell(struct client *c, int code, const char *text, size_t len)
{
	int64_t end = deadline_in(TELL_S);
	char head[16];
	int n = snprintf(head, sizeof(head), "%d\n", code);

	if (!tell_all(c->fd, head, (size_t)n, end))
		tell_all(c->fd, text, len, end);
	drop_client(c);
}

static void tell_error(struct client *c, const char *text)
{
	struct str s = STR_INIT;

	str_addf(&s, "error: %s\n", text);
	tell(c, 1, s.buf ? s.buf : "", s.len);
	str_release(&s);
}

static void settle(struct tries *t)
{
	int64_t spent = now_ns() - t->sent;

	t->waiting = 0;
	if (!t->shells)
		return;
	shells_excuse(t->shells, spent);
	shells_thaw(t->shells);
}

static void fail(struct tries *t, const char *why)
{
	struct client *c = t->current;

	t->current = NULL;
	if (t->into) {
		t->done = -1;
		snprintf(t->why, sizeof(t->why), "%s", why);
	} else if (c) {
		tell_error(c, why);
	}
	settle(t);
}

static void answer_client(struct tries *t, struct rec *r)
{
	struct client *c = t->current;
	struct str text = STR_INIT;
	int code;

	str_add(&text, t->notes.buf ? t->notes.buf : "", t->notes.len);
	code = try_text(t->asked.stage, r, &text);
	t->current = NULL;
	t->o.verdict(t->o.ctx, t->asked.stage, r, now_ns() - t->sent);
	if (c)
		tell(c, code, text.buf ? text.buf : "", text.len);
	str_release(&text);
	settle(t);
}

/* An answer of the judge, or {"kind":"error"}. */
static void take(struct tries *t, const char *msg, size_t len)
{
	struct err e = ERR_INIT;
	struct rec own, *r = t->into ? t->into : &own;
	const char *why;
	size_t at;

	rec_init(&own);
	if (t->into)
		rec_reset(t->into);
	if (rec_parse(r, msg, len, &at, &e) || rec_drop(r, "ask")) {
		fail(t, e.msg);
	} else if ((why = answer_fault(&t->asked, r))) {
		fail(t, why);
	} else if (t->into) {
		t->done = rec_refresh(r, &e) ? -1 : 1;
		settle(t);
	} else {
		answer_client(t, r);
	}
	rec_release(&own);
}

/* Taking an answer may wait for a lease, and hear the next one meanwhile: it
 * leaves the buffer first. */
static void heed(struct tries *t, const struct wire_msg *m)
{
	struct str own = STR_INIT;

	str_add(&own, m->p, m->len);
	wire_drop(&t->in);
	if (own.failed)
		fail(t, "out of memory");
	else
		take(t, own.buf ? own.buf : "", own.len);
	str_release(&own);
}

static void hear_judge(struct tries *t)
{
	struct wire_msg m;
	int rc = wire_read(t->o.judge, &t->in, &m);

	/* What came too late for a question before this one. */
	while (rc > 0 && m.n != t->n) {
		wire_drop(&t->in);
		rc = wire_next(&t->in, &m);
	}
	if (rc < 0) {
		fail(t, "the judge is gone");
	} else if (rc > 0) {
		heed(t, &m);
	} else if (now_ns() - t->sent > (int64_t)(t->o.judge_s * 1e9)) {
		fail(t, "the judge did not answer in time");
	}
}

/* "verify", "profile --reference": what the command is asking for. */
static enum ask parse_request(const char *line)
{
	if (!strcmp(line, "profile --reference"))
		return ASK_REFERENCE;
	if (!strcmp(line, "compile"))
		return ASK_COMPILE;
	if (!strcmp(line, "verify"))
		return ASK_VERIFY;
	return !strcmp(line, "profile") ? ASK_PROFILE : ASK_NONE;
}

static void begin(struct tries *t, struct client *c)
{
	enum ask s = parse_request(c->line);
	struct err e = ERR_INIT;
	struct rec r;

	rec_init(&r);
	c->ready = 0;
	if (s == ASK_NONE) {
		tell_error(c, "the commands are ca-compile, ca-verify, "
			   "ca-profile and ca-profile --reference");
	} else if (s != ASK_COMPILE && t->o.budget >= 0 &&
		   t->used >= t->o.budget) {
		t->exhausted = 1;
		tell_error(c, "all tries that were allowed are used up");
	} else if (tries_snapshot(t, &r, &e) || ask(t, s, &r, &e)) {
		tell_error(c, e.msg);
	} else {
		t->current = c;
		t->used += s != ASK_COMPILE;
	}
	rec_release(&r);
}

static void accept_client(struct tries *t)
{
	int fd = accept4(t->listener, NULL, NULL, SOCK_CLOEXEC);
	size_t i;

	if (fd < 0)
		return;
	for (i = 0; i < CLIENTS; i++)
		if (t->client[i].fd < 0) {
			t->client[i].fd = fd;
			return;
		}
	close(fd);
}

static void hear_client(struct tries *t, struct client *c)
{
	ssize_t n = recv(c->fd, c->line + c->len, sizeof(c->line) - 1 - c->len,
			 MSG_DONTWAIT);
	char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || c->len + (size_t)n == sizeof(c->line) - 1) {
		/* Gone, or talking nonsense; a verdict that is due for it
		 * counts all the same. */
		if (t->current == c)
			t->current = NULL;
		drop_client(c);
		return;
	}
	c->len += (size_t)n;
	c->line[c->len] = '\0';
	end = strchr(c->line, '\n');
	if (!end || t->current == c)
		return;
	*end = '\0';
	c->ready = 1;
}

static size_t idle_fds(void *ctx, struct pollfd *p, size_t max)
{
	struct tries *t = ctx;
	size_t n = 0, i;

	if (max < CLIENTS + 2)
		return 0;
	p[n++] = (struct pollfd){ t->listener, POLLIN, 0 };
	if (t->waiting)
		p[n++] = (struct pollfd){ t->o.judge, POLLIN, 0 };
	for (i = 0; i < CLIENTS; i++)
		if (t->client[i].fd >= 0 && !t->client[i].ready)
			p[n++] = (struct pollfd){ t->client[i].fd, POLLIN, 0 };
	return n;
}

static void idle_ready(void *ctx)
{
	struct tries *t = ctx;
	size_t i;

	accept_client(t);
	for (i = 0; i < CLIENTS; i++)
		if (t->client[i].fd >= 0 && !t->client[i].ready)
			hear_client(t, &t->client[i]);
	if (t->waiting)
		hear_judge(t);
	for (i = 0; i < CLIENTS && !t->waiting; i++)
		if (t->client[i].ready)
			begin(t, &t->client[i]);
}

static void wait_some(struct tries *t)
{
	struct pollfd p[CLIENTS + 3] = { { sig_fd(), POLLIN, 0 } };

	poll(p, 1 + idle_fds(t, p + 1, CLIENTS + 2), 500);
	idle_ready(t);
}

int tries_judge(struct tries *t, enum ask s, struct rec *r, struct err *e)
{
	/* One that was asked for before comes first. */
	while (t->waiting && !sig_caught())
		wait_some(t);
	if (t->waiting || ask(t, s, r, e))
		return err_set(e, CA_UNAVAILABLE, "interrupted");
	t->into = r;
	t->done = 0;
	while (!t->done && !sig_caught())
		wait_some(t);
	t->into = NULL;
	if (t->done > 0)
		return 0;
	return err_set(e, CA_UNAVAILABLE, "%s", t->done ? t->why :
		       "interrupted");
}
