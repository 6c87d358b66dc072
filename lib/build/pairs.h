/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of a reference and a custom model, as KernelBench and the collections
 * around it have them, made candidate records.
 */
#ifndef CA_BUILD_PAIRS_H
#define CA_BUILD_PAIRS_H

#include "rec/rec.h"

/*
 * Takes one line: an object with a string `ref_code`, and `custom_code`, a
 * string or, where there is no candidate, null, "None" or "".  r becomes
 * {kind, v, id, name, task{id, code}, files{model_new.py}, rules
 * "kernelbench", pair{all other members}}; name is "L1-23" of level_id and
 * task_id, else the row's `name`, else its id.  -1 with CA_DATAERR when the
 * line is another JSON value; with e untouched when it is none, or
 * has a `kind` but no pair: a record, whose fault rec_open has told.
 */
int pairs_adopt(const char *line, size_t len, struct rec *r, struct err *e);

#endif
