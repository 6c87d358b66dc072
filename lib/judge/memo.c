/* SPDX-License-Identifier: Apache-2.0
 *
 * What the judge remembers of tasks between runs.
 */
#include "judge/memo.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/path.h"

#define MEMO_VERSION "2"
#define MEMO_PATH (CA_PATH_MAX + HASH_HEX + 8)
#define MEMO_MAC (sizeof("{\"mac\":\"\"}\n") - 1 + HASH_HEX - 1)

/* What a file is about, and where it is. */
struct memo {
	struct str key;
	char path[MEMO_PATH];
};

static int find(struct judge *j, const char *kind, const char *task,
		const char *more, struct memo *p)
{
	char dir[CA_PATH_MAX], name[HASH_HEX];

	memset(p, 0, sizeof(*p));
	/* All GPUs of one model share it. */
	str_addf(&p->key, "%s|%s|%s|%.*s|%s|%s|%s", MEMO_VERSION, kind, task,
		 (int)strcspn(j->dev->name, ":"), j->dev->name,
		 j->dev->model, torch_version(j->host), more);
	if (p->key.failed || path_cache(dir, kind, NULL))
		return -1;
	sha256_hex(p->key.buf, p->key.len, name);
	snprintf(p->path, MEMO_PATH, "%s/%s.json", dir, name);
	return 0;
}

/* The second line: that the first one is ours, and about this. */
static int sign(const struct judge *j, const struct memo *p,
		const char *known, size_t len, char out[MEMO_MAC + 1])
{
	uint8_t sum[HASH_LEN];
	char text[HASH_HEX];
	struct str s = STR_INIT;
	int rc;

	str_addf(&s, "%s\n", p->key.buf);
	str_add(&s, known, len);
	rc = s.failed ? -1 : 0;
	if (!rc) {
		hmac_sha256(j->key.bytes, sizeof(j->key.bytes), s.buf, s.len,
			    sum);
		hex(sum, HASH_LEN, text);
		snprintf(out, MEMO_MAC + 1, "{\"mac\":\"%s\"}\n", text);
	}
	str_release(&s);
	return rc;
}

static struct json *read_signed(const struct judge *j, const struct memo *p,
				const struct str *s)
{
	const char *nl = s->len ? memchr(s->buf, '\n', s->len) : NULL;
	size_t len = nl ? (size_t)(nl - s->buf) : 0;
	char mac[MEMO_MAC + 1];

	if (!nl || s->len - len - 1 != MEMO_MAC ||
	    sign(j, p, s->buf, len, mac) ||
	    !hash_equal(nl + 1, mac, MEMO_MAC))
		return NULL;
	return json_parse(s->buf, len, JSON_MAX_LINE, NULL, NULL);
}

struct json *memo_get(struct judge *j, const char *kind, const char *task,
		      const char *more)
{
	struct str s = STR_INIT;
	struct json *root = NULL;
	struct memo p;

	if (!find(j, kind, task, more, &p) && !access(p.path, F_OK)) {
		if (!read_file(p.path, JSON_MAX_LINE, &s, NULL))
			root = read_signed(j, &p, &s);
		if (!root)
			mention("'%s' is damaged, or another key signed it: "
				"it is found out anew", p.path);
	}
	str_release(&s);
	str_release(&p.key);
	return root;
}

void memo_put(struct judge *j, const char *kind, const char *task,
	      const char *more, const struct str *json)
{
	struct err e = ERR_INIT;
	struct str s = STR_INIT;
	char mac[MEMO_MAC + 1];
	struct memo p;

	if (!json->failed && !find(j, kind, task, more, &p) &&
	    !sign(j, &p, json->buf, json->len, mac)) {
		str_add(&s, json->buf, json->len);
		str_addc(&s, '\n');
		str_adds(&s, mac);
		if (s.failed ||
		    write_file_atomic(p.path, s.buf, s.len, 0644, &e))
			mention("not remembered: %s",
				s.failed ? "out of memory" : e.msg);
	}
	str_release(&s);
	str_release(&p.key);
}
