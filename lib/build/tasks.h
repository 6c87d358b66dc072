/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks that candidates name by their id alone (--tasks FILE).
 */
#ifndef CA_BUILD_TASKS_H
#define CA_BUILD_TASKS_H

#include "rec/rec.h"

struct tasks;

/* Reads the task records of a file; other kinds are passed over.  Their ids
 * are made from their code, whatever they say.  NULL with `e`: CA_NOINPUT,
 * or CA_DATAERR with the line. */
struct tasks *tasks_read(const char *path, struct err *e);
void tasks_free(struct tasks *t);

/*
 * Puts the code into a candidate's task that has an id and none; the record
 * leaves with it, so that the next program does not need the file.  A task
 * that is not in the file stays as it is.  t may be NULL.  0 or -1.  Thread
 * safe.
 */
int tasks_complete(const struct tasks *t, struct rec *r, struct err *e);

#endif
