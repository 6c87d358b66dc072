/* SPDX-License-Identifier: Apache-2.0
 *
 * A candidate as a Python package that needs torch only.
 */
#ifndef CA_BUILD_EXPORT_H
#define CA_BUILD_EXPORT_H

#include "build/build.h"

/*
 * Writes the package into `dir` (made, or empty; its name must be one that
 * Python can import): __init__.py, which offers ModelNew; model_new.py, the
 * sources and model.py, so that it is a workdir too and can be built again
 * elsewhere; the built object, what it offers (build.json), the loader,
 * README.md.  The record must have been built and refreshed, its `build` be
 * ok.  CA_DATAERR when it is not; CA_CANTCREAT, CA_IOERR, CA_USAGE (name).
 */
int export_package(const struct rec *r, const struct build_opts *o,
		   const char *dir, struct err *e);

#endif
