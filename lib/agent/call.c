/* SPDX-License-Identifier: Apache-2.0
 *
 * Tool calls out of messages.
 */
#define _GNU_SOURCE
#include "agent/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LEN 64		/* of a function, in OpenAI's shape */

static size_t blank(const char *p, const char *end)
{
	const char *q = p;

	while (q < end && strchr(" \t\r\n", *q) && *q)
		q++;
	return (size_t)(q - p);
}

int call_mend(const char *text, size_t len, struct str *out)
{
	const char *p = text, *end = text + len;
	int depth = 0, quoted = 0;

	str_reset(out);
	if (!json_check(text, len, JSON_MAX_LINE, NULL, NULL))
		return str_add(out, text, len);
	p += blank(p, end);
	if (p == end || *p != '{')
		return -1;
	for (; p < end; p++) {
		unsigned char c = (unsigned char)*p;

		if (quoted && c < 0x20) {
			str_addf(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" :
				 "\\u%04x", c);
			continue;
		}
		str_addc(out, *p);
		if (quoted && c == '\\' && p + 1 < end)
			str_addc(out, *++p);
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted && (c == '{' || c == '['))
			depth++;
		else if (!quoted && (c == '}' || c == ']') && --depth == 0)
			break;
	}
	if (p == end || out->failed ||
	    json_check(out->buf, out->len, JSON_MAX_LINE, NULL, NULL))
		return -1;
	return 1;
}

/* Results are told apart by it. */
static int id_is_free(const struct calls *cs, const char *id)
{
	size_t i;

	for (i = 0; i < cs->n; i++)
		if (!strcmp(cs->c[i].id, id))
			return 0;
	return *id != '\0';
}

/* A new call at the end; NULL when there is no room or no memory. */
static struct call *add_call(struct calls *cs, const char *id,
			     const char *name, int turn)
{
	struct call *c = &cs->c[cs->n];
	size_t number = cs->n;
	char made[40];

	if (cs->n == CALLS_MAX) {
		cs->dropped++;
		return NULL;
	}
	memset(c, 0, sizeof(*c));
	do
		snprintf(made, sizeof(made), "call_%d_%zu", turn, number++);
	while (!id_is_free(cs, made));
	c->id = strdup(id && id_is_free(cs, id) ? id : made);
	c->name = strdup(name && *name ? name : "?");
	c->tool = TOOL_NONE;
	if (!c->id || !c->name) {
		free(c->id);
		free(c->name);
		return NULL;
	}
	cs->n++;
	return c;
}

static void refuse(struct call *c, unsigned flags, const char *why)
{
	json_free(c->args);
	c->args = NULL;
	free(c->error);
	c->error = strdup(why);
	c->flags |= flags;
}

/* Servers may refuse a history with other names. */
static int is_name(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz"
			  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

	return n && !name[n] && n <= NAME_LEN;
}

/* The name decides the tool; an unknown one is answered by the list. */
static int set_tool(struct call *c)
{
	struct str s = STR_INIT;

	c->tool = tool_find(c->name);
	if (c->tool != TOOL_NONE)
		return 0;
	str_adds(&s, "there is no such tool; the tools are ");
	tool_names(&s);
	refuse(c, CALL_INVALID | (is_name(c->name) ? 0 : CALL_BROKEN),
	       s.buf ? s.buf : "there is no such tool");
	str_release(&s);
	return -1;
}

static void set_args(struct call *c, const char *text, size_t len)
{
	struct str mended = STR_INIT, fixed = STR_INIT;
	struct err e = ERR_INIT;
	struct json *tree = NULL;
	int rc = call_mend(text, len, &mended);

	free(c->raw);
	c->raw = strndup(text, len);
	if (rc < 0) {
		refuse(c, CALL_BROKEN | CALL_INVALID, "the arguments are not "
		       "valid JSON; nothing was done");
		goto out;
	}
	if (rc > 0)
		c->flags |= CALL_REPAIRED | CALL_BROKEN;
	if (set_tool(c))
		goto out;
	tree = json_parse(mended.buf, mended.len, JSON_MAX_LINE, NULL, &e);
	rc = tree ? tool_check(c->tool, tree, &fixed, &e) : -1;
	if (rc < 0) {
		err_wrap(&e, "invalid arguments");
		refuse(c, CALL_INVALID, e.msg);
		goto out;
	}
	if (rc > 0)
		c->flags |= CALL_REPAIRED;
	c->args = json_parse(fixed.buf, fixed.len, JSON_MAX_LINE, NULL, &e);
	if (!c->args)
		refuse(c, CALL_INVALID, e.msg);
out:
	json_free(tree);
	str_release(&mended);
	str_release(&fixed);
}

/* One of tool_calls.  Arguments are a string of JSON; some servers give the
 * object itself. */
static void take_listed(struct calls *cs, const struct json *m, int turn)
{
	const struct json *f = json_get(m, "function");
	const struct json *args = json_get(f, "arguments");
	struct call *c = add_call(cs, json_get_str(m, "id", NULL),
				  json_get_str(f, "name", NULL), turn);
	struct str s = STR_INIT;
	struct jw w;

	if (!c)
		return;
	if (json_type(args) == JSON_OBJECT) {
		jw_init(&w, &s);
		jw_node(&w, args);
	} else {
		str_adds(&s, json_str(args, ""));
	}
	/* No arguments at all are an empty object. */
	if (!s.len)
		str_adds(&s, "{}");
	if (s.buf)
		set_args(c, s.buf, s.len);
	str_release(&s);
}

/* <tool_call>{…}</tool_call>, from behind the tag; where it ends. */
static const char *take_tagged(struct calls *cs, const char *p, int turn)
{
	const char *end = strstr(p, "</tool_call>");
	size_t len = end ? (size_t)(end - p) : strlen(p);
	struct str mended = STR_INIT, args = STR_INIT;
	struct json *j = NULL;
	const struct json *a;
	struct call *c;
	struct jw w;
	int rc;

	p += blank(p, p + len);
	len = end ? (size_t)(end - p) : strlen(p);
	rc = call_mend(p, len, &mended);
	if (rc >= 0)
		j = json_parse(mended.buf, mended.len, JSON_MAX_LINE, NULL,
			       NULL);
	a = json_get(j, "arguments");
	c = add_call(cs, NULL, json_get_str(j, "name", NULL), turn);
	if (c && j) {
		jw_init(&w, &args);
		if (json_type(a) == JSON_STRING)
			str_adds(&args, json_str(a, ""));
		else if (a)
			jw_node(&w, a);
		else
			str_adds(&args, "{}");
		set_args(c, args.buf ? args.buf : "", args.len);
		c->flags |= rc > 0 ? CALL_REPAIRED : 0;
	} else if (c) {
		set_args(c, p, len);
		refuse(c, CALL_BROKEN | CALL_INVALID, "the call is not valid "
		       "JSON; nothing was done");
	}
	json_free(j);
	str_release(&mended);
	str_release(&args);
	return end ? end : p + len;
}

/* The value of one parameter, in quotes unless the table says otherwise. */
static void add_param(struct jw *w, enum tool_id t, const char *key,
		      const char *v, size_t len)
{
	int type = t == TOOL_NONE ? 's' : tool_param(t, key);

	if (len && v[0] == '\n')
		v++, len--;
	if (len && v[len - 1] == '\n')
		len--;
	jw_key(w, key);
	if (type && type != 's' &&
	    !json_check(v, len, JSON_MAX_LINE, NULL, NULL))
		jw_raw(w, v, len);
	else
		jw_strn(w, v, len);
}

/* <function=NAME><parameter=KEY>value</parameter>…</function> */
static const char *take_marked(struct calls *cs, const char *p, int turn)
{
	size_t n = strcspn(p, ">\n");
	char *name = strndup(p, n), *key;
	const char *end = strstr(p, "</function>"), *v, *stop;
	struct call *c = add_call(cs, NULL, name, turn);
	enum tool_id t = name ? tool_find(name) : TOOL_NONE;
	struct str args = STR_INIT;
	struct jw w;

	jw_init(&w, &args);
	jw_obj(&w);
	while ((p = strstr(p, "<parameter=")) && (!end || p < end)) {
		p += strlen("<parameter=");
		n = strcspn(p, ">\n");
		v = p + n + (p[n] == '>');
		stop = strstr(v, "</parameter>");
		/* A source may hold the closing mark of the whole call. */
		if (stop && end && stop > end)
			end = strstr(stop, "</function>");
		key = stop ? strndup(p, n) : NULL;
		if (!key) {
			end = NULL;
			break;
		}
		add_param(&w, t, key, v, (size_t)(stop - v));
		free(key);
		p = stop;
	}
	jw_end_obj(&w);
	if (c && args.buf && end)
		set_args(c, args.buf, args.len);
	else if (c)
		refuse(c, CALL_BROKEN | CALL_INVALID, "the call does not "
		       "end; nothing was done");
	free(name);
	str_release(&args);
	return end ? end : NULL;
}

static void take_text(struct calls *cs, const char *text, int turn)
{
	static const char tag[] = "<tool_call>", mark[] = "<function=";
	const char *p = text, *t, *m;

	while (p && *p) {
		t = strstr(p, tag);
		m = strstr(p, mark);
		/* <tool_call> may stand around <function=…>. */
		if (t && m && t < m) {
			const char *q = t + sizeof(tag) - 1;

			if (q + blank(q, m) == m)
				t = NULL;
		}
		if (t && (!m || t < m))
			p = take_tagged(cs, t + sizeof(tag) - 1, turn);
		else if (m)
			p = take_marked(cs, m + sizeof(mark) - 1, turn);
		else
			break;
	}
}

int calls_find(const struct json *message, int turn, struct calls *out,
	       struct err *e)
{
	const struct json *list = json_get(message, "tool_calls"), *m;
	const char *text = json_get_str(message, "content", "");
	size_t i;

	memset(out, 0, sizeof(*out));
	for (m = json_first(list); m; m = json_next(m))
		take_listed(out, m, turn);
	if (!out->n) {
		take_text(out, text, turn);
		for (i = 0; i < out->n; i++)
			out->c[i].flags |= CALL_TEXT;
	}
	for (i = 0; i < out->n; i++)
		if (!out->c[i].args && !out->c[i].error)
			return err_set(e, CA_SOFTWARE, "out of memory");
	return 0;
}

void calls_refuse(struct calls *cs, const char *why)
{
	size_t i;

	for (i = 0; i < cs->n; i++)
		refuse(&cs->c[i], 0, why);
}

void calls_release(struct calls *cs)
{
	size_t i;

	for (i = 0; i < cs->n; i++) {
		free(cs->c[i].id);
		free(cs->c[i].name);
		free(cs->c[i].raw);
		free(cs->c[i].error);
		json_free(cs->c[i].args);
	}
	memset(cs, 0, sizeof(*cs));
}
