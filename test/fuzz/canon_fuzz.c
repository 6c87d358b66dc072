/* SPDX-License-Identifier: Apache-2.0
 *
 * The canonical form: made of everything that the wall accepts, valid, its
 * own canonical form, and the same value as the text.
 */
#include <stdlib.h>
#include <string.h>

#include "rec/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int yes)
{
	if (!yes)
		abort();
}

/* Whether two trees hold the same, members in any order. */
static int same(const struct json *a, const struct json *b)
{
	const struct json *m, *n = json_first(b);

	if (json_type(a) != json_type(b) || json_len(a) != json_len(b))
		return 0;
	if (json_type(a) == JSON_STRING)
		return strcmp(json_str(a, ""), json_str(b, "")) == 0;
	if (json_num(a, 0) < json_num(b, 0) || json_num(a, 0) > json_num(b, 0))
		return 0;
	if (json_bool(a, 0) != json_bool(b, 0))
		return 0;
	for (m = json_first(a); m; m = json_next(m)) {
		if (json_type(a) == JSON_OBJECT)
			n = json_get(b, json_key(m));
		if (!n || !same(m, n))
			return 0;
		n = json_next(n);
	}
	return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str once = STR_INIT, twice = STR_INIT;
	struct err e = ERR_INIT;
	char *text = malloc(size ? size : 1);
	struct json *a, *b;

	if (size)
		memcpy(text, data, size);
	a = size > 1 << 16 ? NULL :
	    json_parse(text, size, JSON_MAX_LINE, NULL, &e);
	if (a) {
		require(json_canon(text, size, &once, &e) == 0);
		require(json_canon(once.buf, once.len, &twice, &e) == 0);
		require(once.len == twice.len &&
			memcmp(once.buf, twice.buf, once.len) == 0);
		b = json_parse(once.buf, once.len, JSON_MAX_LINE, NULL, &e);
		require(b && same(a, b));
		json_free(b);
	}
	json_free(a);
	str_release(&once);
	str_release(&twice);
	free(text);
	return 0;
}
