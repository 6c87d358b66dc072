/* SPDX-License-Identifier: Apache-2.0
 *
 * Zones beside memory that a candidate writes to, which nobody may touch: what
 * is found there afterwards tells of an index that went too far.  On the CPU
 * alloc.cpp fills those of the result pool when it hands out a block, since
 * what was there before is anybody's, and the judge looks at them.
 */
#ifndef CA_TORCH_ZONE_H
#define CA_TORCH_ZONE_H

#include <stdint.h>

#define CA_ZONE 64

/* What stands in a zone at this place of the region: like no neighbour's
 * values, and no run of equal ones. */
static inline unsigned char ca_zone_byte(uint64_t at)
{
	uint64_t word = (at / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15);

	return (unsigned char)(word >> (8 * (at & 7)));
}

static inline void ca_zone_fill(void *region, uint64_t from, uint64_t to)
{
	for (; from < to; from++)
		((unsigned char *)region)[from] = ca_zone_byte(from);
}

/* Whether it still is as ca_zone_fill left it. */
static inline int ca_zone_whole(const void *region, uint64_t from,
				uint64_t to)
{
	for (; from < to; from++)
		if (((const unsigned char *)region)[from] !=
		    ca_zone_byte(from))
			return 0;
	return 1;
}

#endif
