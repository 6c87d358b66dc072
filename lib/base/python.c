/* SPDX-License-Identifier: Apache-2.0
 *
 * Which Python has torch.  Asking one takes a process of its own, so answers
 * are kept: a file for each interpreter, with the folders that it imports
 * from and their times of change.
 */
#define _GNU_SOURCE
#include "base/path.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/child.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/str.h"

#define ANSWER_MAX ((size_t)64 << 10)
#define PROBE_SECONDS 20

/* Prints torch's folder, or an empty line when there is none in the tested
 * range (the arguments), then every folder of the search path. */
static const char probe_py[] =
	"import sys\n"
	"low, high = ([int(n) for n in a.split('.')] for a in sys.argv[1:])\n"
	"import importlib.util, os, re\n"
	"s = importlib.util.find_spec('torch')\n"
	"d = os.path.dirname(s.origin) if s and s.origin else ''\n"
	"try:\n"
	"    v = re.search(r'__version__ = .(\\d+)\\.(\\d+)\\.(\\d+)',\n"
	"        open(os.path.join(d, 'version.py')).read())\n"
	"    if not low <= [int(n) for n in v.groups()] <= high:\n"
	"        d = ''\n"
	"except (OSError, AttributeError):\n"
	"    d = ''\n"
	"print(d)\n"
	"print('\\n'.join(sys.path))\n";

/* -1 where there is nothing. */
static int64_t changed_at(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return -1;
	return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

/* Where the answer of this interpreter is kept; the environment that changes
 * its search path is part of the name. */
static int answer_file(const char *python, char out[CA_PATH_MAX])
{
	static const char *const vars[] = { "PYTHONPATH", "PYTHONHOME",
					    "HOME" };
	char name[64], real[PATH_MAX], sum[HASH_HEX];
	uint8_t raw[HASH_LEN];
	int64_t at = changed_at(python);
	struct hash *h = hash_new();
	size_t i;

	if (!h)
		return -1;
	if (!realpath(python, real))
		real[0] = '\0';
	hash_part(h, python, strlen(python));
	hash_part(h, real, strlen(real));
	hash_part(h, &at, sizeof at);
	hash_part(h, CA_TORCH_LOW "-" CA_TORCH_HIGH,
		  strlen(CA_TORCH_LOW "-" CA_TORCH_HIGH));
	for (i = 0; i < sizeof vars / sizeof *vars; i++) {
		const char *v = getenv(vars[i]);

		hash_part(h, v ? v : "", v ? strlen(v) : 0);
	}
	hash_end(h, raw);
	hex(raw, sizeof raw, sum);
	snprintf(name, sizeof name, "python-%.16s", sum);
	if (path_cache(out, NULL, NULL) || strlen(out) + 32 > CA_PATH_MAX)
		return -1;
	strcat(out, "/");
	strcat(out, name);
	return 0;
}

/* Takes the first line of s off; NULL at the end. */
static char *next_line(char **s)
{
	char *line = *s, *end;

	if (!line || !*line)
		return NULL;
	end = strchr(line, '\n');
	if (end)
		*end = '\0';
	*s = end ? end + 1 : NULL;
	return line;
}

/* The kept answer, when all folders are as they were.  0 or -1. */
static int recall(const char *file, char torch[CA_PATH_MAX])
{
	struct str s = STR_INIT;
	char *rest, *line;
	int rc = -1;

	if (read_file(file, ANSWER_MAX, &s, NULL) || !s.buf)
		goto out;
	rest = s.buf;
	line = next_line(&rest);
	if (!line || strlen(line) >= CA_PATH_MAX)
		goto out;
	strcpy(torch, strcmp(line, "-") == 0 ? "" : line);
	while ((line = next_line(&rest))) {
		char *dir;
		int64_t at = strtoll(line, &dir, 10);

		if (*dir != ' ' || changed_at(dir + 1) != at)
			goto out;
	}
	rc = 0;
out:
	str_release(&s);
	return rc;
}

/* Keeps an answer; where that is not possible, it is asked again next time. */
static void keep(const char *file, const char *torch, char *dirs)
{
	struct str s = STR_INIT;
	char *line;

	str_addf(&s, "%s\n", *torch ? torch : "-");
	while ((line = next_line(&dirs)))
		str_addf(&s, "%" PRId64 " %s\n", changed_at(line), line);
	if (!s.failed)
		write_file_atomic(file, s.buf, s.len, 0644, NULL);
	str_release(&s);
}

/* Asks the interpreter itself; torch is empty when it has none.  -I, as
 * the host is run: never anything of the working directory. */
static int ask(const char *python, const char *file, char torch[CA_PATH_MAX])
{
	const char *argv[] = { python, "-I", "-c", probe_py, CA_TORCH_LOW,
			       CA_TORCH_HIGH, NULL };
	struct str out = STR_INIT;
	struct child_opts o = { .argv = argv, .out = &out,
				.outcap = ANSWER_MAX,
				.deadline = deadline_in(PROBE_SECONDS) };
	struct child_result r;
	char *rest, *line;
	int rc = -1;

	if (child_run(&o, &r, NULL) || r.how != CHILD_EXITED || r.code ||
	    !out.buf)
		goto out;
	rest = out.buf;
	line = next_line(&rest);
	if (!line || strlen(line) >= CA_PATH_MAX)
		goto out;
	strcpy(torch, line);
	if (file)
		keep(file, torch, rest);
	rc = 0;
out:
	str_release(&out);
	return rc;
}

/* Whether any user may reach path: every folder above lets others pass. */
static int open_to_all(const char *path)
{
	char real[PATH_MAX], *slash;
	struct stat st;

	if (!realpath(path, real) || stat(real, &st) ||
	    (st.st_mode & 05) != 05)
		return 0;
	while ((slash = strrchr(real, '/')) && slash != real) {
		*slash = '\0';
		if (stat(real, &st) || !(st.st_mode & 01))
			return 0;
	}
	return 1;
}

/* What an interpreter is worth: 0 no torch, 1 torch, 2 torch that workers
 * can read too once they have dropped root. */
static int rate(const char *python)
{
	char file[CA_PATH_MAX], torch[CA_PATH_MAX];
	int kept;

	if (access(python, X_OK))
		return 0;
	kept = answer_file(python, file) == 0;
	if ((!kept || recall(file, torch)) &&
	    ask(python, kept ? file : NULL, torch))
		return 0;
	if (!*torch)
		return 0;
	return geteuid() || (open_to_all(python) && open_to_all(torch)) ? 2 : 1;
}

/* Keeps the better of best and this one. */
static void consider(const char *python, char best[CA_PATH_MAX], int *score)
{
	int n = *score == 2 ? 0 : rate(python);

	if (n > *score) {
		*score = n;
		strcpy(best, python);
	}
}

static void consider_path(char best[CA_PATH_MAX], int *score)
{
	const char *p = getenv("PATH");
	char python[CA_PATH_MAX];

	while (p && *p) {
		size_t n = strcspn(p, ":");

		if (n && n < sizeof python - 16) {
			memcpy(python, p, n);
			strcpy(python + n, "/python3");
			consider(python, best, score);
		}
		p += n + (p[n] == ':');
	}
}

/*
 * By its directory's true name: jails show what Python loads under that, not a
 * link to it that lies below /tmp.  The last part may be a link that Python
 * finds its environment by.
 */
static void straighten(char path[CA_PATH_MAX])
{
	char real[PATH_MAX], whole[PATH_MAX + CA_PATH_MAX];
	char *last = strrchr(path, '/');

	if (!last || last == path)
		return;
	*last = '\0';
	if (realpath(path, real)) {
		snprintf(whole, sizeof whole, "%s/%s", real, last + 1);
		if (strlen(whole) < CA_PATH_MAX) {
			strcpy(path, whole);
			return;
		}
	}
	*last = '/';
}

int path_python(char out[CA_PATH_MAX], struct err *e)
{
	const char *env = getenv("CA_PYTHON");
	char venv[CA_PATH_MAX], best[CA_PATH_MAX];
	int score = 0;

	if (env && *env) {
		if (access(env, X_OK))
			return err_sys(e, CA_UNAVAILABLE,
				       "cannot run CA_PYTHON '%s'", env);
		if ((size_t)snprintf(out, CA_PATH_MAX, "%s", env) >=
		    CA_PATH_MAX)
			return err_set(e, CA_CONFIG, "CA_PYTHON is too long");
		straighten(out);
		return 0;
	}
	consider_path(best, &score);
	if (path_cache(venv, NULL, NULL) == 0 &&
	    strlen(venv) + 32 < sizeof venv) {
		strcat(venv, "/venv/bin/python3");
		consider(venv, best, &score);
	}
	if (!score)
		return err_set(e, CA_UNAVAILABLE,
			       "no python3 with torch " CA_TORCH_LOW " to "
			       CA_TORCH_HIGH ": run 'make deps' or set "
			       "CA_PYTHON");
	strcpy(out, best);
	straighten(out);
	return 0;
}
