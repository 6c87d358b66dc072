/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation: many sequences at once on one model.  Requests come from any
 * threads; one thread of the engine's own computes steps in which prompts and
 * growing sequences go side by side, so a sequence that ends makes room for
 * the next at once.
 */
#ifndef CA_NN_GEN_H
#define CA_NN_GEN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "gpu/gpu.h"
#include "nn/config.h"

struct gen_opts {
	const char *dir;		/* the model's folder */
	const char *device;
	enum gpu_type type;		/* of weights, and of activations
					 * where the device has them */
	int ctx;			/* longest sequence; 0: the model's */
	int slots;			/* sequences at once */
	int64_t cache;			/* tokens of keys and values; 0: slots
					 * times ctx */
	unsigned flags;			/* GPU_EXACT */
};

/* Sets o->type by its name ("fp32", "bf16"), or for "auto" by what the
 * folder's embedding is stored as (fp16 becomes fp32). */
int gen_type(struct gen_opts *o, const char *name, struct err *e);

struct gen;

/* Loads a model.  `table`, if not NULL, gets the table of device memory. */
struct gen *gen_open(const struct gen_opts *o, struct str *table,
		     struct err *e);
void gen_close(struct gen *g);		/* NULL is fine; no request may run */

const struct nn_config *gen_config(const struct gen *g);
int gen_ctx(const struct gen *g);	/* longest sequence, in tokens */

enum gen_end { GEN_STOP, GEN_LENGTH, GEN_FAILED };

struct gen_req {
	const int32_t *prompt;
	int nprompt;			/* at least 1 */
	int max_new;			/* nprompt + max_new <= gen_ctx */
	float temp, top_p;		/* temp 0: the likeliest token */
	int top_k;
	uint64_t seed;
	int ignore_eos;
	/* Asked after each token, in the engine's thread: 0 ends the
	 * sequence.  May be NULL. */
	int (*more)(void *ctx, int32_t token, float logprob);
	void *more_ctx;
	/* If not NULL, nprompt numbers: the log-probability of each token of
	 * the prompt but the first, at `temp` (at 1 when it is 0). */
	float *prompt_logprob;
	/* Results; the caller's arrays of max_new. */
	int32_t *id;
	float *logprob;
	int n;
	enum gen_end end;
};

/* Runs one request to its end.  -1 with `e` when the engine failed or the
 * request cannot be (CA_DATAERR).  Thread safe. */
int gen_run(struct gen *g, struct gen_req *r, struct err *e);

/* What was done so far. */
struct gen_stats {
	uint64_t prompt_tokens, shared_tokens, new_tokens, steps;
	double busy_s;			/* seconds in which steps ran */
};
void gen_get_stats(struct gen *g, struct gen_stats *s);

#endif
