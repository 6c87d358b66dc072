/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "rl/text.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/path.h"
#include "nn/config.h"

int text_open(struct text *x, const char *dir, struct err *e)
{
	struct nn_config c;

	memset(x, 0, sizeof *x);
	x->dir = dir;
	if (nn_config_load(&c, dir, e))
		return -1;
	x->vocab = c.vocab;
	x->tok = tok_open(dir, e);
	return x->tok ? 0 : -1;
}

void text_close(struct text *x)
{
	tok_free(x->tok);
	prompt_close(x->prompt);
	x->tok = NULL;
	x->prompt = NULL;
}

static int is_answer(const struct json *m)
{
	return !strcmp(json_get_str(m, "role", ""), "assistant");
}

static int ids_fit(const struct text *x, const struct traj *t, struct err *e)
{
	for (size_t i = 0; i < t->nseg; i++)
		for (size_t k = 0; k < t->seg[i].n; k++)
			if (t->seg[i].id[k] >= x->vocab) {
				err_set(e, CA_DATAERR, "token %d is not in "
					"the vocabulary of %d",
					t->seg[i].id[k], x->vocab);
				return 0;
			}
	return 1;
}

/* The longest run of text without U+FFFD, which servers put in place of bytes
 * that are no text. */
static const char *longest_run(const char *s, size_t *len)
{
	static const char none[] = "\xef\xbf\xbd";
	const char *best = s;

	for (*len = 0; *s; ) {
		const char *end = strstr(s, none);
		size_t n = end ? (size_t)(end - s) : strlen(s);

		if (n > *len) {
			best = s;
			*len = n;
		}
		s += n + (end ? sizeof none - 1 : 0);
	}
	return best;
}

/* Whether the ids of the n-th answer, in the segments' order, spell it: with
 * what is special among them, or, as servers leave that out, without. */
static int spells(const struct text *x, const struct json *turn,
		  const char *said, struct str *s)
{
	int64_t n = json_path(turn, "tokens.n") ?
		    json_int(json_path(turn, "tokens.n"), 0) : 0;
	int32_t id[4096];
	size_t len;

	/* Long ones are taken on trust. */
	if (n < 1 || n > 4096 ||
	    json_b64(json_path(turn, "tokens.ids"), id, (size_t)n * 4))
		return 1;
	said = longest_run(said, &len);
	for (int plain = 0; len && plain < 2; plain++) {
		str_reset(s);
		if (tok_decode(x->tok, id, (size_t)n, plain, s) ||
		    (s->buf && memmem(s->buf, s->len, said, len)))
			return 1;
	}
	return !len;
}

int text_check(struct text *x, const struct json *root, const struct traj *t,
	       struct err *e)
{
	const struct json *turn = json_first(json_get(root, "turns"));
	const struct json *m = json_first(json_get(root, "messages"));
	struct str s = STR_INIT;
	int ok = ids_fit(x, t, e);

	for (; m && turn && ok; m = json_next(m)) {
		if (!is_answer(m))
			continue;
		ok = spells(x, turn, json_get_str(m, "content", ""), &s);
		if (!ok)
			err_set(e, CA_DATAERR, "turn %lld: its ids do not "
				"spell its text with the tokenizer of '%s'",
				(long long)json_get_int(turn, "turn", 0),
				x->dir);
		turn = json_next(turn);
	}
	str_release(&s);
	return ok ? TRAJ_OK : TRAJ_FOREIGN;
}

/* A conversation that is being tokenised. */
struct work {
	struct text *x;
	struct traj *t;
	const struct json *messages, *tools;
	struct tok_ids done, now;	/* ids of all so far, and of more */
};

static int encode(struct work *w, size_t n, int open, struct err *e)
{
	w->now.n = 0;
	return prompt_chat_first(w->x->prompt, w->messages, n, w->tools, open,
				 &w->now, e);
}

static int goes_on(const struct work *w)
{
	return w->now.n >= w->done.n && (!w->done.n ||
	       !memcmp(w->now.id, w->done.id,
		       w->done.n * sizeof *w->now.id));
}

/* What is now, is done. */
static void advance(struct work *w)
{
	struct tok_ids was = w->done;

	w->done = w->now;
	w->now = was;
}

/* What came before answer n: the environment's. */
static int add_prompt(struct work *w, size_t n, struct err *e)
{
	if (encode(w, n, 1, e))
		return -1;
	if (!w->t->nseg || !goes_on(w)) {
		w->done.n = 0;
		if (traj_open(w->t, e))
			return -1;
	}
	if (traj_add(w->t, w->now.id + w->done.n, w->now.n - w->done.n, 0,
		     NULL, e))
		return -1;
	advance(w);
	return TRAJ_OK;
}

/* The answer up to the token that ends it; what the template puts behind
 * that the model did not say. */
static int add_answer(struct work *w, size_t n, struct err *e)
{
	size_t from = w->done.n, end;

	if (encode(w, n + 1, 0, e))
		return -1;
	if (!goes_on(w)) {
		err_set(e, CA_DATAERR, "the chat template does not put "
			"message %zu behind what was before it", n);
		return TRAJ_NO_IDS;
	}
	for (end = w->now.n; end > from; end--)
		if (tok_special(w->x->tok, w->now.id[end - 1]))
			break;
	end = end > from ? end : w->now.n;
	if (traj_add(w->t, w->now.id + from, end - from, 1, NULL, e) ||
	    traj_add(w->t, w->now.id + end, w->now.n - end, 0, NULL, e))
		return -1;
	advance(w);
	return TRAJ_OK;
}

int text_tokenise(struct text *x, const struct json *root, struct traj *t,
		  struct err *e)
{
	struct work w = {
		.x = x, .t = t, .messages = json_get(root, "messages"),
		.tools = json_get(root, "tools"), .done = TOK_IDS_INIT,
		.now = TOK_IDS_INIT,
	};
	const struct json *m = json_first(w.messages);
	int rc = TRAJ_OK;

	traj_release(t);
	t->agent = t->bad_logprobs = 0;
	t->text = 1;
	if (!x->prompt)
		x->prompt = prompt_open(x->dir, e);
	if (!x->prompt)
		return -1;
	for (size_t n = 0; m && !rc; m = json_next(m), n++) {
		if (!is_answer(m))
			continue;
		rc = add_prompt(&w, n, e);
		if (!rc)
			rc = add_answer(&w, n, e);
	}
	tok_ids_release(&w.done);
	tok_ids_release(&w.now);
	/* A template that refuses the messages speaks of this record. */
	if (rc < 0 && e->code == CA_DATAERR)
		rc = TRAJ_NO_IDS;
	if (!rc && !t->agent) {
		err_set(e, CA_DATAERR, "it has no answers");
		rc = TRAJ_NO_TOKENS;
	}
	return rc;
}

static int sum_of(const char *dir, char out[HASH_HEX], struct err *e)
{
	char path[CA_PATH_MAX];
	struct str s = STR_INIT;
	int rc;

	snprintf(path, sizeof path, "%s/tokenizer.json", dir);
	rc = read_file(path, JSON_MAX_FILE, &s, e);
	if (!rc)
		sha256_hex(s.buf ? s.buf : "", s.len, out);
	str_release(&s);
	return rc;
}

int text_same(const char *dir, const char *other, struct err *e)
{
	char a[HASH_HEX], b[HASH_HEX];

	if (sum_of(dir, a, e) || sum_of(other, b, e))
		return -1;
	if (strcmp(a, b))
		return err_set(e, CA_CONFIG, "'%s' and '%s' have different "
			       "tokenizers", dir, other);
	return 0;
}
