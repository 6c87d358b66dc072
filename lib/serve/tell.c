/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "serve/tell.h"

#include <string.h>

#include "base/utf8.h"
#include "serve/reply.h"
#include "serve/tools.h"

/* How many bytes at the end of a text may be the beginning of a stop text. */
static size_t stop_begun(const struct query *q, const struct str *s)
{
	size_t most = 0;

	for (int i = 0; i < q->w.nstops; i++) {
		size_t n = strlen(q->w.stop[i]) - 1;

		for (n = n < s->len ? n : s->len; n > most; n--)
			if (!memcmp(s->buf + s->len - n, q->w.stop[i], n))
				most = n;
	}
	return most;
}

/* Looks for a stop text that ends behind byte `was`. */
static void look_for_stop(const struct query *q, struct choice *h, size_t was)
{
	for (int i = 0; i < q->w.nstops; i++) {
		const char *stop = q->w.stop[i], *hit;
		size_t n = strlen(stop), from = was >= n ? was - n + 1 : 0;
		size_t own = h->lead ? h->end[h->lead - 1] : 0;

		/* Not in what the client has said itself. */
		from = from < own ? own : from;
		if (h->text.len < from + n)
			continue;
		hit = memmem(h->text.buf + from, h->text.len - from, stop, n);
		if (hit && (size_t)(hit - h->text.buf) < h->limit) {
			h->limit = (size_t)(hit - h->text.buf);
			h->stopped = 1;
		}
	}
}

/* Whether the prompt that is told in front of an answer has its scores: the
 * first choice with it has them when it has a token. */
static int is_scored(const struct query *q, const struct choice *h)
{
	const struct choice *first = &q->choice[h->index / q->w.n * q->w.n];

	return !h->lead || !q->w.logprobs || first->got || first->ended;
}

/* Takes the tokens that are new into the text. */
static void absorb(struct query *q, struct choice *h)
{
	const struct tok *tok = prompt_tok(q->c->prompt);

	for (; h->seen < h->lead; h->end[h->seen++] = h->text.len)
		tok_decode(tok, &h->r.prompt[h->seen], 1, 1, &h->text);
	while (h->seen - h->lead < h->got && !h->stopped) {
		size_t was = h->text.len;

		tok_decode(tok, &h->r.id[h->seen - h->lead], 1, 1, &h->text);
		h->end[h->seen++] = h->text.len;
		look_for_stop(q, h, was);
	}
}

/* Up to which byte the text stays as it is: the rest may turn out to be a stop
 * text or half a character. */
static size_t settled(const struct query *q, const struct choice *h)
{
	size_t n = h->text.len;

	if (h->stopped)
		return h->limit;
	return h->ended ? n :
	       utf8_whole(h->text.buf, n - stop_begun(q, &h->text));
}

/* Of these, up to which it can be told: the rest may turn out to be a call. */
static size_t certain(const struct query *q, const struct choice *h, size_t n)
{
	size_t content = q->w.tools && n ? tools_content(h->text.buf, n) : n;

	return content > h->told || !q->w.tools ? content : h->told;
}

static void tell_choice(struct query *q, struct choice *h)
{
	size_t n;

	if (!is_scored(q, h))
		return;
	absorb(q, h);
	if (!q->w.stream || h->finished)
		return;
	n = settled(q, h);
	reply_more(q, h, certain(q, h, n), &q->news);
	if (q->w.tools && n)
		reply_calls(q, h, n, &q->news);
	if (h->ended) {
		if (reply_finish(q, h, &q->news))
			q->news.failed = 1;
		h->finished = 1;
	}
}

int tell_write(struct query *q)
{
	for (int i = 0; i < q->nchoices; i++)
		tell_choice(q, &q->choice[i]);
	if (!q->settled)
		return 0;
	if (!q->w.stream)
		return reply_whole(q, &q->news);
	reply_end(q, &q->news);
	return 0;
}
