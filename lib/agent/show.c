/* SPDX-License-Identifier: Apache-2.0
 *
 * A trajectory as a person wants to read it.
 */
#include "agent/show.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

#define CUT_LINES 20		/* of a result, unless all is asked for */
#define CUT_CHARS 400		/* of a line */
#define TAB 8
#define LEAST 20		/* columns beside a margin */

enum color { PLAIN, BOLD, DIM, RED, GREEN, BLUE };

struct show {
	const struct json *t;
	const struct show_opts *o;
	struct str *out;
};

static void paint(struct show *s, enum color c)
{
	static const char *const codes[] = {
		"\033[0m", "\033[1m", "\033[2m", "\033[31m", "\033[32m",
		"\033[34m"
	};

	if (s->o->color)
		str_adds(s->out, codes[c]);
}

/* Columns of the character of n bytes at p, `at` columns into the line. */
static size_t columns(const char *p, size_t n, size_t at)
{
	unsigned char c = (unsigned char)*p;
	utf8proc_int32_t cp;
	int width;

	if (c == '\t')
		return TAB - at % TAB;
	if (n <= 1)
		return c < 0x20 || c >= 0x7f ? 4 : 1;	/* \xNN */
	if (utf8proc_iterate((const utf8proc_uint8_t *)p,
			     (utf8proc_ssize_t)n, &cp) <= 0)
		return 1;
	width = utf8proc_charwidth(cp);
	return width > 0 ? (size_t)width : 0;
}

/* The part of a text that is shown: up to `most` characters and `width`
 * columns (0: any), at least one character; its bytes. */
static size_t part(const char *p, size_t len, size_t most, size_t width)
{
	size_t i = 0, chars = 0, at = 0, n;

	while (i < len && chars < most) {
		n = utf8_len(p + i, len - i);
		n = n ? n : 1;
		at += columns(p + i, n, at);
		if (width && at > width && i)
			break;
		i += n;
		chars++;
	}
	return i;
}

/* One line behind a margin, cut if it is long, folded at the width. */
static void line(struct show *s, const char *p, size_t len,
		 const char *margin)
{
	size_t most = s->o->all ? SIZE_MAX : CUT_CHARS, rest, n;
	size_t used = strlen(margin), width = (size_t)s->o->width;

	rest = part(p, len, most, 0);
	width = !width ? 0 : width > used + LEAST ? width - used : LEAST;
	do {
		n = part(p, rest, SIZE_MAX, width);
		str_adds(s->out, margin);
		str_add_safe(s->out, p, n);
		p += n;
		len -= n;
		rest -= n;
		str_adds(s->out, rest || !len ? "\n" : " ...\n");
	} while (rest);
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n' || !text[1];
	return n;
}

/* Text behind a margin, cut if it is long. */
static void block(struct show *s, const char *text, const char *margin)
{
	int lines = 0;
	size_t n, left;

	for (; *text; text += n + (text[n] == '\n')) {
		n = strcspn(text, "\n");
		left = s->o->all || lines++ < CUT_LINES ? 0 :
		       count_lines(text);
		if (left > 1) {
			str_addf(s->out, "%s(%zu more lines)\n", margin, left);
			return;
		}
		line(s, text, n, margin);
	}
}

static void title(struct show *s, enum color c, const char *text)
{
	paint(s, c);
	line(s, text, strlen(text), "");
	if (s->o->color) {
		s->out->len--;
		paint(s, PLAIN);
		str_addc(s->out, '\n');
	}
}

/* Members that are texts, behind marks that tell old from new. */
static void show_texts(struct show *s, const struct json *args)
{
	static const char *const texts[] = {
		"content", "old_string", "new_string", "new_source"
	};
	const struct json *m;
	const char *v;
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		v = json_get_str(args, texts[i], NULL);
		if (v)
			block(s, v, i == 1 ? "  - " : "  + ");
	}
	for (m = json_first(json_get(args, "edits")); m; m = json_next(m))
		show_texts(s, m);
	for (m = json_first(json_get(args, "todos")); m; m = json_next(m)) {
		v = json_get_str(m, "status", "");
		block(s, json_get_str(m, "content", ""), *v == 'c' ?
		      "  [x] " : *v == 'i' ? "  [>] " : "  [ ] ");
	}
}

/* " -i glob=*.cu": what else was asked for. */
static void add_others(const struct json *args, const char *head,
		       struct str *out)
{
	static const char *const not[] = {
		"content", "old_string", "new_string", "new_source", "edits",
		"todos", "description"
	};
	const struct json *m;
	struct jw w;
	size_t i;

	m = json_type(args) == JSON_OBJECT ? json_first(args) : NULL;
	for (; m; m = json_next(m)) {
		for (i = 0; i < sizeof(not) / sizeof(*not); i++)
			if (!strcmp(json_key(m), not[i]))
				break;
		if (i < sizeof(not) / sizeof(*not) ||
		    (*head && json_str(m, NULL) == head))
			continue;
		str_addf(out, "  %s=", json_key(m));
		if (json_type(m) == JSON_STRING) {
			str_adds(out, json_str(m, ""));
		} else {
			jw_init(&w, out);
			jw_node(&w, m);
		}
	}
}

/* "Edit /work/kernels/a.cu", then what is worth seeing of the arguments. */
static void show_call(struct show *s, const struct json *call)
{
	static const char *const first[] = {
		"command", "file_path", "pattern", "bash_id", "shell_id",
		"notebook_path"
	};
	const struct json *f = json_get(call, "function");
	const char *raw = json_get_str(f, "arguments", ""), *head = "";
	struct json *args = json_parse(raw, strlen(raw), JSON_MAX_LINE, NULL,
				       NULL);
	struct str text = STR_INIT;
	size_t i, n;

	for (i = 0; i < sizeof(first) / sizeof(*first) && !*head; i++)
		head = json_get_str(args, first[i], "");
	str_addf(&text, "%s ", json_get_str(f, "name", "?"));
	n = strcspn(head, "\n");
	if (json_type(args) != JSON_OBJECT)
		str_adds(&text, raw);
	else if (!head[n])
		str_adds(&text, head);
	add_others(args, head, &text);
	paint(s, BLUE);
	block(s, text.buf ? text.buf : "", "  ");
	paint(s, PLAIN);
	if (head[n])
		block(s, head, "    ");
	show_texts(s, args);
	str_release(&text);
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
	const struct json *took = json_path(t, "prov.model_s");
	struct str text = STR_INIT;

	str_addf(&text, "--- turn %d", n);
	if (t)
		str_addf(&text, "  (%lld + %lld tokens",
			 (long long)json_int(json_path(t, "usage.prompt"), 0),
			 (long long)json_int(json_path(t, "usage.completion"),
					     0));
	if (t && took)
		str_addf(&text, ", %.1f s", json_num(took, 0));
	str_adds(&text, t ? ")" : "");
	title(s, BOLD, text.buf ? text.buf : "");
	str_release(&text);
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

/* The call of that turn which this is the result of; NULL. */
static const struct json *call_of(const struct show *s, int turn,
				  const char *id)
{
	const struct json *c = json_first(json_get(turn_of(s, turn),
						   "calls"));

	for (; c; c = json_next(c))
		if (!strcmp(json_get_str(c, "id", ""), id))
			return c;
	return NULL;
}

static void show_result(struct show *s, const struct json *m, int turn)
{
	const struct json *c = call_of(s, turn, json_get_str(m,
							"tool_call_id", ""));
	int bad = c && !json_get_bool(c, "ok", 1);

	if (json_get_bool(c, "schema_violation", 0))
		title(s, RED, "  (the call violated its schema)");
	if (bad)
		paint(s, RED);
	block(s, json_get_str(m, "content", ""), bad ? "  ! " : "  | ");
	if (bad)
		paint(s, PLAIN);
}

/* Verdicts of a turn, behind it. */
static void show_verdicts(struct show *s, int turn)
{
	const struct json *v = json_first(json_get(s->t, "evaluations"));
	char text[256];

	for (; v; v = json_next(v)) {
		const struct json *c = json_get(v, "candidate");
		const char *graded = json_get_str(v, "graded", "");
		const char *stage = json_get_str(v, "stage", "?");
		const char *field = !strcmp(stage, "compile") ?
				    "build.status" : "verify.status";
		const struct json *up = json_path(c, "profile.speedup."
						  "compile.point");
		const char *status = json_str(json_path(c, field),
					      json_str(json_path(c,
						       "build.status"), "-"));
		char speed[48] = "";

		if (json_get_int(v, "turn", 0) != turn || *graded)
			continue;
		if (!strcmp(stage, "reference"))
			status = json_str(json_path(c, "reference.status"),
					  "-");
		if (up)
			snprintf(speed, sizeof(speed), ", %.2fx over compile",
				 json_num(up, 0));
		snprintf(text, sizeof(text), "  [%.40s: %.80s%s]", stage,
			 status, speed);
		title(s, !strcmp(status, "ok") ? GREEN : RED, text);
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
			show_result(s, m, turn);
		} else if (turn || s->o->all) {
			title(s, BOLD, role);
			block(s, json_get_str(m, "content", ""), "  ");
		}
	}
	show_verdicts(s, turn);
}

static void add_speedup(const struct json *g, const char *over,
			struct str *out)
{
	char path[32];
	const struct json *v;

	snprintf(path, sizeof(path), "speedup.%s", over);
	v = json_path(g, path);
	if (json_type(v) == JSON_NUMBER)
		str_addf(out, ", %.3gx over %s", json_num(v, 0), over);
}

static void show_grade(struct show *s, const char *what,
		       const struct json *g)
{
	struct str text = STR_INIT;

	if (json_type(g) != JSON_OBJECT)
		return;
	str_addf(&text, "%s: %s", what, json_get_str(g, "status", "?"));
	add_speedup(g, "eager", &text);
	add_speedup(g, "compile", &text);
	if (json_type(json_get(g, "reward")) == JSON_NUMBER)
		str_addf(&text, ", reward %g", json_get_num(g, "reward", 0));
	else
		str_adds(&text, ", no reward");
	title(s, PLAIN, text.buf ? text.buf : "");
	str_release(&text);
}

static void show_cost(struct show *s)
{
	const struct json *c = json_get(s->t, "cost");
	struct str text = STR_INIT;

	if (json_type(c) != JSON_OBJECT)
		return;
	str_addf(&text, "%lld turns, %lld tokens in, %lld out%s, %lld tries",
		 (long long)json_get_int(c, "turns", 0),
		 (long long)json_get_int(c, "prompt_tokens", 0),
		 (long long)json_get_int(c, "completion_tokens", 0),
		 json_get_bool(c, "estimated", 0) ? " (estimated)" : "",
		 (long long)json_get_int(c, "tries", 0));
	if (json_get(c, "seconds"))
		str_addf(&text, ", %.1f s (model %.1f, judge %.1f)",
			 json_get_num(c, "seconds", 0),
			 json_get_num(c, "model_seconds", 0),
			 json_get_num(c, "judge_seconds", 0));
	if (json_get_bool(s->t, "redundant_loop", 0))
		str_adds(&text, "; went in circles");
	if (json_get_int(s->t, "schema_violations", 0))
		str_adds(&text, "; violated schemas");
	title(s, PLAIN, text.buf ? text.buf : "");
	str_release(&text);
}

static void show_outcome(struct show *s)
{
	const struct json *o = json_get(s->t, "outcome");
	const struct json *r = json_get(o, "reward");
	const char *why = json_get_str(o, "why", NULL);
	int some = json_type(r) == JSON_NUMBER;
	struct str text = STR_INIT;

	str_addf(&text, "=== %s%s%s; ", json_get_str(o, "stop_reason", "?"),
		 why ? ": " : "", why ? why : "");
	if (some)
		str_addf(&text, "reward %g", json_num(r, 0));
	else
		str_adds(&text, "no reward");
	title(s, some && json_num(r, 0) > 0 ? GREEN : RED,
	      text.buf ? text.buf : "");
	str_release(&text);
	show_grade(s, "final", json_get(o, "final"));
	show_grade(s, "best", json_path(o, "best.rejudged"));
	show_cost(s);
}

void show_trajectory(const struct json *t, const struct show_opts *o,
		     struct str *out)
{
	struct show s = { t, o, out };
	struct str text = STR_INIT;

	str_addf(&text, "trajectory %s, task %s, model '%s'",
		 json_get_str(t, "id", "?"),
		 json_str(json_path(t, "task.id"), "?"),
		 json_str(json_path(t, "model.name"), ""));
	title(&s, BOLD, text.buf ? text.buf : "");
	str_release(&text);
	if (json_get_str(t, "omitted", NULL))
		title(&s, RED, "(too long for a record: not all is here)");
	show_messages(&s);
	show_outcome(&s);
	str_addc(out, '\n');
}
