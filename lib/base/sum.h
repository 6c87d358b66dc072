/* SPDX-License-Identifier: Apache-2.0
 *
 * A sum of 64 bits as fast as memory is, to tell files and weights apart and to
 * find damage.  It is no match for who means to deceive: base/hash.h is.
 */
#ifndef CA_BASE_SUM_H
#define CA_BASE_SUM_H

#include <stddef.h>
#include <stdint.h>

#define SUM_BLOCK 32

struct sum {
	uint64_t lane[4], bytes;
	unsigned char rest[SUM_BLOCK];	/* what has filled no block yet */
};

/* `from`: 0, or the sum of what goes before. */
void sum_begin(struct sum *s, uint64_t from);
/* In pieces of any size, to the same end. */
void sum_add(struct sum *s, const void *p, size_t len);
uint64_t sum_end(struct sum *s);

#endif
