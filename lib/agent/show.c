/* SPDX-License-Identifier: Apache-2.0
 *
 * A trajectory as a person wants to read it.
 */
#include "agent/show.h"

#include <stdio.h>
#include <string.h>

#define CUT_LINES 20		/* of a result, unless all is asked for */
#define CUT_CHARS 400		/* of a line */

enum color { PLAIN, BOLD, DIM, RED, GREEN, BLUE };

struct show {
	const struct json *t;
	int color, all;
	struct str *out;
};

static void paint(struct show *s, enum color c)
{
	static const char *const codes[] = {
		"\033[0m", "\033[1m", "\033[2m", "\033[31m", "\033[32m",
		"\033[34m"
	};

	if (s->color)
		str_adds(s->out, codes[c]);
}

static void title(struct show *s, enum color c, const char *text)
{
	paint(s, c);
	str_add_safe(s->out, text, strlen(text));
	paint(s, PLAIN);
	str_addc(s->out, '\n');
}

/* Text behind a margin, cut if it is long. */
static void block(struct show *s, const char *text, const char *margin)
{
	int lines = 0;
	size_t n, shown;

	for (; *text; text += n + (text[n] == '\n')) {
		n = strcspn(text, "\n");
		if (!s->all && lines++ == CUT_LINES) {
			str_addf(s->out, "%s(%zu more bytes)\n", margin,
				 strlen(text));
			return;
		}
		shown = !s->all && n > CUT_CHARS ? CUT_CHARS : n;
		str_adds(s->out, margin);
		str_add_safe(s->out, text, shown);
		str_adds(s->out, shown < n ? " ...\n" : "\n");
	}
}

/* "Edit /work/kernels/a.cu", then what is worth seeing of the arguments. */
static void show_call(struct show *s, const struct json *call)
{
	static const char *const first[] = {
		"command", "file_path", "pattern", "bash_id", "shell_id",
		"notebook_path"
	};
	static const char *const texts[] = {
		"content", "old_string", "new_string", "new_source"
	};
	const struct json *f = json_get(call, "function");
	const char *raw = json_get_str(f, "arguments", "");
	struct json *args = json_parse(raw, strlen(raw), JSON_MAX_LINE, NULL,
				       NULL);
	const char *head = "", *v;
	size_t i;

	for (i = 0; i < sizeof(first) / sizeof(*first) && !*head; i++)
		head = json_get_str(args, first[i], "");
	paint(s, BLUE);
	str_addf(s->out, "  %s ", json_get_str(f, "name", "?"));
	paint(s, PLAIN);
	if (strchr(head, '\n')) {
		str_addc(s->out, '\n');
		block(s, head, "    ");
	} else {
		title(s, PLAIN, args ? head : raw);
	}
	for (i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		v = json_get_str(args, texts[i], NULL);
		if (v)
			block(s, v, !strcmp(texts[i], "old_string") ?
			      "  - " : "  + ");
	}
	json_free(args);
}

static const struct json *turn_of(const struct show *s, int n)
{
	const struct json *m = json_first(json_get(s->t, "turns"));

	for (; m; m = json_next(m))
		if (json_get_int(m, "turn", 0) == n)
			return m;
	return NULL;
}

static void show_head(struct show *s, int n)
{
	const struct json *t = turn_of(s, n);
	char line[160];

	snprintf(line, sizeof(line), "--- turn %d  (%lld + %lld tokens, "
		 "%.1f s)", n,
		 (long long)json_int(json_path(t, "usage.prompt"), 0),
		 (long long)json_int(json_path(t, "usage.completion"), 0),
		 json_num(json_path(t, "prov.model_s"), 0));
	title(s, BOLD, line);
	if (json_get(t, "cut"))
		title(s, RED, json_get_str(t, "cut", ""));
}

const char *show_said(const struct json *m)
{
	return json_get_str(m, "sent", json_get_str(m, "content", ""));
}

static void show_assistant(struct show *s, const struct json *m, int n)
{
	const struct json *c;
	const char *think = json_get_str(m, "reasoning_content",
					 json_get_str(m, "reasoning", NULL));

	show_head(s, n);
	if (think) {
		paint(s, DIM);
		block(s, think, "  ~ ");
		paint(s, PLAIN);
	}
	block(s, show_said(m), "");
	for (c = json_first(json_get(m, "tool_calls")); c; c = json_next(c))
		show_call(s, c);
}

/* Verdicts of a turn, behind it. */
static void show_verdicts(struct show *s, int turn)
{
	const struct json *v = json_first(json_get(s->t, "evaluations"));
	char line[256];

	for (; v; v = json_next(v)) {
		const struct json *c = json_get(v, "candidate");
		const char *graded = json_get_str(v, "graded", "");
		const struct json *up = json_path(c, "profile.speedup."
						  "compile.point");
		char speed[48] = "";

		if (json_get_int(v, "turn", 0) != turn || *graded)
			continue;
		if (up)
			snprintf(speed, sizeof(speed), ", %.2fx over compile",
				 json_num(up, 0));
		snprintf(line, sizeof(line), "  [%s: %s%s]",
			 json_get_str(v, "stage", "?"),
			 json_str(json_path(c, "verify.status"),
				  json_str(json_path(c, "build.status"),
					   "-")), speed);
		title(s, json_get_bool(v, "verified", 0) ? GREEN : RED, line);
	}
}

static void show_messages(struct show *s)
{
	const struct json *m = json_first(json_get(s->t, "messages"));
	int turn = 0;

	for (; m; m = json_next(m)) {
		const char *role = json_get_str(m, "role", "");

		if (!strcmp(role, "assistant")) {
			show_verdicts(s, turn);
			show_assistant(s, m, ++turn);
		} else if (!strcmp(role, "tool")) {
			block(s, json_get_str(m, "content", ""), "  | ");
		} else if (turn || s->all) {
			title(s, BOLD, role);
			block(s, json_get_str(m, "content", ""), "  ");
		}
	}
	show_verdicts(s, turn);
}

static void show_grade(struct show *s, const char *what,
		       const struct json *g)
{
	char line[256], reward[32] = "none";

	if (json_type(g) != JSON_OBJECT)
		return;
	if (json_type(json_get(g, "reward")) == JSON_NUMBER)
		snprintf(reward, sizeof(reward), "%g",
			 json_get_num(g, "reward", 0));
	snprintf(line, sizeof(line), "%s: %s, %.3gx over eager, %.3gx over "
		 "compile, reward %s", what, json_get_str(g, "status", "?"),
		 json_num(json_path(g, "speedup.eager"), 0),
		 json_num(json_path(g, "speedup.compile"), 0), reward);
	title(s, PLAIN, line);
}

static void show_outcome(struct show *s)
{
	const struct json *o = json_get(s->t, "outcome");
	const struct json *c = json_get(s->t, "cost");
	const struct json *r = json_get(o, "reward");
	char line[512];
	int some = json_type(r) == JSON_NUMBER;

	snprintf(line, sizeof(line), "=== %s%s%.300s; reward %.*g%s",
		 json_get_str(o, "stop_reason", "?"),
		 json_get(o, "why") ? ": " : "", json_get_str(o, "why", ""),
		 6, json_num(r, 0), some ? "" : " (none)");
	title(s, some && json_num(r, 0) > 0 ? GREEN : RED, line);
	show_grade(s, "final", json_get(o, "final"));
	show_grade(s, "best", json_path(o, "best.rejudged"));
	snprintf(line, sizeof(line), "%lld turns, %lld tokens in, %lld out, "
		 "%lld tries, %.1f s (model %.1f, judge %.1f)%s%s",
		 (long long)json_get_int(c, "turns", 0),
		 (long long)json_get_int(c, "prompt_tokens", 0),
		 (long long)json_get_int(c, "completion_tokens", 0),
		 (long long)json_get_int(c, "tries", 0),
		 json_get_num(c, "seconds", 0),
		 json_get_num(c, "model_seconds", 0),
		 json_get_num(c, "judge_seconds", 0),
		 json_get_bool(s->t, "redundant_loop", 0) ?
		 "; went in circles" : "",
		 json_get_int(s->t, "schema_violations", 0) ?
		 "; violated schemas" : "");
	title(s, PLAIN, line);
}

void show_trajectory(const struct json *t, int color, int all,
		     struct str *out)
{
	struct show s = { t, color, all, out };
	char line[256];

	snprintf(line, sizeof(line), "trajectory %s, task %s, model '%.60s'",
		 json_get_str(t, "id", "?"),
		 json_str(json_path(t, "task.id"), "?"),
		 json_str(json_path(t, "model.name"), ""));
	title(&s, BOLD, line);
	show_messages(&s);
	show_outcome(&s);
	str_addc(out, '\n');
}
