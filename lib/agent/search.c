/* SPDX-License-Identifier: Apache-2.0
 *
 * ripgrep runs in a jail that shows the work directory read-only, so that
 * links lead nowhere, whoever changes them meanwhile.
 */
#define _GNU_SOURCE
#include "agent/search.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/files.h"
#include "base/io.h"
#include "jail/command.h"

#define SECONDS 20
#define OUT_MAX ((size_t)16 << 20)
#define GLOB_MAX 100
#define GREP_MAX 250
#define LINE_MAX_CHARS 2000
#define SHOWN_BYTES 30000
#define ARGS 48

struct rg {
	const char *argv[ARGS];
	size_t n;
	char num[3][24];
};

static void arg(struct rg *r, const char *s)
{
	if (r->n < ARGS - 1)
		r->argv[r->n++] = s;
}

static void begin(struct rg *r)
{
	static const char *const fixed[] = {
		"rg", "--no-config", "--hidden", "--no-ignore", "--no-follow",
		"--color=never", "--no-messages", ("--glob=!/" PLACE_OUTPUT)
	};
	size_t i;

	memset(r, 0, sizeof(*r));
	for (i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
		arg(r, fixed[i]);
}

/* What ripgrep said, as a result of ours. */
static int outcome(const struct child_result *res, const struct str *out,
		   const struct str *said, struct err *e)
{
	if (res->how == CHILD_TIMEOUT)
		return err_set(e, CA_DATAERR, "the search took longer than "
			       "%d s", SECONDS);
	if (res->how == CHILD_OUTPUT)
		return 0;	/* cut below */
	if (res->how == CHILD_EXITED && res->code < 2)
		return res->code;
	if (res->how == CHILD_EXITED && out->len && !said->len)
		return 0;	/* some file could not be read */
	return err_set(e, CA_DATAERR, "%s", said->buf ? said->buf :
		       "the search failed");
}

/* Runs it in `dir` of a jail that shows the tree, read-only.  0, 1 nothing
 * found, -1. */
static int run(struct rg *r, const struct place *p, const char *dir,
	       struct str *out, struct err *e)
{
	const struct jail_at at[] = {
		{ p->path, PLACE_SHOWN, 0 }, { NULL, NULL, 0 }
	};
	char where[4200];
	struct jail_cmd c = { .level = JAIL_FULL, .at = at, .dir = where,
			      .no_user_files = 1 };
	struct str said = { .cap = 4096 };
	struct child_opts o = {
		.argv = r->argv, .out = out, .errout = &said,
		.outcap = OUT_MAX, .deadline = deadline_in(SECONDS)
	};
	struct child_result res;
	int rc = -1;

	snprintf(where, sizeof(where), "%s/%s", PLACE_SHOWN, dir);
	if (!jail_run(&c, &o, &res, e))
		rc = outcome(&res, out, &said, e);
	str_release(&said);
	return rc;
}

/* Where to search: `dir`, and in it `file` if that is all ("" if not). */
struct base {
	char dir[4096], file[256];
};

static int find_base(const struct place *p, const struct json *args,
		     struct base *b, struct err *e)
{
	const char *name = place_below(json_get_str(args, "path", "."), e);
	const char *slash;
	struct stat st;
	int fd;

	b->dir[0] = b->file[0] = '\0';
	if (!name)
		return -1;
	fd = place_file(p, name, O_PATH, 0, e);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st))
		memset(&st, 0, sizeof(st));
	close(fd);
	snprintf(b->dir, sizeof(b->dir), "%s", name);
	if (S_ISDIR(st.st_mode))
		return 0;
	if (!S_ISREG(st.st_mode))
		return err_set(e, CA_DATAERR, "'%s' is neither a file nor a "
			       "directory", name);
	slash = strrchr(name, '/');
	snprintf(b->file, sizeof(b->file), "%s", slash ? slash + 1 : name);
	b->dir[slash ? slash - name : 0] = '\0';
	return 0;
}

/* Appends up to `most` lines, each behind `prefix` and cut; what was left
 * out is told. */
static void add_lines(const struct str *in, const char *prefix, int64_t most,
		      const char *what, struct str *out)
{
	const char *p = in->buf, *end = p + in->len;
	size_t start = out->len;
	int64_t n = 0, left = 0;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t len = nl ? (size_t)(nl - p) : (size_t)(end - p), cut;

		if (n < most && out->len - start < SHOWN_BYTES) {
			if (len > 2 && p[0] == '.' && p[1] == '/') {
				p += 2;
				len -= 2;
			}
			cut = len > LINE_MAX_CHARS ?
				text_cut(p, LINE_MAX_CHARS) : len;
			str_adds(out, prefix);
			text_add(out, p, cut);
			str_adds(out, cut < len ? " [line cut]\n" : "\n");
			n++;
		} else {
			left++;
		}
		p += len + (nl != NULL);
	}
	if (left)
		str_addf(out, "(%lld more %s not shown)", (long long)left,
			 what);
	else if (n)
		out->buf[--out->len] = '\0';
}

static int answer(int rc, const struct str *found, const char *prefix,
		  int64_t most, const char *what, struct str *out,
		  const struct err *e)
{
	if (rc < 0) {
		str_addf(out, "Error: %s", e->msg);
		return 0;
	}
	if (rc || !found->len)
		str_addf(out, "No %s found", what);
	else
		add_lines(found, prefix, most, what, out);
	return 1;
}

/* "src/" where only a part was searched. */
static void prefix_of(const struct base *b, char *out, size_t len)
{
	size_t n = strlen(b->dir);

	while (n && b->dir[n - 1] == '/')
		n--;
	if (!n || !strcmp(b->dir, "."))
		*out = '\0';
	else
		snprintf(out, len, "%.*s/", (int)n, b->dir);
}

/* Runs it at the base, if there is one (rc), and tells what it found. */
static int search(struct rg *r, const struct place *p, const struct base *b,
		  int rc, int64_t most, const char *what, struct str *out,
		  struct err *e)
{
	struct str found = STR_INIT;
	char prefix[4100];

	if (!rc)
		rc = run(r, p, b->dir, &found, e);
	prefix_of(b, prefix, sizeof(prefix));
	rc = answer(rc, &found, prefix, most, what, out, e);
	str_release(&found);
	return rc;
}

int search_glob(const struct place *p, const struct json *args,
		struct str *out)
{
	struct err e = ERR_INIT;
	struct base b;
	struct rg r;
	int rc = find_base(p, args, &b, &e);

	begin(&r);
	arg(&r, "--files");
	arg(&r, "--sortr=modified");
	arg(&r, "--glob");
	arg(&r, json_get_str(args, "pattern", "*"));
	if (!rc && b.file[0])
		rc = err_set(&e, CA_DATAERR, "'%s' is not a directory",
			     b.file);
	return search(&r, p, &b, rc, GLOB_MAX, "files", out, &e);
}

static void flag_number(struct rg *r, const struct json *args,
			const char *name, int slot)
{
	int64_t v = json_get_int(args, name, -1);

	if (v < 0)
		return;
	snprintf(r->num[slot], sizeof(r->num[slot]), "%lld", (long long)v);
	arg(r, name);
	arg(r, r->num[slot]);
}

static void grep_args(struct rg *r, const struct json *args, const char *mode)
{
	const char *glob = json_get_str(args, "glob", NULL);
	const char *type = json_get_str(args, "type", NULL);

	if (mode[0] == 'c' && mode[2] == 'n') {		/* content */
		flag_number(r, args, "-A", 0);
		flag_number(r, args, "-B", 1);
		flag_number(r, args, "-C", 2);
		arg(r, json_get_bool(args, "-n", 0) ? "--line-number" :
						      "--no-line-number");
		arg(r, "--with-filename");
		arg(r, "--no-heading");
		arg(r, "--sort=path");
	} else if (mode[0] == 'c') {
		arg(r, "--count");
		arg(r, "--with-filename");
		arg(r, "--sort=path");
	} else {
		arg(r, "--files-with-matches");
		arg(r, "--sortr=modified");
	}
	if (json_get_bool(args, "-i", 0))
		arg(r, "--ignore-case");
	if (json_get_bool(args, "multiline", 0)) {
		arg(r, "--multiline");
		arg(r, "--multiline-dotall");
	}
	if (glob) {
		arg(r, "--glob");
		arg(r, glob);
	}
	if (type) {
		arg(r, "--type");
		arg(r, type);
	}
	arg(r, "--regexp");
	arg(r, json_get_str(args, "pattern", ""));
	arg(r, "--");
}

int search_grep(const struct place *p, const struct json *args,
		struct str *out)
{
	const char *mode = json_get_str(args, "output_mode",
					"files_with_matches");
	int content = !strcmp(mode, "content");
	struct err e = ERR_INIT;
	struct base b;
	struct rg r;
	int rc = find_base(p, args, &b, &e);

	begin(&r);
	grep_args(&r, args, mode);
	arg(&r, b.file[0] ? b.file : ".");
	return search(&r, p, &b, rc, json_get_int(args, "head_limit", GREP_MAX),
		      content ? "lines" : "matching files", out, &e);
}

int search_filter(const char *regex, const char *text, size_t len,
		  struct str *out, struct err *e)
{
	struct str said = { .cap = 4096 };
	struct child_opts o = { .in = text, .inlen = len, .out = out,
		.errout = &said, .dir = "/", .deadline = deadline_in(SECONDS) };
	struct child_result res;
	struct rg r;
	int rc = -1;

	begin(&r);
	arg(&r, "--no-line-number");
	arg(&r, "--no-filename");
	arg(&r, "--text");
	arg(&r, "--regexp");
	arg(&r, regex);
	arg(&r, "-");
	o.argv = r.argv;
	if (!child_run(&o, &res, e))
		rc = outcome(&res, out, &said, e);
	str_release(&said);
	return rc < 0 ? -1 : 0;
}
