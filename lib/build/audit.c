/* SPDX-License-Identifier: Apache-2.0
 *
 * The symbol audit.
 */
#include "build/audit.h"

#include <string.h>

#include "base/str.h"
#include "build/elf.h"

/* cblas_sgemm, sgemm_, dgemv_, and so on. */
static int is_blas(const char *name)
{
	static const char *const routine[] = {
		"gemm_", "gemv_", "ger_", "symm_", "syrk_", "trmm_", "trsm_",
		"axpy_", "dot_", "scal_", "nrm2_", "asum_"
	};

	if (starts_with(name, "cblas_"))
		return 1;
	for (size_t i = 0; i < sizeof(routine) / sizeof(*routine); i++)
		if (ends_with(name, routine[i]) &&
		    strlen(name) == strlen(routine[i]) + 1)
			return 1;
	return 0;
}

int audit_wants_blas(const void *image, size_t len)
{
	struct arena a = ARENA_INIT;
	struct err e = ERR_INIT;
	const char **names;
	size_t n = 0;
	int found = 0;

	if (!elf_wanted(image, len, &a, &names, &n, &e))
		for (size_t i = 0; i < n && !found; i++)
			found = is_blas(names[i]);
	arena_release(&a);
	return found;
}
