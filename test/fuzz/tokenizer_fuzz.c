/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json, then a text: the input up to its first LF is the file, the
 * rest is encoded and decoded again.  With a whole alphabet of bytes and no
 * stripping the text would come back; here ids have to be in range.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "nn/tok.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int is_utf8(const char *p, size_t len)
{
	size_t n;

	for (size_t i = 0; i < len; i += n)
		if (!(n = utf8_len(p + i, len - i)))
			return 0;
	return 1;
}

static void encode(struct tok *t, const char *p, size_t len)
{
	struct tok_ids ids = TOK_IDS_INIT;
	struct str back = STR_INIT;
	struct err e = ERR_INIT;

	/* Each match of a bad pattern may take its whole limit. */
	if (len > 16)
		len = 0;
	if (!tok_encode(t, p, len, TOK_TEMPLATE, &ids, &e)) {
		for (size_t i = 0; i < ids.n; i++)
			if (ids.id[i] < 0 || ids.id[i] >= tok_count(t))
				abort();
		if (tok_decode(t, ids.id, ids.n, 0, &back))
			abort();
	} else if (!*e.msg) {
		abort();
	}
	tok_ids_release(&ids);
	str_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *all = (const char *)data;
	const char *lf = size ? memchr(all, '\n', size) : NULL;
	size_t len = lf ? (size_t)(lf - all) : size;
	char *text = malloc(size - len + 1);
	struct err e = ERR_INIT;
	struct tok *t = tok_parse(all, len, &e);

	if (!t && !*e.msg)
		abort();
	if (lf)
		memcpy(text, lf + 1, size - len - 1);
	if (t && lf && is_utf8(text, size - len - 1))
		encode(t, text, size - len - 1);
	tok_free(t);
	free(text);
	return 0;
}
