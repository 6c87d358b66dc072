/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories out of records.
 */
#define _GNU_SOURCE
#include "build/unpack.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/path.h"
#include "build/workdir.h"

#define NAME_LEN 100		/* of a directory, without what is appended */

struct unpack {
	char dir[CA_PATH_MAX];
	char path[CA_PATH_MAX + 256];
	char **name;
	size_t n, alloc;
};

struct unpack *unpack_new(const char *dir, struct err *e)
{
	struct unpack *u;

	if (strlen(dir) >= CA_PATH_MAX) {
		err_set(e, CA_USAGE, "'%s' is too long a name", dir);
		return NULL;
	}
	if (mkdir_p(dir, 0755, e) < 0)
		return NULL;
	u = calloc(1, sizeof(*u));
	if (!u) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	strcpy(u->dir, dir);
	return u;
}

void unpack_free(struct unpack *u)
{
	size_t i;

	for (i = 0; u && i < u->n; i++)
		free(u->name[i]);
	if (u)
		free(u->name);
	free(u);
}

/* A name that is one path component and no hidden one. */
static void clean(const char *s, char out[NAME_LEN + 1])
{
	size_t i;

	for (i = 0; s[i] && i < NAME_LEN; i++) {
		unsigned char c = (unsigned char)s[i];

		out[i] = (c < 0x80 && isalnum(c)) || strchr("._-", c) ?
			 (char)c : '_';
	}
	out[i] = '\0';
	if (out[0] == '.')
		out[0] = '_';
}

static int taken(const struct unpack *u, const char *name)
{
	size_t i;

	for (i = 0; i < u->n; i++)
		if (strcmp(u->name[i], name) == 0)
			return 1;
	return 0;
}

static int remember(struct unpack *u, const char *name, struct err *e)
{
	char **v;

	if (u->n == u->alloc) {
		v = realloc(u->name, (u->alloc + 64) * sizeof(*v));
		if (!v)
			return err_set(e, CA_SOFTWARE, "out of memory");
		u->name = v;
		u->alloc += 64;
	}
	u->name[u->n] = strdup(name);
	if (!u->name[u->n])
		return err_set(e, CA_SOFTWARE, "out of memory");
	u->n++;
	return 0;
}

static int choose_name(struct unpack *u, const struct rec *r, char out[256],
		       struct err *e)
{
	const char *name = json_str(rec_get(r, "name"), "");
	const char *id = json_str(rec_get(r, "id"), "");
	char base[NAME_LEN + 1], tail[NAME_LEN + 1];
	size_t n;
	int k;

	clean(*name ? name : *id ? id : "record", base);
	clean(id, tail);
	snprintf(out, 256, "%s", base);
	if (*tail && strcmp(base, tail) != 0 && taken(u, out))
		snprintf(out, 256, "%s-%.8s", base, tail);
	n = strlen(out);
	for (k = 2; taken(u, out) && k < 1000000; k++)
		snprintf(out + n, 256 - n, "-%d", k);
	return remember(u, out, e);
}

/* The candidate of a trajectory that is worth having. */
static const struct json *best_candidate(const struct rec *r)
{
	const struct json *all = rec_get(r, "evaluations"), *m;
	const struct json *best = json_path(rec_get(r, "outcome"),
					    "best.selected");
	const char *id = json_str(best, json_get_str(best, "id", ""));
	const struct json *found = NULL, *c;

	for (m = json_first(all); m; m = json_next(m)) {
		c = json_get(m, "candidate");
		if (json_type(c) != JSON_OBJECT)
			continue;
		found = c;
		if (*id && strcmp(json_get_str(c, "id", ""), id) == 0)
			break;
	}
	return found;
}

const char *unpack_record(struct unpack *u, const struct rec *r,
			  struct err *e)
{
	const struct json *files = rec_get(r, "files");
	const char *code = workdir_code(r);
	char name[256];

	if (r->kind == REC_TRAJECTORY)
		files = json_get(best_candidate(r), "files");
	else if (r->kind == REC_TASK)
		files = NULL;
	else if (r->kind != REC_CANDIDATE) {
		err_set(e, CA_DATAERR, "a record of kind '%s' has no workdir",
			rec_kind_name(r->kind));
		return NULL;
	}
	if (choose_name(u, r, name, e) < 0)
		return NULL;
	snprintf(u->path, sizeof(u->path), "%s/%s", u->dir, name);
	if (workdir_write(code, files, u->path, e) < 0) {
		err_wrap(e, "%s", name);
		return NULL;
	}
	return u->path;
}
