/* SPDX-License-Identifier: Apache-2.0
 *
 * The process that parses, and its answers.
 */
#define _GNU_SOURCE
#include "ast/parser.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include "base/child.h"
#include "base/io.h"
#include "base/path.h"

#define SECONDS 20
#define ANSWER_MAX ((uint32_t)64 << 20)
#define LABELS_RENEW 30000

struct ast_parser {
	struct ast_store *store;
	int fd;			/* -1: not running */
	pid_t pid;
	uint32_t *label;	/* the store's number of each of its labels */
	size_t nlabel, alloc;
	char *answer;
	size_t answer_alloc;
};

struct head {
	uint32_t kind, names, nodes, zero;
};

struct ast_parser *ast_parser_new(struct ast_store *s)
{
	struct ast_parser *p = calloc(1, sizeof(*p));

	if (p) {
		p->store = s;
		p->fd = -1;
	}
	return p;
}

static void stop(struct ast_parser *p)
{
	if (p->fd >= 0) {
		close(p->fd);
		child_finish(p->pid, 0, NULL);
	}
	p->fd = -1;
	p->nlabel = 0;
}

void ast_parser_free(struct ast_parser *p)
{
	if (!p)
		return;
	stop(p);
	free(p->label);
	free(p->answer);
	free(p);
}

static int start(struct ast_parser *p, struct err *e)
{
	char python[CA_PATH_MAX], script[CA_PATH_MAX], number[16];
	const char *argv[] = { python, "-I", script, number, NULL };
	struct child_opts o = { .argv = argv, .nkeep = 1 };
	struct timeval limit = { SECONDS, 0 };
	int pair[2];

	/* Any Python will do where there is none with torch. */
	if (path_python(python, NULL))
		snprintf(python, sizeof(python), "python3");
	if (path_lib(script, "torch/ast.py", e))
		return -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return err_sys(e, CA_SOFTWARE, "cannot make a socket pair");
	snprintf(number, sizeof(number), "%d", pair[1]);
	o.keep = &pair[1];
	p->pid = child_start(&o, e);
	close(pair[1]);
	p->fd = pair[0];
	setsockopt(p->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (p->pid > 0)
		return 0;
	close(p->fd);
	p->fd = -1;
	return -1;
}

/* The process is gone or does not answer: the file's fault, since the next
 * one gets a new process. */
static int lost(struct ast_parser *p, int late, struct err *e)
{
	stop(p);
	err_set(e, CA_DATAERR, late ? "parsing it takes more than %d s" :
		"parsing it ended the parser", SECONDS);
	return 1;
}

static int send_source(struct ast_parser *p, const char *code, size_t len)
{
	uint32_t size = (uint32_t)len;
	const char *part[] = { (const char *)&size, code };
	size_t left[] = { sizeof(size), len };

	for (int i = 0; i < 2; i++)
		while (left[i]) {
			ssize_t n = send(p->fd, part[i], left[i],
					 MSG_NOSIGNAL);

			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				return -1;
			part[i] += n;
			left[i] -= (size_t)n;
		}
	return 0;
}

/* 0, 1 late, -1 gone. */
static int receive(struct ast_parser *p, void *to, size_t len,
		   int64_t deadline)
{
	char *at = to;

	while (len) {
		int ready = wait_readable(p->fd, deadline, NULL);
		ssize_t n;

		if (ready <= 0)
			return ready ? -1 : 1;
		n = recv(p->fd, at, len, MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return -1;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static int receive_answer(struct ast_parser *p, struct head *h,
			  struct err *e)
{
	int64_t deadline = deadline_in(SECONDS);
	int rc = receive(p, h, sizeof(*h), deadline);
	size_t len;

	if (rc)
		return lost(p, rc > 0, e);
	if (h->names > ANSWER_MAX || h->nodes > ANSWER_MAX)
		return err_set(e, CA_SOFTWARE, "the parser's answer makes no "
			       "sense");
	/* Nodes first, so that they are aligned. */
	len = (size_t)h->names + h->nodes;
	if (len + 1 > p->answer_alloc) {
		char *q = realloc(p->answer, len + 1);

		if (!q)
			return err_set(e, CA_SOFTWARE, "out of memory");
		p->answer = q;
		p->answer_alloc = len + 1;
	}
	rc = receive(p, p->answer + h->nodes, h->names, deadline);
	if (!rc)
		rc = receive(p, p->answer, h->nodes, deadline);
	return rc ? lost(p, rc > 0, e) : 0;
}

static int learn(struct ast_parser *p, const char *names, size_t len,
		 struct err *e)
{
	const char *end = names + len, *lf;

	for (; names < end; names = lf + 1) {
		lf = memchr(names, '\n', (size_t)(end - names));
		if (!lf)
			return err_set(e, CA_SOFTWARE, "the parser's names "
				       "are cut");
		if (p->nlabel == p->alloc) {
			size_t n = p->alloc ? p->alloc * 2 : 1024;
			uint32_t *q = realloc(p->label, n * sizeof(*q));

			if (!q)
				return err_set(e, CA_SOFTWARE,
					       "out of memory");
			p->label = q;
			p->alloc = n;
		}
		p->label[p->nlabel] = ast_label(p->store, names,
						(size_t)(lf - names));
		if (!p->label[p->nlabel++])
			return err_set(e, CA_SOFTWARE, "out of memory");
	}
	return 0;
}

int ast_parse(struct ast_parser *p, const char *code, size_t len,
	      struct ast_doc *paper, struct ast_doc *normal, struct err *e)
{
	const char *text;
	struct head h;
	int rc;

	memset(paper, 0, sizeof(*paper));
	memset(normal, 0, sizeof(*normal));
	if (len > AST_SOURCE_MAX) {
		err_set(e, CA_DATAERR, "longer than %zu bytes",
			AST_SOURCE_MAX);
		return 1;
	}
	if (p->nlabel > LABELS_RENEW)
		stop(p);
	if (p->fd < 0 && start(p, e))
		return -1;
	if (send_source(p, code, len))
		return lost(p, 0, e);
	rc = receive_answer(p, &h, e);
	if (rc)
		return rc;
	text = p->answer + h.nodes;
	if (h.kind) {
		err_set(e, CA_DATAERR, "%.*s", (int)h.names, text);
		return 1;
	}
	rc = learn(p, text, h.names, e);
	return rc ? rc : ast_read(p->store, p->label, p->nlabel, p->answer,
				  h.nodes, paper, normal, e);
}
