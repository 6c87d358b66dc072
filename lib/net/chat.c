/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat completions.
 */
#define _GNU_SOURCE
#include "net/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/utf8.h"

struct chat {
	struct chat_opts o;
	struct net *net;
	struct net_reply reply;
	struct rng rng;
	struct str url, auth;
	struct chat_answer *answer;	/* of the call in hand */
};

static const struct net_limits default_limits = {
	.connect_s = 10, .first_s = 1800, .idle_s = 120,
	.cap = JSON_MAX_FILE
};

static void fill(struct net_limits *l)
{
	const struct net_limits *d = &default_limits;

	l->connect_s = l->connect_s > 0 ? l->connect_s : d->connect_s;
	l->first_s = l->first_s > 0 ? l->first_s : d->first_s;
	l->idle_s = l->idle_s > 0 ? l->idle_s : d->idle_s;
	l->cap = l->cap ? l->cap : d->cap;
}

static int set_url(struct chat *c, const char *base, struct err *e)
{
	size_t n = strlen(base);

	if (net_check_url(base, e))
		return -1;
	while (n && base[n - 1] == '/')
		n--;
	str_add(&c->url, base, n);
	return str_adds(&c->url, "/chat/completions");
}

int chat_check_key(const char *key, struct err *e)
{
	return strpbrk(key, "\r\n") ? err_set(e, CA_CONFIG, "the key of the "
					      "endpoint holds a line break") :
				       0;
}

static int set_auth(struct chat *c, const char *key, struct err *e)
{
	if (key && chat_check_key(key, e))
		return -1;
	if (key)
		str_addf(&c->auth, "Authorization: Bearer %s", key);
	return 0;
}

struct chat *chat_open(const struct chat_opts *o, struct err *e)
{
	struct chat *c = calloc(1, sizeof(*c));

	if (!c) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	c->o = *o;
	c->o.attempts = o->attempts > 0 ? o->attempts : 8;
	c->o.base_s = o->base_s > 0 ? o->base_s : 2;
	c->o.cap_s = o->cap_s > 0 ? o->cap_s : 60;
	fill(&c->o.limits);
	rng_fresh(&c->rng);
	if (!set_url(c, o->endpoint, e) && !set_auth(c, o->key, e))
		c->net = net_open(o->idle, e);
	if (c->net)
		return c;
	chat_close(c);
	return NULL;
}

void chat_close(struct chat *c)
{
	if (!c)
		return;
	net_close(c->net);
	net_reply_release(&c->reply);
	str_release(&c->url);
	str_release(&c->auth);
	free(c);
}

void chat_answer_release(struct chat_answer *a)
{
	json_free(a->root);
	a->root = NULL;
	a->message = NULL;
	a->finish = NULL;
}

/* A code unit \\uXXXX; -1: none. */
static long unit(const char *p, const char *end)
{
	char digits[5];

	if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
		return -1;
	memcpy(digits, p + 2, 4);
	digits[4] = '\0';
	return strspn(digits, "0123456789abcdefABCDEF") == 4 ?
	       strtol(digits, NULL, 16) : -1;
}

static int is_half(long cp, long from)
{
	return cp >= from && cp < from + 0x400;
}

/* What a model may say and no record can hold: NUL, half of a surrogate pair
 * and bytes that are no UTF-8 become U+FFFD. */
static void soften(const char *p, size_t len, struct str *out)
{
	const char *end = p + len;

	while (p < end) {
		long cp = unit(p, end);
		size_t n = cp >= 0 ? 6 : *p == '\\' && p + 1 < end ? 2 :
			   utf8_len(p, (size_t)(end - p));

		if (is_half(cp, 0xd800) && is_half(unit(p + 6, end), 0xdc00))
			n = 12;
		else if (cp == 0 || is_half(cp, 0xd800) || is_half(cp, 0xdc00))
			cp = -2;
		if (n && cp != -2)
			str_add(out, p, n);
		else
			str_adds(out, "\xef\xbf\xbd");
		p += n ? n : 1;
	}
}

static struct json *parse(const char *body, size_t len, struct err *e)
{
	struct json *j = json_parse(body, len, JSON_MAX_FILE, NULL, e);
	struct str s = STR_INIT;

	if (j)
		return j;
	soften(body, len, &s);
	if (s.buf)
		j = json_parse(s.buf, s.len, JSON_MAX_FILE, NULL, NULL);
	str_release(&s);
	return j;
}

/* Prints a tree with a text in place of one of its nodes. */
static void write_with(struct jw *w, const struct json *j,
		       const struct json *node, const struct str *text)
{
	enum json_type type = json_type(j);
	const struct json *k;

	if (j == node) {
		jw_strn(w, text->buf ? text->buf : "", text->len);
	} else if (type == JSON_OBJECT) {
		jw_obj(w);
		for (k = json_first(j); k; k = json_next(k)) {
			jw_key(w, json_key(k));
			write_with(w, k, node, text);
		}
		jw_end_obj(w);
	} else if (type == JSON_ARRAY) {
		jw_arr(w);
		for (k = json_first(j); k; k = json_next(k))
			write_with(w, k, node, text);
		jw_end_arr(w);
	} else {
		jw_node(w, j);
	}
}

/* Some servers give the content in parts: their texts are the content. */
static struct json *join_parts(struct json *root)
{
	const struct json *choice = json_first(json_get(root, "choices"));
	const struct json *all = json_path(choice, "message.content"), *part;
	struct str text = STR_INIT, s = STR_INIT;
	struct json *joined = NULL;
	struct jw w;

	if (json_type(all) != JSON_ARRAY)
		return root;
	for (part = json_first(all); part; part = json_next(part))
		str_adds(&text, json_get_str(part, "text", ""));
	jw_init(&w, &s);
	write_with(&w, root, all, &text);
	if (!s.failed && !text.failed)
		joined = json_build(s.buf, s.len, NULL);
	str_release(&text);
	str_release(&s);
	json_free(joined ? root : NULL);
	return joined ? joined : root;
}

static int filled(const struct json *message, const char *key)
{
	const struct json *j = json_get(message, key);

	if (json_type(j) == JSON_STRING)
		return *json_str(j, "") != '\0';
	return json_len(j) > 0;
}

/* The message of an error body, in whichever of the usual places it is,
 * behind the status, if that is not 0. */
static void error_text(const char *body, size_t len, int status, char *out,
		       size_t outlen)
{
	struct json *j = json_parse(body, len, JSON_MAX_LINE, NULL, NULL);
	const char *m = json_str(json_path(j, "error.message"), NULL);
	struct str s = STR_INIT;

	m = m ? m : json_get_str(j, "message", NULL);
	m = m ? m : json_get_str(j, "error", NULL);
	m = m ? m : json_get_str(j, "detail", NULL);
	str_add_safe(&s, m ? m : body ? body : "",
		     m ? strlen(m) : len < 300 ? len : 300);
	if (status)
		snprintf(out, outlen, "status %d: ", status);
	else
		*out = '\0';
	snprintf(out + strlen(out), outlen - strlen(out), "%.400s",
		 s.buf ? s.buf : "no text");
	str_release(&s);
	json_free(j);
}

static void no_message(const char *body, size_t len, struct chat_answer *a)
{
	char text[sizeof(a->text)];

	error_text(body, len, 0, text, sizeof(text));
	snprintf(a->text, sizeof(a->text), "the answer has no message: %.450s",
		 text);
}

/* A number of tokens that can be one; -1: not told. */
static int64_t tokens(const struct json *usage, const char *key)
{
	int64_t n = json_get_int(usage, key, -1);

	return n < 0 || n > INT32_MAX ? -1 : n;
}

/* 0, or -1 with a->text: the body is no completion. */
static int take_body(const char *body, size_t len, struct chat_answer *a)
{
	const struct json *choice, *usage;
	struct err e = ERR_INIT;

	chat_answer_release(a);
	a->root = join_parts(parse(body, len, &e));
	choice = json_first(json_get(a->root, "choices"));
	a->message = json_get(choice, "message");
	a->finish = json_get_str(choice, "finish_reason", NULL);
	usage = json_get(a->root, "usage");
	a->prompt_tokens = tokens(usage, "prompt_tokens");
	a->completion_tokens = tokens(usage, "completion_tokens");
	if (!a->root)
		snprintf(a->text, sizeof(a->text), "the answer is no JSON: "
			 "%.400s", e.msg);
	else if (json_type(a->message) != JSON_OBJECT)
		no_message(body, len, a);
	else if (a->completion_tokens <= 0 && !filled(a->message, "content") &&
		 !filled(a->message, "reasoning") &&
		 !filled(a->message, "reasoning_content") &&
		 !filled(a->message, "tool_calls"))
		snprintf(a->text, sizeof(a->text), "the answer is empty");
	else
		return 0;
	chat_answer_release(a);
	return -1;
}

/* What servers say when the prompt is too long. */
static int speaks_of_context(const char *text)
{
	static const char *const words[] = {
		"context_length_exceeded", "context length", "context size",
		"context window", "maximum context", "max_model_len",
		"exceed_context_size", "prompt is too long"
	};
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcasestr(text, words[i]))
			return 1;
	return 0;
}

static void take_status(const char *body, size_t len, int status,
			struct chat_answer *a)
{
	struct str s = STR_INIT;

	error_text(body, len, status, a->text, sizeof(a->text));
	str_add(&s, body ? body : "", body ? len : 0);
	if (status >= 500 || status == 408 || status == 425 || status == 429)
		a->how = CHAT_FAULT;
	else
		a->how = s.buf && speaks_of_context(s.buf) ? CHAT_CONTEXT :
							     CHAT_REFUSED;
	str_release(&s);
}

void chat_read(const char *body, size_t len, int status,
	       struct chat_answer *a)
{
	a->attempts = a->attempts ? a->attempts : 1;
	if (status / 100 != 2)
		take_status(body, len, status, a);
	else
		a->how = take_body(body, len, a) ? CHAT_FAULT : CHAT_OK;
}

static int accept_body(void *ctx, struct net_reply *r)
{
	struct chat *c = ctx;

	if (!take_body(r->body.buf ? r->body.buf : "", r->body.len,
		       c->answer))
		return 0;
	snprintf(r->text, sizeof(r->text), "%.255s", c->answer->text);
	return -1;
}

static void pass_note(void *ctx, const struct net_reply *r, double wait)
{
	struct chat *c = ctx;

	if (c->o.note)
		c->o.note(c->o.ctx, r, wait);
}

static void sort_out(struct chat *c, struct chat_answer *a)
{
	const struct net_reply *r = &c->reply;

	a->attempts = r->attempts;
	a->wall_ns = r->wall_ns;
	if (r->how == NET_ANSWER && a->root) {
		a->how = CHAT_OK;
	} else if (r->how == NET_ANSWER) {
		take_status(r->body.buf, r->body.len, r->status, a);
	} else {
		a->how = r->how == NET_SIGNAL ? CHAT_SIGNAL :
			 r->how == NET_DEADLINE ? CHAT_DEADLINE : CHAT_FAULT;
		snprintf(a->text, sizeof(a->text), "%s", r->text);
	}
}

int chat_ask(struct chat *c, const char *body, size_t len, int64_t deadline,
	     struct chat_answer *a, struct err *e)
{
	const char *headers[4] = {
		"Content-Type: application/json", "Accept: application/json",
		c->auth.buf, NULL
	};
	struct net_request q = {
		.url = c->url.buf, .headers = headers, .body = body,
		.len = len, .limits = c->o.limits, .deadline = deadline
	};
	struct net_policy p = {
		.attempts = c->o.attempts, .base_s = c->o.base_s,
		.cap_s = c->o.cap_s, .rng = &c->rng, .accept = accept_body,
		.note = pass_note, .ctx = c
	};

	memset(a, 0, sizeof(*a));
	c->answer = a;
	if (net_call(c->net, &q, &p, &c->reply, e))
		return -1;
	sort_out(c, a);
	return 0;
}
