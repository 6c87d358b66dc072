/* SPDX-License-Identifier: Apache-2.0
 *
 * Trajectories in other formats.
 */
#include "agent/show.h"

#include <stdio.h>
#include <string.h>

#include "base/opt.h"

static void copy(struct jw *w, const char *key, const struct json *j)
{
	if (json_type(j) == JSON_NONE || json_type(j) == JSON_NULL)
		return;
	jw_key(w, key);
	jw_node(w, j);
}

/* As an object; what is none, in one. */
static void atif_arguments(struct jw *w, const char *raw)
{
	struct json *args = json_parse(raw, strlen(raw), JSON_MAX_LINE, NULL,
				       NULL);

	if (json_type(args) == JSON_OBJECT) {
		jw_raw(w, raw, strlen(raw));
	} else {
		jw_obj(w);
		jw_kstr(w, "raw", raw);
		jw_end_obj(w);
	}
	json_free(args);
}

static void atif_calls(struct jw *w, const struct json *list)
{
	const struct json *c;

	if (!json_len(list))
		return;
	jw_key(w, "tool_calls");
	jw_arr(w);
	for (c = json_first(list); c; c = json_next(c)) {
		const struct json *f = json_get(c, "function");
		const char *raw = json_get_str(f, "arguments", "{}");

		jw_obj(w);
		jw_kstr(w, "tool_call_id", json_get_str(c, "id", ""));
		jw_kstr(w, "function_name", json_get_str(f, "name", ""));
		jw_key(w, "arguments");
		atif_arguments(w, raw);
		jw_end_obj(w);
	}
	jw_end_arr(w);
}

/* The tool messages behind an answer; where they end. */
static const struct json *atif_results(struct jw *w, const struct json *m)
{
	if (strcmp(json_get_str(m, "role", ""), "tool"))
		return m;
	jw_key(w, "observation");
	jw_obj(w);
	jw_key(w, "results");
	jw_arr(w);
	for (; m && !strcmp(json_get_str(m, "role", ""), "tool");
	     m = json_next(m)) {
		jw_obj(w);
		jw_kstr(w, "source_call_id",
			json_get_str(m, "tool_call_id", ""));
		jw_kstr(w, "content", json_get_str(m, "content", ""));
		jw_end_obj(w);
	}
	jw_end_arr(w);
	jw_end_obj(w);
	return m;
}

static void atif_metrics(struct jw *w, const struct json *turn)
{
	const struct json *u = json_get(turn, "usage");

	if (!u)
		return;
	jw_key(w, "metrics");
	jw_obj(w);
	jw_kint(w, "prompt_tokens", json_get_int(u, "prompt", 0));
	jw_kint(w, "completion_tokens", json_get_int(u, "completion", 0));
	jw_end_obj(w);
}

/* How many there are. */
static int atif_steps(struct jw *w, const struct json *t)
{
	const struct json *m = json_first(json_get(t, "messages"));
	const struct json *turn = json_first(json_get(t, "turns"));
	int step = 0;

	while (m) {
		const char *role = json_get_str(m, "role", "");
		int agent = !strcmp(role, "assistant");
		const struct json *next = json_next(m);

		jw_obj(w);
		jw_kint(w, "step_id", ++step);
		jw_kstr(w, "source", agent ? "agent" : !strcmp(role, "system") ?
			role : "user");
		jw_kstr(w, "message", show_said(m));
		if (agent) {
			const struct json *r = json_get(m, "reasoning");

			if (json_get(m, "reasoning_content"))
				r = json_get(m, "reasoning_content");
			if (json_type(r) == JSON_STRING)
				copy(w, "reasoning_content", r);
			atif_calls(w, json_get(m, "tool_calls"));
			next = atif_results(w, next);
			atif_metrics(w, turn);
			turn = json_next(turn);
		}
		jw_end_obj(w);
		m = next;
	}
	return step;
}

static void export_atif(const struct json *t, struct jw *w)
{
	const struct json *c = json_get(t, "cost");
	int steps;

	jw_obj(w);
	jw_kstr(w, "schema_version", "ATIF-v1.4");
	jw_kstr(w, "session_id", json_get_str(t, "id", ""));
	jw_key(w, "agent");
	jw_obj(w);
	jw_kstr(w, "name", "ca-agent");
	jw_kstr(w, "version", ca_version);
	jw_kstr(w, "model_name", json_str(json_path(t, "model.name"), ""));
	jw_end_obj(w);
	jw_key(w, "steps");
	jw_arr(w);
	steps = atif_steps(w, t);
	jw_end_arr(w);
	jw_key(w, "final_metrics");
	jw_obj(w);
	jw_kint(w, "total_prompt_tokens",
		json_get_int(c, "prompt_tokens", 0));
	jw_kint(w, "total_completion_tokens",
		json_get_int(c, "completion_tokens", 0));
	jw_kint(w, "total_steps", steps);
	jw_end_obj(w);
	jw_key(w, "extra");
	jw_obj(w);
	copy(w, "outcome", json_get(t, "outcome"));
	copy(w, "task", json_path(t, "task.id"));
	jw_end_obj(w);
	jw_end_obj(w);
}

static void said(struct jw *w, const char *from, const char *value)
{
	jw_obj(w);
	jw_kstr(w, "from", from);
	jw_kstr(w, "value", value);
	jw_end_obj(w);
}

/* An answer with its calls as text. */
static void share_answer(struct jw *w, const struct json *m)
{
	struct str s = STR_INIT;
	const struct json *c;

	str_adds(&s, show_said(m));
	for (c = json_first(json_get(m, "tool_calls")); c; c = json_next(c)) {
		const struct json *f = json_get(c, "function");
		struct jw name;

		str_addf(&s, "%s<tool_call>\n{\"name\": ", s.len ? "\n" : "");
		jw_init(&name, &s);
		jw_str(&name, json_get_str(f, "name", ""));
		str_addf(&s, ", \"arguments\": %s}\n</tool_call>",
			 json_get_str(f, "arguments", "{}"));
	}
	said(w, "gpt", s.buf ? s.buf : "");
	str_release(&s);
}

static void export_sharegpt(const struct json *t, struct jw *w)
{
	const struct json *m = json_first(json_get(t, "messages"));

	jw_obj(w);
	jw_kstr(w, "id", json_get_str(t, "id", ""));
	jw_key(w, "conversations");
	jw_arr(w);
	for (; m; m = json_next(m)) {
		const char *role = json_get_str(m, "role", "");

		if (!strcmp(role, "assistant"))
			share_answer(w, m);
		else
			said(w, !strcmp(role, "user") ? "human" : role,
			     json_get_str(m, "content", ""));
	}
	jw_end_arr(w);
	copy(w, "reward", json_path(t, "outcome.reward"));
	jw_end_obj(w);
}

int export_trajectory(const struct json *t, enum export_format f,
		      struct str *out)
{
	struct jw w;

	if (json_type(json_first(json_get(t, "messages"))) != JSON_OBJECT)
		return -1;
	jw_init(&w, out);
	if (f == EXPORT_ATIF)
		export_atif(t, &w);
	else
		export_sharegpt(t, &w);
	return str_addc(out, '\n');
}
