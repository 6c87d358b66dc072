/* SPDX-License-Identifier: Apache-2.0
 *
 * A model in training: passes over a batch in micro-batches and ranks, the
 * gradient, a step.  Results do not depend on how a batch is split, but for
 * the order in which gradients are added.
 */
#ifndef CA_RL_LEARNER_H
#define CA_RL_LEARNER_H

#include "gpu/turn.h"
#include "nn/train.h"
#include "rl/rows.h"

struct learner {
	struct train *t;
	const char *name;		/* "actor", "critic", for messages */
	struct comm *comm;		/* its ranks, of train_opts */
	struct gpu_turn *turn;		/* at the device; NULL: nobody else
					 * uses it */
	size_t bad;			/* see learner_pass */
	size_t tokens, seqs;		/* most of a micro-batch */
	/* Of one micro-batch. */
	int32_t *ids, *first, *row, *target;
	float *out, *entropy, *dout;
};

/* Opens a model for micro-batches within o->tokens and o->seqs; appends its
 * plan of memory to `table` (may be NULL).  As all calls here it is of all
 * ranks. */
int learner_open(struct learner *l, const char *name,
		 const struct train_opts *o, struct str *table,
		 struct err *e);
void learner_close(struct learner *l);

/*
 * What a pass does with the outputs first to first + n of a batch once they
 * are known: sets the derivative of the loss by each.  A sequence at a time,
 * in any order.
 */
typedef void learner_loss(void *ctx, size_t first, size_t n,
			  const float *out, float *dout);

/*
 * Computes log-probabilities at 1 / inv_temp (or values) of all outputs into
 * out[r->n] and entropies into entropy[r->n] (or NULL), on every rank.  With
 * `loss` adds to the gradients, and those of the ranks up: there is one such
 * pass between two steps.  1 when an output is not finite: l->bad is the
 * trajectory of the first, `e` says what it is, and gradients are dropped.
 */
int learner_pass(struct learner *l, const struct rows *r, float inv_temp,
		 learner_loss *loss, void *ctx, float *out, float *entropy,
		 struct err *e);

/*
 * A step of AdamW, gradients scaled down to a norm of at most `clip` (0: as
 * they are); or, when norm is not finite, none: gradients are dropped and 1
 * is returned, with what was not finite in `e`.  norm is train_grad_norm's.
 */
int learner_step(struct learner *l, const struct train_adam *a, double norm,
		 double clip, struct err *e);

/* Multiply-adds count twice: floating point operations to train on a token in
 * sequences of `len`. */
double learner_flops(const struct learner *l, double len);

#endif
