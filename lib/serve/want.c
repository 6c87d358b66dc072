/* SPDX-License-Identifier: Apache-2.0
 *
 * One table of members, each with the function that reads it.
 */
#include "serve/want.h"

#include <string.h>

#include "nn/engine.h"
#include "nn/gen.h"
#include "rec/scan.h"
#include "serve/tools.h"

#define BAD 400
#define SEED_MOST ((int64_t)1 << 53)	/* numbers in JSON are doubles */

struct member {
	const char *name;
	unsigned kinds;			/* 1 << enum want_kind */
	int (*read)(struct want *w, const struct json *j, struct fault *f);
};

enum { CHAT = 1 << WANT_CHAT, TEXT = 1 << WANT_TEXT, BOTH = CHAT | TEXT };

static int wrong(struct fault *f, const struct json *j, const char *what)
{
	return fault_set(f, BAD, "invalid_type", json_key(j),
			 "'%s' has to be %s", json_key(j), what);
}

static int number(const struct json *j, double lo, double hi, double *out,
		  struct fault *f)
{
	*out = json_num(j, lo - 1);
	if (json_type(j) != JSON_NUMBER || !(*out >= lo && *out <= hi))
		return fault_set(f, BAD, "invalid_value", json_key(j),
				 "'%s' has to be a number from %g to %g",
				 json_key(j), lo, hi);
	return 0;
}

static int integer(const struct json *j, int64_t lo, int64_t hi,
		   int64_t *out, struct fault *f)
{
	*out = json_int(j, lo - 1);
	if (json_type(j) != JSON_NUMBER || *out < lo || *out > hi)
		return fault_set(f, BAD, "invalid_value", json_key(j),
				 "'%s' has to be an integer from %lld to "
				 "%lld", json_key(j), (long long)lo,
				 (long long)hi);
	return 0;
}

static int flag(const struct json *j, int *out, struct fault *f)
{
	*out = json_bool(j, 0);
	return json_type(j) == JSON_BOOL ? 0 : wrong(f, j, "true or false");
}

static int read_model(struct want *w, const struct json *j, struct fault *f)
{
	w->model = json_str(j, NULL);
	return w->model ? 0 : wrong(f, j, "a text");
}

static int read_messages(struct want *w, const struct json *j,
			 struct fault *f)
{
	w->messages = j;
	if (json_type(j) != JSON_ARRAY || !json_len(j))
		return wrong(f, j, "a list of messages, not an empty one");
	for (j = json_first(j); j; j = json_next(j)) {
		enum json_type t = json_type(json_get(j, "content"));

		if (json_type(j) != JSON_OBJECT ||
		    !json_get_str(j, "role", NULL))
			return fault_set(f, BAD, "invalid_value", "messages",
					 "a message has to be an object with "
					 "a role");
		if (t != JSON_STRING && t != JSON_ARRAY &&
		    !((t == JSON_NONE || t == JSON_NULL) &&
		      json_get(j, "tool_calls")))
			return fault_set(f, BAD, "invalid_value", "messages",
					 "the content of a message has to be "
					 "a text or a list of parts");
	}
	return 0;
}

static int are_ids(const struct json *j)
{
	for (j = json_first(j); j; j = json_next(j))
		if (json_int(j, -1) < 0 || json_int(j, -1) > INT32_MAX)
			return 0;
	return 1;
}

static int read_prompt(struct want *w, const struct json *j, struct fault *f)
{
	enum json_type inner = json_type(json_first(j));

	w->prompts = j;
	w->nprompts = 1;
	if (json_type(j) == JSON_STRING ||
	    (json_type(j) == JSON_ARRAY && inner == JSON_NUMBER &&
	     are_ids(j)))
		return 0;
	if (json_type(j) != JSON_ARRAY || !json_len(j) ||
	    json_len(j) > WANT_CHOICES)
		return wrong(f, j, "a text, a list of token ids, or a list of "
			     "at most 128 of those");
	w->nprompts = (int)json_len(j);
	for (const struct json *k = json_first(j); k; k = json_next(k))
		if (json_type(k) != inner ||
		    (inner != JSON_STRING && inner != JSON_ARRAY) ||
		    (inner == JSON_ARRAY && !are_ids(k)))
			return wrong(f, j, "a list of texts, or of lists of "
				     "token ids");
	return 0;
}

const struct json *want_prompt(const struct want *w, int i)
{
	const struct json *j = json_first(w->prompts);

	if (json_type(w->prompts) == JSON_STRING ||
	    json_type(j) == JSON_NUMBER)
		return w->prompts;
	while (i-- > 0)
		j = json_next(j);
	return j;
}

static int read_tools(struct want *w, const struct json *j, struct fault *f)
{
	w->tools = json_len(j) ? j : NULL;
	return tools_check(j, f);
}

static int read_choice(struct want *w, const struct json *j, struct fault *f)
{
	const char *how = json_str(j, "");

	if (!strcmp(how, "auto") || !strcmp(how, "none"))
		return 0;
	w->form = WANT_CALL;
	if (!strcmp(how, "required"))
		return 0;
	w->tool = json_get_str(json_get(j, "function"), "name", NULL);
	if (w->tool && !strcmp(json_get_str(j, "type", ""), "function"))
		return 0;
	return fault_set(f, BAD, "unsupported_value", json_key(j),
			 "'%s' may be \"auto\", \"none\", \"required\" or "
			 "{\"type\": \"function\", \"function\": {\"name\": "
			 "...}}", json_key(j));
}

static int read_max(struct want *w, const struct json *j, struct fault *f)
{
	return integer(j, 0, (int64_t)1 << 30, &w->max_tokens, f);
}

static int read_n(struct want *w, const struct json *j, struct fault *f)
{
	int64_t n = 1;
	int rc = integer(j, 1, WANT_CHOICES, &n, f);

	w->n = (int)n;
	return rc;
}

static int read_temperature(struct want *w, const struct json *j,
			    struct fault *f)
{
	if (number(j, 0, 100, &w->temperature, f))
		return -1;
	if (w->temperature > 0 && w->temperature < GEN_COOLEST)
		return fault_set(f, BAD, "invalid_value", "temperature",
				 "'temperature' has to be 0, or at least %g",
				 (double)GEN_COOLEST);
	return 0;
}

static int read_top_p(struct want *w, const struct json *j, struct fault *f)
{
	return number(j, 1e-6, 1, &w->top_p, f);
}

static int read_min_p(struct want *w, const struct json *j, struct fault *f)
{
	return number(j, 0, 1, &w->min_p, f);
}

static int read_top_k(struct want *w, const struct json *j, struct fault *f)
{
	int rc = integer(j, -1, 1000000000, &w->top_k, f);

	if (w->top_k < 0)
		w->top_k = 0;	/* as others spell "all" */
	return rc;
}

static int read_seed(struct want *w, const struct json *j, struct fault *f)
{
	int64_t seed = json_int(j, INT64_MIN);

	w->seeded = 1;
	w->seed = (uint64_t)seed;
	if (json_type(j) == JSON_STRING && !json_u64(j, &w->seed))
		return 0;
	/* A number past that may have been another one in the text. */
	if (seed > -SEED_MOST && seed < SEED_MOST)
		return 0;
	return wrong(f, j, "an integer of less than 2^53, or a string of "
		     "digits");
}

static int read_stream(struct want *w, const struct json *j, struct fault *f)
{
	return flag(j, &w->stream, f);
}

static int read_stream_options(struct want *w, const struct json *j,
			       struct fault *f)
{
	if (json_type(j) != JSON_OBJECT)
		return wrong(f, j, "an object");
	for (j = json_first(j); j; j = json_next(j)) {
		if (strcmp(json_key(j), "include_usage"))
			return fault_set(f, BAD, "unknown_parameter",
					 "stream_options", "unknown member "
					 "'%s' of 'stream_options'",
					 json_key(j));
		if (flag(j, &w->stream_usage, f))
			return -1;
	}
	return 0;
}

static int read_echo(struct want *w, const struct json *j, struct fault *f)
{
	return flag(j, &w->echo, f);
}

static int read_ignore_eos(struct want *w, const struct json *j,
			   struct fault *f)
{
	return flag(j, &w->ignore_eos, f);
}

static int read_token_ids(struct want *w, const struct json *j,
			  struct fault *f)
{
	return flag(j, &w->token_ids, f);
}

/* A flag for chats, a number of alternatives for texts. */
static int read_logprobs(struct want *w, const struct json *j,
			 struct fault *f)
{
	int64_t top = 0;
	int rc;

	if (w->kind == WANT_CHAT)
		return flag(j, &w->logprobs, f);
	rc = integer(j, 0, ENGINE_TOP, &top, f);
	w->logprobs = 1;
	w->top = (int)top;
	return rc;
}

static int read_top_logprobs(struct want *w, const struct json *j,
			     struct fault *f)
{
	int64_t top = 0;
	int rc = integer(j, 0, ENGINE_TOP, &top, f);

	w->top = (int)top;
	return rc;
}

static int add_stop(struct want *w, const struct json *j, struct fault *f)
{
	const char *text = json_str(j, "");

	if (!*text || w->nstops == WANT_STOPS)
		return fault_set(f, BAD, "invalid_value", "stop",
				 "'stop' has to be a text or a list of at most "
				 "%d, none of them empty", WANT_STOPS);
	w->stop[w->nstops++] = text;
	return 0;
}

static int read_stop(struct want *w, const struct json *j, struct fault *f)
{
	if (json_type(j) != JSON_ARRAY)
		return add_stop(w, j, f);
	for (j = json_first(j); j; j = json_next(j))
		if (add_stop(w, j, f))
			return -1;
	return 0;
}

/* For whom: only to share the machine fairly. */
static int read_party(struct want *w, const struct json *j, struct fault *f)
{
	uint64_t h = 0xcbf29ce484222325u;

	if (json_type(j) != JSON_STRING)
		return wrong(f, j, "a text");
	for (const char *p = json_str(j, ""); *p; p++)
		h = (h ^ (unsigned char)*p) * 0x100000001b3u;
	w->party = h ? h : 1;
	return 0;
}

/* Members that may only ask for what is done anyway. */
static int read_nothing(struct want *w, const struct json *j,
			struct fault *f)
{
	enum json_type t = json_type(j);

	(void)w;
	if ((t == JSON_NUMBER && json_num(j, 1) >= 0 &&
	     json_num(j, 1) <= 0) ||
	    (t == JSON_BOOL && !json_bool(j, 1)) ||
	    ((t == JSON_OBJECT || t == JSON_ARRAY) && !json_len(j)) ||
	    (t == JSON_STRING && !*json_str(j, "")))
		return 0;
	return fault_set(f, BAD, "unsupported_parameter", json_key(j),
			 "'%s' is not supported", json_key(j));
}

static int read_one(struct want *w, const struct json *j, struct fault *f)
{
	(void)w;
	if (json_int(j, 0) == 1)
		return 0;
	return fault_set(f, BAD, "unsupported_value", json_key(j),
			 "'%s' may only be 1", json_key(j));
}

static int read_format(struct want *w, const struct json *j, struct fault *f)
{
	const char *type = json_get_str(j, "type", "");

	if (!strcmp(type, "text"))
		return 0;
	/* A forced call is JSON of its own. */
	if (w->form == WANT_FREE)
		w->form = WANT_OBJECT;
	if (!strcmp(type, "json_object"))
		return 0;
	w->schema = json_get(json_get(j, "json_schema"), "schema");
	if (strcmp(type, "json_schema"))
		return fault_set(f, BAD, "unsupported_value", json_key(j),
				 "the type of '%s' may be \"text\", "
				 "\"json_object\" or \"json_schema\"",
				 json_key(j));
	if (json_type(w->schema) != JSON_OBJECT)
		return fault_set(f, BAD, "invalid_type", json_key(j),
				 "'%s.json_schema.schema' has to be an object",
				 json_key(j));
	if (w->form == WANT_OBJECT)
		w->form = WANT_SCHEMA;
	return 0;
}

/* For the client's own books. */
static int read_any(struct want *w, const struct json *j, struct fault *f)
{
	(void)w;
	(void)j;
	(void)f;
	return 0;
}

static const struct member members[] = {
	{ "model", BOTH, read_model },
	{ "messages", CHAT, read_messages },
	{ "prompt", TEXT, read_prompt },
	{ "tools", CHAT, read_tools },
	{ "tool_choice", CHAT, read_choice },
	{ "parallel_tool_calls", CHAT, read_any },
	{ "max_tokens", BOTH, read_max },
	{ "max_completion_tokens", CHAT, read_max },
	{ "n", BOTH, read_n },
	{ "best_of", TEXT, read_one },
	{ "temperature", BOTH, read_temperature },
	{ "top_p", BOTH, read_top_p },
	{ "min_p", BOTH, read_min_p },
	{ "top_k", BOTH, read_top_k },
	{ "seed", BOTH, read_seed },
	{ "stream", BOTH, read_stream },
	{ "stream_options", BOTH, read_stream_options },
	{ "stop", BOTH, read_stop },
	{ "ignore_eos", BOTH, read_ignore_eos },
	{ "return_token_ids", BOTH, read_token_ids },
	{ "logprobs", BOTH, read_logprobs },
	{ "top_logprobs", CHAT, read_top_logprobs },
	{ "prompt_cache_key", BOTH, read_party },
	{ "user", BOTH, read_party },
	{ "safety_identifier", CHAT, read_any },
	{ "metadata", CHAT, read_any },
	{ "store", CHAT, read_any },
	{ "service_tier", CHAT, read_any },
	{ "response_format", CHAT, read_format },
	{ "frequency_penalty", BOTH, read_nothing },
	{ "presence_penalty", BOTH, read_nothing },
	{ "logit_bias", BOTH, read_nothing },
	{ "echo", TEXT, read_echo },
	{ "suffix", TEXT, read_nothing },
};

static const struct member *find(const char *name, enum want_kind kind)
{
	for (size_t i = 0; i < sizeof members / sizeof *members; i++)
		if (!strcmp(members[i].name, name) &&
		    (members[i].kinds & 1u << kind))
			return &members[i];
	return NULL;
}

/* null is as good as nothing said. */
static int read_members(struct want *w, struct fault *f)
{
	for (const struct json *j = json_first(w->root); j;
	     j = json_next(j)) {
		const struct member *m = find(json_key(j), w->kind);

		if (!m)
			return fault_set(f, BAD, "unknown_parameter",
					 json_key(j), "unknown parameter: "
					 "'%s'", json_key(j));
		if (json_type(j) != JSON_NULL && m->read(w, j, f))
			return -1;
	}
	return 0;
}

/* A call can be forced among tools only; and an answer that has to be JSON
 * calls none. */
static int check_form(const struct want *w, struct fault *f)
{
	const struct json *format = json_get(w->root, "response_format");
	int text = !strcmp(json_get_str(format, "type", "text"), "text");

	if (w->form == WANT_CALL && !w->tools)
		return fault_set(f, BAD, "invalid_value", "tool_choice",
				 "'tool_choice' forces a call, and there are "
				 "no 'tools'");
	if (w->tools && !text)
		return fault_set(f, BAD, "unsupported_value",
				 "response_format", "'response_format' and "
				 "'tools' together are not supported, but for "
				 "a tool_choice of \"none\"");
	return 0;
}

static int is_said(const struct want *w, const char *name)
{
	enum json_type t = json_type(json_get(w->root, name));

	return t != JSON_NONE && t != JSON_NULL;
}

/* What asks for nothing without another one, or beside it. */
static int check_pairs(const struct want *w, struct fault *f)
{
	if (is_said(w, "max_tokens") && is_said(w, "max_completion_tokens"))
		return fault_set(f, BAD, "invalid_value",
				 "max_completion_tokens", "'max_tokens' and "
				 "'max_completion_tokens' exclude each other");
	if (is_said(w, "stream_options") && !w->stream)
		return fault_set(f, BAD, "invalid_value", "stream_options",
				 "'stream_options' needs 'stream'");
	if (w->top && !w->logprobs)
		return fault_set(f, BAD, "invalid_value", "top_logprobs",
				 "'top_logprobs' needs 'logprobs'");
	return 0;
}

/* The tree of a body.  A prompt of tokens is long, and a tree of it costs more
 * than all else does: there is null for it. */
static struct json *read_body(struct want *w, const char *body, size_t len,
			      struct err *e)
{
	struct arena arena = ARENA_INIT;
	struct scan_top top = { .ids_key = "prompt" };
	struct str rest = STR_INIT;
	struct json *j = NULL;
	int rc = -1;

	if (w->kind == WANT_TEXT && len <= JSON_MAX_LINE)
		rc = scan_json(body, len, &top, &arena, NULL, NULL);
	w->ids = (struct tok_ids){ top.ids, top.nids, top.nids };
	if (rc == 0 && top.ids) {
		const struct scan_member *m = scan_find(&top, "prompt");

		str_add(&rest, body, m->value);
		str_adds(&rest, "null");
		str_add(&rest, body + m->end, len - m->end);
		if (rest.failed)
			err_set(e, CA_SOFTWARE, "no memory");
		else
			j = json_build(rest.buf, rest.len, e);
		w->nprompts = 1;
	} else {
		j = json_parse(body, len, JSON_MAX_LINE, NULL, e);
	}
	str_release(&rest);
	arena_release(&arena);
	return j;
}

int want_parse(struct want *w, enum want_kind kind, const char *body,
	       size_t len, const struct want_defaults *d, struct fault *f)
{
	struct err e = ERR_INIT;

	*w = (struct want){ .kind = kind, .n = 1, .top_p = d->top_p,
		.temperature = d->temperature, .min_p = d->min_p,
		.top_k = d->top_k, .max_tokens = d->max_tokens ?
		d->max_tokens : kind == WANT_CHAT ? -1 : 16 };
	w->root = read_body(w, body, len, &e);
	if (!w->root)
		return fault_set(f, BAD, "invalid_json", NULL,
				 "the body is no JSON: %s", e.msg);
	if (json_type(w->root) != JSON_OBJECT)
		return fault_set(f, BAD, "invalid_json", NULL,
				 "the body is no JSON object");
	if (read_members(w, f))
		return -1;
	if (kind == WANT_CHAT ? !w->messages : !w->prompts && !w->ids.n)
		return fault_set(f, BAD, "missing_required_parameter",
				 kind == WANT_CHAT ? "messages" : "prompt",
				 "there is no '%s'", kind == WANT_CHAT ?
				 "messages" : "prompt");
	if (!strcmp(json_get_str(w->root, "tool_choice", ""), "none"))
		w->tools = NULL;
	if (check_form(w, f) || check_pairs(w, f))
		return -1;
	if (kind == WANT_TEXT && w->n * w->nprompts > WANT_CHOICES)
		return fault_set(f, BAD, "invalid_value", "n", "more than %d "
				 "completions", WANT_CHOICES);
	return 0;
}

void want_release(struct want *w)
{
	tok_ids_release(&w->ids);
	json_free(w->root);
	w->root = NULL;
}
