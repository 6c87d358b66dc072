/* SPDX-License-Identifier: Apache-2.0
 *
 * The three trainers: from the command line's options to checkpoints and
 * metrics.
 */
#ifndef CA_RL_RUN_H
#define CA_RL_RUN_H

#include "gpu/turn.h"
#include "rl/data.h"
#include "rl/meter.h"
#include "rl/opts.h"
#include "rl/ranks.h"
#include "rl/save.h"

/* Filters trajectories to standard output; loads no model. */
int rft_select(const struct common *c, int argc, char **argv, int first);

/* All that a trainer does behind its command line: settles options, runs,
 * ends its ranks and its output.  The exit code, or -1 with `e`. */
int rl_main(struct rl_opts *o, enum rl_tool tool, const struct common *c,
	    int argc, char **argv, int first, struct err *e);

/* What the three share, and they; each returns the exit code, or -1. */
struct run;
int rft_run(struct run *r, struct err *e);
int vpretrain_run(struct run *r, struct err *e);
int ppo_run(struct run *r, struct err *e);

struct run {
	const char *name;		/* of the program */
	enum rl_tool tool;
	struct rl_opts *o;
	struct common c;
	int argc, first;
	char **argv;
	struct ranks *ranks;
	struct comm *comm;		/* theirs */
	struct data data;
	struct text text;
	struct meter meter;
	struct batch_opts batch;
	struct save_state state;
	int found;			/* a checkpoint to go on from */
	int skipped;			/* updates in a row */
	char why[256];			/* the last of them was */
	int alone;			/* no line of progress but the
					 * metrics' */
	struct gpu_turn turn;		/* at the device */
	int code;			/* exit code of reading */
	char device[32];		/* this rank's own */
};

/* Settles options, finds a checkpoint in DIR (and `other`, or NULL), opens
 * the tokenizer in `folder`, starts ranks and the metrics. */
int run_begin(struct run *r, const char *folder, const char *dir,
	      const char *other, struct err *e);

/* Reads the input; `take` gets `ctx` and each trajectory record.  The exit
 * code stays in r->code. */
int run_read(struct run *r, int (*take)(void *ctx, struct rec *rec,
					struct err *e), void *ctx,
	     struct err *e);

/* The exit code of an input without anything to train on, which may be a file
 * that is not there. */
int run_nothing(const struct run *r);

/* Of a model that was opened: it shares this run's turns at the device. */
int run_join(struct run *r, struct learner *l, struct err *e);

/* save_load, and rank 0 says what is not as it was. */
int run_load(struct run *r, struct learner *l, const char *dir,
	     struct save_state *was, struct err *e);

/* Prints plan and deviations, as rank 0. */
void run_announce(struct run *r, const struct str *plan);

/* Whether all ranks are to stop: a signal has come. */
int run_stopping(struct run *r, int *stop, struct err *e);

/* Of what a pass over b returned, with its `e`: 0; -1; or 1 when an output was
 * not finite, and that is said, with the step and the trajectory. */
int run_pass(struct run *r, const struct learner *l, const struct batch *b,
	     int rc, struct err *e);

/*
 * The end of an update whose gradients are there: adds them up, steps or
 * skips, and writes PREFIX/{grad_norm, lr}.  1 when it was skipped, which is
 * said, with the sample.
 */
int run_update(struct run *r, struct learner *l, struct batch *b,
	       enum batch_loss which, double lr, struct err *e);

/* An update is over.  Too many in a row of which something was skipped are an
 * error. */
int run_count(struct run *r, int skipped, struct err *e);

#endif
