/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parser's process answers: trees, or nothing; similarity of a tree
 * to itself and to others stays between its bounds.
 */
#include <stdlib.h>
#include <string.h>

#include "ast/match.h"

#define NAMES 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int yes)
{
	if (!yes)
		abort();
}

static void compare(struct ast_store *s, const struct ast_doc *a,
		    const struct ast_doc *b)
{
	double v = ast_similarity(s, a, b);

	require(v <= 1 && v <= ast_bound(a, b) + 1e-4);
	require(v == ast_similarity(s, b, a));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[NAMES] = {
		"FunctionDef", "If", "Import", "Return", "Name", "Load",
		"Attribute.relu", "comprehension"
	};
	struct ast_store *s = ast_store_new();
	struct ast_doc a, an, b, bn;
	size_t half = size / 2;
	uint32_t label[NAMES];
	char *x, *y;

	/* Copies, so that reading beyond them is seen. */
	x = malloc(half + 1);
	y = malloc(size - half + 1);
	require(s && x && y);
	memcpy(x, data, half);
	memcpy(y, data + half, size - half);
	for (int i = 0; i < NAMES; i++)
		label[i] = ast_label(s, names[i], strlen(names[i]));
	if (!ast_read(s, label, NAMES, x, half, &a, &an, NULL)) {
		compare(s, &a, &an);
		if (a.n > 1)
			require(ast_similarity(s, &a, &a) == 1);
		if (!ast_read(s, label, NAMES, y, size - half, &b, &bn,
			      NULL)) {
			compare(s, &a, &b);
			compare(s, &an, &bn);
			ast_doc_release(&b);
			ast_doc_release(&bn);
		}
		ast_doc_release(&a);
		ast_doc_release(&an);
	}
	ast_store_free(s);
	free(x);
	free(y);
	return 0;
}
