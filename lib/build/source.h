/* SPDX-License-Identifier: Apache-2.0
 *
 * The source files of a candidate, as its record holds them.  Only names on
 * the allow-list below are ever taken from a workdir, written into a build
 * directory or hashed into an object's key.
 */
#ifndef CA_BUILD_SOURCE_H
#define CA_BUILD_SOURCE_H

#include <stddef.h>

#include "rec/rec.h"

#define SOURCE_MAX_FILES 256
#define SOURCE_MAX_FILE ((size_t)1 << 20)	/* bytes of one file */
#define SOURCE_MAX_TOTAL ((size_t)8 << 20)	/* bytes of all */
#define SOURCE_MAX_DEPTH 4			/* directories below kernels/ */

struct source_file {
	const char *path;	/* "kernels/axpby.cu" */
	const char *text;	/* NUL-terminated; belongs to the record */
	size_t len;
	int included;		/* another file of the tree includes it */
};

struct source_tree {
	struct source_file *file;	/* sorted by path; in the arena */
	size_t n;
};

/*
 * Whether a candidate may hold a file of this name: model_new.py,
 * binding.cpp, binding_registry.h, and C, C++ and CUDA files below kernels/
 * whose path components are made of letters, digits, '_', '.', '+' and '-'
 * and begin with a letter, digit or '_'.
 */
int source_allowed(const char *path);

/* Whether somebody who looks at its name takes it for one: also a file below
 * kernels/ of another spelling, and kernels/ itself. */
int source_meant(const char *path);

/* Whether the file is compiled by itself: C, C++ or CUDA, not a header, and
 * directly in kernels/ (or binding.cpp). */
int source_compiled(const char *path);

/*
 * Reads the allowed members of the record's `files`, marks those that others
 * include by name.  CA_DATAERR when there is no such object, a text is no
 * string, or a cap is exceeded.
 */
int source_read(const struct rec *r, struct arena *a, struct source_tree *t,
		struct err *e);

void source_sort(struct source_tree *t);

const struct source_file *source_find(const struct source_tree *t,
				      const char *path);

/* Whether any file of the tree includes a header of this name ("cblas.h"). */
int source_includes(const struct source_tree *t, const char *header);

#endif
