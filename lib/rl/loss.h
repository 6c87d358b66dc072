/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses of single tokens, their derivatives, and how tokens are weighed.  A
 * loss over a batch is the sum of weight times term.
 */
#ifndef CA_RL_LOSS_H
#define CA_RL_LOSS_H

#include <stddef.h>

/* verl's names: all tokens alike; the sum over a trajectory, the mean over
 * trajectories; the mean over a trajectory, the mean over trajectories; the
 * sum of everything. */
enum loss_agg { AGG_TOKEN_MEAN, AGG_SEQ_SUM, AGG_SEQ_MEAN, AGG_TOKEN_SUM };

#define AGG_NAMES \
	"token-mean|seq-mean-token-sum|seq-mean-token-mean|token-sum"

const char *agg_name(enum loss_agg a);
int agg_parse(const char *name);		/* -1: none */

/* Weight of each token of a trajectory that has `own`, in a batch of
 * `tokens` in `seqs` trajectories that have any. */
double agg_weight(enum loss_agg a, size_t own, size_t tokens, size_t seqs);

struct ppo_opts {
	double clip_low, clip_high;	/* rho in [1 - low, 1 + high] */
	double dual;			/* most of -A rho for A < 0, in |A|;
					 * infinity: no limit */
};

struct term {
	double loss, grad;		/* with respect to what is learned */
	int clipped;
};

#define LOG_RATIO_MAX 20

/* log(rho), limited to what exp can bear. */
double log_ratio(double now, double old);

/* The clipped policy loss of one token; grad is with respect to `now`. */
struct term ppo_term(const struct ppo_opts *o, double now, double old,
		     double advantage);

/* 1/2 (v - target)^2; with a finite clip the larger of it and that of v
 * limited to old +- clip. */
struct term value_term(double v, double old, double target, double clip);

#endif
