/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "serve/reply.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "serve/tools.h"

/* Which part of an answer is written: tokens and bytes of its text. */
struct slice {
	int from, to;
	size_t begin, end;
	size_t chars;			/* in front of it */
};

static size_t text_end(const struct choice *h)
{
	return h->limit < h->text.len ? h->limit : h->text.len;
}

static const char *text_at(const struct choice *h, size_t at)
{
	return h->text.buf ? h->text.buf + at : "";
}

static const struct tok_ids *prompt_of(const struct query *q,
				       const struct choice *h)
{
	return &q->prompt[h->index / q->w.n];
}

/* Token i of an answer, of which the first may be the prompt's. */
static int32_t id_of(const struct choice *h, int i)
{
	return i < h->lead ? h->r.prompt[i] : h->r.id[i - h->lead];
}

/* The first choice with its prompt has that scored. */
static const struct gen_req *scores_of(const struct query *q,
				       const struct choice *h)
{
	return &q->choice[h->index / q->w.n * q->w.n].r;
}

static void write_logprob(const struct query *q, const struct choice *h, int i,
			  struct jw *w)
{
	if (!i && h->lead)
		jw_null(w);
	else
		jw_num(w, (double)(i < h->lead ?
				   scores_of(q, h)->prompt_logprob[i] :
				   h->r.logprob[i - h->lead]));
}

/* The alternatives to token i. */
static const struct engine_top *top_of(const struct query *q,
				       const struct choice *h, int i)
{
	size_t n = (size_t)h->r.ntop;

	return i < h->lead ? scores_of(q, h)->prompt_top + (size_t)i * n :
	       h->r.top + (size_t)(i - h->lead) * n;
}

/* A token's own text. */
static void write_token(const struct query *q, int32_t id, struct jw *w,
			int bytes)
{
	struct str s = STR_INIT;

	tok_decode(prompt_tok(q->c->prompt), &id, 1, 0, &s);
	if (!bytes) {
		jw_strn(w, s.buf ? s.buf : "", s.len);
	} else {
		jw_arr(w);
		for (size_t i = 0; i < s.len; i++)
			jw_int(w, (unsigned char)s.buf[i]);
		jw_end_arr(w);
	}
	str_release(&s);
}

/* Where the text of token i begins. */
static size_t own_begin(const struct choice *h, int i)
{
	return utf8_whole(text_at(h, 0), i ? h->end[i - 1] : 0);
}

/* Token i as text: the characters that it completes (none for a special one),
 * so that the tokens' texts make up the answer's. */
static void write_own(const struct choice *h, int i, struct jw *w)
{
	size_t from = own_begin(h, i), to = h->end[i];

	if (i + 1 < h->seen || !h->ended)
		to = utf8_whole(text_at(h, 0), to);
	jw_strn(w, text_at(h, from), to - from);
}

static void write_top(const struct query *q, const struct choice *h, int i,
		      struct jw *w)
{
	const struct engine_top *t = top_of(q, h, i);

	jw_arr(w);
	for (int k = 0; k < h->r.ntop; k++) {
		jw_obj(w);
		jw_key(w, "token");
		write_token(q, t[k].id, w, 0);
		jw_knum(w, "logprob", (double)t[k].logprob);
		jw_key(w, "bytes");
		write_token(q, t[k].id, w, 1);
		jw_end_obj(w);
	}
	jw_end_arr(w);
}

static void chat_logprobs(const struct query *q, const struct choice *h,
			  const struct slice *s, struct jw *w)
{
	jw_obj(w);
	jw_key(w, "content");
	jw_arr(w);
	for (int i = s->from; i < s->to; i++) {
		jw_obj(w);
		jw_key(w, "token");
		write_own(h, i, w);
		jw_key(w, "logprob");
		write_logprob(q, h, i, w);
		jw_key(w, "bytes");
		write_token(q, id_of(h, i), w, 1);
		jw_key(w, "top_logprobs");
		write_top(q, h, i, w);
		jw_end_obj(w);
	}
	jw_end_arr(w);
	jw_key(w, "refusal");
	jw_null(w);
	jw_end_obj(w);
}

/* Alternatives as one object; of equal texts the likeliest. */
static void text_top(const struct query *q, const struct choice *h, int i,
		     struct jw *w)
{
	const struct tok *tok = prompt_tok(q->c->prompt);
	const struct engine_top *t = top_of(q, h, i);
	struct str key = STR_INIT, all = STR_INIT;
	struct jw one;

	if (!i && h->lead) {
		jw_null(w);
		return;
	}
	jw_obj(w);
	for (int k = 0; k < h->r.ntop; k++) {
		size_t was = all.len;

		str_reset(&key);
		tok_decode(tok, &t[k].id, 1, 0, &key);
		/* As it will be spelt, in front of a separator. */
		jw_init(&one, &all);
		jw_str(&one, key.buf ? key.buf : "");
		str_addc(&all, '\n');
		if (was && memmem(all.buf, was, all.buf + was, all.len - was))
			continue;
		jw_key(w, key.buf ? key.buf : "");
		jw_num(w, (double)t[k].logprob);
	}
	jw_end_obj(w);
	str_release(&key);
	str_release(&all);
}

/* Characters of the text, as many as a client finds in it. */
static size_t count_chars(const struct choice *h, size_t from, size_t to)
{
	size_t chars = 0, n;

	for (; from < to; from += n ? n : 1, chars++)
		n = utf8_len(text_at(h, from), to - from);
	return chars;
}

static void text_logprobs(const struct query *q, const struct choice *h,
			  const struct slice *s, struct jw *w)
{
	size_t chars = s->chars, at = own_begin(h, s->from);

	jw_obj(w);
	jw_key(w, "tokens");
	jw_arr(w);
	for (int i = s->from; i < s->to; i++)
		write_own(h, i, w);
	jw_end_arr(w);
	jw_key(w, "token_logprobs");
	jw_arr(w);
	for (int i = s->from; i < s->to; i++)
		write_logprob(q, h, i, w);
	jw_end_arr(w);
	jw_key(w, "top_logprobs");
	if (h->r.ntop) {
		jw_arr(w);
		for (int i = s->from; i < s->to; i++)
			text_top(q, h, i, w);
		jw_end_arr(w);
	} else {
		jw_null(w);
	}
	jw_key(w, "text_offset");
	jw_arr(w);
	for (int i = s->from; i < s->to; i++) {
		chars += count_chars(h, at, own_begin(h, i));
		at = own_begin(h, i);
		jw_int(w, (int64_t)chars);
	}
	jw_end_arr(w);
	jw_end_obj(w);
}

/* What both kinds of answers have of tokens. */
static void write_tokens(const struct query *q, const struct choice *h,
			 const struct slice *s, struct jw *w)
{
	jw_key(w, "logprobs");
	if (!q->w.logprobs)
		jw_null(w);
	else if (q->w.kind == WANT_CHAT)
		chat_logprobs(q, h, s, w);
	else
		text_logprobs(q, h, s, w);
	if (!q->w.token_ids)
		return;
	jw_key(w, "token_ids");
	jw_arr(w);
	for (int i = s->from > h->lead ? s->from : h->lead; i < s->to; i++)
		jw_int(w, id_of(h, i));
	jw_end_arr(w);
}

static void write_prompt_ids(const struct tok_ids *p, struct jw *w)
{
	jw_key(w, "prompt_token_ids");
	jw_arr(w);
	for (size_t i = 0; i < p->n; i++)
		jw_int(w, p->id[i]);
	jw_end_arr(w);
}

static const char *finish_of(const struct choice *h, size_t calls)
{
	if (h->r.end == GEN_LENGTH && !h->stopped)
		return "length";
	return calls ? "tool_calls" : "stop";
}

/* Begins call number i; its name and arguments follow. */
static void begin_call(const struct query *q, const struct choice *h,
		       size_t i, int numbered, struct jw *w)
{
	char id[96];

	snprintf(id, sizeof id, "call_%s_%d_%zu", strchr(q->id, '-') + 1,
		 h->index, i);
	jw_obj(w);
	if (numbered)
		jw_kint(w, "index", (int64_t)i);
	jw_kstr(w, "id", id);
	jw_kstr(w, "type", "function");
	jw_key(w, "function");
	jw_obj(w);
}

/* Those from number `from` on; numbered in a stream. */
static void write_calls(const struct query *q, const struct choice *h,
			const struct tools_calls *c, size_t from,
			int numbered, struct jw *w)
{
	jw_key(w, "tool_calls");
	jw_arr(w);
	for (size_t i = from; i < c->n; i++) {
		begin_call(q, h, i, numbered, w);
		jw_kstr(w, "name", c->call[i].name);
		jw_kstr(w, "arguments", c->call[i].arguments);
		jw_end_obj(w);
		jw_end_obj(w);
	}
	jw_end_arr(w);
}

static void write_head(const struct query *q, const char *object,
		       const struct gen_weights *by, struct jw *w)
{
	char print[40];

	snprintf(print, sizeof print, "weights-%016llx",
		 (unsigned long long)by->sum);
	jw_obj(w);
	jw_kstr(w, "id", q->id);
	jw_kstr(w, "object", object);
	jw_kint(w, "created", q->created);
	jw_kstr(w, "model", q->c->o.name);
	jw_kstr(w, "system_fingerprint", print);
	jw_kint(w, "weight_version", (int64_t)by->version);
	if (q->w.token_ids)
		jw_kstr(w, "logprobs_mode", "temperature");
}

static const char *object_of(const struct query *q, int chunk)
{
	return q->w.kind == WANT_TEXT ? "text_completion" : chunk ?
	       "chat.completion.chunk" : "chat.completion";
}

static int find_calls(const struct query *q, const struct choice *h,
		      struct tools_calls *c)
{
	c->n = 0;
	c->content = text_end(h);
	if (!q->w.tools)
		return 0;
	return tools_find(q->w.tools, text_at(h, 0), text_end(h), c);
}

/* What a choice says of itself at its end. */
static void write_end(const struct choice *h, size_t calls, struct jw *w)
{
	jw_kstr(w, "finish_reason", finish_of(h, calls));
	if (h->r.weights[0].version == h->r.weights[1].version)
		return;
	jw_key(w, "weight_versions");	/* of its first and last token */
	jw_arr(w);
	jw_int(w, (int64_t)h->r.weights[0].version);
	jw_int(w, (int64_t)h->r.weights[1].version);
	jw_end_arr(w);
}

static void write_message(const struct query *q, const struct choice *h,
			  const struct tools_calls *c, struct jw *w)
{
	size_t n = c->content;

	while (c->n && n && strchr(" \t\r\n", h->text.buf[n - 1]))
		n--;
	jw_key(w, "message");
	jw_obj(w);
	jw_kstr(w, "role", "assistant");
	jw_key(w, "content");
	if (n || !c->n)
		jw_strn(w, text_at(h, 0), n);
	else
		jw_null(w);
	jw_key(w, "refusal");
	jw_null(w);
	if (c->n)
		write_calls(q, h, c, 0, 0, w);
	jw_end_obj(w);
}

/* Remembers of which tokens an answer is, by the message that it was. */
static void remember(const struct query *q, const struct choice *h,
		     const struct tools_calls *c)
{
	struct recall_key k = q->key;
	struct str s = STR_INIT;
	struct json *root;
	struct jw w;

	if (q->w.kind != WANT_CHAT || !h->seen)
		return;
	jw_init(&w, &s);
	jw_obj(&w);
	write_message(q, h, c, &w);
	jw_end_obj(&w);
	root = s.failed ? NULL : json_build(s.buf, s.len, NULL);
	if (root && !recall_add(q->c->recall, &k,
				json_get(root, "message")))
		recall_put(q->c->recall, &k, prompt_of(q, h), h->r.id,
			   h->seen, q->home);
	json_free(root);
	str_release(&s);
}

static int write_choice(const struct query *q, const struct choice *h,
			struct jw *w)
{
	const struct slice all = { 0, h->seen, 0, text_end(h), 0 };
	struct tools_calls c;
	int rc = find_calls(q, h, &c);

	jw_obj(w);
	jw_kint(w, "index", h->index);
	if (q->w.kind == WANT_CHAT) {
		write_message(q, h, &c, w);
	} else {
		jw_key(w, "text");
		jw_strn(w, text_at(h, 0), all.end);
	}
	write_tokens(q, h, &all, w);
	if (q->w.token_ids && q->w.kind == WANT_TEXT)
		write_prompt_ids(prompt_of(q, h), w);
	write_end(h, c.n, w);
	jw_end_obj(w);
	remember(q, h, &c);
	tools_release(&c);
	return rc;
}

static void write_usage(const struct query *q, struct jw *w)
{
	int64_t prompt = 0, shared = 0, new = 0;

	for (int i = 0; i < q->w.nprompts; i++)
		prompt += (int64_t)q->prompt[i].n;
	for (int i = 0; i < q->nchoices; i++) {
		new += q->choice[i].seen - q->choice[i].lead;
		if (i % q->w.n == 0)
			shared += q->choice[i].r.shared;
	}
	jw_key(w, "usage");
	jw_obj(w);
	jw_kint(w, "prompt_tokens", prompt);
	jw_kint(w, "completion_tokens", new);
	jw_kint(w, "total_tokens", prompt + new);
	jw_key(w, "prompt_tokens_details");
	jw_obj(w);
	jw_kint(w, "cached_tokens", shared);
	jw_end_obj(w);
	jw_end_obj(w);
}

static const struct gen_weights *newest(const struct query *q)
{
	const struct gen_weights *all = &q->choice[0].weights;

	for (int i = 1; i < q->nchoices; i++)
		if (q->choice[i].weights.version > all->version)
			all = &q->choice[i].weights;
	return all;
}

int reply_whole(const struct query *q, struct str *out)
{
	struct jw w;
	int rc = 0;

	jw_init(&w, out);
	write_head(q, object_of(q, 0), newest(q), &w);
	jw_key(&w, "choices");
	jw_arr(&w);
	for (int i = 0; i < q->nchoices; i++)
		rc |= write_choice(q, &q->choice[i], &w);
	jw_end_arr(&w);
	if (q->w.token_ids && q->w.kind == WANT_CHAT)
		write_prompt_ids(&q->prompt[0], &w);
	write_usage(q, &w);
	jw_end_obj(&w);
	return rc;
}

/* An event with one choice; its members come in between. */
static void begin_event(const struct query *q, const struct choice *h,
			struct str *out, struct jw *w)
{
	str_adds(out, "data: ");
	jw_init(w, out);
	write_head(q, object_of(q, 1), &h->weights, w);
	jw_key(w, "choices");
	jw_arr(w);
	jw_obj(w);
	jw_kint(w, "index", h->index);
}

static void end_event(const struct query *q, struct jw *w)
{
	jw_end_obj(w);
	jw_end_arr(w);
	if (q->w.stream_usage) {
		jw_key(w, "usage");
		jw_null(w);
	}
	jw_end_obj(w);
	str_adds(w->out, "\n\n");
}

void reply_open(const struct query *q, const struct choice *h,
		struct str *out)
{
	struct jw w;

	if (q->w.kind != WANT_CHAT && !q->w.token_ids)
		return;
	begin_event(q, h, out, &w);
	if (q->w.kind == WANT_CHAT) {
		jw_key(&w, "delta");
		jw_obj(&w);
		jw_kstr(&w, "role", "assistant");
		jw_kstr(&w, "content", "");
		jw_end_obj(&w);
	} else {
		jw_kstr(&w, "text", "");
	}
	jw_key(&w, "logprobs");
	jw_null(&w);
	if (q->w.token_ids)
		write_prompt_ids(prompt_of(q, h), &w);
	jw_key(&w, "finish_reason");
	jw_null(&w);
	end_event(q, &w);
}

static void write_delta(const struct query *q, const struct choice *h,
			size_t upto, struct jw *w)
{
	size_t n = upto - h->told;

	if (q->w.kind == WANT_TEXT) {
		jw_key(w, "text");
		jw_strn(w, text_at(h, h->told), n);
		return;
	}
	jw_key(w, "delta");
	jw_obj(w);
	if (n) {
		jw_key(w, "content");
		jw_strn(w, text_at(h, h->told), n);
	}
	jw_end_obj(w);
}

void reply_more(const struct query *q, struct choice *h, size_t upto,
		struct str *out)
{
	const struct slice s = { h->told_tokens, h->seen, h->told, upto,
				 h->told_chars };
	int tokens = q->w.logprobs || q->w.token_ids;
	struct jw w;

	if (s.end == s.begin && (s.from == s.to || !tokens))
		return;
	begin_event(q, h, out, &w);
	write_delta(q, h, upto, &w);
	write_tokens(q, h, &s, &w);
	jw_key(&w, "finish_reason");
	jw_null(&w);
	end_event(q, &w);
	if (s.to > s.from && q->w.logprobs)
		h->told_chars += count_chars(h, own_begin(h, s.from),
					     own_begin(h, s.to));
	h->told = upto;
	h->told_tokens = h->seen;
}

static void begin_delta(const struct query *q, const struct choice *h,
			struct str *out, struct jw *w)
{
	begin_event(q, h, out, w);
	jw_key(w, "delta");
	jw_obj(w);
	jw_key(w, "tool_calls");
	jw_arr(w);
}

static void end_delta(const struct query *q, struct jw *w)
{
	jw_end_obj(w);			/* the function, */
	jw_end_obj(w);			/* the call, */
	jw_end_arr(w);
	jw_end_obj(w);			/* the delta */
	jw_key(w, "logprobs");
	jw_null(w);
	jw_key(w, "finish_reason");
	jw_null(w);
	end_event(q, w);
}

/* A call has begun. */
static void tell_call(const struct query *q, struct choice *h,
		      struct str *out)
{
	const struct tools_scan *s = &h->scan;
	struct jw w;

	begin_delta(q, h, out, &w);
	begin_call(q, h, s->calls - 1, 1, &w);
	jw_key(&w, "name");
	jw_strn(&w, text_at(h, s->name), s->name_len);
	jw_kstr(&w, "arguments", "");
	end_delta(q, &w);
	h->told_calls = s->calls;
	h->told_args = s->from;
}

static void tell_arguments(const struct query *q, struct choice *h,
			   struct str *out)
{
	const struct tools_scan *s = &h->scan;
	struct jw w;

	begin_delta(q, h, out, &w);
	jw_obj(&w);
	jw_kint(&w, "index", (int64_t)s->calls - 1);
	jw_key(&w, "function");
	jw_obj(&w);
	jw_key(&w, "arguments");
	jw_strn(&w, text_at(h, h->told_args), s->to - h->told_args);
	end_delta(q, &w);
	h->told_args = s->to;
}

void reply_calls(const struct query *q, struct choice *h, size_t upto,
		 struct str *out)
{
	struct tools_scan *s = &h->scan;

	while (tools_follow(s, q->w.tools, text_at(h, 0), upto)) {
		if (h->told_calls < s->calls)
			tell_call(q, h, out);
		if (h->told_args < s->to)
			tell_arguments(q, h, out);
		if (s->state != TOOLS_TAIL)
			return;
	}
}

int reply_finish(const struct query *q, struct choice *h, struct str *out)
{
	struct tools_calls c;
	struct jw w;
	int rc = find_calls(q, h, &c);

	/* What was told as a call, and then cut off, is no content. */
	if (!h->told_calls && h->told < c.content)
		reply_more(q, h, c.content, out);
	begin_event(q, h, out, &w);
	if (q->w.kind == WANT_CHAT) {
		jw_key(&w, "delta");
		jw_obj(&w);
		if (c.n > h->told_calls)
			write_calls(q, h, &c, h->told_calls, 1, &w);
		jw_end_obj(&w);
	} else {
		jw_kstr(&w, "text", "");
	}
	jw_key(&w, "logprobs");
	jw_null(&w);
	write_end(h, c.n + h->told_calls, &w);
	end_event(q, &w);
	remember(q, h, &c);
	tools_release(&c);
	return rc;
}

void reply_end(const struct query *q, struct str *out)
{
	struct jw w;

	if (q->w.stream_usage) {
		str_adds(out, "data: ");
		jw_init(&w, out);
		write_head(q, object_of(q, 1), newest(q), &w);
		jw_key(&w, "choices");
		jw_arr(&w);
		jw_end_arr(&w);
		write_usage(q, &w);
		jw_end_obj(&w);
		str_adds(out, "\n\n");
	}
	str_adds(out, "data: [DONE]\n\n");
}

void reply_fault(const struct fault *f, struct str *out)
{
	str_adds(out, "data: ");
	fault_write(f, out);
	str_adds(out, "\n\n");
}
