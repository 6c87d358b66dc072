/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories out of records.
 */
#ifndef CA_BUILD_UNPACK_H
#define CA_BUILD_UNPACK_H

#include "rec/rec.h"

struct unpack;			/* the names given so far */

struct unpack *unpack_new(const char *dir, struct err *e);  /* makes dir */
void unpack_free(struct unpack *u);

/*
 * Writes one task, candidate or trajectory record as a workdir below the
 * directory and returns its path (valid until the next call); NULL on
 * failure.  The directory has the record's name, else its id, with bytes
 * other than letters, digits, '.', '_' and '-' as '_'; a name that was given
 * in this run already gets the record's id, then a number, behind it.  Of a
 * trajectory the candidate is the selected one of outcome.best, else the last
 * one evaluated; where there is none, only the task is written.
 * CA_CANTCREAT also where a directory of that name is there and not empty;
 * CA_DATAERR for other kinds of records and those without a task's code.
 */
const char *unpack_record(struct unpack *u, const struct rec *r,
			  struct err *e);

#endif
