/* SPDX-License-Identifier: Apache-2.0
 *
 * The extensions of an inline candidate.
 */
#include "build/inline.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_LEN 128

struct taker {
	const struct source_tree *tree;
	struct arena *a;
	struct exts *out;
	const char **why;
	size_t total;
	struct err *e;
};

__attribute__((format(printf, 2, 3)))
static int refuse(struct taker *t, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	*t->why = arena_strdup(t->a, text);
	return *t->why ? 1 : err_set(t->e, CA_SOFTWARE, "out of memory");
}

static int no_memory(struct taker *t)
{
	return err_set(t->e, CA_SOFTWARE, "out of memory");
}

static int good_name(const char *s)
{
	size_t i;

	for (i = 0; s[i]; i++)
		if (!isalnum((unsigned char)s[i]) && s[i] != '_')
			return 0;
	return i > 0 && i < NAME_LEN && !isdigit((unsigned char)*s);
}

/* A name for a made file: one component that a compiler knows. */
static const char *made_path(struct taker *t, size_t ext, const char *name)
{
	const char *path = arena_printf(t->a, "kernels/%s", name);

	if (!path || !source_compiled(path) || !source_allowed(path))
		return NULL;
	return arena_printf(t->a, "inline/%zu/%s", ext, name);
}

static int take_text(struct taker *t, struct ext *x, const char *name,
		     const char *text)
{
	size_t ext = (size_t)(x - t->out->v), len = strlen(text), i;
	const char *path = made_path(t, ext, name);
	struct source_file *f = &t->out->made.file[t->out->made.n];

	if (!path)
		return refuse(t, "'%s' is no source file", name);
	t->total += len;
	if (len > SOURCE_MAX_FILE || t->total > SOURCE_MAX_TOTAL)
		return refuse(t, "the sources of '%s' are too large", x->name);
	for (i = 0; i < x->n; i++)
		if (strcmp(x->path[i], path) == 0)
			return refuse(t, "two sources are named '%s'", name);
	f->path = path;
	f->text = arena_strndup(t->a, text, len);
	f->len = len;
	f->included = 0;
	if (!f->text)
		return no_memory(t);
	t->out->made.n++;
	x->path[x->n++] = path;
	return 0;
}

static int take_source(struct taker *t, struct ext *x, const struct json *j)
{
	const char *path = json_get_str(j, "path", NULL);
	const char *text = json_get_str(j, "text", NULL);
	const struct source_file *f;

	if (!path || x->n == EXT_SOURCES)
		return refuse(t, "the sources of '%s' are too many", x->name);
	if (text)
		return take_text(t, x, path, text);
	f = source_compiled(path) ? source_find(t->tree, path) : NULL;
	if (!f)
		return refuse(t, "the candidate has no source file '%s'",
			      path);
	x->path[x->n++] = f->path;
	return 0;
}

static int take_flags(struct taker *t, enum flag_tool tool,
		      const struct json *list, struct flags *out)
{
	const char *in[FLAGS_MAX], *bad;
	const struct json *j;
	size_t n = 0;
	int rc;

	for (j = json_first(list); j; j = json_next(j)) {
		if (n == FLAGS_MAX || !json_str(j, NULL))
			return refuse(t, "more than %d compiler flags",
				      FLAGS_MAX);
		in[n] = arena_strdup(t->a, json_str(j, NULL));
		if (!in[n++])
			return no_memory(t);
	}
	rc = flags_take(tool, in, n, t->a, out, &bad);
	if (rc < 0)
		return no_memory(t);
	return rc ? refuse(t, "compiler flag '%s' is not allowed", bad) : 0;
}

/* Under which name the built module is handed back. */
static int hash_request(struct taker *t, const struct json *j, struct ext *x)
{
	struct str text = STR_INIT, canon = STR_INIT;
	struct jw w;
	int rc = -1;

	jw_init(&w, &text);
	jw_node(&w, j);
	if (text.failed)
		no_memory(t);
	else if (json_canon(text.buf, text.len, &canon, t->e) == 0) {
		sha256_hex(canon.buf, canon.len, x->request);
		rc = 0;
	}
	str_release(&text);
	str_release(&canon);
	return rc;
}

static int take_request(struct taker *t, const struct json *j)
{
	const char *name = json_get_str(j, "name", "");
	const struct json *sources = json_get(j, "sources"), *s;
	struct ext *x = &t->out->v[t->out->n];
	size_t i;
	int rc;

	if (t->out->n == EXT_MAX || !good_name(name))
		return refuse(t, "no extension can be named '%s'", name);
	for (i = 0; i < t->out->n; i++)
		if (strcmp(t->out->v[i].name, name) == 0)
			return refuse(t, "two extensions are named '%s'",
				      name);
	t->out->n++;
	x->name = arena_strdup(t->a, name);
	if (!x->name)
		return no_memory(t);
	for (s = json_first(sources); s; s = json_next(s)) {
		rc = take_source(t, x, s);
		if (rc)
			return rc;
	}
	if (!x->n)
		return refuse(t, "the extension '%s' has no sources", name);
	rc = take_flags(t, FLAG_CXX, json_get(j, "cflags"), &x->cxx);
	if (!rc)
		rc = take_flags(t, FLAG_NVCC, json_get(j, "cuda_cflags"),
				&x->nvcc);
	if (!rc)
		rc = take_flags(t, FLAG_LINK, json_get(j, "ldflags"),
				&x->libs);
	return rc ? rc : hash_request(t, j, x);
}

int inline_read(const struct json *said, const struct source_tree *tree,
		struct arena *a, struct exts *out, const char **why,
		struct err *e)
{
	struct taker t = { tree, a, out, why, 0, e };
	const struct json *j;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	*why = NULL;
	out->made.file = arena_alloc(a, EXT_MAX * EXT_SOURCES,
				     sizeof(*out->made.file));
	if (!out->made.file)
		return no_memory(&t);
	for (j = json_first(json_get(said, "requests")); j && !rc;
	     j = json_next(j))
		rc = take_request(&t, j);
	if (!rc)
		source_sort(&out->made);
	return rc;
}
