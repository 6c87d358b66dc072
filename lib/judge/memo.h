/* SPDX-License-Identifier: Apache-2.0
 *
 * What the judge remembers of tasks between runs: small JSON files in the
 * user's cache, one per (kind, task, device, torch, `more`), signed with the
 * judge's key.  They only save time: what cannot be read, or was not signed
 * for just that, is computed again, what cannot be written is forgotten.
 * Not for other modules.
 */
#ifndef CA_JUDGE_MEMO_H
#define CA_JUDGE_MEMO_H

#include "judge/session.h"

/* The host must be ready (its torch is part of the key).  NULL when nothing
 * is remembered; the caller frees. */
struct json *memo_get(struct judge *j, const char *kind, const char *task,
		      const char *more);
void memo_put(struct judge *j, const char *kind, const char *task,
	      const char *more, const struct str *json);

#endif
