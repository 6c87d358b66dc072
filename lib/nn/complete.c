/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/complete.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/rand.h"
#include "base/utf8.h"
#include "nn/prompt.h"

#define STOPS_MAX 16

struct complete {
	struct complete_opts o;
	struct gen *gen;
	struct prompt *prompt;
	const char *dir;
	pthread_mutex_t lock;		/* of what follows */
	struct rng seeds;
};

/* One record at work. */
struct work {
	struct complete *c;
	struct tok_ids prompt;
	struct gen_req r;
	const char *stop[STOPS_MAX];
	int nstop, stopped;
	size_t cut;			/* of text, when stopped */
	struct str text;
};

struct complete *complete_open(const struct engine_opts *gen,
			       const struct complete_opts *o,
			       struct str *table, struct err *e)
{
	struct complete *c = calloc(1, sizeof *c);

	if (!c) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	c->o = *o;
	c->dir = gen->dir;
	pthread_mutex_init(&c->lock, NULL);
	if (o->seeded)
		rng_seeded(&c->seeds, o->seed);
	else
		rng_fresh(&c->seeds);
	c->prompt = prompt_open(gen->dir, e);
	if (!c->prompt || !(c->gen = gen_open(gen, table, e))) {
		complete_close(c);
		return NULL;
	}
	return c;
}

void complete_close(struct complete *c)
{
	if (!c)
		return;
	gen_close(c->gen);
	prompt_close(c->prompt);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void complete_stats(struct complete *c, struct gen_stats *s)
{
	gen_get_stats(c->gen, s);
}

static int read_tokens(struct work *w, const struct json *j, struct err *e)
{
	for (j = json_first(j); j; j = json_next(j)) {
		int64_t id = json_int(j, -1);

		if (id < 0 || id > INT32_MAX)
			return err_set(e, CA_DATAERR, "'tokens' holds what is "
				       "no token id");
		if (tok_ids_add(&w->prompt, (int32_t)id))
			return err_set(e, CA_SOFTWARE, "no memory");
	}
	return 0;
}

/* Exactly one of text, messages and tokens. */
static int read_prompt(struct work *w, const struct rec *r, struct err *e)
{
	const struct json *text = rec_get(r, "text");
	const struct json *messages = rec_get(r, "messages");
	const struct json *tokens = rec_get(r, "tokens");

	if (!!text + !!messages + !!tokens != 1)
		return err_set(e, CA_DATAERR, "a prompt has one of 'text', "
			       "'messages' and 'tokens'");
	if (json_type(tokens) == JSON_ARRAY)
		return read_tokens(w, tokens, e);
	if (json_type(text) == JSON_STRING)
		return prompt_text(w->c->prompt, json_str(text, ""),
				   strlen(json_str(text, "")), &w->prompt, e);
	if (json_type(messages) != JSON_ARRAY)
		return err_set(e, CA_DATAERR, "'%s' is of the wrong type",
			       text ? "text" : tokens ? "tokens" :
			       "messages");
	return prompt_chat(w->c->prompt, messages, rec_get(r, "tools"),
			   &w->prompt, e);
}

/* A number member, or what the options say. */
static int number(const struct rec *r, const char *key, double dflt,
		  double lo, double hi, double *out, struct err *e)
{
	const struct json *j = rec_get(r, key);

	*out = dflt;
	if (json_type(j) == JSON_NONE || json_type(j) == JSON_NULL)
		return 0;
	*out = json_num(j, lo - 1);
	if (!(*out >= lo && *out <= hi))
		return err_set(e, CA_DATAERR, "'%s' has to be a number from "
			       "%g to %g", key, lo, hi);
	return 0;
}

/* Its own, or derived from the run's seed, the line and its number. */
static int choose_seed(struct work *w, const struct rec *r, struct err *e)
{
	const struct json *own = rec_get(r, "seed");
	struct complete *c = w->c;
	uint8_t sum[HASH_LEN];
	struct hash *h;

	if (own) {
		if (json_u64(own, &w->r.seed))
			return err_set(e, CA_DATAERR, "'seed' has to be a "
				       "string of digits");
		return 0;
	}
	if (!c->o.seeded) {
		pthread_mutex_lock(&c->lock);
		w->r.seed = rng_u64(&c->seeds);
		pthread_mutex_unlock(&c->lock);
		return 0;
	}
	h = hash_new();
	if (!h)
		return err_set(e, CA_SOFTWARE, "no memory");
	hash_part(h, &c->o.seed, sizeof c->o.seed);
	hash_part(h, &r->lineno, sizeof r->lineno);
	hash_part(h, r->line, r->len);
	hash_end(h, sum);
	memcpy(&w->r.seed, sum, sizeof w->r.seed);
	return 0;
}

static int read_stop(struct work *w, const struct json *j, struct err *e)
{
	for (j = json_first(j); j; j = json_next(j)) {
		const char *text = json_str(j, "");

		if (!*text || w->nstop == STOPS_MAX)
			return err_set(e, CA_DATAERR, "'stop' has to be a "
				       "list of at most %d texts", STOPS_MAX);
		w->stop[w->nstop++] = text;
	}
	return 0;
}

static int read_options(struct work *w, const struct rec *r, struct err *e)
{
	const struct complete_opts *o = &w->c->o;
	double temp, top_p, min_p, top_k, most;
	int room = gen_ctx(w->c->gen) - (int)w->prompt.n;

	if (number(r, "temperature", o->temperature, 0, 100, &temp, e) ||
	    number(r, "top_p", o->top_p, 1e-6, 1, &top_p, e) ||
	    number(r, "min_p", o->min_p, 0, 1, &min_p, e) ||
	    number(r, "top_k", (double)o->top_k, 0, 1e9, &top_k, e) ||
	    number(r, "max_tokens", (double)o->max_tokens, 0, 1e9, &most,
		   e) ||
	    read_stop(w, rec_get(r, "stop"), e) || choose_seed(w, r, e))
		return -1;
	w->r.temp = (float)temp;
	w->r.top_p = (float)top_p;
	w->r.min_p = (float)min_p;
	w->r.top_k = (int)top_k;
	w->r.ignore_eos = json_bool(rec_get(r, "ignore_eos"), 0);
	w->r.max_new = (int)most;
	if (!rec_get(r, "max_tokens") && (!o->max_tokens || most > room))
		w->r.max_new = room > 0 ? room : 0;
	return 0;
}

/* After each token: has a stop text appeared? */
static int go_on(void *ctx, int32_t token, float logprob)
{
	struct work *w = ctx;
	size_t was = w->text.len;

	(void)logprob;
	tok_decode(prompt_tok(w->c->prompt), &token, 1, 1, &w->text);
	for (int i = 0; i < w->nstop; i++) {
		size_t n = strlen(w->stop[i]);
		size_t from = was > n ? was - n : 0;
		const char *hit = w->text.buf ?
			strstr(w->text.buf + from, w->stop[i]) : NULL;

		if (!hit)
			continue;
		w->stopped = 1;
		w->cut = (size_t)(hit - w->text.buf);
		return 0;
	}
	return !(w->c->o.interrupted && w->c->o.interrupted());
}

static void write_floats(struct jw *w, const char *key, const float *x,
			 size_t n, size_t skip)
{
	jw_key(w, key);
	jw_arr(w);
	for (size_t i = 0; i < n; i++) {
		if (i < skip)
			jw_null(w);
		else
			jw_num(w, (double)x[i]);
	}
	jw_end_arr(w);
}

static int is_utf8(const char *p, size_t len)
{
	size_t n;

	for (size_t i = 0; i < len; i += n)
		if (!(n = utf8_len(p + i, len - i)))
			return 0;
	return 1;
}

static void write_sampling(struct jw *j, const struct gen_req *r)
{
	jw_key(j, "sampling");
	jw_obj(j);
	jw_knum(j, "temperature", (double)r->temp);
	jw_knum(j, "top_p", (double)r->top_p);
	jw_kint(j, "top_k", r->top_k);
	jw_knum(j, "min_p", (double)r->min_p);
	jw_ku64(j, "seed", r->seed);
	/* Of the distribution at the temperature, before top_p and top_k. */
	jw_kstr(j, "logprobs", "temperature");
	jw_end_obj(j);
}

static int write_result(struct work *w, struct rec *r, double seconds)
{
	const struct gen_req *q = &w->r;
	struct str out = STR_INIT;
	struct jw j;
	int rc;

	if (w->stopped)
		w->text.len = w->cut;
	jw_init(&j, &out);
	jw_obj(&j);
	jw_key(&j, "text");
	jw_strn(&j, w->text.buf ? w->text.buf : "", w->text.len);
	if (!is_utf8(w->text.buf, w->text.len)) {
		jw_key(&j, "text_b64");
		jw_b64(&j, w->text.buf, w->text.len);
	}
	jw_key(&j, "tokens");
	jw_arr(&j);
	for (int i = 0; i < q->n; i++)
		jw_int(&j, q->id[i]);
	jw_end_arr(&j);
	write_floats(&j, "logprobs", q->logprob, (size_t)q->n, 0);
	jw_kint(&j, "prompt_tokens", q->nprompt);
	if (q->prompt_logprob)
		write_floats(&j, "prompt_logprobs", q->prompt_logprob,
			     (size_t)q->nprompt, 1);
	jw_kstr(&j, "finish_reason", q->end == GEN_LENGTH ? "length" :
		"stop");
	write_sampling(&j, q);
	if (!w->c->o.no_prov) {
		jw_key(&j, "prov");
		jw_obj(&j);
		jw_kstr(&j, "model", w->c->dir);
		jw_knum(&j, "seconds", seconds);
		jw_end_obj(&j);
	}
	jw_end_obj(&j);
	rc = out.failed || rec_set(r, "completion", out.buf, out.len) ||
	     rec_set(r, "kind", "\"completion\"", 12);
	str_release(&out);
	return rc;
}

static int run(struct work *w, struct rec *r, struct err *e)
{
	int64_t start = now_ns();
	size_t n;

	if (read_prompt(w, r, e) || read_options(w, r, e))
		return -1;
	w->r.prompt = w->prompt.id;
	w->r.nprompt = (int)w->prompt.n;
	w->r.more = go_on;
	w->r.ctx = w;
	n = (size_t)w->r.max_new + 1;
	w->r.id = arena_alloc(&r->arena, n, sizeof *w->r.id);
	w->r.logprob = arena_alloc(&r->arena, n, sizeof *w->r.logprob);
	if (json_bool(rec_get(r, "prompt_logprobs"), 0))
		w->r.prompt_logprob = arena_alloc(&r->arena, w->prompt.n + 1,
						  sizeof(float));
	if (!w->r.id || !w->r.logprob)
		return err_set(e, CA_SOFTWARE, "no memory");
	if (gen_run(w->c->gen, &w->r, e))
		return -1;
	if (write_result(w, r, (double)(now_ns() - start) * 1e-9))
		return err_set(e, CA_SOFTWARE, "no memory");
	return 0;
}

int complete_record(struct complete *c, struct rec *r, struct err *e)
{
	struct work w = { .c = c, .prompt = TOK_IDS_INIT, .text = STR_INIT };
	int rc = run(&w, r, e);

	tok_ids_release(&w.prompt);
	str_release(&w.text);
	return rc;
}
