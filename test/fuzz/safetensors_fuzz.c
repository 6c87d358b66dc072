/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights: every tensor that is accepted lies inside the file and has the
 * bytes of its shape.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct st_tensor *t, const char *file, size_t size)
{
	const char *p = t->data;
	size_t sum = 0;

	if (p < file || t->bytes > size || p + t->bytes > file + size)
		abort();
	for (size_t i = 0; i < t->bytes; i++)
		sum += (unsigned char)p[i];
	if (sum > 255 * t->bytes || t->ndim > ST_DIMS)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* The length in front is set right half of the time, or the fuzzer
	 * would rarely come to the header. */
	char *file = malloc(size + 8);
	size_t header = size ? data[0] + 256 * (size_t)(size > 300) : 0;
	struct err e = ERR_INIT;
	struct st *s;

	memset(file, 0, 8);
	if (size)
		memcpy(file + 8, data, size);
	if (header & 1)
		header = size - size / 4;
	file[0] = (char)(header & 255);
	file[1] = (char)(header >> 8 & 255);
	s = st_parse(file, size + 8, &e);
	if (!s && (e.code != CA_DATAERR || !*e.msg))
		abort();
	for (size_t i = 0; s && i < st_count(s); i++)
		check(st_at(s, i), file, size + 8);
	st_close(s);
	free(file);
	return 0;
}
