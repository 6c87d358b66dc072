/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "nn/template.h"

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
#include "rec/reader.h"

#define TEMPLATE_MAX ((size_t)1 << 20)
#define RENDER_SECONDS 30
#define LEAVE_SECONDS  2

struct tmpl {
	pid_t pid;
	int fd;
	struct reader in;
	pthread_mutex_t lock;
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

/* The first line for chat.py; empty when there is no template. */
static int hello(const char *dir, struct str *line, struct err *e)
{
	static const char *const token[] = { "bos_token", "eos_token" };
	struct str own = STR_INIT, text = STR_INIT;
	struct json *config = NULL;
	const char *template;
	struct jw w;
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
	rc = 0;
	if (!template)
		goto out;
	jw_init(&w, line);
	jw_obj(&w);
	jw_kstr(&w, "template", template);
	for (int i = 0; i < 2; i++) {
		const char *t = text_of(json_get(config, token[i]));

		jw_kstr(&w, token[i], t ? t : "");
	}
	jw_end_obj(&w);
	str_addc(line, '\n');
	if (line->failed)
		rc = err_set(e, CA_SOFTWARE, "no memory");
out:
	json_free(config);
	str_release(&own);
	str_release(&text);
	return rc;
}

/* Starts Python with one end of a socket; returns the other end. */
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
	setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(fd[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	c->fd = fd[0];
	reader_init(&c->in, c->fd, -1);
	return 0;
}

int tmpl_open(const char *dir, struct tmpl **out, struct err *e)
{
	struct str line = STR_INIT;
	struct tmpl *c = NULL;
	int rc = -1;

	*out = NULL;
	if (hello(dir, &line, e))
		goto out;
	rc = 0;
	if (!line.len)
		goto out;
	rc = -1;
	c = calloc(1, sizeof *c);
	if (!c) {
		err_set(e, CA_SOFTWARE, "no memory");
		goto out;
	}
	pthread_mutex_init(&c->lock, NULL);
	c->fd = -1;
	if (!start(c, e) && !write_full(c->fd, line.buf, line.len, e))
		rc = 0;
out:
	str_release(&line);
	if (rc) {
		tmpl_close(c);
		c = NULL;
	}
	*out = c;
	return rc;
}

void tmpl_close(struct tmpl *c)
{
	if (!c)
		return;
	if (c->fd >= 0) {
		close(c->fd);
		child_finish(c->pid, deadline_in(LEAVE_SECONDS), NULL);
		reader_release(&c->in);
	}
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Sends a line, takes the answer's tree; NULL on failure. */
static struct json *ask(struct tmpl *c, const struct str *line, struct err *e)
{
	struct json *j = NULL;
	char *answer;
	size_t len;

	pthread_mutex_lock(&c->lock);
	if (write_full(c->fd, line->buf, line->len, e))
		err_wrap(e, "chat template");
	else if (reader_next(&c->in, &answer, &len, e) != LINE_OK)
		err_set(e, CA_UNAVAILABLE, "chat template: its renderer does "
			"not answer");
	else
		j = json_parse(answer, len, JSON_MAX_LINE, NULL, e);
	pthread_mutex_unlock(&c->lock);
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

int tmpl_render(struct tmpl *c, const struct json *messages, size_t n,
		const struct json *tools, int open, struct str *out,
		struct err *e)
{
	struct str line = STR_INIT;
	struct json *j = NULL;
	const char *text;
	struct jw w;
	int rc = -1;

	if (!c)
		return err_set(e, CA_DATAERR, "the model has no chat "
			       "template");
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
