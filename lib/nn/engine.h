/* SPDX-License-Identifier: Apache-2.0
 *
 * A model on a device with a cache of keys and values in pages, one step at a
 * time: parts of many sequences go side by side, and where a part ends a
 * token is drawn.  What goes into a step is for nn/sched.h to say.
 */
#ifndef CA_NN_ENGINE_H
#define CA_NN_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "gpu/gpu.h"
#include "nn/config.h"
#include "nn/safetensors.h"

struct engine_opts {
	const char *dir;		/* the model's folder */
	const char *device;
	enum gpu_type type;		/* of weights, and of activations
					 * where the device has them */
	int ctx;			/* longest sequence; 0: the model's */
	int slots;			/* sequences at once */
	int64_t cache;			/* tokens of keys and values; 0: slots
					 * times ctx, or what fits */
	int sharing;			/* engines on this device; 0: one */
	unsigned flags;			/* GPU_EXACT */
};

/* Sets o->type by its name ("fp32", "bf16"), or for "auto" by what the
 * folder's embedding is stored as (fp16 becomes fp32). */
int engine_type(struct engine_opts *o, const char *name, struct err *e);

struct engine;

/* Loads a model.  `table`, if not NULL, gets the table of device memory. */
struct engine *engine_open(const struct engine_opts *o, struct str *table,
			   struct err *e);
void engine_close(struct engine *g);		/* NULL is fine */

const struct nn_config *engine_config(const struct engine *g);
struct gpu *engine_gpu(const struct engine *g);

/* The options as they were settled. */
const struct engine_opts *engine_opts(const struct engine *g);
int engine_chunk(const struct engine *g);	/* prompts' tokens in a step */
/* st_sum of the weights that it was opened with. */
uint64_t engine_sum(const struct engine *g);

#define ENGINE_TOP 20		/* alternatives of a drawn token, at most */
#define ENGINE_NEVER (-9999.0f)	/* log-probability of those that are masked */

struct engine_top {
	int32_t id;
	float logprob;
};

/* A part of a sequence, in a step. */
struct engine_part {
	const int32_t *token;		/* the sequence's, from its start */
	const int32_t *pages;
	int from, rows;			/* positions from .. from + rows */
	int draws;			/* a token after the last one */
	float temp, top_p, min_p, u;	/* as in struct gpu_sample */
	int top_k;
	int ntop;			/* at most ENGINE_TOP */
	/* If not NULL: score[i] gets the log-probability of token[i] for
	 * positions from + 1 .. from + rows that are below `scored`. */
	float *score;
	int scored;
	/* If not NULL: score_top[i * score_ntop] on, likewise, the likeliest
	 * tokens there. */
	struct engine_top *score_top;
	int score_ntop;			/* at most ENGINE_TOP */
	/* If not NULL, called before a token is drawn: lowers the logits of
	 * those that may not be.  `ready`, if not NULL, is called before it,
	 * while the device computes, to find out which these are. */
	void (*mask)(void *ctx, float *logits);
	void (*ready)(void *ctx);
	void *mask_ctx;
	/* Results of a part that draws; top has ntop, the likeliest first. */
	int32_t id;
	float logprob;
	struct engine_top *top;
};

/* Has `fn` called in each step while the device computes; on the CPU, which has
 * no time of its own then, before that. */
void engine_meanwhile(struct engine *g, void (*fn)(void *ctx), void *ctx);

/* Computes one step of nparts parts, at most `slots` of them, with at most
 * engine_chunk rows besides one for each. */
int engine_step(struct engine *g, struct engine_part *part, int nparts,
		struct err *e);

/* Whether weights fit the model: names, shapes, config.json of `dir`. */
int engine_fits(const struct engine *g, const char *dir, const struct st *s,
		struct err *e);

/* Replaces the weights by ones that fit.  What is in the cache is of the old
 * ones. */
int engine_load(struct engine *g, const struct st *s, struct err *e);

/* Gives the device's memory back; only engine_wake and engine_close may
 * follow.  engine_wake takes it again and loads weights that fit. */
void engine_sleep(struct engine *g);
int engine_wake(struct engine *g, const struct st *s, struct err *e);

#endif
