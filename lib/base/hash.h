/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 (libmd), HMAC (RFC 2104) and hexadecimal.
 */
#ifndef CA_BASE_HASH_H
#define CA_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_LEN 32
#define HASH_HEX (2 * HASH_LEN + 1)

struct hash;			/* running state */

struct hash *hash_new(void);	/* NULL when memory is short */
void hash_add(struct hash *h, const void *p, size_t len);
/* Adds the length (8 bytes, little endian), then the bytes, so that a list of
 * parts has one reading only. */
void hash_part(struct hash *h, const void *p, size_t len);
void hash_end(struct hash *h, uint8_t out[HASH_LEN]);	/* frees h */

void sha256(const void *p, size_t len, uint8_t out[HASH_LEN]);
void sha256_hex(const void *p, size_t len, char out[HASH_HEX]);
void hmac_sha256(const uint8_t *key, size_t keylen, const void *p, size_t len,
		 uint8_t out[HASH_LEN]);
void hex(const uint8_t *p, size_t len, char *out);	/* 2 * len + 1 */
int hash_equal(const void *a, const void *b, size_t len); /* constant time */

#endif
