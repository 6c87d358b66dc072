/* SPDX-License-Identifier: Apache-2.0
 *
 * What a built object asks of others, by its undefined symbols.  What it
 * fetches by other ways (system calls by number, names found by hash) is for
 * the jail and the outside witness.
 */
#ifndef CA_BUILD_AUDIT_H
#define CA_BUILD_AUDIT_H

#include <stddef.h>

enum audit_flag {
	AUDIT_BINDING = 1, /* includes torch's headers: forms paper, inline */
	AUDIT_CUDA = 2,		/* has a run-time library of CUDA's in it, which
				 * wants nearly everything of the C library */
	AUDIT_SLIM = 4,		/* with AUDIT_BINDING: the headers are ours */
};

/* Why no object of that kind may want a symbol; NULL: it may. */
const char *audit_symbol(const char *name, unsigned flags);

/*
 * Looks at every undefined symbol.  0: nothing to object to; 1: `text` names
 * the first that it may not want, and why; -1: no object that can be read.
 */
int audit_object(const void *image, size_t len, unsigned flags, char *text,
		 size_t textlen);

/* Whether the object calls a BLAS. */
int audit_wants_blas(const void *image, size_t len);

#endif
