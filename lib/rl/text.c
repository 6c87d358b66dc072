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
	tmpl_close(x->tmpl);
	x->tok = NULL;
	x->tmpl = NULL;
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

/* Whether the ids of the n-th answer, in the segments' order, spell it. */
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
	str_reset(s);
	if (tok_decode(x->tok, id, (size_t)n, 0, s) || !s->buf)
		return 1;
	said = longest_run(said, &len);
	return !len || memmem(s->buf, s->len, said, len) != NULL;
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
	struct str done;		/* text that has ids */
	struct str now;
	struct tok_ids ids;
};

static int begins_with(const struct str *s, const struct str *t)
{
	return s->len >= t->len && (!t->len ||
				    !memcmp(s->buf, t->buf, t->len));
}

static int render(struct work *w, size_t n, int open, struct err *e)
{
	str_reset(&w->now);
	return tmpl_render_first(w->x->tmpl, w->messages, n, w->tools, open,
				 &w->now, e);
}

/* Ids of what `now` has beyond `done`. */
static int encode_more(struct work *w, struct err *e)
{
	w->ids.n = 0;
	return tok_encode(w->x->tok, w->now.buf + w->done.len,
			  w->now.len - w->done.len, 0, &w->ids, e);
}

static int advance(struct work *w, struct err *e)
{
	str_reset(&w->done);
	return str_add(&w->done, w->now.buf ? w->now.buf : "", w->now.len) ?
	       err_set(e, CA_SOFTWARE, "no memory") : 0;
}

/* What came before answer n: the environment's. */
static int add_prompt(struct work *w, size_t n, struct err *e)
{
	if (render(w, n, 1, e))
		return -1;
	if (!w->t->nseg || !begins_with(&w->now, &w->done)) {
		str_reset(&w->done);
		if (traj_open(w->t, e))
			return -1;
	}
	if (encode_more(w, e) ||
	    traj_add(w->t, w->ids.id, w->ids.n, 0, NULL, e))
		return -1;
	return advance(w, e);
}

/* The answer up to the token that ends it; what the template puts behind
 * that the model did not say. */
static int add_answer(struct work *w, size_t n, struct err *e)
{
	size_t end;

	if (render(w, n + 1, 0, e))
		return -1;
	if (!begins_with(&w->now, &w->done)) {
		err_set(e, CA_DATAERR, "the chat template does not put "
			"message %zu behind what was before it", n);
		return TRAJ_NO_IDS;
	}
	if (encode_more(w, e))
		return -1;
	for (end = w->ids.n; end > 0; end--)
		if (tok_special(w->x->tok, w->ids.id[end - 1]))
			break;
	end = end ? end : w->ids.n;
	if (traj_add(w->t, w->ids.id, end, 1, NULL, e) ||
	    traj_add(w->t, w->ids.id + end, w->ids.n - end, 0, NULL, e))
		return -1;
	return advance(w, e);
}

int text_tokenise(struct text *x, const struct json *root, struct traj *t,
		  struct err *e)
{
	struct work w = {
		.x = x, .t = t, .messages = json_get(root, "messages"),
		.tools = json_get(root, "tools"), .ids = TOK_IDS_INIT,
	};
	const struct json *m = json_first(w.messages);
	int rc = TRAJ_OK;

	traj_release(t);
	t->agent = t->bad_logprobs = 0;
	t->text = 1;
	if (!x->tmpl && tmpl_open(x->dir, &x->tmpl, e))
		return -1;
	for (size_t n = 0; m && !rc; m = json_next(m), n++) {
		if (!is_answer(m))
			continue;
		rc = add_prompt(&w, n, e);
		if (!rc)
			rc = add_answer(&w, n, e);
	}
	str_release(&w.done);
	str_release(&w.now);
	tok_ids_release(&w.ids);
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
