/* SPDX-License-Identifier: Apache-2.0
 *
 * Work directories.
 */
#define _GNU_SOURCE
#include "build/workdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/utf8.h"
#include "build/source.h"
#include "build/tree.h"

#define ENTRIES_MAX 10000	/* names looked at, over all directories */

struct found {
	char *path;		/* in the workdir */
	struct str text;
};

struct reader {
	const char *dir;
	int fd;
	workdir_note *note;
	void *ctx;
	struct found file[SOURCE_MAX_FILES];
	size_t n, entries, total;
};

static void skip(struct reader *rd, const char *path, const char *why)
{
	if (rd->note)
		rd->note(rd->ctx, path, why, source_meant(path));
}

/* 0, or -1 naming the place of the first byte that is no text. */
static int check_text(const struct reader *rd, const char *path,
		      const struct str *s, struct err *e)
{
	size_t line, bad = utf8_bad(s->buf, s->len, &line);

	if (!bad)
		return 0;
	return err_set(e, CA_DATAERR, "'%s/%s': %s at line %zu (byte %zu)",
		       rd->dir, path, s->buf[bad - 1] ? "not UTF-8" :
		       "NUL byte", line, bad);
}

static int read_text(const struct reader *rd, int fd, const char *name,
		     const char *path, struct str *s, struct err *e)
{
	struct err inner = ERR_INIT;
	size_t mark;

	if (read_file_at(fd, name, SOURCE_MAX_FILE, 0, s, &inner) < 0)
		return err_set(e, inner.code ? inner.code : CA_NOINPUT,
			       "'%s/%.*s': %s", rd->dir,
			       (int)(strlen(path) - strlen(name)), path,
			       inner.msg);
	if (str_add(s, "", 0) < 0)
		return err_set(e, CA_SOFTWARE, "out of memory");
	mark = utf8_mark(s->buf, s->len);
	s->len -= mark;
	memmove(s->buf, s->buf + mark, s->len + 1);
	return check_text(rd, path, s, e);
}

static const char *kind_of(mode_t m)
{
	return S_ISLNK(m) ? "symbolic link" : S_ISFIFO(m) ? "FIFO" :
	       S_ISDIR(m) ? "directory" : S_ISSOCK(m) ? "socket" : "device";
}

/* Takes one file that the allow-list knows. */
static int add_file(struct reader *rd, int fd, const char *name,
		    const char *path, struct err *e)
{
	struct found *f = &rd->file[rd->n];

	if (rd->n == SOURCE_MAX_FILES)
		return err_set(e, CA_DATAERR, "'%s': more than %d source "
			       "files", rd->dir, SOURCE_MAX_FILES);
	memset(f, 0, sizeof(*f));
	f->path = strdup(path);
	if (!f->path)
		return err_set(e, CA_SOFTWARE, "out of memory");
	rd->n++;
	if (read_text(rd, fd, name, path, &f->text, e) < 0)
		return -1;
	rd->total += f->text.len;
	if (rd->total > SOURCE_MAX_TOTAL)
		return err_set(e, CA_DATAERR, "'%s': sources are larger than "
			       "%zu bytes together", rd->dir,
			       SOURCE_MAX_TOTAL);
	return 0;
}

static int scan_dir(struct reader *rd, int fd, const char *prefix, int depth,
		    struct err *e);

static int is_junk(const char *name)
{
	return strcmp(name, "model.py") == 0 || name[0] == '.' ||
	       strcmp(name, "__pycache__") == 0;
}

static int enter(struct reader *rd, int fd, const char *name,
		 const char *path, int depth, struct err *e)
{
	int sub, rc;

	if (depth > SOURCE_MAX_DEPTH ||
	    (depth == 0 && strcmp(path, "kernels") != 0)) {
		if (!is_junk(name))
			skip(rd, path, depth ? "too deep" : "directory");
		return 0;
	}
	sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
		     O_CLOEXEC);
	if (sub < 0)
		return err_sys(e, CA_NOINPUT, "cannot open '%s/%s'", rd->dir,
			       path);
	rc = scan_dir(rd, sub, path, depth + 1, e);
	close(sub);
	return rc;
}

static int entry(struct reader *rd, int fd, const char *name,
		 const char *prefix, int depth, struct err *e)
{
	struct stat st;
	char *path = NULL;
	int rc = 0;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (++rd->entries > ENTRIES_MAX)
		return err_set(e, CA_DATAERR, "'%s': more than %d entries",
			       rd->dir, ENTRIES_MAX);
	if (asprintf(&path, "%s%s%s", prefix, *prefix ? "/" : "", name) < 0)
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		rc = errno == ENOENT ? 0 :
		     err_sys(e, CA_NOINPUT, "cannot stat '%s/%s'", rd->dir,
			     path);
	else if (S_ISDIR(st.st_mode))
		rc = enter(rd, fd, name, path, depth, e);
	else if (!S_ISREG(st.st_mode))
		skip(rd, path, kind_of(st.st_mode));
	else if (source_allowed(path))
		rc = add_file(rd, fd, name, path, e);
	else if (!is_junk(name))
		skip(rd, path, source_meant(path) ?
		     "no name of a source file that is taken" :
		     "not a source file");
	free(path);
	return rc;
}

/* Reads the directory behind fd, which stays open. */
static int scan_dir(struct reader *rd, int fd, const char *prefix, int depth,
		    struct err *e)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3), rc = 0;
	struct dirent *de;
	DIR *d = copy < 0 ? NULL : fdopendir(copy);

	if (!d) {
		if (copy >= 0)
			close(copy);
		return err_sys(e, CA_NOINPUT, "cannot read '%s/%s'", rd->dir,
			       prefix);
	}
	while (rc == 0 && (de = readdir(d)))
		rc = entry(rd, fd, de->d_name, prefix, depth, e);
	closedir(d);
	return rc;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct found *)a)->path,
		      ((const struct found *)b)->path);
}

/* The last component of the directory's real path. */
static char *base_name(const char *dir)
{
	char *real = realpath(dir, NULL), *slash, *name;

	slash = real ? strrchr(real, '/') : NULL;
	name = strdup(slash && slash[1] ? slash + 1 : "workdir");
	free(real);
	return name;
}

static int set(struct rec *r, const char *key, const struct str *s,
	       struct err *e)
{
	if (s->failed || rec_set(r, key, s->buf, s->len) < 0)
		return err_set(e, CA_SOFTWARE, "out of memory");
	return 0;
}

static int set_string(struct rec *r, const char *key, const char *value,
		      struct err *e)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &s);
	jw_str(&w, value);
	rc = set(r, key, &s, e);
	str_release(&s);
	return rc;
}

static int set_task(struct rec *r, const struct str *code, const char *id,
		    struct err *e)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &s);
	jw_obj(&w);
	jw_kstr(&w, "id", id);
	jw_key(&w, "code");
	jw_strn(&w, code->buf, code->len);
	jw_end_obj(&w);
	rc = set(r, "task", &s, e);
	str_release(&s);
	return rc;
}

/* Sets `files` and gives the candidate's id. */
static int set_files(struct reader *rd, struct rec *r, const char *task,
		     char id[33], struct err *e)
{
	struct str s = STR_INIT;
	struct json *files = NULL;
	struct jw w;
	size_t i;
	int rc = -1;

	jw_init(&w, &s);
	jw_obj(&w);
	for (i = 0; i < rd->n; i++) {
		jw_key(&w, rd->file[i].path);
		jw_strn(&w, rd->file[i].text.buf, rd->file[i].text.len);
	}
	jw_end_obj(&w);
	if (set(r, "files", &s, e) < 0)
		goto out;
	if (s.len > JSON_MAX_LINE / 4 * 3) {
		err_set(e, CA_DATAERR, "'%s': sources do not fit in a record",
			rd->dir);
		goto out;
	}
	files = json_parse(s.buf, s.len, JSON_MAX_LINE, NULL, e);
	if (files && candidate_id(task, files, id) == 0)
		rc = 0;
	else if (files)
		err_set(e, CA_SOFTWARE, "cannot derive the candidate's id");
out:
	json_free(files);
	str_release(&s);
	return rc;
}

static int make_record(struct reader *rd, const struct str *code,
		       struct rec *r, struct err *e)
{
	char task[33], id[33], *name = base_name(rd->dir);
	int rc = -1;

	task_id(code->buf, code->len, task);
	if (!name) {
		err_set(e, CA_SOFTWARE, "out of memory");
		goto out;
	}
	if (set_string(r, "kind", "candidate", e) < 0 ||
	    rec_set(r, "v", "1", 1) < 0 ||
	    set_string(r, "id", "", e) < 0 ||
	    set_string(r, "name", name, e) < 0 ||
	    set_task(r, code, task, e) < 0 ||
	    set_files(rd, r, task, id, e) < 0 ||
	    set_string(r, "id", id, e) < 0 ||
	    set_string(r, "rules", "paper", e) < 0)
		goto out;
	rc = rec_refresh(r, e);
out:
	free(name);
	return rc;
}

static int read_all(struct reader *rd, struct rec *out, struct err *e)
{
	struct str code = STR_INIT;
	int rc = -1;

	if (read_text(rd, rd->fd, "model.py", "model.py", &code, e) < 0 ||
	    scan_dir(rd, rd->fd, "", 0, e) < 0)
		goto out;
	if (rd->n)
		qsort(rd->file, rd->n, sizeof(*rd->file), by_path);
	rc = make_record(rd, &code, out, e);
out:
	str_release(&code);
	return rc;
}

int workdir_read_note(const char *dir, struct rec *out, workdir_note *note,
		      void *ctx, struct err *e)
{
	struct reader *rd = calloc(1, sizeof(*rd));
	size_t i;
	int rc;

	if (!rd)
		return err_set(e, CA_SOFTWARE, "out of memory");
	rd->dir = dir;
	rd->note = note;
	rd->ctx = ctx;
	rd->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (rd->fd < 0) {
		rc = err_sys(e, CA_NOINPUT, "cannot open directory '%s'", dir);
	} else {
		rc = read_all(rd, out, e);
		close(rd->fd);
	}
	for (i = 0; i < rd->n; i++) {
		free(rd->file[i].path);
		str_release(&rd->file[i].text);
	}
	free(rd);
	return rc;
}

int workdir_read(const char *dir, struct rec *out, struct err *e)
{
	return workdir_read_note(dir, out, NULL, NULL, e);
}

const char *workdir_code(const struct rec *r)
{
	if (r->kind == REC_TASK)
		return json_str(rec_get(r, "code"), NULL);
	return json_get_str(rec_get(r, "task"), "code", NULL);
}

static int write_files(const struct json *files, int fd, const char *dir,
		       int sources_only, struct err *e)
{
	const struct json *m;
	const char *text, *path;

	for (m = json_first(files); m; m = json_next(m)) {
		text = json_str(m, NULL);
		path = json_key(m);
		if (!text || !source_allowed(path) ||
		    (sources_only && strcmp(path, "model_new.py") == 0))
			continue;
		if (tree_put(fd, dir, path, text, strlen(text), e) < 0)
			return -1;
	}
	return 0;
}

int workdir_sources(const struct json *files, int fd, const char *dir,
		    struct err *e)
{
	return write_files(files, fd, dir, 1, e);
}

int workdir_write(const char *code, const struct json *files,
		  const char *dir, struct err *e)
{
	struct tree t;
	int rc = -1;

	if (!code)
		return err_set(e, CA_DATAERR, "the record holds no task code");
	if (tree_open(&t, dir, e))
		return -1;
	if (tree_put(t.fd, dir, "model.py", code, strlen(code), e) == 0 &&
	    tree_dir(t.fd, dir, "kernels", e) == 0)
		rc = write_files(files, t.fd, dir, 0, e);
	return tree_close(&t, rc);
}
