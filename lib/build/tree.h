/* SPDX-License-Identifier: Apache-2.0
 *
 * Fresh directories, filled without ever following a link.
 */
#ifndef CA_BUILD_TREE_H
#define CA_BUILD_TREE_H

#include <stddef.h>

#include "base/err.h"

/* A directory that is being filled. */
struct tree {
	int fd;
	int made;		/* it was not there before */
	const char *dir;	/* the caller's */
};

/* Makes the directory (its parents exist), or takes it if it is empty and
 * nobody else is filling it.  0, or -1: CA_CANTCREAT, and t->fd is -1. */
int tree_open(struct tree *t, const char *dir, struct err *e);

/* Ends it and returns rc.  Where that is not 0, nothing of it is left. */
int tree_close(struct tree *t, int rc);

/* Creates a file below fd, and the directories on its way.  `path` is
 * relative and trusted to stay inside; `dir` is for messages. */
int tree_put(int fd, const char *dir, const char *path, const void *data,
	     size_t len, struct err *e);
int tree_dir(int fd, const char *dir, const char *path, struct err *e);

#endif
