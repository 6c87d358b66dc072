/* SPDX-License-Identifier: Apache-2.0
 *
 * A fresh workdir from a reference.
 */
#ifndef CA_BUILD_STARTER_H
#define CA_BUILD_STARTER_H

#include "base/err.h"
#include "base/str.h"

/*
 * Writes model.py (the bytes of `code`), kernels/ (empty), model_new.py (the
 * reference under the name ModelNew: it runs, and is what one starts from)
 * and README.md into `dir`, which is made or empty.  CA_DATAERR when the code
 * defines no class Model; CA_CANTCREAT, CA_IOERR.
 */
int starter_write(const char *code, size_t len, const char *dir,
		  struct err *e);

/* Appends Python code in which the name Model, where it stands for itself
 * (not in strings, comments or behind a dot), became ModelNew.  Returns how
 * many times it was defined by `class`. */
int starter_rename(const char *code, struct str *out);

#endif
