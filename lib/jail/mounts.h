/* SPDX-License-Identifier: Apache-2.0
 *
 * The file systems of a forked process, in a mount namespace of its own.
 */
#ifndef CA_JAIL_MOUNTS_H
#define CA_JAIL_MOUNTS_H

#include <stdint.h>

#include "base/err.h"

/*
 * Everything read-only but `rw`; a new /proc; empty /tmp and /dev/shm of
 * tmp_bytes (0: 1 GiB) each, in which the ro and rw paths that lie below them
 * are shown again.  Needs CAP_SYS_ADMIN in the namespace.  The working
 * directory is /tmp afterwards.
 */
int mounts_make(const char *const *ro, const char *const *rw,
		int64_t tmp_bytes, struct err *e);

#endif
