/* SPDX-License-Identifier: Apache-2.0
 *
 * Our own, small headers in place of torch's, where a jail can read them.
 */
#ifndef CA_BUILD_SLIM_H
#define CA_BUILD_SLIM_H

#include "base/err.h"
#include "base/hash.h"
#include "base/path.h"

/*
 * Gives the directory to be searched for headers: a copy in the cache, made
 * where it is missing or damaged, of lib/torch/slim; and the digest of all
 * that is in it.  CA_UNAVAILABLE, CA_CANTCREAT, CA_IOERR.
 */
int slim_find(char dir[CA_PATH_MAX], char digest[HASH_HEX], struct err *e);

#endif
