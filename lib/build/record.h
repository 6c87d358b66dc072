/* SPDX-License-Identifier: Apache-2.0
 *
 * The dry run of a candidate that builds its own kernels: what model_new.py
 * asks load_inline and load for, found by running it on fake tensors in a
 * confined child of a torch host.
 */
#ifndef CA_BUILD_RECORD_H
#define CA_BUILD_RECORD_H

#include "jail/jail.h"
#include "rec/json.h"
#include "torch/proto.h"

struct record_job {
	const char *task, *code;	/* model.py ("": none), model_new.py */
	int cuda;			/* as on a GPU of this architecture */
	const char *arch;
	int no_jail;
	double seconds;			/* limit; 0: 60 */
};

struct recorded {
	/* {"requests":[…],"refused":…,"error":…} as the child says, NULL when
	 * it said nothing; not to be trusted.  The caller frees it. */
	struct json *said;
	int timed_out;
	char text[CA_TEXT + 64];	/* why there is nothing; "" */
};

/*
 * Runs it, unless the cache knows what it asks for (said.h), one at a time in
 * this process: a thread keeps the host, which starts at the first call and
 * leaves with the process.  0 whatever the
 * candidate does; -1 for what this machine lacks (CA_UNAVAILABLE: torch, a
 * jail) and for an interrupt (CA_TEMPFAIL).  Thread safe.
 */
int record_run(const struct record_job *j, struct recorded *out,
	       struct err *e);

#endif
