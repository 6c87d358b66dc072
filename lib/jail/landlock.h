/* SPDX-License-Identifier: Apache-2.0
 *
 * File access by path, through landlock.  Whatever the kernel's version can
 * restrict is restricted, apart from what the rules grant.
 */
#ifndef CA_JAIL_LANDLOCK_H
#define CA_JAIL_LANDLOCK_H

#include <stddef.h>

#include "base/err.h"

enum landlock_access {
	LL_READ = 1,		/* read files, list directories */
	LL_EXEC = 2,
	LL_WRITE = 4,		/* write, make, remove, rename, truncate */
	LL_DEVICE = 8		/* ioctl; with LL_WRITE no files are made */
};

struct landlock_rule {
	const char *path;	/* a file or a directory with all below */
	unsigned access;	/* enum landlock_access */
	int optional;		/* 1: skipped when it does not exist */
};

int landlock_abi(void);		/* 0: this kernel has none */

/* A rule set's descriptor (close-on-exec), or -1. */
int landlock_make(const struct landlock_rule *r, size_t n, struct err *e);

/* Applies it to the calling thread, no_new_privs first.  0 or -1 with errno.
 * Async-signal-safe. */
int landlock_enter(int fd);

#endif
