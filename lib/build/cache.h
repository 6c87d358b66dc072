/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache of built objects: KEY.so and KEY.json in the user's cache, which
 * no jail can write.  Entries are complete or absent (temporary file,
 * rename); a directory lock covers changes; the entries used longest ago go
 * when the cache exceeds its size.
 */
#ifndef CA_BUILD_CACHE_H
#define CA_BUILD_CACHE_H

#include <stddef.h>

#include "base/err.h"
#include "base/path.h"
#include "base/str.h"

#define CACHE_KEY 65		/* 64 hex digits and NUL */

/* $CA_OBJ_MAX in bytes (K, M and G understood), else 4 GiB.  0, or CA_CONFIG
 * for anything else.  `limit` may be NULL. */
int cache_limit(long long *limit, struct err *e);

/*
 * Looks an object up.  1: `path` names it, `meta` (may be NULL) has its JSON
 * appended, and it counts as used now; its bytes are those that were stored
 * (length and SHA-256 agree).  0: not there, or damaged and removed.  -1: the
 * cache cannot be used.
 */
int cache_get(const char *key, char path[CA_PATH_MAX], struct str *meta,
	      struct err *e);

/* The same for what takes seconds to read (without meta): bytes that were found
 * right once are not read again while their file is the same, unchanged. */
int cache_get_large(const char *key, char path[CA_PATH_MAX], struct err *e);

/* Whether an entry is there and as long as it should be: cheap, for those who
 * only keep it.  It counts as used now. */
int cache_have(const char *key);

/*
 * Stores an object with JSON members (`"form":"light","launchers":[…]`, no
 * braces) and gives its path.  CA_IOERR or CA_CANTCREAT when the disk is
 * full or the cache not writable; nothing is left behind then.
 */
int cache_put(const char *key, const void *object, size_t len,
	      const char *members, char path[CA_PATH_MAX], struct err *e);

#endif
