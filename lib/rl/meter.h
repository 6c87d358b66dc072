/* SPDX-License-Identifier: Apache-2.0
 *
 * Metric records of a training, and the line that a terminal shows.
 */
#ifndef CA_RL_METER_H
#define CA_RL_METER_H

#include "base/io.h"
#include "base/opt.h"
#include "rec/json.h"
#include "rl/batch.h"

struct meter {
	const char *name;		/* of the program */
	struct output out;
	struct str line;
	struct jw w;
	int shown, prov, pipe_gone;
	int64_t began, step_began;	/* now_ns */
	int64_t first, last;		/* steps of this run: from, to */
	double flops;			/* of the step so far */
	double tokens;
	double peak;			/* FLOP/s of the device; 0: unknown */
	char note[128];			/* for the terminal */
};

/* Opens -o (or standard output). */
int meter_open(struct meter *m, const char *name, const struct common *c,
	       struct err *e);
/* Keeps what was written when `commit`. */
int meter_close(struct meter *m, int commit, struct err *e);

/* Begins the record of a step; members are then written to m->w. */
void meter_begin(struct meter *m, int64_t step);
/* perf/… and the end of the record, written at once.  CA_IOERR. */
int meter_end(struct meter *m, struct err *e);
/* Without perf/…: a record that is about no step's work. */
int meter_end_plain(struct meter *m, struct err *e);

/* The clock of a step starts; work that it did. */
void meter_start(struct meter *m);
void meter_work(struct meter *m, const struct learner *l,
		const struct rows *r, double passes);

/* NAME/{mean,max,min} of n numbers; nothing for none. */
void meter_spread(struct jw *w, const char *name, const double *x, size_t n);
void meter_spread_f(struct jw *w, const char *name, const float *x, size_t n);

/* 1 - Var(truth - guess) / Var(truth), of those that `use` selects (NULL:
 * all); NaN when the truth does not vary. */
double explained(const double *truth, const float *guess,
		 const uint8_t *use, size_t n);

/* critic/score, critic/rewards, response_length, num_turns and reward/R of
 * the batch's trajectories; members of w. */
void meter_batch(struct jw *w, const struct batch *b, size_t ctx);

/* What the critic is worth: critic/vf_explained_var, mc_explained_var. */
void meter_critic(struct jw *w, const struct batch *b);

/* Redraws the terminal's line. */
void meter_draw(struct meter *m, int64_t step);

#endif
