/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON wall: what it accepts, cJSON reads as the same value, and what it
 * refuses has a place inside the text.
 */
#include <stdlib.h>
#include <string.h>

#include "rec/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The tree printed and read again must print the same. */
static void round_trip(const struct json *j)
{
	struct str a = STR_INIT, b = STR_INIT;
	struct err e = ERR_INIT;
	struct json *again;
	struct jw w;

	jw_init(&w, &a);
	jw_node(&w, j);
	again = json_parse(a.buf, a.len, JSON_MAX_FILE, NULL, &e);
	if (!again)
		abort();
	jw_init(&w, &b);
	jw_node(&w, again);
	if (a.len != b.len || memcmp(a.buf, b.buf, a.len) != 0)
		abort();
	json_free(again);
	str_release(&a);
	str_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Exactly as long as it is, so that a byte too far is seen. */
	char *text = malloc(size ? size : 1);
	struct err e = ERR_INIT;
	struct json *j;
	size_t at = 0;

	if (size)
		memcpy(text, data, size);
	j = json_parse(text, size, JSON_MAX_LINE, &at, &e);
	if (j)
		round_trip(j);
	else if (e.code != CA_DATAERR || at < 1 || at > size + 1 || !*e.msg)
		abort();
	json_free(j);
	free(text);
	return 0;
}
