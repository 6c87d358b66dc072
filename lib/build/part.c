/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "build/part.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/opt.h"
#include "jail/jail.h"

#define OBJECT_MAX ((size_t)64 << 20)

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The text without spliced lines, which could hide a word. */
static int splice(const struct source_file *f, struct str *out)
{
	const char *at = f->text, *end = f->text + f->len;

	while (at < end) {
		const char *b = memchr(at, '\\', (size_t)(end - at));
		size_t cut = 1;

		if (!b)
			return str_add(out, at, (size_t)(end - at));
		while (b + cut < end && isspace((unsigned char)b[cut]) &&
		       b[cut] != '\n')
			cut++;
		if (b + cut < end && b[cut] == '\n') {
			if (str_add(out, at, (size_t)(b - at)))
				return -1;
			at = b + cut + 1;
		} else {
			if (str_add(out, at, (size_t)(b - at) + 1))
				return -1;
			at = b + 1;
		}
	}
	return 0;
}

/* Whether compilers may differ about where its lines end. */
static int has_odd_lines(const struct source_file *f)
{
	const char *at = f->text, *end = at + f->len;

	for (; at < end; at++) {
		if (*at == '\r' && at + 1 < end && at[1] != '\n')
			return 1;
		if (*at != '\\' || at + 1 == end || at[1] == '\n' ||
		    !isspace((unsigned char)at[1]))
			continue;
		if (at[1 + strspn(at + 1, " \t\v\f\r")] == '\n')
			return 1;
	}
	return 0;
}

/* Behind the string or character constant at p; NULL where that may be none,
 * such as a raw string or an apostrophe in a number. */
static const char *behind_quotes(const char *text, const char *p)
{
	char before = p > text ? p[-1] : ' ', quote = *p++;

	if (quote == '"' ? before == 'R' :
	    isalnum((unsigned char)before) || before == '_')
		return NULL;
	for (; *p && *p != '\n' && *p != quote; p++)
		if (*p == '\\' && p[1])
			p++;
	return *p == quote ? p + 1 : NULL;
}

/* Behind the comment at p; NULL where that may be none, such as within
 * <name>, or a division in front of a comment of older C. */
static const char *behind_comment(const char *line, const char *p)
{
	const char *end;

	for (const char *c = p; c > line && c[-1] != '>'; c--)
		if (c[-1] == '<' && line[strspn(line, " \t\v\f")] == '#')
			return NULL;
	if (p[1] == '/')
		return p[2] == '*' ? NULL : p + strcspn(p, "\n");
	end = strstr(p + 2, "*/");
	return end ? end + 2 : NULL;
}

/* A text without its comments.  1: which those are is not beyond doubt. */
static int uncomment(const struct str *s, struct str *out)
{
	const char *p = s->buf, *line = p, *next;

	for (; *p; p = next) {
		if (*p == '"' || *p == '\'') {
			next = behind_quotes(s->buf, p);
		} else if (*p == '/' && (p[1] == '/' || p[1] == '*')) {
			next = behind_comment(line, p);
			if (!next || str_addc(out, ' '))
				return 1;
			continue;
		} else {
			next = p + 1;
		}
		if (!next || str_add(out, p, (size_t)(next - p)))
			return 1;
		if (*p == '\n')
			line = next;
	}
	return 0;
}

static int says_any(const char *text, const char *const *word)
{
	for (; *word; word++)
		if (strstr(text, *word))
			return 1;
	return 0;
}

/* Whether all that a text can make a compiler read is named in it. */
static int is_plain(const char *at)
{
	static const char *const odd[] = {
		"asm", "incbin", "embed", "_next", "has_include", "import",
		"pch_preprocess", "##", "section", NULL
	};

	if (says_any(at, odd))
		return 0;
	while ((at = strstr(at, "include")) != NULL) {
		at += strlen("include");
		at += strspn(at, " \t");
		if (*at != '"' && *at != '<')
			return 0;
	}
	return 1;
}

/* The sources that a unit's compiler may read, among the tree's. */
struct reach {
	const struct source_tree *t;
	char *in;		/* of each file: 1 in reach, 2 looked through */
};

/* What a compiler heeds of a file is plain; where that is in doubt, all. */
static int heeds_plain(const struct source_file *f, const struct str *text)
{
	/* Other ways to write what the rest is found by. */
	static const char *const other[] = { "%:", "?" "?/", "?" "?=", NULL };
	struct str code = STR_INIT;
	int rc;

	if (!text->len)
		return 1;
	if (strlen(text->buf) != text->len || says_any(text->buf, other))
		return 0;
	if (has_odd_lines(f) || uncomment(text, &code))
		rc = is_plain(text->buf);
	else
		rc = !code.len || is_plain(code.buf);
	str_release(&code);
	return rc;
}

/* Looks through a file for names of others.  -1: it may read anything. */
static int look_through(struct reach *r, size_t i)
{
	const struct source_file *f = &r->t->file[i];
	struct str text = STR_INIT;
	int rc = -1;

	if (splice(f, &text) || !heeds_plain(f, &text))
		goto out;
	for (size_t k = 0; k < r->t->n; k++)
		if (!r->in[k] && text.len &&
		    strstr(text.buf, base_of(r->t->file[k].path)))
			r->in[k] = 1;
	r->in[i] = 2;
	rc = 0;
out:
	str_release(&text);
	return rc;
}

static int find_reach(struct reach *r, const char *source)
{
	int more = 1;

	for (size_t i = 0; i < r->t->n; i++) {
		const char *path = r->t->file[i].path;

		/* A toolkit's header may include any but another source; what
		 * is never compiled is looked at as C, to be safe. */
		r->in[i] = !source_compiled(path) || !strcmp(path, source);
		if (!strcmp(path, "model_new.py"))
			r->in[i] = 2;
	}
	while (more) {
		more = 0;
		for (size_t i = 0; i < r->t->n; i++)
			if (r->in[i] == 1) {
				if (look_through(r, i))
					return -1;
				more = 1;
			}
	}
	return 0;
}

static void make_key(const struct plan *p, const struct plan_unit *u,
		     int level, const struct reach *r, struct hash *h)
{
	const char *jail = jail_level_name(level);

	hash_part(h, "ca-part 1", 9);
	hash_part(h, ca_version, strlen(ca_version));
	hash_part(h, p->tc.id, strlen(p->tc.id));
	hash_part(h, jail, strlen(jail));
	for (size_t i = 0; u->argv[i]; i++)
		hash_part(h, u->argv[i], strlen(u->argv[i]));
	hash_part(h, "", 0);
	for (size_t i = 0; i < r->t->n; i++) {
		const struct source_file *f = &r->t->file[i];

		if (!r->in[i] || !strcmp(f->path, "model_new.py"))
			continue;
		hash_part(h, f->path, strlen(f->path));
		hash_part(h, f->text, f->len);
	}
}

int part_key(const struct plan *p, const struct plan_unit *u, int level,
	     char key[CACHE_KEY])
{
	struct reach r = { .t = &p->tree };
	uint8_t sum[HASH_LEN];
	struct hash *h;
	int rc = 0;

	/* Elsewhere one compiler reads nearly everything. */
	if (p->form != FORM_PAPER || p->nunit < 2)
		return 0;
	r.in = calloc(p->tree.n, 1);
	h = r.in ? hash_new() : NULL;
	if (h && !find_reach(&r, u->source)) {
		make_key(p, u, level, &r, h);
		rc = 1;
	}
	if (h)
		hash_end(h, sum);
	if (rc)
		hex(sum, sizeof(sum), key);
	free(r.in);
	return rc;
}

int part_get(const char *key, struct str *out)
{
	char path[CA_PATH_MAX];

	if (cache_get(key, path, NULL, NULL) != 1)
		return 0;
	str_reset(out);
	return !read_file(path, OBJECT_MAX, out, NULL) && out->len;
}

void part_put(const char *key, const struct str *object)
{
	char path[CA_PATH_MAX];

	if (object->len && object->len <= OBJECT_MAX)
		(void)cache_put(key, object->buf, object->len, "\"part\":true",
				path, NULL);
}
