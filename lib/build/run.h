/* SPDX-License-Identifier: Apache-2.0
 *
 * The one door through which compilers are started.
 */
#ifndef CA_BUILD_RUN_H
#define CA_BUILD_RUN_H

#include "base/child.h"
#include "jail/jail.h"

struct compiler_run {
	enum jail_level level;
	const char *const *argv;	/* argv[0] absolute */
	const char *dir;		/* the tree: readable, working place */
	const char *const *ro;		/* what else it may read; NULL-ended */
	const char *out;		/* the directory that it may write */
	int64_t deadline;
	int64_t mem_bytes;		/* address space of a process */
};

#define COMPILER_LOG ((size_t)1 << 20)	/* beyond it the compiler is killed */

/*
 * Runs a compiler in the jail with a fixed environment (SOURCE_DATE_EPOCH,
 * LANG=C, nothing of ours); what it says goes to `log`.  As root `out` is
 * given to the job's uid.  -1 only when it could not be started.
 */
int compiler_run(const struct compiler_run *c, struct str *log,
		 struct child_result *r, struct err *e);

#endif
