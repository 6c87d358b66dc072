/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/prompt.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nn/marks.h"
#include "nn/template.h"

struct prompt {
	struct tok *tok;
	struct tmpl *chat;
	struct marks *marks;
	pthread_mutex_t lock;		/* of the tokenizer */
};

struct prompt *prompt_open(const char *dir, struct err *e)
{
	struct prompt *p = calloc(1, sizeof *p);

	if (!p) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	pthread_mutex_init(&p->lock, NULL);
	p->tok = tok_open(dir, e);
	if (p->tok && !tmpl_open(dir, &p->chat, e)) {
		p->marks = marks_new(p->tok);
		if (p->marks)
			return p;
		err_set(e, CA_SOFTWARE, "no memory");
	}
	prompt_close(p);
	return NULL;
}

void prompt_close(struct prompt *p)
{
	if (!p)
		return;
	marks_free(p->marks);
	tmpl_close(p->chat);
	tok_free(p->tok);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

const struct tok *prompt_tok(const struct prompt *p)
{
	return p->tok;
}

int prompt_text(struct prompt *p, const char *text, size_t len,
		struct tok_ids *out, struct err *e)
{
	int rc;

	pthread_mutex_lock(&p->lock);
	rc = tok_encode(p->tok, text, len, TOK_TEMPLATE, out, e);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

/* Content in parts: their texts, a line each. */
static int write_parts(struct prompt *p, const struct json *parts,
		       struct jw *w, struct err *e)
{
	struct str all = STR_INIT;
	const struct json *j;

	for (j = json_first(parts); j; j = json_next(j)) {
		const char *type = json_get_str(j, "type", "");
		const char *text = json_get_str(j, "text", NULL);

		if (strcmp(type, "text") || !text) {
			str_release(&all);
			return err_set(e, CA_DATAERR, "a part of a message "
				       "is of type '%s': only text is "
				       "understood", type);
		}
		if (j != json_first(parts))
			str_addc(&all, '\n');
		str_adds(&all, text);
	}
	marks_hide(p->marks, all.buf ? all.buf : "", w);
	w->out->failed |= all.failed;
	str_release(&all);
	return 0;
}

/* Arguments in a text that is JSON, as that JSON; anything else as it is. */
static void write_arguments(struct prompt *p, const struct json *j,
			    struct jw *w)
{
	const char *text = json_str(j, NULL);
	struct json *own = text ? json_parse(text, strlen(text),
					     JSON_MAX_LINE, NULL, NULL) : NULL;

	marks_hide_value(p->marks, json_type(own) == JSON_OBJECT ? own : j,
			 w);
	json_free(own);
}

static void write_function(struct prompt *p, const struct json *f,
			   struct jw *w)
{
	const struct json *j;

	if (json_type(f) != JSON_OBJECT) {
		marks_hide_value(p->marks, f, w);
		return;
	}
	jw_obj(w);
	for (j = json_first(f); j; j = json_next(j)) {
		jw_key(w, json_key(j));
		if (!strcmp(json_key(j), "arguments"))
			write_arguments(p, j, w);
		else
			marks_hide_value(p->marks, j, w);
	}
	jw_end_obj(w);
}

static void write_calls(struct prompt *p, const struct json *calls,
			struct jw *w)
{
	const struct json *c, *j;

	jw_arr(w);
	for (c = json_first(calls); c; c = json_next(c)) {
		jw_obj(w);
		for (j = json_first(c); j; j = json_next(j)) {
			jw_key(w, json_key(j));
			if (!strcmp(json_key(j), "function"))
				write_function(p, j, w);
			else
				marks_hide_value(p->marks, j, w);
		}
		jw_end_obj(w);
	}
	jw_end_arr(w);
}

static int write_message(struct prompt *p, const struct json *m, struct jw *w,
			 struct err *e)
{
	const struct json *j;

	if (!json_get_str(m, "role", NULL))
		return err_set(e, CA_DATAERR, "a message has no role");
	jw_obj(w);
	for (j = json_first(m); j; j = json_next(j)) {
		const char *key = json_key(j);

		jw_key(w, key);
		if (!strcmp(key, "content") && json_type(j) == JSON_ARRAY) {
			if (write_parts(p, j, w, e))
				return -1;
		} else if (!strcmp(key, "tool_calls") &&
			   json_type(j) == JSON_ARRAY) {
			write_calls(p, j, w);
		} else {
			marks_hide_value(p->marks, j, w);
		}
	}
	jw_end_obj(w);
	return 0;
}

/* The tree of the first n messages with special tokens hidden; NULL on
 * failure. */
static struct json *hidden(struct prompt *p, const struct json *messages,
			   size_t n, struct err *e)
{
	struct str s = STR_INIT;
	struct json *j = NULL;
	struct jw w;
	int rc = 0;

	jw_init(&w, &s);
	jw_arr(&w);
	for (const struct json *m = json_first(messages); m && n-- && !rc;
	     m = json_next(m))
		rc = write_message(p, m, &w, e);
	jw_end_arr(&w);
	if (!rc && s.failed)
		rc = err_set(e, CA_SOFTWARE, "no memory");
	if (!rc)
		j = json_build(s.buf, s.len, e);
	str_release(&s);
	return j;
}

static struct json *hidden_tools(struct prompt *p, const struct json *tools,
				 struct err *e)
{
	struct str s = STR_INIT;
	struct json *j = NULL;
	struct jw w;

	jw_init(&w, &s);
	marks_hide_value(p->marks, tools, &w);
	if (s.failed)
		err_set(e, CA_SOFTWARE, "no memory");
	else
		j = json_build(s.buf, s.len, e);
	str_release(&s);
	return j;
}

/* The ids of rendered text, which has special tokens hidden. */
static int encode(struct prompt *p, const char *rendered, size_t len,
		  struct tok_ids *out, struct err *e)
{
	struct marks_spans spans = MARKS_SPANS_INIT;
	struct str text = STR_INIT;
	int rc = -1;

	if (marks_reveal(p->marks, rendered, len, &text, &spans)) {
		err_set(e, CA_SOFTWARE, "no memory");
		goto out;
	}
	pthread_mutex_lock(&p->lock);
	rc = tok_encode_spans(p->tok, text.buf ? text.buf : "", text.len,
			      spans.span, spans.n, 0, out, e);
	pthread_mutex_unlock(&p->lock);
out:
	marks_spans_release(&spans);
	str_release(&text);
	return rc;
}

/* What templates read: trees with special tokens hidden. */
struct said {
	struct json *messages, *tools;
};

static int said_init(struct said *s, struct prompt *p,
		     const struct json *messages, size_t n,
		     const struct json *tools, struct err *e)
{
	*s = (struct said){ hidden(p, messages, n, e), NULL };
	if (s->messages && tools)
		s->tools = hidden_tools(p, tools, e);
	return s->messages && (!tools || s->tools) ? 0 : -1;
}

static void said_release(struct said *s)
{
	json_free(s->messages);
	json_free(s->tools);
}

/* The text of the first n messages. */
static int render(struct prompt *p, const struct said *s, size_t n, int open,
		  struct str *out, struct err *e)
{
	if (tmpl_render(p->chat, s->messages, n, s->tools, open, out, e))
		return -1;
	if (!out->buf && str_adds(out, ""))
		return err_set(e, CA_SOFTWARE, "no memory");
	return 0;
}

int prompt_chat_first(struct prompt *p, const struct json *messages, size_t n,
		      const struct json *tools, int open,
		      struct tok_ids *out, struct err *e)
{
	struct str text = STR_INIT;
	struct said s;
	int rc = -1;

	if (json_type(messages) != JSON_ARRAY)
		return err_set(e, CA_DATAERR, "'messages' has to be a list of "
			       "messages");
	if (!said_init(&s, p, messages, n, tools, e) &&
	    !render(p, &s, json_len(s.messages), open, &text, e))
		rc = encode(p, text.buf, text.len, out, e);
	said_release(&s);
	str_release(&text);
	return rc;
}

int prompt_chat(struct prompt *p, const struct json *messages,
		const struct json *tools, struct tok_ids *out, struct err *e)
{
	return prompt_chat_first(p, messages, json_len(messages), tools, 1,
				 out, e);
}

/* Where in a text that ends with the token's own and white space the token
 * ends; 0: it does not end so. */
static size_t behind_last(const struct prompt *p, int32_t id,
			  const struct str *s)
{
	struct str mark = STR_INIT;
	size_t end = s->len, found = 0;

	while (end && strchr(" \t\r\n", s->buf[end - 1]))
		end--;
	if (tok_special(p->tok, id) && !tok_decode(p->tok, &id, 1, 0, &mark) &&
	    mark.len && mark.len <= end &&
	    !memcmp(s->buf + end - mark.len, mark.buf, mark.len))
		found = end;
	str_release(&mark);
	return found;
}

int prompt_chat_on(struct prompt *p, const struct json *messages, size_t n,
		   const struct json *tools, struct tok_ids *out,
		   struct err *e)
{
	struct str all = STR_INIT, part = STR_INIT;
	struct said s;
	size_t at;
	int rc = -1;

	if (said_init(&s, p, messages, SIZE_MAX, tools, e) ||
	    render(p, &s, n, 0, &part, e) ||
	    render(p, &s, json_len(s.messages), 1, &all, e))
		goto out;
	rc = 0;
	at = out->n ? behind_last(p, out->id[out->n - 1], &part) : 0;
	if (!at || part.len > all.len || memcmp(part.buf, all.buf, part.len))
		goto out;
	rc = encode(p, all.buf + at, all.len - at, out, e) ? -1 : 1;
out:
	said_release(&s);
	str_release(&all);
	str_release(&part);
	return rc;
}
