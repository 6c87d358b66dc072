/* SPDX-License-Identifier: Apache-2.0
 *
 * Records: a line is changed by splicing, so that members which nobody sets
 * leave with the bytes they came with.
 */
#include "rec/rec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/io.h"

struct rec_set {
	struct rec_set *next;	/* in the order of their first setting */
	const char *key;
	const char *json;	/* NULL: dropped */
	size_t len;
};

static const char *const kind_names[] = {
	[REC_OTHER] = "other", [REC_TASK] = "task",
	[REC_CANDIDATE] = "candidate", [REC_TRAJECTORY] = "trajectory",
	[REC_METRIC] = "metric", [REC_PROMPT] = "prompt",
	[REC_COMPLETION] = "completion", [REC_ERROR] = "error",
};

#define KINDS (sizeof kind_names / sizeof *kind_names)

void rec_init(struct rec *r)
{
	memset(r, 0, sizeof *r);
}

void rec_reset(struct rec *r)
{
	struct arena a;

	json_free(r->root);
	arena_reset(&r->arena);
	a = r->arena;
	rec_init(r);
	r->arena = a;
}

void rec_release(struct rec *r)
{
	json_free(r->root);
	arena_release(&r->arena);
	rec_init(r);
}

static enum rec_kind parse_kind(const char *name, size_t len)
{
	size_t i;

	for (i = 1; i < KINDS; i++)
		if (strlen(kind_names[i]) == len &&
		    memcmp(kind_names[i], name, len) == 0)
			return (enum rec_kind)i;
	return REC_OTHER;
}

/* Member `key` must be there; otherwise the whole object (byte 1) is wrong. */
static const struct scan_member *need(struct rec *r, const char *key,
				      size_t *at, struct err *e)
{
	const struct scan_member *m = scan_find(&r->top, key);

	*at = m ? m->value + 1 : 1;
	if (!m)
		err_set(e, CA_DATAERR, "no member '%s'", key);
	return m;
}

static int read_kind(struct rec *r, size_t *at, struct err *e)
{
	const struct scan_member *m = need(r, "kind", at, e);
	char *name;
	size_t n;

	if (!m)
		return -1;
	if (r->line[m->value] != '"')
		return err_set(e, CA_DATAERR, "'kind' is not a string");
	n = m->end - m->value - 2;
	name = arena_alloc(&r->arena, n, 1);
	if (!name)
		return err_set(e, CA_SOFTWARE, "no memory for a record");
	n = scan_unescape(r->line + m->value + 1, n, name);
	r->kind = parse_kind(name, n);
	return 0;
}

static int read_version(struct rec *r, size_t *at, struct err *e)
{
	const struct scan_member *m = need(r, "v", at, e);
	const char *p;
	size_t n;

	if (!m)
		return -1;
	p = r->line + m->value;
	n = m->end - m->value;
	if (*p < '1' || *p > '9' || strspn(p, "0123456789") < n)
		return err_set(e, CA_DATAERR, "'v' is not a positive integer");
	if (n > 9 || strtol(p, NULL, 10) > REC_V)
		return err_set(e, CA_DATAERR,
			       "schema version %.*s is newer than this "
			       "program's, %d", n > 9 ? 9 : (int)n, p, REC_V);
	return 0;
}

/* Checks r->line and finds its members. */
static int scan_line(struct rec *r, size_t *at, struct err *e)
{
	memset(&r->top, 0, sizeof r->top);
	if (scan_json(r->line, r->len, &r->top, &r->arena, at, e))
		return -1;
	return read_kind(r, at, e) || read_version(r, at, e) ? -1 : 0;
}

int rec_open(struct rec *r, const char *line, size_t len, size_t *at,
	     struct err *e)
{
	size_t ignored;

	if (!at)
		at = &ignored;
	*at = 1;
	if (len > JSON_MAX_LINE) {
		*at = JSON_MAX_LINE + 1;
		return err_set(e, CA_DATAERR, "line longer than %zu bytes",
			       JSON_MAX_LINE);
	}
	r->line = arena_strndup(&r->arena, line, len);
	r->len = len;
	if (!r->line)
		return err_set(e, CA_SOFTWARE, "no memory for a record");
	return scan_line(r, at, e);
}

int rec_tree(struct rec *r, struct err *e)
{
	if (!r->root)
		r->root = json_build(r->line, r->len, e);
	return r->root ? 0 : -1;
}

int rec_parse(struct rec *r, const char *line, size_t len, size_t *at,
	      struct err *e)
{
	return rec_open(r, line, len, at, e) || rec_tree(r, e) ? -1 : 0;
}

static struct rec_set *find_set(const struct rec *r, const char *key,
				size_t len)
{
	struct rec_set *s;

	for (s = r->sets; s; s = s->next)
		if (strlen(s->key) == len && memcmp(s->key, key, len) == 0)
			return s;
	return NULL;
}

static int put_set(struct rec *r, const char *key, const char *json,
		   size_t len)
{
	struct rec_set *s = find_set(r, key, strlen(key)), **tail;

	if (!s) {
		s = arena_alloc(&r->arena, 1, sizeof *s);
		if (!s)
			return -1;
		s->key = arena_strdup(&r->arena, key);
		if (!s->key)
			return -1;
		for (tail = &r->sets; *tail; tail = &(*tail)->next)
			;
		*tail = s;
	}
	s->json = json;
	s->len = len;
	return 0;
}

int rec_set(struct rec *r, const char *key, const char *json, size_t len)
{
	const char *copy;

	if (json_check(json, len, JSON_MAX_LINE, NULL, NULL))
		return -1;
	copy = arena_strndup(&r->arena, json, len);
	return copy ? put_set(r, key, copy, len) : -1;
}

int rec_drop(struct rec *r, const char *key)
{
	return put_set(r, key, NULL, 0);
}

const struct json *rec_get(const struct rec *r, const char *key)
{
	return json_get(r->root, key);
}

const char *rec_name(const struct rec *r)
{
	const char *name = json_str(rec_get(r, "name"), NULL);

	return name ? name : json_str(rec_get(r, "id"), "?");
}

const char *rec_text(const struct rec *r, const char *key, size_t *len)
{
	const struct rec_set *s = find_set(r, key, strlen(key));
	const struct scan_member *m;

	if (s) {
		*len = s->len;
		return s->json;
	}
	m = r->line ? scan_find(&r->top, key) : NULL;
	if (!m)
		return NULL;
	*len = m->end - m->value;
	return r->line + m->value;
}

/* The members of the line as they go out; *n counts them.  What stood between
 * two members stays between them. */
static void write_members(const struct rec *r, struct str *out, size_t *n)
{
	const struct scan_member *m = r->top.member;
	size_t i;

	for (i = 0; i < r->top.n; i++) {
		const struct rec_set *s = find_set(r, m[i].key, m[i].keylen);
		size_t from = *n ? m[i - 1].end : 0;

		if (s && !s->json)
			continue;
		/* The first that is left takes the place of the first. */
		str_add(out, r->line + from,
			(*n ? m[i].start : m[0].start) - from);
		(*n)++;
		if (!s) {
			str_add(out, r->line + m[i].start,
				m[i].end - m[i].start);
			continue;
		}
		str_add(out, r->line + m[i].start, m[i].value - m[i].start);
		str_add(out, s->json, s->len);
	}
}

/* What was set and is not in the line. */
static void write_new(const struct rec *r, struct str *out, size_t *n)
{
	const struct rec_set *s;
	struct jw w;

	for (s = r->sets; s; s = s->next) {
		if (!s->json || (r->line && scan_find(&r->top, s->key)))
			continue;
		jw_init(&w, out);
		w.comma = (*n)++ > 0;
		jw_str(&w, s->key);
		str_addc(out, ':');
		str_add(out, s->json, s->len);
	}
}

int rec_write(const struct rec *r, struct str *out)
{
	size_t from = out->len, n = 0, rest = 0;

	if (r->line && !r->sets)
		return str_add(out, r->line, r->len);
	if (r->line)
		write_members(r, out, &n);
	if (!n)
		str_addc(out, '{');
	write_new(r, out, &n);
	if (r->line && r->top.n)
		rest = r->top.member[r->top.n - 1].end;
	if (rest)
		str_add(out, r->line + rest, r->len - rest);
	else
		str_addc(out, '}');
	return out->failed || out->len - from > JSON_MAX_LINE ? -1 : 0;
}

int rec_refresh(struct rec *r, struct err *e)
{
	struct str s = STR_INIT;
	size_t at = 0;
	int rc = -1;

	if (r->line && !r->sets && r->root)
		return 0;
	if (rec_write(r, &s)) {
		err_set(e, CA_DATAERR, "record is longer than %zu bytes",
			JSON_MAX_LINE);
		goto out;
	}
	json_free(r->root);
	r->root = NULL;
	r->sets = NULL;
	rc = rec_open(r, s.buf, s.len, &at, e);
	if (rc)
		err_wrap(e, "byte %zu", at);
	else
		rc = rec_tree(r, e);
out:
	str_release(&s);
	return rc;
}

const char *rec_kind_name(enum rec_kind k)
{
	return (size_t)k < KINDS ? kind_names[k] : kind_names[REC_OTHER];
}

void task_id(const char *code, size_t len, char out[REC_ID_LEN])
{
	char sum[HASH_HEX];

	sha256_hex(code, len, sum);
	memcpy(out, sum, REC_ID_LEN - 1);
	out[REC_ID_LEN - 1] = '\0';
}

static int file_order(const void *a, const void *b)
{
	return strcmp(json_key(*(const struct json *const *)a),
		      json_key(*(const struct json *const *)b));
}

int candidate_id(const char *task, const struct json *files,
		 char out[REC_ID_LEN])
{
	size_t n = json_len(files), i = 0;
	const struct json **list, *m;
	uint8_t sum[HASH_LEN];
	char text[HASH_HEX];
	struct hash *h;

	if (json_type(files) != JSON_OBJECT)
		return -1;
	list = calloc(n + 1, sizeof *list);
	h = hash_new();
	if (!list || !h) {
		free(list);
		free(h);
		return -1;
	}
	for (m = json_first(files); m; m = json_next(m))
		list[i++] = m;
	qsort(list, n, sizeof *list, file_order);
	hash_part(h, task, strlen(task));
	for (i = 0; i < n; i++) {
		const char *path = json_key(list[i]);
		const char *body = json_str(list[i], "");

		hash_part(h, path, strlen(path));
		hash_part(h, body, strlen(body));
	}
	hash_end(h, sum);
	free(list);
	hex(sum, sizeof sum, text);
	memcpy(out, text, REC_ID_LEN - 1);
	out[REC_ID_LEN - 1] = '\0';
	return 0;
}

static int says_other(const struct json *said, const char *id)
{
	return said && strcmp(json_str(said, ""), id) != 0;
}

static int name_task(struct rec *r, const struct json *task, const char *id)
{
	const struct json *m;
	struct str out = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &out);
	jw_obj(&w);
	for (m = json_first(task); m; m = json_next(m)) {
		jw_key(&w, json_key(m));
		if (strcmp(json_key(m), "id"))
			jw_node(&w, m);
		else
			jw_str(&w, id);
	}
	jw_end_obj(&w);
	rc = out.failed ? -1 : rec_set(r, "task", out.buf, out.len);
	str_release(&out);
	return rc;
}

int rec_true_ids(struct rec *r)
{
	const struct json *task = rec_get(r, "task");
	const struct json *files = rec_get(r, "files");
	const char *code = json_get_str(task, "code", NULL);
	char id[REC_ID_LEN], own[REC_ID_LEN], text[REC_ID_LEN + 2];
	int n;

	if (!code)
		return 0;
	task_id(code, strlen(code), id);
	if (says_other(json_get(task, "id"), id) && name_task(r, task, id))
		return -1;
	if (json_type(files) != JSON_OBJECT)
		return 0;
	if (candidate_id(id, files, own))
		return -1;
	if (!says_other(rec_get(r, "id"), own))
		return 0;
	n = snprintf(text, sizeof text, "\"%s\"", own);
	return rec_set(r, "id", text, (size_t)n);
}

void rec_begin_prov(struct jw *w, int64_t began)
{
	time_t now = time(NULL);
	char date[32] = "";
	struct tm tm;

	if (gmtime_r(&now, &tm))
		strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
	jw_key(w, "prov");
	jw_obj(w);
	jw_knum(w, "seconds", (double)((now_ns() - began) / 1000000) / 1e3);
	jw_kstr(w, "date", date);
}

void rec_write_prov(struct jw *w, int64_t began)
{
	rec_begin_prov(w, began);
	jw_end_obj(w);
}

void rec_error(struct str *out, const char *file, uint64_t line, size_t at,
	       const char *message)
{
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w);
	jw_kstr(&w, "kind", "error");
	jw_kint(&w, "v", REC_V);
	if (file)
		jw_kstr(&w, "file", file);
	jw_kint(&w, "line", (int64_t)line);
	jw_kint(&w, "byte", (int64_t)at);
	jw_kstr(&w, "message", message);
	jw_end_obj(&w);
}
