/* SPDX-License-Identifier: Apache-2.0
 *
 * What candidates asked for in dry runs, kept in the cache of objects: the
 * stages after the one that built a candidate need not run it again.
 */
#ifndef CA_BUILD_SAID_H
#define CA_BUILD_SAID_H

#include "build/cache.h"
#include "build/record.h"

/* The name of a dry run: what is run, for what, and all that runs it.  -1
 * where it cannot be told. */
int said_key(const struct record_job *j, char key[CACHE_KEY]);

/* What such a run said, as struct recorded has it; NULL: it is not known. */
struct json *said_get(const char *key);

/* Keeps it if it named something to build and then ended well: other ends may
 * have had causes that pass. */
void said_put(const char *key, const struct json *said);

#endif
