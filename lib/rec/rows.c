/* SPDX-License-Identifier: Apache-2.0
 *
 * Collections of rows as they are published.
 */
#define _GNU_SOURCE
#include "rec/rows.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/child.h"
#include "base/io.h"
#include "base/path.h"
#include "rec/json.h"
#include "rec/scan.h"

#define PARQUET_SECONDS 120
#define CHUNK ((size_t)1 << 16)

static int open_input(const char *path, struct err *e)
{
	int fd;

	if (strcmp(path, "-") == 0)
		fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	else
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	return fd < 0 ? err_sys(e, CA_NOINPUT, "cannot open '%s'", path) : fd;
}

/* Everything up to the end of file. */
static int slurp(int fd, const char *path, struct str *s, struct err *e)
{
	struct err why = ERR_INIT;
	char buf[CHUNK];
	ssize_t n;

	while ((n = read_full(fd, buf, sizeof(buf), &why)) > 0) {
		if (s->len + (size_t)n > JSON_MAX_FILE)
			return err_set(e, CA_DATAERR, "'%s' is longer than "
				       "%zu bytes", path, JSON_MAX_FILE);
		if (str_add(s, buf, (size_t)n))
			return err_set(e, CA_SOFTWARE, "out of memory");
	}
	return n < 0 ? err_set(e, why.code, "'%s': %s", path, why.msg) : 0;
}

static void add_line(struct str *out, const struct json *row)
{
	struct jw w;

	jw_init(&w, out);
	jw_node(&w, row);
	str_addc(out, '\n');
}

/* Rows of an array; of an object that holds arrays theirs, in order, and an
 * object that holds none is a row itself. */
static void add_rows(struct str *out, const struct json *j)
{
	const struct json *m, *row;
	int arrays = 0;

	if (json_type(j) == JSON_ARRAY) {
		for (row = json_first(j); row; row = json_next(row))
			add_line(out, row);
		return;
	}
	for (m = json_first(j); m; m = json_next(m))
		if (json_type(m) == JSON_ARRAY &&
		    json_type(json_first(m)) == JSON_OBJECT) {
			add_rows(out, m);
			arrays = 1;
		}
	if (!arrays)
		add_line(out, j);
}

/* The end of an array's element, good or bad: its comma or bracket. */
static const char *row_end(const char *p, const char *end)
{
	size_t depth = 0;
	int quoted = 0;

	for (; p < end; p++) {
		if (quoted) {
			if (*p == '\\')
				p += p + 1 < end;
			else if (*p == '"')
				quoted = 0;
		} else if (*p == '"') {
			quoted = 1;
		} else if (*p == '{' || *p == '[') {
			depth++;
		} else if (depth ? *p == '}' || *p == ']' :
			   *p == ',' || *p == ']') {
			if (!depth)
				break;
			depth--;
		}
	}
	return p;
}

/* What is no JSON becomes a line as it came, for whoever reads it to answer. */
static void add_text(struct str *out, const char *p, const char *end)
{
	struct json *j = json_parse(p, (size_t)(end - p), JSON_MAX_FILE, NULL,
				    NULL);

	if (j) {
		add_line(out, j);
	} else {
		for (; p < end; p++)
			str_addc(out, *p == '\n' ? ' ' : *p);
		str_addc(out, '\n');
	}
	json_free(j);
}

/* The rows of an array that is not all JSON, p behind its bracket; one that is
 * not ended, and what follows its end, is a bad line more. */
static void salvage(struct str *out, const char *p, const char *end)
{
	const char *to;

	for (p = scan_space(p, end); p < end && *p != ']';
	     p = scan_space(to + (to < end && *to == ','), end)) {
		to = row_end(p, end);
		add_text(out, p, to);
	}
	if (p == end)
		str_adds(out, "[\n");
	else if ((p = scan_space(p + 1, end)) < end)
		add_text(out, p, end);
}

static int is_parquet(const struct str *s)
{
	return s->len > 8 && memcmp(s->buf, "PAR1", 4) == 0;
}

static int from_parquet(const struct str *s, struct str *out, struct err *e)
{
	char python[CA_PATH_MAX], script[CA_PATH_MAX];
	const char *argv[] = { python, "-I", script, NULL };
	struct str said = STR_INIT;
	struct child_opts o = { .argv = argv, .in = s->buf, .inlen = s->len,
				.out = out, .errout = &said,
				.outcap = 4 * JSON_MAX_FILE,
				.deadline = deadline_in(PARQUET_SECONDS) };
	struct child_result r;
	int rc = -1;

	if (path_python(python, e) == 0 &&
	    path_lib(script, "torch/parquet.py", e) == 0 &&
	    child_run(&o, &r, e) == 0) {
		rc = r.how == CHILD_EXITED && r.code == 0 ? 0 :
		     err_set(e, r.code == CA_DATAERR ? CA_DATAERR :
			     CA_UNAVAILABLE, "cannot read Parquet: %.200s",
			     said.len ? said.buf : "no answer");
	}
	str_release(&said);
	return rc;
}

/* The rows of what was read; 1: it is lines already. */
static int convert(const struct str *s, const char *path, struct str *out,
		   struct err *e)
{
	size_t skip = s->len ? strspn(s->buf, " \t\r\n") : 0;
	struct json *j;

	if (is_parquet(s))
		return from_parquet(s, out, e);
	if (skip == s->len)
		return 0;
	if (s->buf[skip] != '{' && s->buf[skip] != '[')
		return err_set(e, CA_DATAERR, "'%s' holds no rows: neither "
			       "JSON nor Parquet", path);
	j = json_parse(s->buf, s->len, JSON_MAX_FILE, NULL, NULL);
	if (!j && s->buf[skip] == '{')
		return 1;
	if (j)
		add_rows(out, j);
	else
		salvage(out, s->buf + skip + 1, s->buf + s->len);
	json_free(j);
	return out->failed ? err_set(e, CA_SOFTWARE, "out of memory") : 0;
}

static int as_descriptor(const struct str *s, struct err *e)
{
	int fd = memfd_create("cuda-agent-rows", MFD_CLOEXEC);

	if (fd < 0)
		return err_sys(e, CA_UNAVAILABLE, "cannot make a memfd");
	if ((s->len && write_full(fd, s->buf, s->len, e)) ||
	    lseek(fd, 0, SEEK_SET) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

int rows_open(const char *path, struct err *e)
{
	struct str s = STR_INIT, out = STR_INIT;
	int fd = open_input(path, e), rc, rows = -1;

	if (fd < 0)
		return -1;
	out.cap = 4 * JSON_MAX_FILE;
	if (slurp(fd, path, &s, e) == 0) {
		rc = convert(&s, path, &out, e);
		if (rc >= 0)
			rows = as_descriptor(rc ? &s : &out, e);
	}
	close(fd);
	str_release(&s);
	str_release(&out);
	return rows;
}
