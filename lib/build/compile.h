/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a plan's compilers: units in parallel, then the link.
 */
#ifndef CA_BUILD_COMPILE_H
#define CA_BUILD_COMPILE_H

#include "build/log.h"
#include "build/plan.h"
#include "jail/jail.h"

struct compile_opts {
	enum jail_level level;
	int jobs;		/* most compilers at once; 0: as limits.h */
	double timeout;		/* seconds of one compiler run */
};

struct compiled {
	enum status status;	/* ok, compile_error, build_timeout, oom */
	struct str object;	/* bytes, when ok */
	struct str log;		/* what the compilers said, in unit order */
	size_t unit;		/* the failed unit; nunit: the link */
};

/*
 * Builds in a temporary directory that is gone afterwards.  A compiler that
 * dies for lack of memory is tried once more with no other beside it.  -1
 * with `e` when the machine failed: jail, disk (CA_IOERR, CA_CANTCREAT), or
 * an interrupt (CA_TEMPFAIL).  The caller releases both strings.
 */
int compile_plan(const struct plan *p, const struct compile_opts *o,
		 struct compiled *out, struct err *e);

#endif
