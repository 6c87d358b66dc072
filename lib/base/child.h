/* SPDX-License-Identifier: Apache-2.0
 *
 * Child processes: started by execvp with only the descriptors that are
 * named, given a deadline, always reaped.
 */
#ifndef CA_BASE_CHILD_H
#define CA_BASE_CHILD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

struct child_opts {
	const char *const *argv;	/* NULL-terminated */
	const char *const *env;		/* NULL: inherited */
	const char *dir;		/* NULL: unchanged */
	const void *in;			/* bytes for stdin; NULL: /dev/null */
	size_t inlen;
	struct str *out;		/* stdout; NULL: /dev/null */
	struct str *errout;		/* stderr; may equal out; NULL: null */
	size_t outcap;			/* per stream; beyond it: killed; 0: the
					 * string's own cap */
	int64_t deadline;		/* now_ns() scale; 0: none */
	const int *keep;		/* descriptors kept, same numbers */
	size_t nkeep;
	/* Called in the child as the last step before exec (after dup2,
	 * PDEATHSIG and setpgid); may only make async-signal-safe calls.
	 * Not 0: nothing is executed, and child_run fails with its errno.
	 * NULL: none. */
	int (*before_exec)(void *arg);
	void *before_arg;
	int pass;	/* 1: stdin, stdout and stderr are the caller's own;
			 * in, out and errout must be NULL */
};

enum child_end {
	CHILD_EXITED, CHILD_SIGNALED,
	CHILD_TIMEOUT,			/* killed at the deadline */
	CHILD_OUTPUT,			/* killed: wrote more than outcap */
	CHILD_INTERRUPTED	/* killed: a signal came to us (sig.h) */
};

struct child_result {
	enum child_end how;
	int code;			/* exit status or signal */
	int64_t wall_ns;
	long maxrss_kib;
};

/*
 * Runs to its end.  The child leads a process group of its own that is
 * killed as a whole at the deadline, when it writes too much and after its
 * leader's end, and when a signal that sig_catch handles comes; it also dies
 * with the calling thread (PR_SET_PDEATHSIG).  Thread safe.  Returns -1 only
 * when it could not be started.
 */
int child_run(const struct child_opts *o, struct child_result *r,
	      struct err *e);

/* Starts without waiting (in, out and deadline are ignored; stdin is
 * /dev/null, stdout and stderr are stderr of the caller).  Own group. */
pid_t child_start(const struct child_opts *o, struct err *e);

/*
 * Starts a coprocess: what is written to *to is its stdin, what it writes to
 * stdout is read from *from (both close-on-exec), stderr is the caller's.
 * Own group; in, out, errout and deadline are ignored.
 */
pid_t child_coprocess(const struct child_opts *o, int *to, int *from,
		      struct err *e);

/* sig_fork; while there are too many processes it tries again for a few
 * seconds, or until a signal that sig_catch handles comes. */
pid_t child_fork(void);

/* Waits for pid until the deadline, then kills its group; reaps it.
 * *status as waitpid.  0, or 1 when it had to be killed. */
int child_finish(pid_t pid, int64_t deadline, int *status);

#endif
