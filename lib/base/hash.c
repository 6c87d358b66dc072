/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 from libmd, and what is built on it.
 */
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#include <sha2.h>

#define BLOCK_LEN 64		/* of SHA-256 */

struct hash {
	SHA2_CTX ctx;
};

struct hash *hash_new(void)
{
	struct hash *h = malloc(sizeof *h);

	if (h)
		SHA256Init(&h->ctx);
	return h;
}

void hash_add(struct hash *h, const void *p, size_t len)
{
	if (len)
		SHA256Update(&h->ctx, p, len);
}

void hash_part(struct hash *h, const void *p, size_t len)
{
	uint8_t n[8];
	int i;

	for (i = 0; i < 8; i++)
		n[i] = (uint8_t)((uint64_t)len >> 8 * i);
	hash_add(h, n, sizeof n);
	hash_add(h, p, len);
}

void hash_end(struct hash *h, uint8_t out[HASH_LEN])
{
	SHA256Final(out, &h->ctx);
	free(h);
}

void sha256(const void *p, size_t len, uint8_t out[HASH_LEN])
{
	struct hash h;

	SHA256Init(&h.ctx);
	hash_add(&h, p, len);
	SHA256Final(out, &h.ctx);
}

void sha256_hex(const void *p, size_t len, char out[HASH_HEX])
{
	uint8_t sum[HASH_LEN];

	sha256(p, len, sum);
	hex(sum, sizeof sum, out);
}

void hmac_sha256(const uint8_t *key, size_t keylen, const void *p, size_t len,
		 uint8_t out[HASH_LEN])
{
	uint8_t k[BLOCK_LEN] = { 0 }, pad[BLOCK_LEN];
	struct hash h;
	size_t i;

	if (keylen > BLOCK_LEN)
		sha256(key, keylen, k);
	else if (keylen)
		memcpy(k, key, keylen);
	for (i = 0; i < BLOCK_LEN; i++)
		pad[i] = k[i] ^ 0x36;
	SHA256Init(&h.ctx);
	hash_add(&h, pad, sizeof pad);
	hash_add(&h, p, len);
	SHA256Final(out, &h.ctx);
	for (i = 0; i < BLOCK_LEN; i++)
		pad[i] = k[i] ^ 0x5c;
	SHA256Init(&h.ctx);
	hash_add(&h, pad, sizeof pad);
	hash_add(&h, out, HASH_LEN);
	SHA256Final(out, &h.ctx);
}

void hex(const uint8_t *p, size_t len, char *out)
{
	static const char digit[] = "0123456789abcdef";
	size_t i;

	for (i = 0; i < len; i++) {
		out[2 * i] = digit[p[i] >> 4];
		out[2 * i + 1] = digit[p[i] & 15];
	}
	out[2 * len] = '\0';
}

int hash_equal(const void *a, const void *b, size_t len)
{
	const volatile uint8_t *x = a, *y = b;
	uint8_t diff = 0;
	size_t i;

	for (i = 0; i < len; i++)
		diff |= x[i] ^ y[i];
	return diff == 0;
}
