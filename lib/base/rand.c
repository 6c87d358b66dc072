/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel randomness, or splitmix64 for runs that are replayed.
 */
#include "base/rand.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sys/random.h>

void rng_fresh(struct rng *r)
{
	r->fixed = 0;
	r->state = 0;
}

void rng_seeded(struct rng *r, uint64_t seed)
{
	r->fixed = 1;
	r->state = seed;
}

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* A predictable seed would let a candidate precompute answers, so there is no
 * fallback: getrandom fails on kernels older than 3.17 only. */
static void kernel_random(void *p, size_t len)
{
	unsigned char *out = p;

	while (len) {
		ssize_t n = getrandom(out, len, 0);

		if (n < 0 && errno != EINTR)
			abort();
		if (n > 0) {
			out += n;
			len -= (size_t)n;
		}
	}
}

void rng_fill(struct rng *r, void *p, size_t len)
{
	unsigned char *out = p;

	if (!r->fixed) {
		kernel_random(p, len);
		return;
	}
	while (len) {
		uint64_t v = splitmix64(&r->state);
		size_t n = len < sizeof v ? len : sizeof v;

		memcpy(out, &v, n);
		out += n;
		len -= n;
	}
}

uint64_t rng_u64(struct rng *r)
{
	uint64_t v;

	rng_fill(r, &v, sizeof v);
	return v;
}

double rng_unit(struct rng *r)
{
	return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	uint64_t skip = -n % n, v;	/* 2^64 mod n */

	do {
		v = rng_u64(r);
	} while (v < skip);
	return v % n;
}
