/* SPDX-License-Identifier: Apache-2.0
 *
 * Seeds.  Fresh ones come from getrandom; with --seed they are derived from
 * it, so that a run can be replayed.
 */
#ifndef CA_BASE_RAND_H
#define CA_BASE_RAND_H

#include <stddef.h>
#include <stdint.h>

struct rng {
	int fixed;		/* 1: derived from `state`, else getrandom */
	uint64_t state;
};

void rng_fresh(struct rng *r);			/* kernel randomness */
void rng_seeded(struct rng *r, uint64_t seed);	/* splitmix64 from seed */
uint64_t rng_u64(struct rng *r);
double rng_unit(struct rng *r);			/* [0, 1), 53 bits */
uint64_t rng_below(struct rng *r, uint64_t n);	/* unbiased; n > 0 */
void rng_fill(struct rng *r, void *p, size_t len);

#endif
