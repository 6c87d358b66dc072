/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sum.h"

#include <string.h>

/* No two words have the same result for one h, and no two h for one word.  A
 * word is spread before, lest its top bit stay by itself. */
static uint64_t mix(uint64_t h, uint64_t word)
{
	word *= 0xd6e8feb86659fd93u;
	word ^= word >> 32;
	h = (h ^ word) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 32;
}

void sum_begin(struct sum *s, uint64_t from)
{
	memset(s, 0, sizeof *s);
	for (unsigned i = 0; i < 4; i++)
		s->lane[i] = from + i;
}

/* In lanes, since each step waits for the one before. */
static void add_block(uint64_t lane[4], const void *p)
{
	uint64_t word[4];

	memcpy(word, p, sizeof word);
	for (int i = 0; i < 4; i++)
		lane[i] = mix(lane[i], word[i]);
}

void sum_add(struct sum *s, const void *p, size_t len)
{
	size_t have = s->bytes % SUM_BLOCK, n;
	const unsigned char *at = p;
	uint64_t lane[4];

	s->bytes += len;
	if (have) {
		n = SUM_BLOCK - have < len ? SUM_BLOCK - have : len;
		memcpy(s->rest + have, at, n);
		at += n;
		len -= n;
		if (have + n < SUM_BLOCK)
			return;
		add_block(s->lane, s->rest);
	}
	memcpy(lane, s->lane, sizeof lane);
	for (; len >= SUM_BLOCK; at += SUM_BLOCK, len -= SUM_BLOCK)
		add_block(lane, at);
	memcpy(s->lane, lane, sizeof lane);
	if (len)
		memcpy(s->rest, at, len);
}

uint64_t sum_end(struct sum *s)
{
	size_t have = s->bytes % SUM_BLOCK;
	uint64_t h = 0;

	if (have) {
		memset(s->rest + have, 0, SUM_BLOCK - have);
		add_block(s->lane, s->rest);
	}
	for (int i = 0; i < 4; i++)
		h = mix(h, s->lane[i]);
	return mix(h, s->bytes);
}
