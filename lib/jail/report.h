/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors across the plain C interface of jail/self.h.
 */
#ifndef CA_JAIL_REPORT_H
#define CA_JAIL_REPORT_H

#include <stddef.h>

#include "base/err.h"

/* rc 0: 0 and an empty msg; else minus e's code, and its text in msg. */
int jail_report(const struct err *e, int rc, char *msg, size_t msglen);

#endif
