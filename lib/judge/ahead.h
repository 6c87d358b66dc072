/* SPDX-License-Identifier: Apache-2.0
 *
 * What the judge does not wait for: the host forks processes, and makes their
 * jails, before they are needed, and processes that were killed go while the
 * next one begins.  None of it may still be under way when a clock runs.
 *
 * A process that waits to be taken holds no foreign code and sleeps; on CUDA
 * it has a context by then, which is made under a lease (the caller's) and
 * does nothing.  A shared host keeps some for the next tool (ahead_provide).
 * Inside lib/judge, and for lib/synth.
 */
#ifndef CA_JUDGE_AHEAD_H
#define CA_JUDGE_AHEAD_H

#include "judge/session.h"

/* What a process is forked for. */
struct purpose {
	const char *role;
	int may_exec;
	const struct program *p; /* whose compiled code is kept; or NULL */
};

/* Asks the host, which is ready, for such a process, unless one waits.  What
 * prevents it shows when the process is wanted. */
void ahead_want(struct judge *j, const struct purpose *u);

/* One that waits, or a new one.  The answer to {"op":"jail"} (on CUDA "begin")
 * is still to come; torch_kill or ahead_end is due, and the release of *seen,
 * where CUPTI writes (host memory; none: p NULL). */
int ahead_take(struct judge *j, const struct purpose *u,
	       struct torch_child *c, struct mem *seen, struct err *e);

/* CA_PARK_CUDA=1; and that on CUDA: seen right in single tries, not yet under
 * the whole corpus of attacks. */
int ahead_wanted(void);
int ahead_parks(const struct judge *j);

/* Ends a process without waiting for it. */
void ahead_end(struct judge *j, struct torch_child *c);

/* The same later: on CUDA the end of a context takes longer than what a trusted
 * runner that sleeps could disturb, so that a try keeps it (j->keeps) until the
 * clocks have stopped, where the GPU has room.  ahead_let_go ends all that are
 * kept, without waiting either. */
void ahead_keep(struct judge *j, struct torch_child *c);
void ahead_let_go(struct judge *j);

/* Waits until those that were asked for sleep and those that were ended are
 * gone; else j->undead is set. */
void ahead_settle(struct judge *j);

/* Before a judge that has timed closes: on a large GPU has a shared host keep
 * what ca-verify and ca-profile begin with, processes whose contexts are made
 * one after the other, under a lease that they take themselves.  Nobody waits
 * for them. */
void ahead_provide(struct judge *j);

/* Where memory of the device is short: ends all that hosts keep ready.  Whether
 * there were any. */
int ahead_unpark(struct judge *j);

/* Then, no lease held: on CUDA ends those that wait, whose
 * contexts' end may not disturb somebody's clock. */
void ahead_dismiss(struct judge *j);

/* Whether all that were to end have. */
int ahead_ended(struct judge *j);

/*
 * Before a process that parks ends: what still lives for it is left to the
 * shared host, which ends it when we have left and holds the lease until all
 * that is over, our own context's end too.  -1: not so.
 */
int ahead_bequeath(struct judge *j);

/* Leaves the host: all its processes for us end. */
void ahead_leave(struct judge *j);

#endif
