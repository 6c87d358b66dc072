/* SPDX-License-Identifier: Apache-2.0
 *
 * Collections of rows as they are published, made lines: a JSON array of
 * objects, an object of such arrays, an object a line, or Parquet.
 */
#ifndef CA_REC_ROWS_H
#define CA_REC_ROWS_H

#include "base/err.h"

/*
 * Opens a file ("-": stdin) and gives a descriptor from which its rows can be
 * read, one a line.  Arrays are read whole (at most JSON_MAX_FILE bytes); an
 * element that is no JSON, a missing end and what follows the end are lines as
 * they came, and so is what begins with '{' and is not one JSON value, so that
 * each of them can be answered.  A row that is no object
 * becomes a line that is none.  CA_NOINPUT; CA_DATAERR for a file that holds
 * no rows; CA_UNAVAILABLE for Parquet without a Python that reads it.
 */
int rows_open(const char *path, struct err *e);

#endif
