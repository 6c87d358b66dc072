/* SPDX-License-Identifier: Apache-2.0
 *
 * A training step of a model: forward over packed sequences, the
 * log-probabilities of chosen tokens (or the critic's values), backward, and
 * AdamW on fp32 master weights.  Losses are the caller's: it gets
 * log-probabilities and says how much each of them matters.
 *
 * The forward pass is that of nn/model.h, as generation runs it.
 */
#ifndef CA_NN_TRAIN_H
#define CA_NN_TRAIN_H

#include "gpu/gpu.h"
#include "nn/model.h"

struct train_opts {
	const char *dir;		/* the model's folder */
	const char *device;
	enum gpu_type type;		/* of weights in products; fp32 on the
					 * CPU */
	unsigned flags;			/* GPU_EXACT */
	int tokens, seqs;		/* most of one micro-batch */
	int positions;			/* longest sequence */
	int recompute;			/* keep only each layer's input: less
					 * memory, a third more work */
	int critic;			/* a language model's folder becomes a
					 * critic: a head of zeroes */
	/*
	 * Ranks that train the same model, or NULL.  Each keeps weights and
	 * gradients whole but only its own part of Adam's moments, for which
	 * it makes the step.  Whatever is said of "all ranks" is a call that
	 * each has to make, in the same order.
	 */
	struct comm *comm;
};

struct train;

/* All ranks. */
struct train *train_open(const struct train_opts *o, struct str *table,
			 struct err *e);
void train_close(struct train *t);	/* NULL is fine */

const struct nn_model *train_model(const struct train *t);
struct gpu *train_gpu(const struct train *t);

/*
 * A micro-batch: sequence s is tokens first[s] to first[s + 1] of ids, at
 * positions from 0.  Row row[i] predicts target[i]; every row at most once.
 * For a critic target is not read: the value of row[i] is wanted.
 */
struct train_batch {
	const int32_t *ids, *first, *row, *target;
	int nseq, nout;
	float inv_temp;
};

/* Forward.  logprob[nout] gets log-probabilities (or values); entropy[nout]
 * may be NULL.  What backward needs is kept until the next call.  CA_DATAERR
 * when the batch is not within the limits. */
int train_forward(struct train *t, const struct train_batch *b,
		  float *logprob, float *entropy, struct err *e);

/* Adds to the gradients those of sum(dlp * logprob + dent * entropy) of the
 * last forward; dent may be NULL, and is if entropy was. */
int train_backward(struct train *t, const float *dlp, const float *dent,
		   struct err *e);

/*
 * Of each rank, once before a step: the train_backward that comes is its last,
 * and the ranks' gradients are added up while it still computes others; or
 * there is none (more).
 */
void train_last(struct train *t);
int train_reduce(struct train *t, struct err *e);

/* The norm of all gradients, added up; NaN or infinite when one is.  All
 * ranks. */
int train_grad_norm(struct train *t, double *norm, struct err *e);

struct train_adam {
	double lr, beta1, beta2, eps, decay;	/* decay: matrices only */
	double scale;				/* of the gradients */
};

/* One step of AdamW; gradients become zero.  All ranks.  train_clear only does
 * the last. */
int train_step(struct train *t, const struct train_adam *a, struct err *e);
int train_clear(struct train *t, struct err *e);

/* Steps taken so far; their number is part of a checkpoint. */
int64_t train_steps(const struct train *t);
void train_set_steps(struct train *t, int64_t steps);

/* What there is of each weight, n fp32 numbers by nn_param's place.  Reading
 * is of all ranks; gradients are whole after train_last or train_reduce. */
enum train_what { TRAIN_WEIGHT, TRAIN_GRADIENT, TRAIN_M, TRAIN_V };
int train_read(struct train *t, enum train_what what,
	       const struct nn_param *p, float *out, struct err *e);
int train_write(struct train *t, enum train_what what,
		const struct nn_param *p, const float *in, struct err *e);

#endif
