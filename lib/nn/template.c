/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "nn/template.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/io.h"
#include "base/path.h"
#include "jinja/jinja.h"

#define TEMPLATE_MAX ((size_t)1 << 20)
#define RENDER_SECONDS 30
#define LEAVE_SECONDS  2

struct tmpl {
	struct jinja *own;		/* NULL: not understood here */
	char *bos, *eos;
	struct str hello;		/* the first line for chat.py */
	pthread_mutex_t lock;		/* of what follows */
	pid_t pid;
	int fd;				/* -1: it was not needed yet */
};

/* A member that is a text, or {"content": text} as for special tokens. */
static const char *text_of(const struct json *j)
{
	return json_str(j, json_get_str(j, "content", NULL));
}

/* "chat_template" is a text, or a list of {name, template}. */
static const char *find_template(const struct json *config)
{
	const struct json *t = json_get(config, "chat_template");

	if (json_type(t) != JSON_ARRAY)
		return json_str(t, NULL);
	for (t = json_first(t); t; t = json_next(t))
		if (!strcmp(json_get_str(t, "name", ""), "default"))
			return json_get_str(t, "template", NULL);
	return NULL;
}

static int read_if_there(const char *dir, const char *name, struct str *s,
			 struct err *e)
{
	char path[CA_PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	if (access(path, F_OK))
		return 0;
	return read_file(path, TEMPLATE_MAX, s, e);
}

/* The first line for chat.py. */
static int write_hello(struct tmpl *c, const char *template, struct err *e)
{
	struct jw w;

	jw_init(&w, &c->hello);
	jw_obj(&w);
	jw_kstr(&w, "template", template);
	jw_kstr(&w, "bos_token", c->bos);
	jw_kstr(&w, "eos_token", c->eos);
	jw_end_obj(&w);
	str_addc(&c->hello, '\n');
	return c->hello.failed ? err_set(e, CA_SOFTWARE, "no memory") : 0;
}

/* `why` it is not understood, if it is not. */
static int take_template(struct tmpl *c, const struct json *config,
			 const char *template, struct err *why, struct err *e)
{
	const char *bos = text_of(json_get(config, "bos_token"));
	const char *eos = text_of(json_get(config, "eos_token"));

	c->bos = strdup(bos ? bos : "");
	c->eos = strdup(eos ? eos : "");
	if (!c->bos || !c->eos)
		return err_set(e, CA_SOFTWARE, "no memory");
	c->own = jinja_parse(template, strlen(template), why);
	return write_hello(c, template, e);
}

/* 1: there is a template; 0: there is none. */
static int read_template(struct tmpl *c, const char *dir, struct err *why,
			 struct err *e)
{
	struct str own = STR_INIT, text = STR_INIT;
	struct json *config = NULL;
	const char *template;
	int rc = -1;

	if (read_if_there(dir, "chat_template.jinja", &own, e) ||
	    read_if_there(dir, "tokenizer_config.json", &text, e))
		goto out;
	if (text.len) {
		config = json_parse(text.buf, text.len, TEMPLATE_MAX, NULL, e);
		if (!config) {
			err_wrap(e, "'%s/tokenizer_config.json'", dir);
			goto out;
		}
	}
	template = own.len ? own.buf : find_template(config);
	rc = !template ? 0 :
	     take_template(c, config, template, why, e) ? -1 : 1;
out:
	json_free(config);
	str_release(&own);
	str_release(&text);
	return rc;
}

/* Starts Python with one end of a socket; the other one is ours. */
static int start(struct tmpl *c, struct err *e)
{
	char python[CA_PATH_MAX], script[CA_PATH_MAX], number[16];
	const struct timeval limit = { RENDER_SECONDS, 0 };
	const char *argv[] = { python, "-I", script, number, NULL };
	struct child_opts o = { .argv = argv, .nkeep = 1 };
	int fd[2];

	if (path_python(python, e) || path_lib(script, "torch/chat.py", e))
		return -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd))
		return err_sys(e, CA_SOFTWARE, "cannot make a socket");
	snprintf(number, sizeof number, "%d", fd[1]);
	o.keep = &fd[1];
	c->pid = child_start(&o, e);
	close(fd[1]);
	if (c->pid < 0) {
		close(fd[0]);
		return -1;
	}
	setsockopt(fd[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	c->fd = fd[0];
	return 0;
}

/* Ends Python; the next request starts it again. */
static void leave(struct tmpl *c, double seconds)
{
	if (c->fd < 0)
		return;
	close(c->fd);
	c->fd = -1;
	child_finish(c->pid, deadline_in(seconds), NULL);
}

/* What became of a request. */
enum said {
	SAID,
	SAID_NOT,		/* the renderer is gone; another may answer */
	SAID_LATE		/* it hangs, or says too much */
};

/* A renderer that is gone is no SIGPIPE here. */
static enum said send_line(struct tmpl *c, const struct str *s)
{
	size_t at = 0;
	ssize_t n;

	while (at < s->len) {
		n = send(c->fd, s->buf + at, s->len - at, MSG_NOSIGNAL);
		if (n >= 0)
			at += (size_t)n;
		else if (errno == EAGAIN)
			return SAID_LATE;
		else if (errno != EINTR)
			return SAID_NOT;
	}
	return SAID;
}

/* A signal to this process ends no answer that somebody waits for. */
static enum said receive_line(struct tmpl *c, struct str *s)
{
	int64_t end = deadline_in(RENDER_SECONDS);
	char buf[16384];
	ssize_t n;

	while (!s->len || s->buf[s->len - 1] != '\n') {
		if (wait_readable(c->fd, end, NULL) <= 0)
			return SAID_LATE;
		n = recv(c->fd, buf, sizeof buf, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return SAID_NOT;
		if (str_add(s, buf, (size_t)n))
			return SAID_LATE;
	}
	return SAID;
}

static int say_hello(struct tmpl *c, struct err *e)
{
	if (start(c, e))
		return -1;
	if (send_line(c, &c->hello) == SAID)
		return 0;
	leave(c, 0);
	return err_set(e, CA_UNAVAILABLE, "chat template: its renderer does "
		       "not start");
}

int tmpl_open(const char *dir, struct tmpl **out, struct err *e)
{
	struct tmpl *c = calloc(1, sizeof *c);
	struct err why = ERR_INIT;
	int rc;

	*out = NULL;
	if (!c)
		return err_set(e, CA_SOFTWARE, "no memory");
	pthread_mutex_init(&c->lock, NULL);
	c->fd = -1;
	rc = read_template(c, dir, &why, e);
	if (rc > 0 && !c->own) {
		mention("chat template: Python renders it (%s)", why.msg);
		/* Whether there is one should be known now, not later. */
		rc = say_hello(c, e) ? -1 : 1;
	}
	if (rc > 0)
		*out = c;
	else
		tmpl_close(c);
	return rc < 0 ? -1 : 0;
}

void tmpl_close(struct tmpl *c)
{
	if (!c)
		return;
	leave(c, LEAVE_SECONDS);
	pthread_mutex_destroy(&c->lock);
	jinja_free(c->own);
	str_release(&c->hello);
	free(c->bos);
	free(c->eos);
	free(c);
}

/* Sends a line and takes the answer's.  A renderer that failed is ended: what
 * it says late would be taken for the next request's answer. */
static enum said exchange(struct tmpl *c, const struct str *line,
			  struct str *answer)
{
	enum said how = send_line(c, line);

	if (how == SAID)
		how = receive_line(c, answer);
	if (how != SAID)
		leave(c, 0);
	return how;
}

/* With the lock.  One that has died since its last answer is replaced. */
static int ask_again(struct tmpl *c, const struct str *line,
		     struct str *answer, struct err *e)
{
	enum said how = SAID_NOT;

	for (int i = 0; i < 2 && how == SAID_NOT; i++) {
		str_reset(answer);
		if (c->fd < 0 && say_hello(c, e))
			return -1;
		how = exchange(c, line, answer);
	}
	return how == SAID ? 0 :
	       err_set(e, CA_UNAVAILABLE, "chat template: its renderer %s",
		       how == SAID_NOT ? "died" : "does not answer");
}

/* The answer's tree; NULL on failure. */
static struct json *ask(struct tmpl *c, const struct str *line, struct err *e)
{
	struct str answer = { .cap = JSON_MAX_LINE };
	struct json *j = NULL;
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = ask_again(c, line, &answer, e);
	pthread_mutex_unlock(&c->lock);
	if (!rc)
		j = json_parse(answer.buf, answer.len, JSON_MAX_LINE, NULL,
			       e);
	str_release(&answer);
	return j;
}

static void write_first(struct jw *w, const struct json *messages, size_t n)
{
	const struct json *m = json_first(messages);

	jw_key(w, "messages");
	jw_arr(w);
	for (; m && n; m = json_next(m), n--)
		jw_node(w, m);
	jw_end_arr(w);
}

/* By jinja2. */
static int render_there(struct tmpl *c, const struct json *messages, size_t n,
			const struct json *tools, int open, struct str *out,
			struct err *e)
{
	struct str line = STR_INIT;
	struct json *j = NULL;
	const char *text;
	struct jw w;
	int rc = -1;

	jw_init(&w, &line);
	jw_obj(&w);
	write_first(&w, messages, n);
	jw_kbool(&w, "add_generation_prompt", open);
	if (tools) {
		jw_key(&w, "tools");
		jw_node(&w, tools);
	}
	jw_end_obj(&w);
	str_addc(&line, '\n');
	if (line.failed)
		err_set(e, CA_SOFTWARE, "no memory");
	else
		j = ask(c, &line, e);
	text = json_get_str(j, "text", NULL);
	if (text)
		rc = str_adds(out, text) ?
		     err_set(e, CA_SOFTWARE, "no memory") : 0;
	else if (j)
		err_set(e, CA_DATAERR, "chat template: %s",
			json_get_str(j, "error", "no text"));
	json_free(j);
	str_release(&line);
	return rc;
}

int tmpl_render(struct tmpl *c, const struct json *messages, size_t n,
		const struct json *tools, int open, struct str *out,
		struct err *e)
{
	struct jinja_vars v = { .messages = messages, .n = n,
				.tools = tools, .open = open };
	struct err why = ERR_INIT;

	if (!c)
		return err_set(e, CA_DATAERR, "the model has no chat "
			       "template");
	v.bos = c->bos;
	v.eos = c->eos;
	switch (c->own ? jinja_render(c->own, &v, out, &why) :
			 JINJA_UNKNOWN) {
	case JINJA_TEXT:
		return 0;
	case JINJA_REFUSED:
		return err_set(e, CA_DATAERR, "chat template: %s", why.msg);
	default:
		break;
	}
	if (!render_there(c, messages, n, tools, open, out, e))
		return 0;
	/* Without Python, what it was needed for is worth knowing. */
	return e->code == CA_UNAVAILABLE && *why.msg ?
	       err_wrap(e, "chat template: %s", why.msg) : -1;
}
