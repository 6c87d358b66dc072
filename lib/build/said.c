/* SPDX-License-Identifier: Apache-2.0
 *
 * Dry runs, remembered.
 */
#include "build/said.h"

#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/opt.h"
#include "base/path.h"
#include "build/toolchain.h"

#define SAID_MAX ((size_t)12 << 20)
#define SOURCE_MAX ((size_t)1 << 20)

static void add(struct hash *h, const char *text)
{
	hash_part(h, text, strlen(text));
}

/* The toolkit's own part in it. */
static int add_sources(struct hash *h)
{
	static const char *const name[] = { "torch/record.py",
					    "torch/inline.py",
					    "torch/shim.py" };
	int rc = 0;

	for (size_t i = 0; i < sizeof(name) / sizeof(*name) && !rc; i++) {
		char path[CA_PATH_MAX];
		struct str s = STR_INIT;

		rc = path_lib(path, name[i], NULL) ||
		     read_file(path, SOURCE_MAX, &s, NULL);
		if (!rc)
			hash_part(h, s.buf ? s.buf : "", s.len);
		str_release(&s);
	}
	return rc;
}

int said_key(const struct record_job *j, char key[CACHE_KEY])
{
	struct toolchain t;
	uint8_t sum[HASH_LEN];
	struct hash *h;
	int rc;

	if (toolchain_find(TOOLCHAIN_TORCH, &t, NULL) < 0)
		return -1;
	h = hash_new();
	if (!h)
		return -1;
	add(h, "ca-dry-run 1");
	add(h, ca_version);
	add(h, t.id);
	rc = add_sources(h);
	add(h, j->task);
	add(h, j->code);
	add(h, j->cuda ? j->arch : "cpu");
	add(h, j->no_jail ? "" : "jailed");
	hash_end(h, sum);
	hex(sum, sizeof(sum), key);
	return rc;
}

struct json *said_get(const char *key)
{
	char path[CA_PATH_MAX];
	struct str s = STR_INIT;
	struct json *said = NULL;

	if (cache_get(key, path, NULL, NULL) > 0 &&
	    !read_file(path, SAID_MAX, &s, NULL) && s.len)
		said = json_parse(s.buf, s.len, SAID_MAX, NULL, NULL);
	str_release(&s);
	return said;
}

void said_put(const char *key, const struct json *said)
{
	char path[CA_PATH_MAX];
	struct str s = STR_INIT;
	struct jw w;

	if (!json_first(json_get(said, "requests")) ||
	    json_get_str(said, "error", NULL) ||
	    json_get_str(said, "refused", NULL))
		return;
	jw_init(&w, &s);
	jw_node(&w, said);
	/* Where nothing can be kept it is found out again. */
	if (!s.failed)
		(void)cache_put(key, s.buf, s.len, "\"form\":\"dry run\"",
				path, NULL);
	str_release(&s);
}
