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
#include <unistd.h>

#include "base/utf8.h"
#include "rec/rows.h"
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
		return harvest_task(h, &(struct harvest_item){
			.code = code, .len = len, .name = name,
			.ref = ref }, e);
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

static int take_lines(struct harvest *h, const char *path,
		      const struct str *text, struct err *e)
{
	const char *at = text->buf, *end = at + text->len;
	int n = 0, rc = 0;

	while (at < end && !rc && !harvest_full(h)) {
		const char *lf = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((lf ? lf : end) - at);
		struct json *row = json_parse(at, len, JSON_MAX_LINE, NULL,
					      NULL);
		char ref[4200];

		snprintf(ref, sizeof(ref), "%s:%d", path, ++n);
		rc = take_row(h, row, ref, e);
		json_free(row);
		at += len + 1;
	}
	return rc;
}

static int take_rows(struct harvest *h, const char *path, struct err *e)
{
	int fd = rows_open(path, e), rc = -1;
	struct str text = STR_INIT;
	char buf[1 << 16];
	ssize_t n;

	if (fd < 0)
		return -1;
	while ((n = read_full(fd, buf, sizeof(buf), e)) > 0)
		str_add(&text, buf, (size_t)n);
	close(fd);
	if (text.failed)
		err_set(e, CA_SOFTWARE, "out of memory");
	else if (!n)
		rc = take_lines(h, path, &text, e);
	str_release(&text);
	return rc;
}

static int take_python(struct harvest *h, const char *path, int named,
		       struct err *e)
{
	struct str text = STR_INIT;
	int rc = 0;

	if (read_file(path, FILE_MAX, &text, e)) {
		if (!named) {
			harvest_skip(h, path, "cannot be read, or is too "
				     "long");
			err_clear(e);
		} else {
			rc = -1;
		}
	} else if (!text.len) {
		harvest_skip(h, path, "is empty");
	} else {
		rc = take_code(h, text.buf, text.len, "file", path, e);
	}
	str_release(&text);
	return rc;
}

/* Of folders Python alone is taken, so rows have been named. */
static int take_file(struct harvest *h, const char *path, int named,
		     struct err *e)
{
	static const char *const rows[] = { ".json", ".jsonl", ".ndjson",
					    ".parquet" };

	if (ends_with(path, ".py"))
		return take_python(h, path, named, e);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (ends_with(path, rows[i]))
			return take_rows(h, path, e);
	harvest_skip(h, path, "is neither Python nor rows");
	return 0;
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

/* Where a checkout of KernelBench has its tasks: the models that its prompts
 * show as examples are none.  Whether `path` is one. */
static int kernelbench(const char *path, char *tasks, size_t len)
{
	struct stat st;
	int n = snprintf(tasks, len, "%s/KernelBench/level1", path);

	if (n < 0 || (size_t)n >= len || stat(tasks, &st) ||
	    !S_ISDIR(st.st_mode))
		return 0;
	tasks[(size_t)n - strlen("/level1")] = '\0';
	return 1;
}

int crawl_path(struct harvest *h, const char *path, struct err *e)
{
	char tasks[4096];
	struct stat st;

	if (stat(path, &st))
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", path);
	if (!S_ISDIR(st.st_mode))
		return take_file(h, path, 1, e);
	return take_folder(h, kernelbench(path, tasks, sizeof(tasks)) ? tasks :
			   path, 0, e);
}
