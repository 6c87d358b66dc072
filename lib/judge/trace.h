/* SPDX-License-Identifier: Apache-2.0
 *
 * Stopping every thread of a process and letting it go on, by ptrace: unlike
 * SIGSTOP it cannot be undone by a timer of the process's own, and it does
 * not need to be the parent (FACTS: 14 us, 200 of 200).
 *
 * The caller's thread is the tracer; SIGCHLD must be blocked in it and is
 * read from a signalfd that the caller polls together with what else it
 * waits for.
 */
#ifndef CA_JUDGE_TRACE_H
#define CA_JUDGE_TRACE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct trace;

/* Seizes all threads of pid; they keep running.  The tracee dies with the
 * tracer (PTRACE_O_EXITKILL), new threads are seized as they appear. */
struct trace *trace_seize(pid_t pid, int sigfd, struct err *e);

/* Handles what the kernel has reported since (new threads, signals to pass
 * on, ends) without waiting.  1 when the process is gone, else 0. */
int trace_serve(struct trace *t);

/*
 * Stops all threads, those created meanwhile too: the list of tasks is read
 * again until it holds no running one.  *when is the time at which the last
 * one stood still.  0; 1 when the process is gone; -1 when the deadline came
 * first (then nothing can be said about it: kill it).
 */
int trace_stop(struct trace *t, int64_t deadline, int64_t *when);

/* Lets all stopped threads go on, delivering signals held back. */
void trace_resume(struct trace *t);

/*
 * Stops all threads, shows each that is not within a system call to fn, and
 * lets them go on.  Returns as trace_stop.
 */
typedef void trace_seen(void *ctx, pid_t tid, uint64_t ip, uint64_t sp);
int trace_look(struct trace *t, int64_t deadline, trace_seen *fn, void *ctx);

/* How the process ended, as waitpid (of the signal that was fatal to it, also
 * where the kill was the tracer's); -1 while it has not. */
int trace_status(const struct trace *t);

/* Kills the process, waits for its end (at most 10 s) and frees.  Returns
 * how it had ended before that, as trace_status. */
int trace_kill(struct trace *t);

#endif
