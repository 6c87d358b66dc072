/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation: many sequences at once on one model.  Requests come from any
 * threads; one thread of its own lets the scheduler (nn/sched.h) choose and
 * the engine (nn/engine.h) compute, step after step.  While it computes it
 * holds the device's lease (cu/lease.h), shared.
 */
#ifndef CA_NN_GEN_H
#define CA_NN_GEN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "nn/engine.h"

struct gen;

/* Loads a model.  `table`, if not NULL, gets the table of device memory. */
struct gen *gen_open(const struct engine_opts *o, struct str *table,
		     struct err *e);
void gen_close(struct gen *g);		/* NULL is fine; no request may run */

const struct nn_config *gen_config(const struct gen *g);
int gen_ctx(const struct gen *g);	/* longest sequence, in tokens */
int gen_slots(const struct gen *g);	/* sequences at once */

/* Which weights: their number in this process, from 1, and st_sum. */
struct gen_weights {
	uint64_t version, sum;
};

#define GEN_COOLEST 0.01f

enum gen_end { GEN_STOP, GEN_LENGTH, GEN_CANCELLED, GEN_FAILED };

struct gen_req {
	const int32_t *prompt;
	int nprompt;			/* at least 1 */
	int max_new;			/* nprompt + max_new <= gen_ctx */
	float temp, top_p, min_p;	/* temp 0: the likeliest token, else
					 * at least GEN_COOLEST */
	int top_k;
	uint64_t seed;
	uint64_t party;			/* for whom; see nn/sched.h */
	int ignore_eos;
	int ntop;			/* alternatives, at most ENGINE_TOP */
	/* Called after each token, in the engine's thread, where nothing of
	 * gen may be called: 0 ends the sequence.  May be NULL. */
	int (*more)(void *ctx, int32_t token, float logprob);
	/* If not NULL, called there before each token: lowers the logits, of
	 * the whole vocabulary, of those that may not be drawn.  Then
	 * log-probabilities are those among the others.  -1 with an error
	 * fails the request. */
	int (*mask)(void *ctx, float *logits, struct err *e);
	/* If not NULL, called before `mask`, while the device computes these
	 * logits: finds out which may be drawn. */
	void (*ready)(void *ctx);
	void *mask_ctx;
	/* Called in the engine's thread when the request has ended; it may be
	 * freed from then on.  For gen_submit; gen_run has its own. */
	void (*ended)(void *ctx);
	void *ctx;
	/* If not NULL, nprompt numbers: the log-probability of each token of
	 * the prompt but the first, at `temp` (at 1 when it is 0). */
	float *prompt_logprob;
	/* With it, nprompt * ntop, or NULL: the likeliest tokens there. */
	struct engine_top *prompt_top;
	/* Results; the caller's arrays of max_new, and of max_new * ntop. */
	int32_t *id;
	float *logprob;
	struct engine_top *top;
	int n;
	int shared;			/* tokens of the prompt in the cache */
	struct gen_weights weights[2];	/* for the first and for the last
					 * token */
	enum gen_end end;
	struct err err;			/* for GEN_FAILED */
	struct gen_job *job;		/* gen's own */
};

/* Has `stepped` called as `more` is, once after the tokens of each step (while
 * the next one runs, if one follows at once), and after each order: whether it
 * sleeps now.  To be said before there is a
 * request. */
void gen_on_step(struct gen *g, void (*stepped)(void *ctx, int asleep),
		 void *ctx);

/* Runs one request to its end.  -1 with `e` when the engine failed or the
 * request cannot be (CA_DATAERR).  Thread safe. */
int gen_run(struct gen *g, struct gen_req *r, struct err *e);

/* Whether the request can be: 0, or -1 with CA_DATAERR. */
int gen_check(const struct gen *g, const struct gen_req *r, struct err *e);

/* The same without waiting: 0, and `ended` will be called once; or -1. */
int gen_submit(struct gen *g, struct gen_req *r, struct err *e);

/* Ends a request that was submitted as soon as may be, with what it has; it
 * may have ended already, but not have been freed. */
void gen_cancel(struct gen *g, struct gen_req *r);

/*
 * Replaces the weights of n replicas by those of another folder of the same
 * kind of model (NULL: the same folder), in each between two steps, in all at
 * once.  They are
 * read and checked once: all of the replicas get the same ones under the same
 * number, or, when they are not whole, all keep the old ones.  (Only a device
 * that fails leaves others than its own changed; the error names it, and its
 * replica sleeps.)  What runs goes on with what it has said so far; its keys
 * and values are computed anew.  Thread safe.
 */
int gen_reload(struct gen *const *g, int n, const char *dir, struct err *e);

/* Gives the device's memory and lease back, between two steps; requests wait
 * until gen_wake takes them again and loads the weights that the folder holds
 * now, for n replicas as gen_reload does. */
int gen_sleep(struct gen *g, struct err *e);
int gen_wake(struct gen *const *g, int n, struct err *e);

/* From now on no order waits for a device that others hold: CA_UNAVAILABLE. */
void gen_hurry(struct gen *g);

struct gen_stats {
	/* What was done so far. */
	uint64_t prompt_tokens, shared_tokens, new_tokens, steps, put_off;
	uint64_t requests, cancelled, failed;	/* that ended */
	double busy_s;			/* seconds in which steps ran */
	/* How it is now. */
	int running, waiting, asleep;
	int pages, free_pages;		/* of the cache */
	struct gen_weights weights;
	double reload_s;		/* the last reload's pause */
};
void gen_get_stats(struct gen *g, struct gen_stats *s);

#endif
