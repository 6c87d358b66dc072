/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "serve/tools.h"

#include <stdlib.h>
#include <string.h>

#include "serve/shape.h"

#define OPENS "<tool_call>"
#define SHUTS "</tool_call>"
#define PYTHON "<|python_tag|>"

static int no_schema(struct fault *f, const char *name, const char *why)
{
	return fault_set(f, 400, "invalid_function_parameters", "tools",
			 "the parameters of '%.64s' are no JSON Schema: %s",
			 name, why);
}

static int known_type(const char *t)
{
	static const char *const types[] = { "object", "array", "string",
		"number", "integer", "boolean", "null" };

	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i], t))
			return 1;
	return 0;
}

static int check_type(const struct json *t, const char *name,
		      struct fault *f)
{
	if (json_type(t) == JSON_STRING && known_type(json_str(t, "")))
		return 0;
	if (json_type(t) != JSON_ARRAY || !json_len(t))
		return no_schema(f, name, "'type' is none");
	for (t = json_first(t); t; t = json_next(t))
		if (!known_type(json_str(t, "")))
			return no_schema(f, name, "'type' is none");
	return 0;
}

/* As deep as the wall lets trees be. */
static int check_schema(const struct json *s, const char *name,
			struct fault *f)
{
	const struct json *type = json_get(s, "type"), *j;
	const struct json *properties = json_get(s, "properties");
	const struct json *required = json_get(s, "required");
	const struct json *items = json_get(s, "items");

	if (json_type(s) == JSON_BOOL)
		return 0;
	if (json_type(s) != JSON_OBJECT)
		return no_schema(f, name, "not an object");
	if (type && check_type(type, name, f))
		return -1;
	if (properties && json_type(properties) != JSON_OBJECT)
		return no_schema(f, name, "'properties' is no object");
	for (j = json_first(properties); j; j = json_next(j))
		if (check_schema(j, name, f))
			return -1;
	if (required && json_type(required) != JSON_ARRAY)
		return no_schema(f, name, "'required' is no list");
	for (j = json_first(required); j; j = json_next(j))
		if (json_type(j) != JSON_STRING)
			return no_schema(f, name, "'required' names no "
					 "member");
	return json_type(items) == JSON_OBJECT ?
	       check_schema(items, name, f) : 0;
}

/* A name is looked for as it stands in the text of a call. */
static int bad_name(const char *name)
{
	size_t len = strlen(name);

	for (const char *p = name; *p; p++)
		if ((unsigned char)*p <= ' ' || strchr("\"\\\177", *p))
			return 1;
	return !len || len > TOOLS_NAME;
}

int tools_check(const struct json *tools, struct fault *f)
{
	if (json_type(tools) != JSON_ARRAY)
		return fault_set(f, 400, "invalid_type", "tools",
				 "'tools' has to be a list");
	for (const struct json *j = json_first(tools); j; j = json_next(j)) {
		const struct json *fn = json_get(j, "function");
		const char *name = json_get_str(fn, "name", NULL);
		const struct json *p = json_get(fn, "parameters");

		if (strcmp(json_get_str(j, "type", ""), "function") || !name)
			return fault_set(f, 400, "invalid_value", "tools",
					 "a tool has to be {\"type\": "
					 "\"function\", \"function\": "
					 "{\"name\": ...}}");
		if (bad_name(name))
			return fault_set(f, 400, "invalid_value", "tools",
					 "a tool's name has to be of 1 to %d "
					 "bytes without white space, quotes "
					 "and backslashes: '%.64s'",
					 TOOLS_NAME, name);
		if (json_type(p) != JSON_NONE && json_type(p) != JSON_NULL &&
		    check_schema(p, name, f))
			return -1;
	}
	return 0;
}

/* How many of the last bytes may be the beginning of the marker. */
static size_t unsure(const char *text, size_t len, const char *marker)
{
	size_t n = strlen(marker) - 1;

	for (n = n < len ? n : len; n; n--)
		if (!memcmp(text + len - n, marker, n))
			return n;
	return 0;
}

static const char *find(const char *text, size_t len, const char *marker)
{
	return len ? memmem(text, len, marker, strlen(marker)) : NULL;
}

static size_t blank(const char *p, size_t len)
{
	size_t n = 0;

	while (n < len && (p[n] == ' ' || p[n] == '\n' || p[n] == '\t' ||
			   p[n] == '\r'))
		n++;
	return n;
}

size_t tools_content(const char *text, size_t len)
{
	const char *at = find(text, len, OPENS);
	size_t lead = blank(text, len), n = strlen(PYTHON);

	if (lead == len || text[lead] == '{' ||
	    !strncmp(text + lead, PYTHON, n < len - lead ? n : len - lead))
		return 0;
	if (at)
		return (size_t)(at - text);
	return len - unsure(text, len, OPENS);
}

static int is_tool(const struct json *tools, const char *name)
{
	for (const struct json *j = json_first(tools); j; j = json_next(j))
		if (!strcmp(json_get_str(json_get(j, "function"), "name", ""),
			    name))
			return 1;
	return 0;
}

/* Takes a word behind white space at *at: 1; 0: it is not there; -1: the text
 * ends before that can be said. */
static int take(const char *text, size_t len, size_t *at, const char *word)
{
	size_t n = strlen(word), left;

	*at += blank(text + *at, len - *at);
	left = len - *at;
	if (memcmp(text + *at, word, n < left ? n : left))
		return 0;
	*at += n;
	return n <= left ? 1 : -1;
}

/* {"name": "X", "arguments": up to the object's brace. */
static int read_head(struct tools_scan *s, const struct json *tools,
		     const char *text, size_t len)
{
	size_t at = s->at, was;
	const char *quote;
	char name[TOOLS_NAME + 1];
	int rc;

	if ((rc = take(text, len, &at, "{")) < 1 ||
	    (rc = take(text, len, &at, "\"name\"")) < 1 ||
	    (rc = take(text, len, &at, ":")) < 1 ||
	    (rc = take(text, len, &at, "\"")) < 1)
		return rc;
	quote = memchr(text + at, '"', len - at);
	s->name = at;
	s->name_len = (quote ? (size_t)(quote - text) : len) - at;
	if (s->name_len >= sizeof name)
		return 0;
	if (!quote)
		return -1;
	memcpy(name, text + at, s->name_len);
	name[s->name_len] = '\0';
	at += s->name_len + 1;
	if (!is_tool(tools, name))
		return 0;
	if ((rc = take(text, len, &at, ",")) < 1)
		return rc;
	was = at;
	rc = take(text, len, &at, "\"arguments\"");
	if (!rc) {
		at = was;
		rc = take(text, len, &at, "\"parameters\"");
	}
	if (rc < 1 || (rc = take(text, len, &at, ":")) < 1 ||
	    (rc = take(text, len, &at, "{")) < 1)
		return rc;
	s->from = at - 1;
	s->to = s->at = at;
	s->depth = 1;
	s->quoted = s->escaped = 0;
	return 1;
}

/* Up to the brace that closes the arguments. */
static void read_arguments(struct tools_scan *s, const char *text, size_t len)
{
	for (; s->at < len && s->depth; s->at++) {
		char c = text[s->at];

		if (s->escaped)
			s->escaped = 0;
		else if (s->quoted && c == '\\')
			s->escaped = 1;
		else if (c == '"')
			s->quoted = !s->quoted;
		else if (!s->quoted && (c == '{' || c == '['))
			s->depth++;
		else if (!s->quoted && (c == '}' || c == ']'))
			s->depth--;
	}
	s->to = s->at;
	if (!s->depth)
		s->state = TOOLS_TAIL;
}

/* A marker in front of the next call, or a text that is nothing but one. */
static void look_for_call(struct tools_scan *s, const char *text, size_t len)
{
	size_t lead = blank(text, len), n = strlen(PYTHON);
	const char *hit;

	if (!s->calls && !s->at) {
		size_t left = len - lead;

		if (!left)
			return;
		if (!memcmp(text + lead, PYTHON, n < left ? n : left)) {
			if (left < n)
				return;
			s->at = lead + n;
		}
		if (s->at || text[lead] == '{') {
			s->state = TOOLS_HEAD;
			s->begin = 0;
			return;
		}
	}
	hit = find(text + s->at, len - s->at, OPENS);
	if (!hit) {
		if (len - s->at > strlen(OPENS))
			s->at = len - strlen(OPENS);
		return;
	}
	s->begin = (size_t)(hit - text);
	s->at = s->begin + strlen(OPENS);
	s->state = TOOLS_HEAD;
}

int tools_follow(struct tools_scan *s, const struct json *tools,
		 const char *text, size_t len)
{
	const char *hit;
	int rc;

	if (s->state == TOOLS_TAIL) {
		hit = find(text + s->at, len - s->at, SHUTS);
		if (!hit)
			return 0;
		s->at = (size_t)(hit - text) + strlen(SHUTS);
		s->state = TOOLS_CONTENT;
	}
	if (s->state == TOOLS_CONTENT)
		look_for_call(s, text, len);
	if (s->state == TOOLS_HEAD) {
		rc = s->calls < TOOLS_CALLS ?
		     read_head(s, tools, text, len) : 0;
		s->state = rc > 0 ? TOOLS_ARGUMENTS : rc ? TOOLS_HEAD :
							   TOOLS_LOST;
		s->calls += rc > 0;
	}
	if (s->state != TOOLS_ARGUMENTS)
		return 0;
	read_arguments(s, text, len);
	return 1;
}

/* Adds the call that an object is: 1; 0: it is none; -1: no memory. */
static int add_object(const struct json *tools, const struct json *o,
		      struct tools_calls *out)
{
	const char *name = json_get_str(o, "name", NULL);
	const struct json *a = json_get(o, "arguments");
	struct tools_call *c = &out->call[out->n];
	struct str s = STR_INIT;
	struct jw w;

	if (!a)
		a = json_get(o, "parameters");
	if (!name || !is_tool(tools, name) || out->n == TOOLS_CALLS ||
	    (a && json_type(a) != JSON_OBJECT && json_type(a) != JSON_STRING))
		return 0;
	jw_init(&w, &s);
	if (json_type(a) == JSON_STRING)
		str_adds(&s, json_str(a, ""));
	else if (a)
		jw_node(&w, a);
	else
		str_adds(&s, "{}");
	c->name = strdup(name);
	c->arguments = str_detach(&s);
	if (!c->name || !c->arguments) {
		free(c->name);
		free(c->arguments);
		return -1;
	}
	out->n++;
	return 1;
}

/* Has the last call's arguments as they were written, as they are told while
 * they are. */
static int keep_spelling(const struct json *tools, const char *text,
			 size_t len, struct tools_calls *out)
{
	struct tools_scan s = { .state = TOOLS_HEAD };
	struct tools_call *c = &out->call[out->n - 1];
	char *own;

	if (!tools_follow(&s, tools, text, len) || s.state != TOOLS_TAIL)
		return 1;
	own = strndup(text + s.from, s.to - s.from);
	if (!own)
		return -1;
	free(c->arguments);
	c->arguments = own;
	return 1;
}

/* A call whose arguments name a member twice, which no tree can hold; a
 * stream has told them already, and they are the client's to read. */
static int add_spelled(const struct json *tools, const char *text, size_t len,
		       struct tools_calls *out)
{
	struct tools_scan s = { .state = TOOLS_HEAD };
	struct tools_call *c = &out->call[out->n];
	size_t at;

	if (out->n == TOOLS_CALLS || !tools_follow(&s, tools, text, len) ||
	    s.state != TOOLS_TAIL)
		return 0;
	at = s.to;
	if (take(text, len, &at, "}") < 1 ||
	    at + blank(text + at, len - at) < len ||
	    !shape_is_object(text + s.from, s.to - s.from))
		return 0;
	c->name = strndup(text + s.name, s.name_len);
	c->arguments = strndup(text + s.from, s.to - s.from);
	if (c->name && c->arguments) {
		out->n++;
		return 1;
	}
	free(c->name);
	free(c->arguments);
	return -1;
}

/* Adds what a JSON text calls: 1, 0 or -1 as above. */
static int add_json(const struct json *tools, const char *text, size_t len,
		    struct tools_calls *out)
{
	struct json *root = json_parse(text, len, JSON_MAX_LINE, NULL, NULL);
	const struct json *j;
	int rc = 0, one;

	if (json_type(root) == JSON_ARRAY) {
		for (j = json_first(root); j && rc >= 0; j = json_next(j)) {
			one = add_object(tools, j, out);
			rc = one < 0 ? -1 : rc | one;
		}
	} else if (root) {
		rc = add_object(tools, root, out);
		if (rc > 0)
			rc = keep_spelling(tools, text, len, out);
	} else {
		rc = add_spelled(tools, text, len, out);
	}
	json_free(root);
	return rc;
}

/* A text that is one call and nothing else. */
static int find_bare(const struct json *tools, const char *text, size_t len,
		     struct tools_calls *out)
{
	size_t lead = blank(text, len), n = strlen(PYTHON);

	text += lead;
	len -= lead;
	if (len > n && !memcmp(text, PYTHON, n)) {
		text += n;
		len -= n;
	}
	return len && *text == '{' ? add_json(tools, text, len, out) : 0;
}

int tools_find(const struct json *tools, const char *text, size_t len,
	       struct tools_calls *out)
{
	const char *end = text + len, *at = text, *shut;
	int rc;

	out->n = 0;
	out->content = len;
	while ((at = find(at, (size_t)(end - at), OPENS))) {
		const char *body = at + strlen(OPENS);

		shut = find(body, (size_t)(end - body), SHUTS);
		rc = add_json(tools, body, (size_t)((shut ? shut : end) -
						    body), out);
		if (rc < 0)
			return -1;
		if (rc && out->content == len)
			out->content = (size_t)(at - text);
		at = shut ? shut + strlen(SHUTS) : end;
	}
	if (out->n)
		return 0;
	rc = find_bare(tools, text, len, out);
	if (rc > 0)
		out->content = 0;
	return rc < 0 ? -1 : 0;
}

void tools_release(struct tools_calls *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->call[i].name);
		free(c->call[i].arguments);
	}
	c->n = 0;
}
