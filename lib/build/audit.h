/* SPDX-License-Identifier: Apache-2.0
 *
 * What a built object asks of others, by its undefined symbols.
 */
#ifndef CA_BUILD_AUDIT_H
#define CA_BUILD_AUDIT_H

#include <stddef.h>

/* Whether the object calls a BLAS. */
int audit_wants_blas(const void *image, size_t len);

#endif
