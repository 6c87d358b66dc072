/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels in a cubin or in a shared object that nvcc made, each known by
 * its name and by a hash of its instructions.  The same on both sides: in the
 * judge, which knows what was built, and in a child, which says what it loads.
 */
#ifndef CA_CU_CODE_H
#define CA_CU_CODE_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a, which is what traces use; not to be trusted against forgery by
 * itself, only with what it is compared with. */
uint64_t code_hash(const void *p, size_t n);

/* Called for each kernel; the name is not terminated. */
typedef void code_seen(void *ctx, const char *name, size_t len,
		       uint64_t hash);

/*
 * The kernels of the cubin at p (sections ".text.NAME"), of which at most len
 * bytes are there.  Every number in it is checked.  How many there were; 0 for
 * what is no cubin.
 */
size_t code_cubin(const void *p, size_t len, code_seen *fn, void *ctx);

/* The same of an object: a cubin, or a shared object with cubins in its
 * section .nv_fatbin, where nvcc did not compress them. */
size_t code_object(const void *p, size_t len, code_seen *fn, void *ctx);

#endif
