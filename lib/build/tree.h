/* SPDX-License-Identifier: Apache-2.0
 *
 * Fresh directories, filled without ever following a link.
 */
#ifndef CA_BUILD_TREE_H
#define CA_BUILD_TREE_H

#include <stddef.h>

#include "base/err.h"

/* Makes the directory (its parents exist), or takes it if it is empty.  A
 * descriptor that the caller closes, or -1: CA_CANTCREAT. */
int tree_open(const char *dir, struct err *e);

/* Creates a file below fd, and the directories on its way.  `path` is
 * relative and trusted to stay inside; `dir` is for messages. */
int tree_put(int fd, const char *dir, const char *path, const void *data,
	     size_t len, struct err *e);
int tree_dir(int fd, const char *dir, const char *path, struct err *e);

#endif
