/* SPDX-License-Identifier: Apache-2.0
 *
 * The outside witness of a runner on the CPU: where its threads were while
 * the clock ran, and whose code that is (sampler.h, modules.h, attrib.h).
 * Nothing in the process is asked or believed.
 *
 * Mappings are read when a call has ended, so what lies where samples were
 * taken has to be what lay there: files' pages that nobody has written to, in
 * mappings that nobody can write to, none of which came during a call (the
 * filter refuses mremap, which the kernel does not report).
 *
 * Where the kernel does not let us sample, we look by ptrace.  Nothing reports
 * mappings there, so what lies where a look found a thread is compared with
 * what lay there then.
 *
 * A process sees the samples' rhythm in its own clock and could keep foreign
 * work between them: some more are ordered at times that nobody can foresee.
 *
 * What remains: by ptrace the C library called from what is mapped over within
 * the call.
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

/* The candidate's object, a file that cannot change (memfd_code) and need not
 * stay open.  may_blas: it is linked with one. */
int witness_own(struct witness *w, int fd, int may_blas, struct err *e);

/* The process stands still and is about to go on at t0. */
void witness_begin(struct witness *w, int64_t t0);
/*
 * While it runs: due at the latest when witness_next() says.  0, or what
 * trace_stop says of a process that could not be looked at.
 */
int64_t witness_next(const struct witness *w);
int witness_look(struct witness *w);
/*
 * It stands still again since t1.  Of the first call, in which libraries may
 * still be loaded, nothing counts.  Of one that warms up only whether memory
 * became executable: what was made there would run in the next one.
 */
enum witness_what { WITNESS_FIRST, WITNESS_WARM, WITNESS_COUNTS };
void witness_end(struct witness *w, int64_t t1, enum witness_what what);

const struct attribution *witness_saw(const struct witness *w);

#endif
