/* SPDX-License-Identifier: Apache-2.0
 *
 * The three trainers: from the command line's options to checkpoints and
 * metrics.  Each returns the exit code, or -1 with `e`.
 */
#ifndef CA_RL_RUN_H
#define CA_RL_RUN_H

#include "rl/data.h"
#include "rl/meter.h"
#include "rl/opts.h"
#include "rl/save.h"

/* Filters trajectories to standard output; loads no model. */
int rft_select(const struct common *c, int argc, char **argv, int first);

int rft_run(struct rl_opts *o, const struct common *c, int argc,
	    char **argv, int first, struct err *e);
int vpretrain_run(struct rl_opts *o, const struct common *c, int argc,
		  char **argv, int first, struct err *e);
int ppo_run(struct rl_opts *o, const struct common *c, int argc,
	    char **argv, int first, struct err *e);

/* What they share. */
struct run {
	const char *name;		/* of the program */
	enum rl_tool tool;
	struct rl_opts *o;
	struct common c;
	int argc, first;
	char **argv;
	struct ranks *ranks;
	struct data data;
	struct text text;
	struct meter meter;
	struct batch_opts batch;
	struct save_state state;
	int found;			/* a checkpoint to go on from */
	int skipped;			/* updates in a row */
	int code;			/* exit code of reading */
	char device[32];		/* this rank's own */
};

/* Settles options, finds a checkpoint in DIR (and `other`, or NULL), opens
 * the tokenizer in `folder`, starts ranks and the metrics. */
int run_begin(struct run *r, const char *folder, const char *dir,
	      const char *other, struct err *e);

/* Reads the input; `take` gets each trajectory record.  The exit code stays
 * in r->code. */
int run_read(struct run *r, int (*take)(void *run, struct rec *rec,
					struct err *e), struct err *e);

/* Prints plan and deviations, as rank 0. */
void run_announce(struct run *r, const struct str *plan);

/* Whether all ranks are to stop: a signal has come. */
int run_stopping(struct run *r, int *stop, struct err *e);

/*
 * The end of an update whose gradients are there: adds them up, steps or
 * skips, and writes PREFIX/{grad_norm, lr}.  1 when it was skipped, which is
 * said, with the sample; too many in a row are an error.
 */
int run_update(struct run *r, struct learner *l, struct batch *b,
	       enum batch_loss which, double lr, struct err *e);

void run_end(struct run *r);

#endif
