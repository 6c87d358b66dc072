/* SPDX-License-Identifier: Apache-2.0
 *
 * One request to the model, and its answer as an event.
 */
#include "agent/rollout.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"

#define TOKEN_BYTES 3		/* of one that is only estimated */

static void add_number(struct jw *w, const char *key, double v)
{
	if (v >= 0)
		jw_knum(w, key, v);
}

/* What is left of the context, and of what one answer may take. */
static int64_t room(const struct rollout *r)
{
	int64_t left = r->o->ctx - r->s.prompt_last;
	int64_t most = r->o->max_tokens;

	if (r->o->out_tokens >= 0 &&
	    r->o->out_tokens - r->s.completion_sum < left)
		left = r->o->out_tokens - r->s.completion_sum;
	return most > 0 && most < left ? most : left;
}

void body_write(const struct agent_opts *o, struct jw *w)
{
	const char *text = o->body;
	struct json *j = text ? json_parse(text, strlen(text), JSON_MAX_LINE,
					   NULL, NULL) : NULL;
	const struct json *m;

	for (m = json_first(j); m; m = json_next(m)) {
		jw_key(w, json_key(m));
		jw_node(w, m);
	}
	json_free(j);
}

static int make_body(struct rollout *r, struct err *e)
{
	const struct agent_opts *o = r->o;
	struct str tools = STR_INIT;
	struct jw w;

	str_reset(&r->body);
	jw_init(&w, &r->body);
	jw_obj(&w);
	jw_kstr(&w, "model", o->model);
	jw_key(&w, "messages");
	str_addc(&r->body, '[');
	state_sent(&r->s, &r->body);
	str_addc(&r->body, ']');
	w.comma = 1;
	if (!o->single_turn) {
		tool_schemas(&tools);
		jw_key(&w, "tools");
		jw_raw(&w, tools.buf ? tools.buf : "[]", tools.len);
	}
	jw_kint(&w, "max_tokens", room(r));
	add_number(&w, "temperature", o->temperature);
	add_number(&w, "top_p", o->top_p);
	add_number(&w, "top_k", (double)o->top_k);
	if (o->seeded)
		jw_kint(&w, "seed", (int64_t)((r->t->seed + (uint64_t)
					       r->s.turn) & 0x7fffffff));
	if (o->token_ids) {
		jw_kbool(&w, "logprobs", 1);
		jw_kbool(&w, "return_token_ids", 1);
	}
	body_write(o, &w);
	jw_end_obj(&w);
	str_release(&tools);
	return r->body.failed ? err_set(e, CA_SOFTWARE, "out of memory") : 0;
}

/* Why nothing of this answer may be executed; NULL: it may. */
static const char *cut_short(const struct chat_answer *a)
{
	if (!a->finish)
		return "the message has no end; nothing of it was executed";
	if (!strcmp(a->finish, "length"))
		return "the message was cut off at the token limit; nothing "
		       "of it was executed";
	if (!strcmp(a->finish, "content_filter"))
		return "the message was cut off by a filter; nothing of it "
		       "was executed";
	return NULL;
}

static int log_stop(struct rollout *r, enum stop s, const char *why,
		    struct err *e)
{
	struct jw *w = event_begin(r, "end");

	jw_kstr(w, "reason", stop_name(s));
	if (why && *why)
		jw_kstr(w, "why", why);
	return event_end(r, e);
}

/* Tokens as the server counted them.  Where it does not tell, budgets have to
 * hold all the same: rather too many, as source has more than prose. */
static void write_usage(struct jw *w, const struct chat_answer *a,
			size_t sent, size_t got)
{
	int64_t prompt = a->prompt_tokens, completion = a->completion_tokens;

	jw_key(w, "usage");
	jw_obj(w);
	jw_kint(w, "prompt", prompt > 0 ? prompt :
		(int64_t)(sent / TOKEN_BYTES) + 1);
	jw_kint(w, "completion", completion > 0 ? completion :
		(int64_t)(got / TOKEN_BYTES) + 1);
	if (prompt <= 0 || completion <= 0)
		jw_kbool(w, "estimated", 1);
	jw_end_obj(w);
}

static int log_answer(struct rollout *r, const struct chat_answer *a,
		      struct err *e)
{
	const char *cut = cut_short(a);
	const char *weights = json_get_str(a->root, "system_fingerprint",
					   NULL);
	const char *mode = json_get_str(a->root, "logprobs_mode", NULL);
	struct jw *w = event_begin(r, "turn");
	size_t got;

	jw_kint(w, "n", r->s.turn + 1);
	jw_key(w, "got");
	got = r->log.line.len;
	jw_node(w, a->message);
	got = r->log.line.len - got;
	/* No record could hold what comes of it. */
	if (r->log.line.len > HISTORY_MAX)
		return log_stop(r, STOP_CONTEXT, "one answer was longer than "
				"a conversation may be", e);
	jw_kstr(w, "finish", a->finish);
	if (cut)
		jw_kstr(w, "cut", cut);
	write_usage(w, a, r->body.len, got);
	if (weights)
		jw_kstr(w, "weights", weights);
	if (r->o->token_ids && mode)
		jw_kstr(w, "logprobs_mode", mode);
	if (r->o->token_ids)
		tokens_write(w, a, &r->s);
	jw_key(w, "prov");
	jw_obj(w);
	jw_knum(w, "model_s", (double)a->wall_ns / 1e9);
	jw_kint(w, "attempts", a->attempts);
	jw_end_obj(w);
	return event_end(r, e);
}

/* While the model thinks, the turns before go to the disk, and what is left
 * in the background is served. */
static size_t meanwhile_fds(void *ctx, struct pollfd *p, size_t max)
{
	struct rollout *r = ctx;
	const struct net_idle *i = tries_idle(r->tries);

	log_sync(&r->log, NULL);
	return i->fds(i->ctx, p, max);
}

static void meanwhile_ready(void *ctx)
{
	struct rollout *r = ctx;
	const struct net_idle *i = tries_idle(r->tries);

	i->ready(i->ctx);
	shells_watch(r->shells);
}

void ask_idle(struct rollout *r, struct net_idle *idle)
{
	*idle = (struct net_idle){ meanwhile_fds, meanwhile_ready, r };
}

int ask_model(struct rollout *r, struct err *e)
{
	struct chat_answer a;
	int rc;

	if (make_body(r, e))
		return -1;
	event_begin(r, "ask");
	if (event_end(r, e) ||
	    model_ask(r->model, r->body.buf, r->body.len, r->deadline, &a, e))
		return -1;
	if (log_sync(&r->log, e)) {
		chat_answer_release(&a);
		return -1;
	}
	switch (a.how) {
	case CHAT_OK:
		rc = log_answer(r, &a, e);
		break;
	case CHAT_CONTEXT:
		rc = log_stop(r, STOP_CONTEXT, a.text, e);
		break;
	case CHAT_DEADLINE:
		rc = log_stop(r, STOP_WALL, NULL, e);
		break;
	case CHAT_SIGNAL:
		rc = err_set(e, CA_TEMPFAIL, "interrupted");
		break;
	default:
		rc = log_stop(r, STOP_API_ERROR, a.text, e);
	}
	chat_answer_release(&a);
	if (r->body.alloc > 1 << 20)
		str_release(&r->body);
	return rc;
}
