/* SPDX-License-Identifier: Apache-2.0
 *
 * What the judge remembers of tasks between runs.
 */
#include "judge/memo.h"

#include <stdio.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/path.h"

#define MEMO_VERSION "1"
#define MEMO_PATH (CA_PATH_MAX + HASH_HEX + 8)

static int memo_path(struct judge *j, const char *kind, const char *task,
		     const char *more, char out[MEMO_PATH])
{
	char dir[CA_PATH_MAX], name[HASH_HEX];
	struct str key = STR_INIT;
	int rc = -1;

	str_addf(&key, "%s|%s|%s|%s|%s|%s", MEMO_VERSION, task, j->dev->name,
		 j->dev->model, torch_version(j->host), more);
	if (!key.failed && !path_cache(dir, kind, NULL)) {
		sha256_hex(key.buf, key.len, name);
		snprintf(out, MEMO_PATH, "%s/%s.json", dir, name);
		rc = 0;
	}
	str_release(&key);
	return rc;
}

struct json *memo_get(struct judge *j, const char *kind, const char *task,
		      const char *more)
{
	struct str s = STR_INIT;
	struct json *root = NULL;
	char path[MEMO_PATH];

	if (!memo_path(j, kind, task, more, path) && !access(path, R_OK) &&
	    !read_file(path, JSON_MAX_LINE, &s, NULL)) {
		root = json_parse(s.buf, s.len, JSON_MAX_LINE, NULL, NULL);
		if (!root)
			mention("'%s' is damaged: it is found out anew", path);
	}
	str_release(&s);
	return root;
}

void memo_put(struct judge *j, const char *kind, const char *task,
	      const char *more, const struct str *json)
{
	char path[MEMO_PATH];

	struct err e = ERR_INIT;

	if (!json->failed && !memo_path(j, kind, task, more, path) &&
	    write_file_atomic(path, json->buf, json->len, 0644, &e))
		mention("not remembered: %s", e.msg);
}
