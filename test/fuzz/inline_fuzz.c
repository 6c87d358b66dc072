/* SPDX-License-Identifier: Apache-2.0
 *
 * What a dry run says, and pairs: nothing of it is trusted.
 */
#include <stdlib.h>
#include <string.h>

#include "build/inline.h"
#include "build/pairs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whether a path leaves its tree; "a..b" is a name. */
static int leaves(const char *path)
{
	size_t n = strlen(path);

	return path[0] == '/' || !strncmp(path, "../", 3) ||
		strstr(path, "/../") || !strcmp(path, "..") ||
		(n > 2 && !strcmp(path + n - 3, "/.."));
}

static void as_requests(const char *text, size_t len)
{
	struct source_file own = { "kernels/a.cu", "x", 1, 0 };
	struct source_tree tree = { &own, 1 };
	struct json *j = json_parse(text, len, JSON_MAX_LINE, NULL, NULL);
	struct arena a = ARENA_INIT;
	struct err e = ERR_INIT;
	struct exts *x = calloc(1, sizeof(*x));
	const char *why;
	size_t i, k;

	if (!x)
		abort();
	if (j && inline_read(j, &tree, &a, x, &why, &e) == 0) {
		if (x->n > EXT_MAX)
			abort();
		for (i = 0; i < x->n; i++)
			for (k = 0; k < x->v[i].n; k++)
				if (leaves(x->v[i].path[k]))
					abort();
	}
	free(x);
	arena_release(&a);
	json_free(j);
}

static void as_pair(const char *text, size_t len)
{
	struct err e = ERR_INIT;
	struct rec r;

	rec_init(&r);
	if (pairs_adopt(text, len, &r, &e) == 0 &&
	    (r.kind != REC_CANDIDATE || rec_tree(&r, &e)))
		abort();
	rec_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	as_requests((const char *)data, size);
	as_pair((const char *)data, size);
	return 0;
}
