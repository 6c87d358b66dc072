/* SPDX-License-Identifier: Apache-2.0
 *
 * Files and folders: model.py files as they are, rows of published data.  A
 * checkout of KernelBench is a folder.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/utf8.h"
#include "synth/harvest.h"

#define FILE_MAX ((size_t)1 << 20)
#define DEPTH 12

static int is_text(const char *p, size_t len)
{
	size_t n = 0;

	while (len && *p && (n = utf8_len(p, len))) {
		p += n;
		len -= n;
	}
	return !len;
}

/* What a task file has to define; whether it works is for ca-filter. */
static const char *lacks(const char *code, size_t len)
{
	if (!is_text(code, len))
		return "is not UTF-8";
	if (!strstr(code, "class Model"))
		return "defines no class Model";
	if (!strstr(code, "def get_inputs"))
		return "defines no get_inputs";
	return NULL;
}

static int take_code(struct harvest *h, const char *code, size_t len,
		     const char *name, const char *ref, struct err *e)
{
	const char *why = lacks(code, len);

	if (!why)
		return harvest_task(h, code, len, name, ref, NULL, NULL, NULL,
				    e);
	harvest_skip(h, ref, why);
	return 0;
}

static int take_row(struct harvest *h, const struct json *row,
		    const char *ref, struct err *e)
{
	const char *code = json_get_str(row, "code", NULL);

	if (code)
		return take_code(h, code, strlen(code),
				 json_get_str(row, "data_source", "rows"), ref,
				 e);
	harvest_skip(h, ref, "is no row with a code");
	return 0;
}

/* One object a line, or one array. */
static int take_rows(struct harvest *h, const char *path,
		     const struct str *text, struct err *e)
{
	struct json *all = text->buf[0] == '[' ?
		json_parse(text->buf, text->len, JSON_MAX_FILE, NULL, e) :
		NULL;
	const char *at = text->buf, *end = at + text->len;
	char ref[4200];
	int n = 0, rc = 0;

	if (text->buf[0] == '[' && !all)
		return err_wrap(e, "%s", path);
	for (const struct json *i = json_first(all); i && !rc &&
	     !harvest_full(h); i = json_next(i)) {
		snprintf(ref, sizeof(ref), "%s:%d", path, ++n);
		rc = take_row(h, i, ref, e);
	}
	while (!all && at < end && !rc && !harvest_full(h)) {
		const char *lf = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((lf ? lf : end) - at);
		struct json *row = json_parse(at, len, JSON_MAX_LINE, NULL,
					      NULL);

		snprintf(ref, sizeof(ref), "%s:%d", path, ++n);
		rc = take_row(h, row, ref, e);
		json_free(row);
		at += len + 1;
	}
	json_free(all);
	return rc;
}

static int take_file(struct harvest *h, const char *path, int named,
		     struct err *e)
{
	int python = ends_with(path, ".py");
	int rows = ends_with(path, ".json") || ends_with(path, ".jsonl") ||
		ends_with(path, ".ndjson");
	struct str text = STR_INIT;
	int rc = 0;

	if (!python && !rows) {
		harvest_skip(h, path, "is neither Python nor JSON");
		return 0;
	}
	if (read_file(path, python ? FILE_MAX : JSON_MAX_FILE, &text, e)) {
		if (!named) {
			harvest_skip(h, path, "cannot be read, or is too "
				     "long");
			err_clear(e);
		} else {
			rc = -1;
		}
	} else if (!text.len) {
		harvest_skip(h, path, "is empty");
	} else if (python) {
		rc = take_code(h, text.buf, text.len, "file", path, e);
	} else {
		rc = take_rows(h, path, &text, e);
	}
	str_release(&text);
	return rc;
}

static int visible(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

static int take_folder(struct harvest *h, const char *path, int depth,
		       struct err *e)
{
	struct dirent **entry;
	int n = scandir(path, &entry, visible, versionsort), rc = 0;

	if (n < 0)
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", path);
	for (int i = 0; i < n; i++) {
		char inner[4096];
		struct stat st;

		if (!rc && !harvest_full(h) && depth < DEPTH &&
		    snprintf(inner, sizeof(inner), "%s/%s", path,
			     entry[i]->d_name) < (int)sizeof(inner) &&
		    !lstat(inner, &st)) {
			if (S_ISDIR(st.st_mode))
				rc = take_folder(h, inner, depth + 1, e);
			else if (S_ISREG(st.st_mode) &&
				 ends_with(inner, ".py"))
				rc = take_file(h, inner, 0, e);
		}
		free(entry[i]);
	}
	free(entry);
	return rc;
}

int crawl_path(struct harvest *h, const char *path, struct err *e)
{
	struct stat st;

	if (stat(path, &st))
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", path);
	return S_ISDIR(st.st_mode) ? take_folder(h, path, 0, e) :
	       take_file(h, path, 1, e);
}
