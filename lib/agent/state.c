/* SPDX-License-Identifier: Apache-2.0
 *
 * What each event does to the state.
 */
#include "agent/rollout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT_SLACK 64	/* tokens that no answer fits in */

static const char *const stops[STOP_COUNT] = {
	"none", "final", "max_turns", "context", "wall", "format", "cost",
	"api_error", "infra_error", "killed"
};

static const char nudge[] = "You have made the same call with the same "
	"result several times. Try something else.";

const char *stop_name(enum stop s)
{
	return stops[s];
}

int stop_is_fault(enum stop s)
{
	return s == STOP_API_ERROR || s == STOP_INFRA_ERROR ||
	       s == STOP_KILLED;
}

enum stop stop_parse(const char *name)
{
	int i;

	for (i = 0; i < STOP_COUNT; i++)
		if (!strcmp(name, stops[i]))
			return (enum stop)i;
	return STOP_NONE;
}

enum stop state_used_up(const struct state *s, const struct agent_opts *o)
{
	if (s->turn && (s->prompt_last + CONTEXT_SLACK >= o->ctx ||
			s->messages.len >= HISTORY_MAX))
		return STOP_CONTEXT;
	if (o->out_tokens >= 0 && s->completion_sum >= o->out_tokens)
		return STOP_COST;
	return s->turn >= o->turns ? STOP_MAX_TURNS : STOP_NONE;
}

void state_init(struct state *s)
{
	memset(s, 0, sizeof(*s));
	strcpy(s->cwd, PLACE_SHOWN);
}

static void drop_eval(struct evaluation *v)
{
	free(v->line);
	memset(v, 0, sizeof(*v));
}

void state_release(struct state *s)
{
	int no_prov = s->no_prov;
	size_t i;

	str_release(&s->messages);
	str_release(&s->turns);
	str_release(&s->segments);
	free(s->unsent.v);
	free(s->tokens.v);
	str_release(&s->head);
	str_release(&s->results);
	str_release(&s->deferred);
	str_release(&s->text);
	calls_release(&s->calls);
	for (i = 0; i < s->neval; i++)
		drop_eval(&s->eval[i]);
	free(s->eval);
	state_init(s);
	s->no_prov = no_prov;
}

/* A writer at the end of a list of values. */
static struct jw append(struct str *list)
{
	struct jw w;

	if (list->len)
		str_addc(list, ',');
	jw_init(&w, list);
	return w;
}

static void add_message(struct state *s, const char *role, const char *id,
			const char *text)
{
	struct jw w = append(&s->messages);

	jw_obj(&w);
	jw_kstr(&w, "role", role);
	if (id)
		jw_kstr(&w, "tool_call_id", id);
	jw_kstr(&w, "content", text);
	jw_end_obj(&w);
}

void spans_leave_out(const struct spans *spans, const struct str *text,
		     struct str *out)
{
	size_t at = 0, i;

	for (i = 0; i < spans->n; at = spans->v[i++].to)
		str_add(out, text->buf + at, spans->v[i].from - at);
	if (text->buf)
		str_add(out, text->buf + at, text->len - at);
}

void state_sent(const struct state *s, struct str *out)
{
	spans_leave_out(&s->unsent, &s->messages, out);
}

/* Of a text that they are parts of. */
static void add_span(struct spans *s, size_t from, size_t to,
		     struct str *text)
{
	struct span *more = realloc(s->v, (s->n + 1) * sizeof(*more));

	if (!more) {
		text->failed = 1;
		return;
	}
	s->v = more;
	more[s->n++] = (struct span){ from, to };
}

static void apply_begin(struct state *s, const struct json *ev)
{
	const struct json *m;

	for (m = json_first(json_get(ev, "messages")); m; m = json_next(m)) {
		struct jw w = append(&s->messages);

		jw_node(&w, m);
	}
	s->started = 1;
	s->eval_mode = json_get_bool(ev, "eval", 0);
}

/* Calls whose arguments are JSON go back as calls, others as text. */
static int goes_back(const struct call *c)
{
	return !(c->flags & (CALL_BROKEN | CALL_TEXT));
}

static int any_goes_back(const struct calls *c)
{
	size_t i;

	for (i = 0; i < c->n; i++)
		if (goes_back(&c->c[i]))
			return 1;
	return 0;
}

static void write_calls(struct jw *w, const struct calls *c)
{
	size_t i;

	if (!any_goes_back(c))
		return;
	jw_key(w, "tool_calls");
	jw_arr(w);
	for (i = 0; i < c->n; i++) {
		if (!goes_back(&c->c[i]))
			continue;
		jw_obj(w);
		jw_kstr(w, "id", c->c[i].id);
		jw_kstr(w, "type", "function");
		jw_key(w, "function");
		jw_obj(w);
		jw_kstr(w, "name", c->c[i].name);
		jw_kstr(w, "arguments", c->c[i].raw);
		jw_end_obj(w);
		jw_end_obj(w);
	}
	jw_end_arr(w);
}

/* What the model wrote, and as `sent` what it is sent instead where a call has
 * to go back as text. */
static void write_content(struct state *s, struct jw *w,
			  const struct json *content)
{
	const char *text = json_str(content, "");
	const struct calls *c = &s->calls;
	struct str sent = STR_INIT;
	size_t i, from;
	int more;

	str_adds(&sent, text);
	for (i = 0; i < c->n; i++)
		if ((c->c[i].flags & (CALL_BROKEN | CALL_TEXT)) == CALL_BROKEN)
			str_addf(&sent, "%s<tool_call>\n%s %s\n</tool_call>",
				 sent.len ? "\n" : "", c->c[i].name,
				 c->c[i].raw ? c->c[i].raw : "");
	more = sent.len > strlen(text);
	jw_key(w, "content");
	from = s->messages.len;
	/* A message has content or calls. */
	if (json_type(content) == JSON_STRING ||
	    !(more || any_goes_back(c)))
		jw_str(w, text);
	else
		jw_null(w);
	if (more) {
		jw_key(w, "sent");
		/* For the record alone. */
		add_span(&s->unsent, from, s->messages.len, &s->messages);
		jw_strn(w, sent.buf, sent.len);
	}
	str_release(&sent);
}

/* The answer as it goes into the history: members that we do not know, as a
 * model's reasoning, stay as they are. */
static void add_answer(struct state *s, const struct json *got)
{
	struct jw w = append(&s->messages);
	const struct json *m;

	jw_obj(&w);
	jw_kstr(&w, "role", "assistant");
	write_content(s, &w, json_get(got, "content"));
	for (m = json_first(got); m; m = json_next(m)) {
		const char *k = json_key(m);

		if (!strcmp(k, "role") || !strcmp(k, "content") ||
		    !strcmp(k, "tool_calls") || !strcmp(k, "sent") ||
		    json_type(m) == JSON_NULL)
			continue;
		jw_key(&w, k);
		jw_node(&w, m);
	}
	write_calls(&w, &s->calls);
	jw_end_obj(&w);
}

static void copy_member(struct jw *w, const struct json *ev, const char *key)
{
	const struct json *j = json_get(ev, key);

	if (!j)
		return;
	jw_key(w, key);
	jw_node(w, j);
}

static void copy_prov(const struct state *s, struct jw *w,
		      const struct json *ev)
{
	if (!s->no_prov)
		copy_member(w, ev, "prov");
}

/* Everything of the turn's record but its calls. */
static void write_head(struct state *s, const struct json *ev)
{
	struct jw w;

	str_reset(&s->head);
	str_reset(&s->results);
	jw_init(&w, &s->head);
	jw_obj(&w);
	jw_kint(&w, "turn", s->turn);
	copy_member(&w, ev, "finish");
	copy_member(&w, ev, "cut");
	copy_member(&w, ev, "usage");
	s->ids.from = s->head.len;
	copy_member(&w, ev, "tokens");
	s->ids.to = s->head.len;
	copy_prov(s, &w, ev);
}

/* The turn is over: its record is complete, and what was not said in tool
 * messages is said now. */
static void end_turn(struct state *s)
{
	struct jw w;

	str_addf(&s->head, ",\"calls\":[%s]}",
		 s->results.buf ? s->results.buf : "");
	w = append(&s->turns);
	if (s->ids.from < s->ids.to)
		add_span(&s->tokens, s->turns.len + s->ids.from,
			 s->turns.len + s->ids.to, &s->turns);
	jw_raw(&w, s->head.buf ? s->head.buf : "{}", s->head.len);
	str_reset(&s->head);
	str_reset(&s->results);
	if (s->deferred.len)
		add_message(s, "user", NULL, s->deferred.buf);
	str_reset(&s->deferred);
	calls_release(&s->calls);
	s->next = 0;
}

static void apply_tokens(struct state *s, const struct json *tokens)
{
	const char *why = json_get_str(tokens, "opens", NULL);
	struct jw w;

	s->ids_known = json_get_int(tokens, "total", 0);
	snprintf(s->ids_hash, sizeof(s->ids_hash), "%s",
		 json_get_str(tokens, "hash", ""));
	if (!why)
		return;
	s->segment++;
	w = append(&s->segments);
	jw_obj(&w);
	jw_kint(&w, "first_turn", s->turn);
	jw_kstr(&w, "why", why);
	jw_end_obj(&w);
}

static void take_said(struct state *s, const struct json *got,
		      const char *cut)
{
	const char *text = json_get_str(got, "content", "");

	str_reset(&s->text);
	str_adds(&s->text, text);
	s->said = s->calls.n ? SAID_CALLS : cut ? SAID_CUT :
		  text[strspn(text, " \t\r\n")] ? SAID_TEXT : SAID_NOTHING;
	if ((s->said == SAID_CALLS && !cut) || s->said == SAID_TEXT)
		s->empties = 0;
	else
		s->empties++;
}

/* Of one policy, or of more than one. */
static void note_weights(struct state *s, const char *now)
{
	if (s->turn > 0 && strcmp(s->weights, now))
		now = "mixed";
	snprintf(s->weights, sizeof(s->weights), "%s", now);
}

static int apply_turn(struct state *s, const struct json *ev, struct err *e)
{
	const struct json *got = json_get(ev, "got");
	const struct json *usage = json_get(ev, "usage");
	const char *cut = json_get_str(ev, "cut", NULL);

	note_weights(s, json_get_str(ev, "weights", ""));
	s->turn = (int)json_get_int(ev, "n", s->turn + 1);
	if (calls_find(got, s->turn, &s->calls, e))
		return -1;
	if (cut)
		calls_refuse(&s->calls, cut);
	add_answer(s, got);
	s->prompt_last = json_get_int(usage, "prompt", 0);
	s->prompt_sum += s->prompt_last;
	s->completion_sum += json_get_int(usage, "completion", 0);
	s->prompt_last += json_get_int(usage, "completion", 0);
	s->estimated |= json_get_bool(usage, "estimated", 0);
	s->model_s += json_num(json_path(ev, "prov.model_s"), 0);
	snprintf(s->logprobs, sizeof(s->logprobs), "%s",
		 json_get_str(ev, "logprobs_mode", ""));
	if (json_get(ev, "tokens"))
		apply_tokens(s, json_get(ev, "tokens"));
	write_head(s, ev);
	s->next = 0;
	take_said(s, got, cut);
	if (!s->calls.n)
		end_turn(s);
	return 0;
}

static void commit_evals(struct state *s)
{
	size_t i;

	for (i = 0; i < s->neval; i++)
		s->eval[i].committed = 1;
}

static void record_call(struct state *s, const struct call *c,
			const struct json *ev)
{
	struct jw w = append(&s->results);
	unsigned bad = CALL_REPAIRED | CALL_INVALID | CALL_BROKEN;

	jw_obj(&w);
	jw_kstr(&w, "id", c->id);
	jw_kstr(&w, "name", c->name);
	jw_kbool(&w, "ok", json_get_bool(ev, "ok", 0));
	jw_kbool(&w, "executed", c->args != NULL);
	jw_kbool(&w, "schema_violation", (c->flags & bad) != 0);
	copy_prov(s, &w, ev);
	jw_end_obj(&w);
	s->violations += (c->flags & bad) != 0;
}

static void take_result(struct state *s, const struct call *c,
			const char *text)
{
	if (goes_back(c))
		add_message(s, "tool", c->id, text);
	else
		str_addf(&s->deferred, "%s<tool_response>\n%s\n"
			 "</tool_response>", s->deferred.len ? "\n" : "",
			 text);
}

static void take_circle(struct state *s)
{
	s->redundant = 1;
	if (s->nudged || !s->eval_mode)
		return;
	s->nudged = 1;
	str_addf(&s->deferred, "%s%s", s->deferred.len ? "\n" : "", nudge);
}

/* A member of the event, if it is there. */
static void take_text(const struct json *ev, const char *key, char *to,
		      size_t size)
{
	const char *text = json_get_str(ev, key, NULL);

	if (text)
		snprintf(to, size, "%s", text);
}

static int apply_result(struct state *s, const struct json *ev, struct err *e)
{
	const char *text = json_get_str(ev, "text", "");
	const struct call *c;

	if (s->next >= s->calls.n)
		return err_set(e, CA_DATAERR, "a result without its call");
	c = &s->calls.c[s->next];
	take_result(s, c, text);
	record_call(s, c, ev);
	if (loop_add(&s->loop, c->name, c->raw ? c->raw : "", text))
		take_circle(s);
	take_text(ev, "cwd", s->cwd, sizeof(s->cwd));
	s->shells = (int)json_get_int(ev, "shells", s->shells);
	s->gpu_calls = json_get_int(ev, "tries", s->gpu_calls);
	commit_evals(s);
	s->begun = 0;
	if (++s->next == s->calls.n)
		end_turn(s);
	return 0;
}

static int apply_eval(struct state *s, const struct json *ev, struct err *e)
{
	const struct json *c = json_get(ev, "candidate");
	struct evaluation *v;
	struct str line = STR_INIT;
	struct jw w;

	if (s->neval == s->alloc) {
		size_t n = s->alloc ? 2 * s->alloc : 8;

		v = realloc(s->eval, n * sizeof(*v));
		if (!v)
			return err_set(e, CA_SOFTWARE, "out of memory");
		s->eval = v;
		s->alloc = n;
	}
	jw_init(&w, &line);
	jw_node(&w, c);
	v = &s->eval[s->neval];
	memset(v, 0, sizeof(*v));
	v->line = str_detach(&line);
	if (!v->line)
		return err_set(e, CA_SOFTWARE, "out of memory");
	v->turn = (int)json_get_int(ev, "turn", s->turn);
	v->stage = ask_parse(json_get_str(ev, "stage", "verify"));
	snprintf(v->graded, sizeof(v->graded), "%s",
		 json_get_str(ev, "graded", ""));
	snprintf(v->id, sizeof(v->id), "%s", json_get_str(c, "id", ""));
	v->verified = !strcmp(json_str(json_path(c, "verify.status"), ""),
			      "ok");
	v->speedup = json_num(json_path(c, "profile.speedup.compile.point"),
			      0);
	v->wall_s = json_get_num(ev, "wall_s", 0);
	s->gpu_s += json_get_num(ev, "judge_s", 0);
	v->gpu_s = s->gpu_s;
	v->committed = v->graded[0] != '\0';
	v->bare = json_get_bool(ev, "omitted", 0);
	s->tried += strlen(v->line);
	s->neval++;
	return 0;
}

const struct evaluation *state_graded(const struct state *s, const char *which)
{
	size_t i;

	for (i = 0; i < s->neval; i++)
		if (!strcmp(s->eval[i].graded, which))
			return &s->eval[i];
	return NULL;
}

void state_settle(struct state *s)
{
	while (s->neval && !s->eval[s->neval - 1].committed) {
		s->tried -= strlen(s->eval[--s->neval].line);
		drop_eval(&s->eval[s->neval]);
	}
}

static void apply_note(struct state *s, const struct json *ev)
{
	add_message(s, "user", NULL, json_get_str(ev, "text", ""));
	s->said = SAID_NONE;
}

static void apply_end(struct state *s, const struct json *ev)
{
	s->stop = stop_parse(json_get_str(ev, "reason", "infra_error"));
	snprintf(s->why, sizeof(s->why), "%s", json_get_str(ev, "why", ""));
}

static void apply_finish(struct state *s, const struct json *ev)
{
	s->finished = 1;
	snprintf(s->none, sizeof(s->none), "%s", json_get_str(ev, "none", ""));
}

static void apply_again(struct state *s)
{
	s->stop = STOP_NONE;
	s->why[0] = '\0';
	s->finished = 0;
}

int state_apply(void *ctx, const struct json *ev, struct err *e)
{
	const char *name = json_get_str(ev, "e", "");
	struct state *s = ctx;
	int rc = 0;

	s->wall_s = json_get_num(ev, "at", s->wall_s);
	if (!strcmp(name, "begin"))
		apply_begin(s, ev);
	else if (!strcmp(name, "turn"))
		rc = apply_turn(s, ev, e);
	else if (!strcmp(name, "call"))
		s->begun = 1;
	else if (!strcmp(name, "result"))
		rc = apply_result(s, ev, e);
	else if (!strcmp(name, "eval"))
		rc = apply_eval(s, ev, e);
	else if (!strcmp(name, "note"))
		apply_note(s, ev);
	else if (!strcmp(name, "end"))
		apply_end(s, ev);
	else if (!strcmp(name, "finish"))
		apply_finish(s, ev);
	else if (!strcmp(name, "again"))
		apply_again(s);
	take_text(ev, "digest", s->digest, sizeof(s->digest));
	if (s->messages.failed || s->turns.failed || s->head.failed)
		return err_set(e, CA_DATAERR, "the rollout has become too "
			       "long");
	return rc;
}
