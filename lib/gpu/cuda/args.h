/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of kernels that take many: one text for the C compiler and for
 * NVRTC, which knows the type of activations.
 */
#ifndef CA_GPU_CUDA_ARGS_H
#define CA_GPU_CUDA_ARGS_H

#ifndef ACT
#define ACT void
#endif

/* y (m, n) = x (m, k) w (n, k)^T + bias + add; wide: y and add are fp32. */
struct product {
	void *y;
	const ACT *x;
	const void *w;
	const float *bias;
	const void *add;
	int m, n, k, wide;
	/* Of products of one row alone, see struct gpu_linear. */
	const float *norm;
	float eps;
	int gated;
};

struct rotation {
	ACT *q, *k, *v;
	const ACT *qkv;
	const float *table, *qn, *kn;
	const int *pos, *slot;
	int heads, kv_heads, dim;
	float eps;
};

/* What follows a product of one row: see struct gpu_linear. */
struct row_product {
	struct product p;
	struct rotation r;
	int rope, share;
};

struct rotation_back {
	ACT *dqkv;
	const ACT *dq, *dk, *dv, *qkv;
	const float *table, *qn, *kn;
	const int *pos;
	float *part;		/* (blocks, 2, D), sums for qn and kn */
	int heads, kv_heads, dim, t, per;
	float eps;
};

struct attention {
	ACT *out;
	float *lse;
	const ACT *q, *k, *v;
	const int *first, *len, *pages;
	int nseq, stride, rows, heads, kv_heads, dim;
	float scale;
	/* Of parts of the keys: sums (parts, rows, H, D) and logarithms. */
	float *part, *part_lse;
	int parts;
};

struct attention_back {
	ACT *dq, *dk, *dv;
	float *delta;
	const ACT *dout, *out, *q, *k, *v;
	const float *lse;
	const int *first;
	int nseq, rows, heads, kv_heads, dim;
	float scale;
};

/* One token through a model (step.cuh): as the model's layers lie on the
 * device, with their keys and values. */
struct step_layer {
	const void *w[4];		/* qkv, o, gate and up, down */
	const float *bias[4], *norm[2], *qn, *kn;
	void *k, *v;
};

#define STEP_PARTS 16			/* of the keys of a head, at most */

/* What blocks tell each other: rows of words, and by head and part of its keys
 * D + 2 of twice the size. */
struct step_told {
	unsigned *x, *mid, *qkv, *act;
	unsigned long long *att;
};

struct step {
	const struct step_layer *layer;
	int layers, hidden, heads, kv_heads, dim, inter, vocab;
	float eps, scale;
	const ACT *embed;
	const void *head;
	const float *norm, *table;
	const int *ids, *pos, *slot, *len, *pages;
	float *logits;
	unsigned *met;			/* by block: layers so far */
	struct step_told told;
	int share[5];			/* of a pair of rows: 2^share warps */
	int slots, window, row;		/* row: floats in shared memory */
};

#endif
