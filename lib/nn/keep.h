/* SPDX-License-Identifier: Apache-2.0
 *
 * Token ids that are known already, by what they are the ids of: a bounded
 * store that forgets what was not asked for the longest.  One thread at a time.
 */
#ifndef CA_NN_KEEP_H
#define CA_NN_KEEP_H

#include <stddef.h>

#include "nn/tok.h"

struct keep;

/* Of at most so many bytes, keys and ids together.  NULL: no memory. */
struct keep *keep_new(size_t most);
void keep_free(struct keep *k);			/* NULL is fine */

/* Appends the ids under a key to `out`, and sets *tag, if not NULL, to what
 * came with them: 1; 0: there are none; -1: no memory. */
int keep_get(struct keep *k, const void *key, size_t len, struct tok_ids *out,
	     int *tag);

/* Keeps ids, instead of those under the same key.  When memory is short, or
 * they are more than all that may be kept, nothing is. */
void keep_put(struct keep *k, const void *key, size_t len, const int32_t *id,
	      size_t n, int tag);

#endif
