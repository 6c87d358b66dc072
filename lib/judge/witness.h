/* SPDX-License-Identifier: Apache-2.0
 *
 * The outside witness of a runner on the CPU: where its threads were while
 * the clock ran, and whose code that is (sampler.h, modules.h, attrib.h).
 * Nothing in the process is asked or believed.
 *
 * What remains: code that sees the samples' rhythm in its own clock and keeps
 * foreign work between them, or that moves its own object's mapping over the
 * foreign code it ran with mremap, which the kernel does not report.
 */
#ifndef CA_JUDGE_WITNESS_H
#define CA_JUDGE_WITNESS_H

#include <sys/types.h>

#include "judge/attrib.h"
#include "judge/trace.h"

struct witness;

enum witness_flag {
	WITNESS_FINE = 1,	/* looks often, for calls that nobody times */
	WITNESS_TRACE = 2,	/* by ptrace, also where the kernel samples */
};

/* Watches a process that has one thread yet and is held by `t`, which must
 * outlive it. */
struct witness *witness_open(pid_t pid, struct trace *t, unsigned flags,
			     struct err *e);
void witness_close(struct witness *w);

/* The candidate's object as it was built: code is the candidate's where it
 * equals this.  Not copied; NULL: none.  may_blas: it is linked with one. */
void witness_own(struct witness *w, const void *image, size_t len,
		 int may_blas);

/* The process stands still and is about to go on at t0. */
void witness_begin(struct witness *w, int64_t t0);
/*
 * While it runs: due at the latest when witness_next() says.  0, or what
 * trace_stop says of a process that could not be looked at.
 */
int64_t witness_next(const struct witness *w);
int witness_look(struct witness *w);
/* It stands still again since t1.  `counts`: the call is one that is judged. */
void witness_end(struct witness *w, int64_t t1, int counts);

const struct attribution *witness_saw(const struct witness *w);

#endif
