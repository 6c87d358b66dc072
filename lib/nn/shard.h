/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the parts of a training: train.c, which computes gradients, and
 * shard.c, where weights, gradients and moments are added up, stepped, read
 * and written, among ranks each its own part.
 */
#ifndef CA_NN_SHARD_H
#define CA_NN_SHARD_H

#include "nn/train.h"

struct bucket {			/* of all weights; the vectors come last */
	size_t at, n;
};

struct saved {			/* of one layer */
	void *in, *qkv, *q, *k, *v, *att, *lse, *mid, *gu;
	void *norm, *norm2;		/* NULL: made again */
};

struct train {
	struct train_opts o;
	struct gpu *g;
	struct nn_model m;
	struct nn_weights grad;
	struct gpu_plan plan;
	struct saved *layer;		/* one more: .in is the last output */
	void *master, *grads, *adam_m, *adam_v, *weights;
	void *norm, *act, *qkv, *q, *k, *v;
	void *dx, *dn, *dqkv, *dq, *dk, *dv, *datt, *dgu, *dact, *delta;
	void *out_x, *out_n, *dout_x, *dout_n, *logits, *dlogits;
	void *lp, *ent, *lse, *dlp, *dent, *sum, *ints, *work;
	size_t work_bytes;
	int32_t *host;			/* integers of a batch */
	int32_t *count;			/* of each word */
	struct nn_step step;
	const void *row, *target, *order;
	int head_rows;			/* whose logits are made at once */
	int all_logits;			/* are there, not only those */
	int spent;			/* gradients are in their place */
	int nout, entropy;		/* of the last forward */
	float inv_temp;
	int64_t steps;
	int fresh_head;			/* not in the file: zeroes */
	/* Alone: all matrices; all vectors.  Among ranks: the embeddings, each
	 * layer, the head, the vectors; an equal part of each is this
	 * rank's own. */
	struct bucket *bucket;
	size_t nbuckets, total;
	int last;			/* the next backward is */
};

/* Settles buckets and total, once the model is laid out. */
int shard_make(struct train *t, struct err *e);
size_t shard_count(const struct train *t);	/* of ranks */

/* Writes the rounded weights of all masters, if there are any. */
void shard_round(struct train *t);

/* In the last backward: adds up the ranks' gradients of a bucket, behind what
 * computes them. */
void shard_reduce(struct train *t, size_t bucket);

#endif
