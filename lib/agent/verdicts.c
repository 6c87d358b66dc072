/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/verdicts.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "rec/status.h"
#include "reward/reward.h"

static const char *const fields[] = { "build", "verify", "profile" };

#define FIELDS (sizeof(fields) / sizeof(*fields))

/* 0; -1 when the record has no id that could be a name. */
static int path_of(const char *dir, const char *how, const struct rec *r,
		   char path[CA_PATH_MAX])
{
	size_t len;
	const char *id = rec_text(r, "id", &len);
	int n;

	if (!id || len != REC_ID_LEN + 1 || id[0] != '"' ||
	    strcspn(id, "/.") < len)
		return -1;
	n = snprintf(path, CA_PATH_MAX, "%s/%.*s.%s", dir, (int)len - 2,
		     id + 1, how);
	return n < CA_PATH_MAX ? 0 : -1;
}

static int offer(const char *path, struct rec *r, struct err *e)
{
	struct str s = STR_INIT;
	struct rec was;
	size_t at, len;
	int rc = 0;

	rec_init(&was);
	/* One that cannot be read is as good as none. */
	if (!read_file(path, JSON_MAX_LINE, &s, NULL) && s.len &&
	    !rec_parse(&was, s.buf, s.len - 1, &at, NULL))
		for (size_t i = 0; i < FIELDS && !rc; i++) {
			const char *text = rec_text(&was, fields[i], &len);

			rc = text ? rec_set(r, fields[i], text, len) : 0;
		}
	rec_release(&was);
	str_release(&s);
	return rc ? err_set(e, CA_SOFTWARE, "out of memory") :
	       rec_refresh(r, e);
}

int verdicts_offer(const char *dir, const char *how, struct rec *r,
		   struct err *e)
{
	char path[CA_PATH_MAX];

	if (!dir)
		return 0;
	if (rec_true_ids(r) || rec_refresh(r, e))
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (path_of(dir, how, r, path) || access(path, F_OK))
		return 0;
	return offer(path, r, e);
}

/* A fault of ours, or of the moment, is nobody's verdict. */
static int says_something(const struct rec *r)
{
	const char *word = json_get_str(rec_get(r, "verify"), "status", "");
	const struct json *p = rec_get(r, "profile");
	enum status s = status_parse(word);

	return s != ST_NONE && s != ST_INFRA_ERROR &&
	       status_parse(json_get_str(p, "status", NULL)) !=
	       ST_INFRA_ERROR && !json_get_bool(p, "contended", 0) &&
	       strcmp(json_get_str(p, "status", ""), "inconclusive_time");
}

int verdicts_keep(const char *dir, const char *how, struct rec *r,
		  struct err *e)
{
	char path[CA_PATH_MAX];
	struct str s = STR_INIT;
	int rc = 0;

	if (!dir)
		return 0;
	if (rec_refresh(r, e))
		return -1;
	if (!says_something(r) || path_of(dir, how, r, path))
		return 0;
	if (rec_write(r, &s) || str_addc(&s, '\n'))
		rc = err_set(e, CA_SOFTWARE, "out of memory");
	else
		rc = write_file_atomic(path, s.buf, s.len, 0644, e);
	str_release(&s);
	return rc;
}
