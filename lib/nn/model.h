/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a model on a device, and its forward pass, which rollouts
 * and training share.
 */
#ifndef CA_NN_MODEL_H
#define CA_NN_MODEL_H

#include "gpu/gpu.h"
#include "nn/config.h"
#include "nn/safetensors.h"

/*
 * One weight as we keep it: up to three of the file's tensors below each
 * other (q, k and v; gate and up).  Matrices lie one behind the other in one
 * array of the model's type (with gaps of zeroes), vectors in one of fp32;
 * the critic's score is kept with the vectors.
 */
struct nn_param {
	char name[3][96];		/* in the file */
	int rows[3];
	int parts, cols;
	int vector;			/* lies among the vectors */
	int dims;			/* of the file's tensor: 1 or 2 */
	size_t at, n;			/* elements */
};

struct nn_layer {
	void *ln1, *qkv, *qkv_b, *qn, *kn, *o, *o_b;
	void *ln2, *gu, *gu_b, *down, *down_b;
};

/* Pointers to all weights (or to their gradients, in fp32). */
struct nn_weights {
	enum gpu_type type;		/* of matrices */
	void *mat, *vec;
	struct nn_layer *layer;
	void *embed, *norm, *head, *head_b;
};

struct nn_model {
	struct nn_config cfg;
	struct gpu *g;
	struct nn_param *param;
	size_t nparams, nmat, nvec;	/* counts; elements of the two arrays */
	size_t *cut;			/* layers + 3: where among the matrices
					 * the embeddings, each layer and the
					 * head begin; the end */
	struct nn_weights w;
	void *rope;			/* (positions, D) */
	int positions;
};

/* Lays out the weights of `cfg` with matrices of `type`, so that what is
 * between two cuts, and the vectors with up to 64 * `parts` elements behind
 * them, divide into `parts` equal parts of whole vectors; nothing is allocated
 * on the device.  Positions up to `positions` can be computed. */
int nn_model_init(struct nn_model *m, struct gpu *g,
		  const struct nn_config *cfg, enum gpu_type type,
		  int positions, int parts, struct err *e);
void nn_model_release(struct nn_model *m);

/* Adds the weights and the table of rotations to a plan, or only that. */
void nn_model_plan(struct nn_model *m, struct gpu_plan *p);
void nn_model_plan_rope(struct nn_model *m, struct gpu_plan *p);

/* After the plan's commit: sets the pointers, uploads the rotations. */
int nn_model_bind(struct nn_model *m, struct err *e);

/* Whether all weights are there.  CA_DATAERR names a tensor that is missing or
 * has another shape than the config says. */
int nn_model_check(const struct nn_model *m, const struct st *s,
		   struct err *e);

/* Checks, then uploads the weights of a folder. */
int nn_model_load(struct nn_model *m, const struct st *s, struct err *e);

/* Sets w's pointers for arrays at w->mat and w->vec of w->type. */
int nn_weights_bind(struct nn_weights *w, const struct nn_model *m,
		    struct err *e);
void nn_weights_release(struct nn_weights *w);

/* What a step computes: t tokens of nseq sequences.  Device pointers to
 * int32; see struct gpu_attn for first, len and pages. */
struct nn_step {
	const void *ids, *pos, *slot, *first, *len, *pages;
	int t, nseq, stride, max_rows, max_len;
};

/* Activations of one layer, t rows each. */
struct nn_acts {
	void *norm, *norm2;		/* (t, C), of the two halves */
	void *qkv;			/* (t, (H + 2 K) D) */
	void *q, *att;			/* (t, H D) */
	void *lse;			/* fp32 (t, H), or NULL */
	void *gu, *act;			/* (t, 2 F), (t, F) */
	void *k, *v;			/* rows of keys and values */
	int lean;			/* nothing has to be kept */
};

/* Largest number of elements of a matrix, and of rows plus columns, for
 * gpu_work_size. */
void nn_model_extent(const struct nn_model *m, size_t *width,
		     size_t *matrix);

/* x (t, C) = embeddings of the step's ids. */
void nn_embed(const struct nn_model *m, const struct nn_step *s, void *x);

/* The two halves of layer l.  `out` may be `in`. */
void nn_attention(const struct nn_model *m, int l, const struct nn_step *s,
		  const void *in, void *out, const struct nn_acts *a);
void nn_mlp(const struct nn_model *m, int l, int t, const void *in, void *out,
	    const struct nn_acts *a);

/* The parts of them that the backward pass computes again. */
void nn_rope(const struct nn_model *m, int l, const struct nn_step *s,
	     const struct nn_acts *a);
void nn_norm(const struct nn_model *m, const void *w, int t, const void *x,
	     void *y);

/* logits (rows, V) fp32, or values (rows, 1), of final states n (rows, C)
 * that nn_norm made with w.norm. */
void nn_head(const struct nn_model *m, int rows, const void *n,
	     void *logits);
/* That norm, then nn_head, by way of n, which is undefined afterwards. */
void nn_final(const struct nn_model *m, int rows, const void *x, void *n,
	      void *logits);
int nn_head_width(const struct nn_model *m);	/* V, or 1 */

/* What gpu_do_token is to know of each layer, whose keys and whose values take
 * so many bytes; then a step of one token, from its embedding up to its
 * logits: whether the device did it.  layers and met are struct gpu_token's. */
void nn_layers(const struct nn_model *m, void *keys, void *values,
	       size_t bytes, struct gpu_layer *out);
int nn_token(const struct nn_model *m, const struct nn_step *s,
	     const void *layers, void *met, void *logits);

#endif
