/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that a built object offers, and the names that it wants of
 * others (libelf).
 */
#ifndef CA_BUILD_ELF_H
#define CA_BUILD_ELF_H

#include "base/arena.h"
#include "base/err.h"

/*
 * Names of the functions that an ELF image defines for others: of a shared
 * object its dynamic ones, of a cubin its global ones (kernels).  Sorted as
 * strcmp does, in the arena.  CA_DATAERR when the image is not what it says.
 * The image came out of a jail: every number in it is checked.
 */
int elf_functions(const void *image, size_t len, struct arena *a,
		  const char ***names, size_t *n, struct err *e);
/* The same of what it leaves undefined: functions and data, weak ones too. */
int elf_wanted(const void *image, size_t len, struct arena *a,
	       const char ***names, size_t *n, struct err *e);

#endif
