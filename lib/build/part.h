/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects of single sources in the cache of built objects, so that a changed
 * kernel does not have its bindings compiled again.
 */
#ifndef CA_BUILD_PART_H
#define CA_BUILD_PART_H

#include "build/compile.h"

/*
 * The key of a unit's object, over all that its compiler may read: the tree
 * without other sources that nothing names.  0 where that cannot be told by
 * reading (a macro names what is included, assembly may read files), or where
 * it is not worth it.
 */
int part_key(const struct plan *p, const struct plan_unit *u, int level,
	     char key[CACHE_KEY]);

/* Appends the object to `out`: 1.  Else 0. */
int part_get(const char *key, struct str *out);

/* Keeps it; where that fails, the next one compiles again. */
void part_put(const char *key, const struct str *object);

#endif
