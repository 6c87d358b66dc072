/* SPDX-License-Identifier: Apache-2.0
 *
 * The source files of a candidate.
 */
#include "build/source.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "build/lex.h"

static const char *const compiled_ext[] = { ".cu", ".c", ".cc", ".cpp" };
static const char *const header_ext[] = { ".cuh", ".h", ".hpp" };

static int has_ext(const char *path, const char *const *ext, size_t n)
{
	const char *dot = strrchr(path, '.');
	size_t i;

	for (i = 0; dot && i < n; i++)
		if (strcmp(dot, ext[i]) == 0)
			return 1;
	return 0;
}

static int good_component(const char *s, size_t n)
{
	size_t i;

	if (n == 0 || n > 128 || !(isalnum((unsigned char)*s) || *s == '_'))
		return 0;
	for (i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr("_.+-", s[i]))
			return 0;
	return 1;
}

int source_allowed(const char *path)
{
	const char *s = path, *slash;
	int depth = 0;

	if (strcmp(path, "model_new.py") == 0 ||
	    strcmp(path, "binding.cpp") == 0 ||
	    strcmp(path, "binding_registry.h") == 0)
		return 1;
	if (!starts_with(path, "kernels/"))
		return 0;
	for (s += 8; (slash = strchr(s, '/')); s = slash + 1)
		if (++depth > SOURCE_MAX_DEPTH ||
		    !good_component(s, (size_t)(slash - s)))
			return 0;
	return good_component(s, strlen(s)) &&
	       (has_ext(s, compiled_ext, 4) || has_ext(s, header_ext, 3));
}

int source_meant(const char *path)
{
	static const char *const near[] = { ".cxx", ".c++", ".C", ".hh",
					    ".hxx", ".CU" };

	return source_allowed(path) || strcmp(path, "kernels") == 0 ||
	       (starts_with(path, "kernels/") &&
		(has_ext(path, compiled_ext, 4) ||
		 has_ext(path, header_ext, 3) || has_ext(path, near, 6)));
}

int source_compiled(const char *path)
{
	if (strcmp(path, "binding.cpp") == 0)
		return 1;
	return starts_with(path, "kernels/") && !strchr(path + 8, '/') &&
	       has_ext(path, compiled_ext, 4);
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct source_file *)a)->path,
		      ((const struct source_file *)b)->path);
}

void source_sort(struct source_tree *t)
{
	qsort(t->file, t->n, sizeof(*t->file), by_path);
}

const struct source_file *source_find(const struct source_tree *t,
				      const char *path)
{
	struct source_file key = { path, NULL, 0, 0 };

	if (!t->n)
		return NULL;
	return bsearch(&key, t->file, t->n, sizeof(key), by_path);
}

/* The tree's file that `name`, included by `from`, means: beside it, in
 * kernels/ or at the top. */
static struct source_file *resolve(struct arena *a, struct source_tree *t,
				   const char *from, const char *name,
				   size_t len)
{
	const char *slash = strrchr(from, '/');
	int dir = slash ? (int)(slash - from + 1) : 0;
	const char *try[3];
	size_t i;

	while (len > 2 && name[0] == '.' && name[1] == '/')
		name += 2, len -= 2;
	try[0] = arena_printf(a, "%.*s%.*s", dir, from, (int)len, name);
	try[1] = arena_printf(a, "kernels/%.*s", (int)len, name);
	try[2] = arena_printf(a, "%.*s", (int)len, name);
	for (i = 0; i < 3; i++) {
		const struct source_file *f;

		f = try[i] ? source_find(t, try[i]) : NULL;
		if (f)
			return &t->file[f - t->file];
	}
	return NULL;
}

static int mark_included(struct arena *a, struct source_tree *t)
{
	struct source_file *hit;
	struct lexer x;
	struct token tok;
	const char *name;
	size_t i, len;
	int quoted;

	for (i = 0; i < t->n; i++) {
		if (strcmp(t->file[i].path, "model_new.py") == 0)
			continue;
		if (lex_init(&x, a, t->file[i].text, t->file[i].len) < 0)
			return -1;
		for (lex_next(&x, &tok); tok.type; lex_next(&x, &tok)) {
			name = lex_include(&tok, &len, &quoted);
			if (!name || len > 512)
				continue;
			hit = resolve(a, t, t->file[i].path, name, len);
			if (hit && hit != &t->file[i])
				hit->included = 1;
		}
	}
	return 0;
}

int source_includes(const struct source_tree *t, const char *header)
{
	struct arena a = ARENA_INIT;
	struct lexer x;
	struct token tok;
	const char *name;
	size_t i, len;
	int quoted, found = 0;

	for (i = 0; i < t->n && !found; i++) {
		if (strcmp(t->file[i].path, "model_new.py") == 0 ||
		    lex_init(&x, &a, t->file[i].text, t->file[i].len) < 0)
			continue;
		for (lex_next(&x, &tok); tok.type && !found;
		     lex_next(&x, &tok)) {
			name = lex_include(&tok, &len, &quoted);
			found = name && len == strlen(header) &&
				memcmp(name, header, len) == 0;
		}
	}
	arena_release(&a);
	return found;
}

/* A file below another file, as a.h/b.h beside a.h, fits in no folder. */
static int check_folders(struct arena *a, const struct source_tree *t,
			 struct err *e)
{
	const char *path, *slash, *over;

	for (size_t i = 0; i < t->n; i++) {
		path = t->file[i].path;
		slash = strchr(path, '/');
		for (; slash; slash = strchr(slash + 1, '/')) {
			over = arena_printf(a, "%.*s", (int)(slash - path),
					    path);
			if (!over)
				return err_set(e, CA_SOFTWARE,
					       "out of memory");
			if (source_find(t, over))
				return err_set(e, CA_DATAERR, "file '%s' is "
					       "below '%s', which is a file",
					       path, over);
		}
	}
	return 0;
}

int source_read(const struct rec *r, struct arena *a, struct source_tree *t,
		struct err *e)
{
	const struct json *files = rec_get(r, "files"), *m;
	size_t total = 0;

	memset(t, 0, sizeof(*t));
	if (json_type(files) != JSON_OBJECT)
		return err_set(e, CA_DATAERR, "record has no 'files' object");
	t->file = arena_alloc(a, json_len(files) + 1, sizeof(*t->file));
	if (!t->file)
		return err_set(e, CA_SOFTWARE, "out of memory");
	for (m = json_first(files); m; m = json_next(m)) {
		struct source_file *f = &t->file[t->n];

		if (!source_allowed(json_key(m)))
			continue;
		f->path = json_key(m);
		f->text = json_str(m, NULL);
		if (!f->text)
			return err_set(e, CA_DATAERR,
				       "file '%s' is not a string", f->path);
		f->len = strlen(f->text);
		total += f->len;
		if (f->len > SOURCE_MAX_FILE || total > SOURCE_MAX_TOTAL)
			return err_set(e, CA_DATAERR,
				       "file '%s' is too large", f->path);
		if (++t->n > SOURCE_MAX_FILES)
			return err_set(e, CA_DATAERR,
				       "more than %d source files",
				       SOURCE_MAX_FILES);
	}
	source_sort(t);
	if (check_folders(a, t, e))
		return -1;
	if (mark_included(a, t) < 0)
		return err_set(e, CA_SOFTWARE, "out of memory");
	return 0;
}
