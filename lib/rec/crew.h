/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that work on records side by side, for work that must not share a
 * process: judges trace their runners, which a thread alone may do.
 */
#ifndef CA_REC_CREW_H
#define CA_REC_CREW_H

#include <stddef.h>

#include "rec/rec.h"

struct crew;

struct crew_ops {
	/* In member number i, from 0, before anything else; may be NULL. */
	void (*begin)(void *ctx, size_t i);
	/* As stage_ops.record; called in a member. */
	int (*record)(void *ctx, struct rec *r, struct err *e);
	/* After each answer, as stage_ops.rest; may be NULL. */
	void (*rest)(void *ctx);
	/* At a member's end; may be NULL. */
	void (*leave)(void *ctx);
	void *ctx;
};

/*
 * Forks n members, so before there is any thread.  A member leads a process
 * group of its own, has no stdin, and its stdout is stderr; it ends with the
 * crew, or when this process dies.  NULL with `e`.
 */
struct crew *crew_open(size_t n, const struct crew_ops *o, struct err *e);

/*
 * Lets a member that is free work on r, which holds its answer afterwards.
 * Thread safe.  A signal to us (sig_caught) ends the member's work; -1 then,
 * and when it failed or its process ended, which leaves r as it was.
 */
int crew_record(struct crew *c, struct rec *r, struct err *e);

/* Tells all members to end and waits for them; c may be NULL. */
void crew_close(struct crew *c);

#endif
