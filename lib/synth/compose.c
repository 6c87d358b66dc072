/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks that a model writes.  An answer is foreign code: it is checked in a
 * process of its own, and costs nothing but itself.
 */
#include "synth/compose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/sig.h"
#include "synth/answer.h"
#include "synth/inflight.h"
#include "synth/room.h"

#define PROMPT "combine/prompt.md"
#define PROMPT_MAX (256 << 10)
#define COUNT "{{count}}"
#define OPERATORS "{{operators}}"

#define FAULTS 5		/* in a row, each with its retries */

struct compose {
	struct inflight *flight;
	struct str prompt;
	struct seen graphs;
	int64_t asked, answers;
	int64_t flying[MIX_STACK];
	int64_t tokens[2];	/* of prompts and completions, as told */
	int learnt;		/* what the prompt itself shows */
	int answered;		/* the server has, once */
	int faults;		/* since it last did */
	int net;		/* started */
	struct json *body;	/* further members; NULL: none */
};

static void tell_wait(void *ctx, const struct net_reply *r, double wait)
{
	(void)ctx;
	if (r->how == NET_ANSWER)
		warn("status %d; asking again in %.1f s", r->status, wait);
	else
		warn("%s; asking again in %.1f s", r->text, wait);
}

static int read_prompt(struct combine *c, struct err *e)
{
	const char *path = c->o.llm.prompt;
	char ours[CA_PATH_MAX];

	if (!path && path_skill(ours, PROMPT, e))
		return -1;
	path = path ? path : ours;
	if (read_file(path, PROMPT_MAX, &c->llm->prompt, e))
		return -1;
	if (!c->llm->prompt.buf || !strstr(c->llm->prompt.buf, OPERATORS))
		return err_set(e, CA_CONFIG, "'%s' has no %s", path,
			       OPERATORS);
	return 0;
}

static int read_body(struct combine *c, struct err *e)
{
	const char *text = c->o.llm.body;

	if (!text)
		return 0;
	c->llm->body = json_parse(text, strlen(text), JSON_MAX_LINE, NULL,
				  e);
	if (c->llm->body && json_type(c->llm->body) == JSON_OBJECT)
		return 0;
	return err_set(e, CA_USAGE, "--body takes a JSON object");
}

int compose_open(struct combine *c, struct err *e)
{
	const struct compose_opts *o = &c->o.llm;
	const struct chat_opts chat = {
		.endpoint = o->url, .key = o->key,
		.limits = { 0, o->answer_s, o->answer_s, 1 << 22 },
		.attempts = (int)o->retries + 1,
		.note = c->o.verbose ? tell_wait : NULL,
	};

	c->llm = calloc(1, sizeof(*c->llm));
	if (!c->llm)
		return err_set(e, CA_SOFTWARE, "out of memory");
	c->h.source = o->model;
	c->llm->answers = o->answers ? o->answers : 10 * c->o.count;
	if (read_prompt(c, e) || read_body(c, e) || net_start(e))
		return -1;
	c->llm->net = 1;
	c->llm->flight = inflight_open(&chat, o->answer_s, (size_t)o->jobs, e);
	return c->llm->flight ? 0 : -1;
}

void compose_close(struct combine *c)
{
	if (!c->llm)
		return;
	if (c->llm->net && (!c->llm->flight ||
			    !inflight_count(c->llm->flight))) {
		inflight_close(c->llm->flight);
		net_stop();
	}
	str_release(&c->llm->prompt);
	seen_release(&c->llm->graphs);
	json_free(c->llm->body);
	free(c->llm);
}

/* -- the question */

/* A call of the operator, as in a file. */
static void add_call(struct str *out, const struct part *p)
{
	struct json *piece = json_parse(p->piece, strlen(p->piece),
					JSON_MAX_LINE, NULL, NULL);
	const char *call = json_get_str(piece, "call", "");
	const char *init = json_get_str(piece, "init", NULL);

	str_addf(out, "- %s, as in `", p->name);
	for (; *call; call++) {
		if (!strncmp(call, "{m}", 3)) {
			str_adds(out, init ? init : "");
			call += 2;
		} else if (*call == '{') {
			str_addc(out, 'x');
		} else if (*call != '}') {
			str_addc(out, *call);
		}
	}
	str_adds(out, "`\n");
	json_free(piece);
}

static void fill_prompt(struct combine *c, const struct part **p, size_t n,
			struct str *out)
{
	const char *at = c->llm->prompt.buf, *next;

	while ((next = strstr(at, "{{"))) {
		str_add(out, at, (size_t)(next - at));
		at = next;
		if (starts_with(at, COUNT)) {
			str_addf(out, "%zu", n);
			at += strlen(COUNT);
		} else if (starts_with(at, OPERATORS)) {
			for (size_t i = 0; i < n; i++)
				add_call(out, p[i]);
			at += strlen(OPERATORS);
		} else {
			str_adds(out, "{{");
			at += 2;
		}
	}
	str_adds(out, at);
}

static void write_body(struct combine *c, const char *prompt, struct str *out)
{
	const struct compose_opts *o = &c->o.llm;
	const struct json *m = json_first(c->llm->body);
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w);
	jw_kstr(&w, "model", o->model);
	jw_key(&w, "messages");
	jw_arr(&w);
	jw_obj(&w);
	jw_kstr(&w, "role", "user");
	jw_kstr(&w, "content", prompt);
	jw_end_obj(&w);
	jw_end_arr(&w);
	jw_kint(&w, "max_tokens", o->max_tokens);
	if (o->temperature >= 0)
		jw_knum(&w, "temperature", o->temperature);
	jw_kint(&w, "seed", (int64_t)((c->o.seed + (uint64_t)c->llm->asked) &
				      0x7fffffff));
	for (; m; m = json_next(m)) {
		jw_key(&w, json_key(m));
		jw_node(&w, m);
	}
	jw_end_obj(&w);
}

/* Asks for a stack of a kind that is still wanted. */
static int send_one(struct combine *c, int kind, struct err *e)
{
	const struct part *p[MIX_STACK];
	struct str prompt = STR_INIT, body = STR_INIT;
	size_t n = (size_t)kind + 1;
	int rc = -1;

	for (int i = 0; combine_draw(c, p, n); i++)
		if (i == 100)
			return err_set(e, CA_DATAERR, "one operator alone "
				       "makes no stack");
	fill_prompt(c, p, n, &prompt);
	if (prompt.failed)
		err_set(e, CA_SOFTWARE, "out of memory");
	else
		write_body(c, prompt.buf, &body);
	if (!prompt.failed)
		rc = inflight_send(c->llm->flight, &body, kind, e);
	str_release(&prompt);
	str_release(&body);
	c->llm->flying[kind] += !rc;
	c->llm->asked += !rc;
	return rc;
}

/* -- the answer */

/* A process of its own tells what a file is made of: as combine_ask. */
static int look(struct combine *c, const char *code, size_t count,
		const char *name, struct json **told, struct err *e)
{
	struct str req = STR_INIT;
	struct jw w;
	int rc;

	if (combine_ready(c, e))
		return -1;
	jw_init(&w, &req);
	jw_obj(&w);
	jw_kstr(&w, "op", "compose");
	jw_kstr(&w, "code", code);
	jw_kint(&w, "count", (int64_t)count);
	jw_kint(&w, "bytes", room_bytes(c->j, c->o.max_bytes));
	jw_ku64(&w, "seed", c->o.seed >> 1);
	jw_end_obj(&w);
	rc = combine_ask(c, &req, name, told, e);
	combine_leave(c);
	str_release(&req);
	return rc;
}

static int know_graph(struct combine *c, const struct json *told, int *known,
		      struct err *e)
{
	const char *hash = json_get_str(told, "hash", "");

	*known = seen_find(&c->llm->graphs, hash, strlen(hash)) != NULL;
	if (seen_add(&c->llm->graphs, hash, strlen(hash), "an answer"))
		return err_set(e, CA_SOFTWARE, "out of memory");
	return 0;
}

/* What the prompt shows as an example is no answer. */
static int learn_prompt(struct combine *c, struct err *e)
{
	struct str code = STR_INIT;
	struct json *told = NULL;
	int known, rc = 0;

	if (!c->llm->learnt++ && !answer_code(c->llm->prompt.buf, &code)) {
		rc = look(c, code.buf, 0, NULL, &told, e);
		if (!rc)
			rc = know_graph(c, told, &known, e);
		if (rc >= 0 && seen_add(&c->h.codes, code.buf, code.len,
					"the prompt"))
			rc = err_set(e, CA_SOFTWARE, "out of memory");
	}
	str_release(&code);
	json_free(told);
	return rc < 0 ? -1 : 0;
}

static int write_task(struct combine *c, const struct str *code, int kind,
		      const struct json *told, struct err *e)
{
	const struct json *parts = json_get(told, "parts");
	struct str names = STR_INIT, list = STR_INIT;
	char name[16];
	struct jw w;
	int rc;

	jw_init(&w, &list);
	jw_node(&w, parts);
	for (const struct json *i = json_first(parts); i; i = json_next(i))
		str_addf(&names, "%s%s", names.len ? " | " : "",
			 json_str(i, ""));
	snprintf(name, sizeof(name), "x%d", kind + 1);
	rc = names.failed || list.failed ?
		err_set(e, CA_SOFTWARE, "out of memory") :
		harvest_task(&c->h, &(struct harvest_item){
			.code = code->buf, .len = code->len, .name = name,
			.ref = names.buf, .parts = list.buf,
			.version = torch_version(c->j->host),
			.model = c->o.llm.model,
			.ops = json_get(told, "ops") }, e);
	str_release(&names);
	str_release(&list);
	return rc;
}

/* 1 a task was made, 0 not, -1. */
static int take_code(struct combine *c, const struct str *code, int kind,
		     struct err *e)
{
	uint64_t made = c->h.made;
	struct json *told = NULL;
	int known = 0, rc;

	if (seen_find(&c->h.codes, code->buf, code->len)) {
		harvest_skip(&c->h, "an answer", "copies the prompt, or "
			     "another answer");
		return 0;
	}
	rc = look(c, code->buf, (size_t)kind + 1, "an answer", &told, e);
	if (!rc)
		rc = know_graph(c, told, &known, e);
	if (!rc && known)
		harvest_skip(&c->h, "an answer", "has another's graph");
	else if (!rc)
		rc = write_task(c, code, kind, told, e);
	json_free(told);
	return rc < 0 ? -1 : c->h.made > made;
}

/* What came back for a stack of this kind. */
static int take_answer(struct combine *c, const struct chat_answer *a,
		       int kind, struct err *e)
{
	struct str code = STR_INIT;
	const char *why;
	int rc = 0;

	if (a->how == CHAT_SIGNAL)
		return err_set(e, CA_TEMPFAIL, "interrupted");
	if (a->how == CHAT_DEADLINE) {
		harvest_skip(&c->h, "an answer", "late: no answer in time");
		return 0;
	}
	if (a->how == CHAT_FAULT && c->llm->answered &&
	    ++c->llm->faults < FAULTS) {
		harvest_skip(&c->h, "an answer", "lost: the server gave none "
			     "that can be read");
		return 0;
	}
	if (a->how != CHAT_OK)
		return err_set(e, CA_UNAVAILABLE, "the model '%s' cannot be "
			       "asked: %s", c->o.llm.model, a->text);
	c->llm->answered = 1;
	c->llm->faults = 0;
	c->llm->tokens[0] += a->prompt_tokens > 0 ? a->prompt_tokens : 0;
	c->llm->tokens[1] += a->completion_tokens > 0 ?
			     a->completion_tokens : 0;
	why = a->finish && !strcmp(a->finish, "length") ?
		"cut off: more tokens than allowed" :
		answer_code(json_get_str(a->message, "content", ""), &code);
	if (why)
		harvest_skip(&c->h, "an answer", why);
	else
		rc = take_code(c, &code, kind, e);
	str_release(&code);
	return rc;
}

/* A kind of which more are wanted than are on their way; 0: there is none. */
static int pick_kind(struct combine *c, const int64_t *quota)
{
	int64_t left = 0, at;
	int kind = 0;

	for (int i = 1; i < MIX_STACK; i++)
		left += quota[i] - c->llm->flying[i];
	if (left <= 0 || c->llm->asked >= c->llm->answers)
		return 0;
	at = (int64_t)rng_below(&c->rng, (uint64_t)left);
	do {
		kind++;
		at -= quota[kind] - c->llm->flying[kind];
	} while (at >= 0);
	return kind;
}

int compose_all(struct combine *c, int64_t quota[MIX_STACK + 1],
		struct err *e)
{
	struct compose *l = c->llm;
	int kind, rc;

	while (!sig_caught()) {
		const struct chat_answer *a;

		while (inflight_count(l->flight) < (size_t)c->o.llm.jobs &&
		       (kind = pick_kind(c, quota)))
			if (send_one(c, kind, e))
				return -1;
		if (!inflight_count(l->flight))
			return 0;
		if (learn_prompt(c, e) ||
		    inflight_take(l->flight, &a, &kind, e))
			return -1;
		rc = take_answer(c, a, kind, e);
		if (rc < 0)
			return -1;
		l->flying[kind]--;
		quota[kind] -= rc;
	}
	return err_set(e, CA_TEMPFAIL, "interrupted");
}
