/* SPDX-License-Identifier: Apache-2.0
 *
 * Result fields as they stand in a record.  Not for other modules.
 */
#ifndef CA_REWARD_FIELDS_H
#define CA_REWARD_FIELDS_H

#include "rec/rec.h"
#include "rec/status.h"

/* Member `name`, set or as it came; the caller frees.  NULL: absent. */
struct json *fields_get(const struct rec *r, const char *name);

/* Its status word; ST_NONE when there is none that is known. */
enum status fields_status(const struct json *field);

#endif
