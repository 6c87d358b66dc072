/* SPDX-License-Identifier: Apache-2.0
 *
 * The trajectory record of a finished rollout.
 */
#define _GNU_SOURCE
#include "agent/rollout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

/* What a record that grew too long is written without, one more each time. */
enum less { NOTHING, TRIES, IDS, MESSAGES, LESS_COUNT };

static void list(struct jw *w, const char *key, const struct str *values)
{
	struct str s = STR_INIT;

	str_addc(&s, '[');
	str_add(&s, values->buf ? values->buf : "", values->len);
	str_addc(&s, ']');
	jw_key(w, key);
	jw_raw(w, s.buf ? s.buf : "[]", s.len);
	str_release(&s);
}

static void write_model(struct jw *w, const struct rollout *r)
{
	const struct agent_opts *o = r->o;

	jw_key(w, "model");
	jw_obj(w);
	jw_kstr(w, "name", o->model);
	jw_kstr(w, "weight_version", r->s.weights[0] ? r->s.weights : NULL);
	jw_key(w, "sampling");
	jw_obj(w);
	if (o->temperature >= 0)
		jw_knum(w, "temperature", o->temperature);
	if (o->top_p >= 0)
		jw_knum(w, "top_p", o->top_p);
	if (o->top_k >= 0)
		jw_kint(w, "top_k", o->top_k);
	jw_kint(w, "max_tokens", o->max_tokens);
	body_write(o, w);
	if (r->s.logprobs[0])
		jw_kstr(w, "logprobs", r->s.logprobs);
	jw_end_obj(w);
	jw_end_obj(w);
}

/* `bare`: without the candidate's files, for a record that grew too long. */
static void write_eval(struct jw *w, const struct evaluation *v, int no_prov,
		       int bare)
{
	jw_obj(w);
	jw_kint(w, "turn", v->turn);
	jw_kstr(w, "stage", ask_name(v->stage));
	if (v->graded[0])
		jw_kstr(w, "graded", v->graded);
	jw_kbool(w, "verified", v->verified);
	if (!no_prov) {
		jw_knum(w, "wall_s", v->wall_s);
		jw_knum(w, "judge_s", v->gpu_s);
	}
	if (bare || v->bare) {
		jw_kstr(w, "id", v->id);
		jw_kbool(w, "omitted", 1);
	} else {
		jw_key(w, "candidate");
		jw_raw(w, v->line, strlen(v->line));
	}
	jw_end_obj(w);
}

/* {id, status, reward, speedup} of a graded candidate; its reward, and why it
 * has none. */
static void write_grade(struct jw *w, const char *key,
			const struct evaluation *v, double *reward,
			int *known, struct str *why)
{
	struct json *c = v ? json_parse(v->line, strlen(v->line),
					JSON_MAX_LINE, NULL, NULL) : NULL;
	const struct json *value = json_path(c, "reward.value");

	jw_key(w, key);
	if (!c) {
		jw_null(w);
		return;
	}
	*known = json_type(value) == JSON_NUMBER;
	*reward = json_num(value, 0);
	str_reset(why);
	if (!*known)
		str_adds(why, json_str(json_path(c, "reward.reason"),
				       "the judge gave no reward"));
	jw_obj(w);
	jw_kstr(w, "id", v->id);
	jw_kstr(w, "status", json_str(json_path(c, "verify.status"), NULL));
	jw_key(w, "speedup");
	if (json_path(c, "reward.speedup"))
		jw_node(w, json_path(c, "reward.speedup"));
	else
		jw_null(w);
	jw_key(w, "reward");
	if (*known)
		jw_num(w, *reward);
	else
		jw_null(w);
	jw_end_obj(w);
	json_free(c);
}

/* Why it ended, and why nothing was paid or graded. */
static void write_why(struct jw *w, const char *ended, const char *none)
{
	struct str text = STR_INIT;

	str_addf(&text, "%s%s%s", ended, *ended && *none ? "; " : "", none);
	if (text.len)
		jw_kstr(w, "why", text.buf);
	str_release(&text);
}

static void write_outcome(struct jw *w, const struct rollout *r)
{
	const struct evaluation *final = state_graded(&r->s, "final");
	const struct evaluation *best = state_graded(&r->s, "best");
	struct str none = STR_INIT, ignored = STR_INIT;
	double reward = -1, other = 0;
	int known = 1, also = 0;

	str_adds(&none, r->s.none);
	jw_key(w, "outcome");
	jw_obj(w);
	write_grade(w, "final", final, &reward, &known, &none);
	if (r->o->eval) {
		best = best ? best : final;
		jw_key(w, "best");
		jw_obj(w);
		jw_kstr(w, "selected", best ? best->id : NULL);
		write_grade(w, "rejudged", best, &other, &also, &ignored);
		jw_end_obj(w);
		if (also && (!known || other > reward)) {
			reward = other;
			known = 1;
			str_reset(&none);
		}
	}
	if (stop_is_fault(r->s.stop))
		known = 0;
	jw_key(w, "reward");
	if (known)
		jw_num(w, reward);
	else
		jw_null(w);
	jw_kstr(w, "stop_reason", stop_name(r->s.stop));
	write_why(w, r->s.why, none.buf ? none.buf : "");
	jw_kbool(w, "trainable", known);
	jw_end_obj(w);
	str_release(&none);
	str_release(&ignored);
}

static void write_cost(struct jw *w, const struct rollout *r)
{
	const struct state *s = &r->s;

	jw_key(w, "cost");
	jw_obj(w);
	jw_kint(w, "turns", s->turn);
	jw_kint(w, "prompt_tokens", s->prompt_sum);
	jw_kint(w, "completion_tokens", s->completion_sum);
	if (s->estimated)
		jw_kbool(w, "estimated", 1);
	jw_kint(w, "tries", s->gpu_calls);
	if (!r->o->no_prov) {
		jw_knum(w, "seconds", spent_s(r));
		jw_knum(w, "model_seconds", s->model_s);
		jw_knum(w, "judge_seconds", s->gpu_s);
		jw_knum(w, "gpu_seconds", strcmp(r->o->device, "cpu") ?
			s->gpu_s : 0);
	}
	jw_end_obj(w);
}

static void write_task(struct jw *w, const struct rollout *r)
{
	jw_key(w, "task");
	jw_obj(w);
	jw_kstr(w, "id", r->t->task);
	jw_kstr(w, "code", r->t->code);
	jw_end_obj(w);
}

static void write_turns(struct jw *w, const struct state *s, enum less less)
{
	struct str bare = STR_INIT;

	if (less >= IDS)
		spans_leave_out(&s->tokens, &s->turns, &bare);
	list(w, "turns", less >= MESSAGES ? &(struct str)STR_INIT :
	     less >= IDS ? &bare : &s->turns);
	str_release(&bare);
}

static void write_record(struct jw *w, const struct rollout *r,
			 enum less less)
{
	static const char *const omitted[] = { NULL, "candidates", "tokens",
					       "messages" };
	const struct state *s = &r->s;
	char date[32];
	time_t now = time(NULL);
	struct tm tm;
	size_t i;

	jw_obj(w);
	jw_kstr(w, "kind", "trajectory");
	jw_kint(w, "v", REC_V);
	jw_kstr(w, "id", r->t->id);
	write_task(w, r);
	jw_ku64(w, "seed", r->t->seed);
	jw_kstr(w, "mode", r->o->single_turn ? "single-turn" : r->o->eval ?
		"eval" : "train");
	write_model(w, r);
	list(w, "messages", less >= MESSAGES ? &(struct str)STR_INIT :
	     &s->messages);
	list(w, "segments", &s->segments);
	write_turns(w, s, less);
	jw_key(w, "evaluations");
	jw_arr(w);
	for (i = 0; i < s->neval; i++) {
		int graded = s->eval[i].graded[0] != '\0';

		/* There may be very many tries. */
		if (less < MESSAGES || graded)
			write_eval(w, &s->eval[i], r->o->no_prov,
				   less >= (graded ? MESSAGES : TRIES));
	}
	jw_end_arr(w);
	if (less)
		jw_kstr(w, "omitted", omitted[less]);
	jw_kbool(w, "redundant_loop", s->redundant);
	jw_kint(w, "schema_violations", s->violations);
	write_outcome(w, r);
	write_cost(w, r);
	if (!r->o->no_prov) {
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ",
			 gmtime_r(&now, &tm));
		jw_key(w, "prov");
		jw_obj(w);
		jw_kstr(w, "date", date);
		jw_end_obj(w);
	}
	jw_end_obj(w);
}

int record_write(struct rollout *r, struct err *e)
{
	struct str line = STR_INIT;
	struct jw w;
	int less, rc = -1;

	for (less = NOTHING; less < LESS_COUNT; less++) {
		str_reset(&line);
		jw_init(&w, &line);
		write_record(&w, r, (enum less)less);
		if (line.len < JSON_MAX_LINE)
			break;
	}
	str_addc(&line, '\n');
	if (line.failed || line.len > JSON_MAX_LINE)
		err_set(e, CA_DATAERR, "the trajectory does not fit in a "
			"record");
	else
		rc = write_file_atomic(ROLLOUT_RECORD, line.buf, line.len,
				       0644, e);
	str_release(&line);
	return rc;
}

void rollout_failure(const struct agent_opts *o, const struct agent_task *t,
		     enum stop s, const char *why, struct str *line)
{
	struct rollout r = { .o = o, .t = t, .began = now_ns() };
	struct jw w;

	state_init(&r.s);
	r.s.stop = s;
	snprintf(r.s.why, sizeof(r.s.why), "%s", why);
	jw_init(&w, line);
	write_record(&w, &r, NOTHING);
	str_addc(line, '\n');
}
