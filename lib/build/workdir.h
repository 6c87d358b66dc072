/* SPDX-License-Identifier: Apache-2.0
 *
 * A work directory on disk and the record that it stands for:
 *
 *	model.py            the task: class Model, get_inputs, get_init_inputs
 *	model_new.py        the candidate: class ModelNew
 *	kernels/            its sources (source_allowed in source.h)
 *	binding.cpp, binding_registry.h    of the released layout
 *
 * Anything else in it is left where it is.
 */
#ifndef CA_BUILD_WORKDIR_H
#define CA_BUILD_WORKDIR_H

#include "rec/rec.h"

/* Called for what is not taken: its path in the directory, and why; `source`
 * when its name is a source's, so that it will be missed. */
typedef void workdir_note(void *ctx, const char *path, const char *why,
			  int source);

/*
 * Reads a directory into a candidate record: `out` (as rec_init left it) gets
 * kind, v, id, name (the directory's), task{id, code}, files, rules "paper",
 * and can be read with rec_get.  model_new.py may be missing (ca-profile
 * --reference), model.py may not.  Symbolic links, FIFOs and devices are
 * neither followed nor opened; files that are too large, too many, not UTF-8
 * or unreadable are errors that name them (CA_DATAERR, CA_NOINPUT).
 */
int workdir_read(const char *dir, struct rec *out, struct err *e);
int workdir_read_note(const char *dir, struct rec *out, workdir_note *note,
		      void *ctx, struct err *e);

/* The code of a task record or of a candidate's task; NULL when it has only
 * the id. */
const char *workdir_code(const struct rec *r);

/*
 * Writes a workdir: model.py from `code`, and the members of `files` (may be
 * NULL) that have allowed names, so that no record writes outside of it.
 * `dir` is made; it may exist if it is empty.  CA_CANTCREAT, CA_IOERR;
 * CA_DATAERR when code is NULL.
 */
int workdir_write(const char *code, const struct json *files,
		  const char *dir, struct err *e);

/* Writes only the files that are compiled into the directory behind fd. */
int workdir_sources(const struct json *files, int fd, const char *dir,
		    struct err *e);

#endif
