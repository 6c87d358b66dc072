/* SPDX-License-Identifier: Apache-2.0
 *
 * The extensions of an inline candidate, from what its dry run asked for.
 */
#ifndef CA_BUILD_INLINE_H
#define CA_BUILD_INLINE_H

#include "base/hash.h"
#include "build/flags.h"
#include "build/source.h"
#include "rec/json.h"

#define EXT_MAX 16
#define EXT_SOURCES 32

struct ext {
	const char *name;		/* of the Python module */
	char request[HASH_HEX];		/* SHA-256 of its canonical JSON */
	const char *path[EXT_SOURCES];	/* in the source directory; made ones
					 * are inline/N/NAME */
	size_t n;
	struct flags cxx, nvcc, libs;
};

struct exts {
	struct ext v[EXT_MAX];
	size_t n;
	struct source_tree made;	/* files that the tree does not hold,
					 * sorted by path */
};

/*
 * Takes over what a dry run recorded, all of it checked: names, counts and
 * sizes, paths (of the tree's compiled files, or made ones with text), flags.
 * 0; 1 when something is refused, *why then says what; -1 when memory is
 * short.  Everything is copied into the arena.
 */
int inline_read(const struct json *said, const struct source_tree *tree,
		struct arena *a, struct exts *out, const char **why,
		struct err *e);

#endif
