/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations and their arguments; see gpu.h for types and shapes.
 */
#ifndef CA_GPU_OPS_H
#define CA_GPU_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/type.h"

/* y (m, n) = x (m, k) w (n, k)^T + bias (n) + add (m, n), which may be y
 * itself.  The type of w is that of the activations on CUDA, or fp32 where n
 * is 1.
 *
 * What is around a product can be done with it.  With `norm` (k), x is the
 * result of gpu_rmsnorm on it, by way of `normed` (m, k), which keeps it where
 * act or rope is there without lean and is undefined afterwards elsewhere.
 * With `act` (m, n / 2), that gets what gpu_swiglu makes of y, and with `rope`
 * gpu_rope is done on y, its qkv; with either and `lean` y is undefined
 * afterwards. */
struct gpu_linear {
	void *y;
	const void *x, *w;
	const void *bias;		/* fp32 or NULL */
	const void *add;		/* as y, or NULL */
	int m, n, k;
	int logits;			/* y is fp32 */
	enum gpu_type wtype;
	const void *norm;		/* fp32 or NULL */
	void *normed, *act;
	const struct gpu_rope *rope;
	float eps;
	int lean;
};

/* dx (m, k) = dy (m, n) w; dw (n, k) += dy^T x; db (n) += sum over rows of
 * dy.  Each of dx, dw, db may be NULL. */
struct gpu_linear_back {
	void *dx, *dw, *db;
	const void *dy, *x, *w;
	int m, n, k;
	enum gpu_type wtype;
};

/* The critic's head, y (m) = x (m, k) w (k) + b with w, y and dy fp32: dx (m,
 * k), activations, = dy w; dw += dy x; db += sum of dy. */
struct gpu_score_back {
	void *dx, *dw, *db;
	const void *dy, *x, *w;
	int m, k;
};

/* out (t, c) = w[ids]; back: dw[ids] += dout. */
struct gpu_embed {
	void *out;
	const void *w, *ids;		/* ids: int32 in [0, v) */
	int t, c;
	enum gpu_type wtype;
};
struct gpu_embed_back {
	void *dw;
	const void *dout, *ids;
	const void *order;	/* int32: the rows by id, those of one id in
				 * their own order */
	int t, c;
};

/* y = x / sqrt(mean(x^2) + eps) * w, over rows of c; back: dx +=, dw +=. */
struct gpu_rmsnorm {
	void *y;
	const void *x, *w;
	int t, c;
	float eps;
};
struct gpu_rmsnorm_back {
	void *dx, *dw;
	const void *dy, *x, *w;
	int t, c;
	float eps;
};

/*
 * From the projections qkv (t, (H + 2 K) D): norms of each head (qn, kn (D),
 * or NULL), rotation by `table` (positions, D: D/2 cosines, then D/2 sines) at
 * pos[t], q to q (t, H, D), k and v to rows slot[t] of k and v (rows, K, D).
 */
struct gpu_rope {
	void *q, *k, *v;
	const void *qkv, *table, *pos, *slot, *qn, *kn;
	int t, heads, kv_heads, dim;
	float eps;
};
/* dqkv from dq, dk and dv (both t rows); dqn +=, dkn +=. */
struct gpu_rope_back {
	void *dqkv, *dqn, *dkn;
	const void *dq, *dk, *dv, *qkv, *table, *pos, *qn, *kn;
	int t, heads, kv_heads, dim;
	float eps;
};

#define GPU_PAGE 16		/* tokens in a page of keys and values */

/*
 * Causal attention of nseq sequences.  Rows first[s] to first[s + 1] of q and
 * out (rows, H, D) are the last ones of sequence s, which has len[s] keys.
 * Its key j is row pages[s * stride + j / GPU_PAGE] * GPU_PAGE + j % GPU_PAGE
 * of k and v, or without pages row first[s] + j.  lse (rows, H), if not NULL,
 * gets the logarithm of the sum of the exponentials.
 */
struct gpu_attn {
	void *out, *lse;
	const void *q, *k, *v;
	const void *first, *len, *pages;
	int nseq, stride;
	int rows;
	int max_rows, max_len;	/* of one sequence: rows, keys; or more */
	int heads, kv_heads, dim;
	float scale;
};
/* Without pages, all rows of every sequence; dq, dk, dv are set. */
struct gpu_attn_back {
	void *dq, *dk, *dv;
	void *work;			/* fp32 (rows, H) */
	const void *dout, *out, *lse, *q, *k, *v, *first;
	int nseq, rows, max_rows, heads, kv_heads, dim;
	float scale;
};

/* out (t, f) = silu(gate) * up, of gu (t, 2 f): gate, then up. */
struct gpu_swiglu {
	void *out;
	const void *gu;
	int t, f;
};
struct gpu_swiglu_back {
	void *dgu;
	void *out;		/* what gpu_swiglu made, again; or NULL */
	const void *dout, *gu;
	int t, f;
};

/* out (m, c) = x[index]; back: dx[index] = dout, other rows stay. */
struct gpu_rows {
	void *out;
	const void *x, *index;
	int m, c;
};

/*
 * Of rows of logits (m, v), divided by a temperature: the log-probability of
 * target[m], the entropy and the log-sum-exp, fp32 each; entropy may be NULL.
 */
struct gpu_pick {
	void *logprob, *entropy, *lse;
	const void *logits, *target;
	int m, v;
	float inv_temp;
};
/* dlogits (m, v), activations, = d(sum of dlp * logprob + dent * entropy);
 * dent and entropy may be NULL. */
struct gpu_pick_back {
	void *dlogits;
	const void *logits, *target, *lse, *entropy, *dlp, *dent;
	int m, v;
	float inv_temp;
};

/*
 * Draws a token from each row of logits (m, v), the one at which the sum of
 * probabilities by id passes u.  Per row: temp (0: the
 * largest, the first of equals), top_p (1: all), top_k (0: all), min_p (0:
 * all) the share of the likeliest word's probability that a word needs, u in
 * [0, 1) the random number.  logprob is that of the token at that temperature
 * (at 1 when temp is 0) before top_p, top_k and min_p, bit for bit as
 * gpu_pick's.
 */
struct gpu_sample {
	void *id, *logprob;
	const void *logits, *temp, *top_p, *top_k, *min_p, *u;
	int m, v;
};

/* AdamW with decoupled decay on n fp32 weights; `out`, if not NULL, gets them
 * rounded.  c1, c2: 1 - beta^step.  Gradients are scaled by gscale. */
struct gpu_adamw {
	void *w, *m, *v, *out;
	const void *g;
	size_t n;
	enum gpu_type otype;
	float lr, beta1, beta2, eps, decay, c1, c2, gscale;
};

/* *out (double) = sum of squares of x (n), fp32; NaN or infinity if any is. */
struct gpu_sumsq {
	void *out;
	const void *x;
	size_t n;
};

/* A layer's weights (qkv, o, gate and up, down), their biases and the two
 * norms', the norms of heads, and its rows of keys and values; those that a
 * model does not have are NULL. */
struct gpu_layer {
	const void *w[4], *bias[4], *norm[2], *qn, *kn;
	void *k, *v;
};

/* One token of one sequence through all layers and the head, as the operations
 * do it one by one: logits (v), fp32, and the token's keys and values.
 * `layers` is on the device; `met` (GPU_MEET x uint32) is zero before the
 * first one, and nobody else's. */
#define GPU_MEET (1 << 17)
struct gpu_token {
	const void *layers;
	int nlayers, hidden, heads, kv_heads, dim, inter, vocab;
	enum gpu_type wtype;
	float eps, scale;
	const void *embed, *head, *norm, *table;
	const void *ids, *pos, *slot, *len, *pages;
	void *logits, *met;
};

#define GPU_OPS(X) \
	X(linear, gpu_linear) X(linear_back, gpu_linear_back) \
	X(score_back, gpu_score_back) \
	X(embed, gpu_embed) X(embed_back, gpu_embed_back) \
	X(rmsnorm, gpu_rmsnorm) X(rmsnorm_back, gpu_rmsnorm_back) \
	X(rope, gpu_rope) X(rope_back, gpu_rope_back) \
	X(attn, gpu_attn) X(attn_back, gpu_attn_back) \
	X(swiglu, gpu_swiglu) X(swiglu_back, gpu_swiglu_back) \
	X(rows, gpu_rows) X(rows_back, gpu_rows) \
	X(pick, gpu_pick) X(pick_back, gpu_pick_back) \
	X(sample, gpu_sample) X(adamw, gpu_adamw) X(sumsq, gpu_sumsq)

#endif
