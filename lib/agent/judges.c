/* SPDX-License-Identifier: Apache-2.0
 *
 * Judges behind pipes, in one event loop with everything else.
 */
#define _GNU_SOURCE
#include "agent/judges.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/io.h"
#include "rec/rec.h"

#define LEAVE_S 10
#define OWN_ARGS 24
#define TRIES 2			/* a request that ends two judges is refused */
/* One that cannot be started is tried again so many times, so far apart. */
#define MISSES 20
#define MISS_NS 500000000

struct request {
	int who;		/* -1: nobody waits any more */
	uint32_t n;		/* its number there */
	int tries;
	enum ask stage;
	char *line;		/* with LF */
	size_t len;
	struct request *next;
};

struct judge_proc {
	const char *command;	/* NULL: our own */
	const char *device;	/* its, then */
	pid_t pid;		/* 0: not running */
	int to, from;
	int compiles;		/* does builds only; others do the rest */
	int misses;		/* times in a row that it could not start */
	int64_t again;		/* then it is tried */
	struct request *now;
	size_t sent;
	int64_t began;
	struct str in;
};

struct judges {
	struct judges_opts o;
	struct judge_proc *j;
	size_t n;
	struct request *head, **tail;
};

struct judges *judges_open(const struct judges_opts *o, struct err *e)
{
	struct judges *s = calloc(1, sizeof(*s));
	size_t i;

	if (s) {
		s->o = *o;
		s->tail = &s->head;
		s->n = o->commands->n ? o->commands->n :
		       o->judges + o->builders;
		s->j = calloc(s->n, sizeof(*s->j));
	}
	if (!s || !s->j) {
		free(s);
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	for (i = 0; i < s->n; i++) {
		s->j[i].to = s->j[i].from = -1;
		s->j[i].in.cap = WIRE_MAX;
		if (o->commands->n) {
			s->j[i].command = o->commands->item[i];
			continue;
		}
		s->j[i].compiles = i >= o->judges;
		s->j[i].device = o->devices->item[i % o->devices->n];
	}
	return s;
}

static void free_request(struct request *q)
{
	if (q)
		free(q->line);
	free(q);
}

static void stop(struct judge_proc *p, double seconds)
{
	int status;

	if (p->to >= 0)
		close(p->to);
	if (p->from >= 0)
		close(p->from);
	p->to = p->from = -1;
	if (p->pid > 0)
		child_finish(p->pid, deadline_in(seconds), &status);
	p->pid = 0;
	str_release(&p->in);
}

void judges_close(struct judges *s)
{
	struct request *q;
	size_t i;

	if (!s)
		return;
	/* First all ends of input, so that they leave side by side. */
	for (i = 0; i < s->n; i++)
		if (s->j[i].to >= 0) {
			close(s->j[i].to);
			s->j[i].to = -1;
			if (s->j[i].now)
				kill(s->j[i].pid, SIGTERM);
		}
	for (i = 0; i < s->n; i++) {
		stop(&s->j[i], LEAVE_S);
		free_request(s->j[i].now);
	}
	while ((q = s->head)) {
		s->head = q->next;
		free_request(q);
	}
	free(s->j);
	free(s);
}

void judges_close_fds(struct judges *s)
{
	size_t i;

	for (i = 0; i < s->n; i++) {
		if (s->j[i].to >= 0)
			close(s->j[i].to);
		if (s->j[i].from >= 0)
			close(s->j[i].from);
	}
}

static enum ask stage_of(const char *line, size_t len)
{
	static const char key[] = "\"ask\":{\"stage\":\"";
	const char *p = memrchr(line, '{', len);
	char word[16] = "";
	size_t n;

	/* `ask` is the last member, as rec_set appends it. */
	if (!p || p - line < (ptrdiff_t)sizeof(key))
		return ASK_REWARD;
	p += strlen("{\"stage\":\"");
	n = strcspn(p, "\"");
	if (n < sizeof(word))
		memcpy(word, p, n);
	return ask_parse(word);
}

int judges_ask(struct judges *s, int who, const struct wire_msg *m)
{
	struct request *q = calloc(1, sizeof(*q));

	judges_forget(s, who);
	if (q)
		q->line = malloc(m->len + 1);
	if (!q || !q->line) {
		free(q);
		return -1;
	}
	memcpy(q->line, m->p, m->len);
	q->line[m->len] = '\n';
	q->len = m->len + 1;
	q->who = who;
	q->n = m->n;
	q->stage = stage_of(m->p, m->len);
	*s->tail = q;
	s->tail = &q->next;
	judges_run(s);
	return 0;
}

void judges_forget(struct judges *s, int who)
{
	struct request *q;
	size_t i;

	for (q = s->head; q; q = q->next)
		if (q->who == who)
			q->who = -1;
	for (i = 0; i < s->n; i++)
		if (s->j[i].now && s->j[i].now->who == who)
			s->j[i].now->who = -1;
}

static int start(struct judges *s, struct judge_proc *p, struct err *e)
{
	const char *argv[OWN_ARGS] = { "sh", "-c", p->command, NULL };
	const struct child_opts o = { .argv = argv };
	size_t n;

	if (p->pid)
		return 0;
	if (!p->command) {
		for (n = 0; s->o.own[n] && n < OWN_ARGS - 3; n++)
			argv[n] = s->o.own[n];
		argv[n++] = "--device";
		argv[n++] = p->device;
		argv[n] = NULL;
	}
	p->pid = child_coprocess(&o, &p->to, &p->from, e);
	if (p->pid < 0) {
		p->pid = 0;
		return -1;
	}
	fcntl(p->to, F_SETFL, O_NONBLOCK);
	fcntl(p->from, F_SETFL, O_NONBLOCK);
	return 0;
}

static void refuse(struct judges *s, struct request *q, const char *why)
{
	struct str line = STR_INIT;

	rec_error(&line, NULL, 0, 0, why);
	if (q->who >= 0 && line.buf)
		s->o.answer(s->o.ctx, q->who, q->n, line.buf, line.len);
	str_release(&line);
	free_request(q);
}

static void put_back(struct judges *s, struct request *q)
{
	q->next = s->head;
	s->head = q;
	if (!q->next)
		s->tail = &q->next;
}

/* It died, or hangs: its request goes to the front again, once. */
static void lose(struct judges *s, struct judge_proc *p, const char *why)
{
	struct request *q = p->now;

	p->now = NULL;
	stop(p, 0);
	if (!q)
		return;
	if (++q->tries >= TRIES || q->who < 0)
		refuse(s, q, why);
	else
		put_back(s, q);
}

/* The first request that this judge does. */
static struct request *take(struct judges *s, const struct judge_proc *p)
{
	struct request **at = &s->head, *q;

	while ((q = *at)) {
		if (p->command || p->compiles == (q->stage == ASK_COMPILE) ||
		    q->who < 0)
			break;
		at = &q->next;
	}
	if (!q)
		return NULL;
	*at = q->next;
	if (!*at)
		s->tail = at;
	q->next = NULL;
	return q;
}

static void give(struct judges *s, struct judge_proc *p)
{
	struct err e = ERR_INIT;
	struct request *q;

	while (!p->now && (!p->misses || now_ns() >= p->again) &&
	       (q = take(s, p))) {
		if (q->who < 0) {
			free_request(q);
		} else if (!start(s, p, &e)) {
			p->now = q;
			p->sent = 0;
			p->began = now_ns();
			p->misses = 0;
		} else {
			p->again = now_ns() + MISS_NS;
			if (p->misses == MISSES)
				refuse(s, q, e.msg);
			else
				put_back(s, q);
			p->misses += p->misses < MISSES;
		}
	}
}

static void feed(struct judges *s, struct judge_proc *p)
{
	while (p->now && p->sent < p->now->len) {
		ssize_t n = write(p->to, p->now->line + p->sent,
				  p->now->len - p->sent);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0 && errno != EINTR) {
			lose(s, p, "the judge ended");
			return;
		}
		p->sent += n > 0 ? (size_t)n : 0;
	}
}

static void hear(struct judges *s, struct judge_proc *p)
{
	struct request *q = p->now;
	char buf[65536];
	ssize_t n;
	char *nl;

	while ((n = read(p->from, buf, sizeof(buf))) > 0) {
		if (str_add(&p->in, buf, (size_t)n)) {
			lose(s, p, "the judge's answer is too long");
			return;
		}
		nl = memchr(p->in.buf, '\n', p->in.len);
		if (!nl)
			continue;
		p->now = NULL;
		if (q && q->who >= 0)
			s->o.answer(s->o.ctx, q->who, q->n, p->in.buf,
				    (size_t)(nl - p->in.buf));
		free_request(q);
		str_reset(&p->in);
		return;
	}
	if (n == 0 || (errno != EAGAIN && errno != EINTR))
		lose(s, p, "the judge ended");
	else if (p->now && now_ns() - p->began >
			   (int64_t)(s->o.seconds * 1e9))
		lose(s, p, "the judge did not answer in time");
}

void judges_run(struct judges *s)
{
	size_t i;

	for (i = 0; i < s->n; i++) {
		struct judge_proc *p = &s->j[i];

		if (p->pid)
			hear(s, p);
		give(s, p);
		feed(s, p);
	}
}

size_t judges_fds(const struct judges *s, struct pollfd *p, size_t max)
{
	size_t n = 0, i;

	for (i = 0; i < s->n && n + 2 <= max; i++) {
		const struct judge_proc *j = &s->j[i];

		if (!j->pid)
			continue;
		p[n++] = (struct pollfd){ j->from, POLLIN, 0 };
		if (j->now && j->sent < j->now->len)
			p[n++] = (struct pollfd){ j->to, POLLOUT, 0 };
	}
	return n;
}
