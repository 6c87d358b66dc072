/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of objects: whatever the bytes, names and code lie within them.
 */
#include <stdlib.h>

#include "cu/code.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bounds {
	const char *begin, *end;
	size_t n;
};

static void seen(void *ctx, const char *name, size_t len, uint64_t hash)
{
	struct bounds *b = ctx;

	(void)hash;
	if (name < b->begin || name > b->end || len > (size_t)(b->end - name))
		abort();
	b->n++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data;
	struct bounds b = { p, p + size, 0 };

	if (code_object(data, size, seen, &b) != b.n)
		abort();
	return 0;
}
