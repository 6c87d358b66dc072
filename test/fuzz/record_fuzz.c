/* SPDX-License-Identifier: Apache-2.0
 *
 * Records: an accepted line passes unchanged, and with members set and
 * dropped it is still a record that holds what was set.
 */
#include <stdlib.h>
#include <string.h>

#include "rec/rec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int yes)
{
	if (!yes)
		abort();
}

static void unchanged(const struct rec *r)
{
	struct str s = STR_INIT;

	require(rec_write(r, &s) == 0);
	require(s.len == r->len && memcmp(s.buf, r->line, s.len) == 0);
	str_release(&s);
}

/* Drops one member, sets one that is there and one that is not. */
static void changed(struct rec *r, size_t pick)
{
	char key[64] = "fresh";
	struct err e = ERR_INIT;
	const struct scan_member *m;
	size_t n = r->top.n;

	m = &r->top.member[pick % n];
	if (m->keylen < sizeof key && m->keylen) {
		memcpy(key, m->key, m->keylen);
		key[m->keylen] = '\0';
	}
	require(rec_drop(r, "gone") == 0);
	require(rec_set(r, key, "[1]", 3) == 0);
	require(rec_set(r, "added", "{\"a\":2}", 7) == 0);
	require(rec_set(r, "kind", "\"task\"", 6) == 0);
	require(rec_set(r, "v", "1", 1) == 0);
	require(rec_refresh(r, &e) == 0);
	require(r->kind == REC_TASK);
	require(!rec_get(r, "gone") || strcmp(key, "gone") == 0);
	require(json_get_int(rec_get(r, "added"), "a", 0) == 2 ||
		strcmp(key, "added") == 0);
	if (strcmp(key, "kind") && strcmp(key, "v") && strcmp(key, "gone") &&
	    strcmp(key, "added"))
		require(json_len(rec_get(r, key)) == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size ? size : 1);
	struct err e = ERR_INIT;
	struct rec r;
	size_t at = 0;

	if (size)
		memcpy(text, data, size);
	rec_init(&r);
	if (rec_parse(&r, text, size, &at, &e) == 0) {
		unchanged(&r);
		changed(&r, size);
	} else {
		require(e.code == CA_DATAERR && at >= 1 && at <= size + 1);
	}
	rec_release(&r);
	free(text);
	return 0;
}
