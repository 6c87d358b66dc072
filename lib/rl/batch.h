/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch of trajectories in training: what the models say of it, advantages
 * and targets, and the gradients of the three losses.
 */
#ifndef CA_RL_BATCH_H
#define CA_RL_BATCH_H

#include "rl/gae.h"
#include "rl/learner.h"
#include "rl/loss.h"

struct batch_opts {
	enum loss_agg agg;		/* of the policy's and RFT's loss */
	enum loss_agg value_agg;
	enum gae_mode gae;
	double gamma, lambda_actor, lambda_critic;
	int whiten;
	struct ppo_opts clip;
	double value_clip;		/* infinity: none */
	double temperature;		/* of the log-probabilities */
};

struct batch {
	const struct batch_opts *o;
	const struct traj *t;
	size_t n;
	/* Outputs of the actor: the agent's tokens. */
	struct rows act;
	double *weight, *advantage;
	float *logprob, *entropy, *old;
	/* Outputs of the critic: the same, or under GAE_ALL all steps. */
	struct rows val;
	double *value_weight, *returns;
	float *value, *old_value;
	double reward_in, reward_used;	/* sums; equal */
};

/* Refers to trajectories, which have tokens of the agent, and options.  `old`
 * are the log-probabilities that the trajectories state. */
int batch_init(struct batch *b, const struct batch_opts *o,
	       const struct traj *t, size_t n, struct err *e);
void batch_release(struct batch *b);

/* Passes return what learner_pass does: 1 when an output is not finite. */

/* The critic's values; from them advantages and returns.  CA_SOFTWARE when a
 * reward was lost on the way. */
int batch_values(struct batch *b, struct learner *critic, struct err *e);

/* The actor's log-probabilities as `old`, instead of those stated. */
int batch_recompute(struct batch *b, struct learner *actor, struct err *e);

/* Passes that add to gradients: -log p, weighed; the clipped loss (fills
 * logprob and entropy); the critic's (fills value, keeping the values that
 * advantages came from in old_value). */
int batch_rft(struct batch *b, struct learner *actor, struct err *e);
int batch_ppo(struct batch *b, struct learner *actor, struct err *e);
int batch_critic(struct batch *b, struct learner *critic, struct err *e);

/* The loss of the last such pass. */
double batch_rft_loss(const struct batch *b);
double batch_ppo_loss(const struct batch *b);
double batch_value_loss(const struct batch *b);

enum batch_loss { BATCH_RFT, BATCH_PPO, BATCH_VALUE };

/*
 * After learner_step dropped a gradient: the first trajectory whose own is not
 * finite, found by computing each sequence alone; n: none.  -1 on failure.
 * Gradients are cleared.
 */
long batch_culprit(struct batch *b, struct learner *l, enum batch_loss which,
		   struct err *e);

#endif
