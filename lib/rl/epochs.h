/* SPDX-License-Identifier: Apache-2.0
 *
 * Training of one model over all of its data, in epochs: what ca-rft and
 * ca-vpretrain share.
 */
#ifndef CA_RL_EPOCHS_H
#define CA_RL_EPOCHS_H

#include "rl/run.h"

struct epochs {
	struct run *r;
	const char *from;		/* the model's folder */
	int critic;
	/* One update on a batch: writes metrics, returns what run_update
	 * does. */
	int (*update)(struct epochs *p, struct batch *b, struct err *e);
	/* Before the first and behind the last update; writes a record.  May
	 * be NULL. */
	int (*report)(struct epochs *p, struct err *e);
	struct traj *held;		/* the last of the data, not trained
					 * on */
	size_t nheld;
	struct learner model;
};

/*
 * All updates, checkpoints included.  The exit code, or -1.  Update s uses a
 * batch that depends on s and the seed only, so a run can be gone on with
 * anywhere.
 */
int epochs_run(struct epochs *p, struct err *e);

#endif
