/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent of the rollouts: starts them, brings their questions to the
 * judges, reaps them, and writes what they leave.
 */
#ifndef CA_AGENT_POOL_H
#define CA_AGENT_POOL_H

#include "agent/agent.h"
#include "agent/judges.h"
#include "base/opt.h"

struct pool_opts {
	struct agent_opts *agent;	/* dir, skill and python are set here */
	const struct opt_list *judges;	/* commands; empty: our own program */
	const char *const *own_judge;	/* its argv, but the device */
	const struct opt_list *devices;	/* for it; see judges.h */
	int64_t own_judges;
	const struct opt_list *endpoints;	/* none: agent->model_cmd */
	int64_t k;		/* rollouts for each task */
	int resume, keep;
	const char *dir;	/* NULL: a fresh one, removed at the end */
};

/* Runs over operands as stage_run does; the exit code.  -1 with `e` when it
 * could not begin. */
int pool_run(const struct pool_opts *o, const struct common *c, int argc,
	     char **argv, int first, struct err *e);

#endif
