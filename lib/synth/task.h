/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tools for tasks share.
 */
#ifndef CA_SYNTH_TASK_H
#define CA_SYNTH_TASK_H

#include "base/opt.h"
#include "rec/rec.h"

/* A task as it stands in its record; points into that. */
struct task {
	const char *code;	/* NULL: the record has none */
	size_t len;
	char id[REC_ID_LEN];	/* of the code, whatever the record says */
};
void task_read(const struct rec *r, struct task *t);

/* stage_ops.wants: tasks only. */
int task_wants(void *ctx, enum rec_kind k);

/* Whether the record may be used: no stage has said `keep:false`.  Sees what
 * was set. */
int task_kept(const struct rec *r);

/* Sets `keep`: true only where nobody said false before. */
int task_keep(struct rec *r, int keep);

/*
 * Starts a new task record: kind, v, id and code; the caller adds the rest
 * with rec_set.  -1 when memory is short.
 */
int task_new(struct rec *r, const char *code, size_t len);

#endif
