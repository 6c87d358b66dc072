/* SPDX-License-Identifier: Apache-2.0
 *
 * NotebookEdit.  As in files.h, 1 or 0.
 */
#ifndef CA_AGENT_NOTEBOOK_H
#define CA_AGENT_NOTEBOOK_H

#include "agent/place.h"
#include "rec/json.h"

int notebook_edit(const struct place *p, const struct json *args,
		  struct str *out);

#endif
