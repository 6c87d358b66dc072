/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of the three trainers, presets, and what differs from the paper.
 */
#ifndef CA_RL_OPTS_H
#define CA_RL_OPTS_H

#include "base/opt.h"
#include "nn/train.h"
#include "rec/json.h"
#include "rl/batch.h"

/* What is not given is negative, NaN or NULL until opts_settle. */
struct rl_opts {
	const char *actor, *critic, *out, *device, *dtype, *preset;
	const char *agg, *gae, *logprobs, *publish;
	int64_t steps, epochs, batch, ctx, tokens, seqs, ranks, gpus;
	int64_t save_every, max_skipped;
	double lr, critic_lr, clip_grad, decay;
	double gamma, lambda_actor, lambda_critic;
	double clip_low, clip_high, dual, value_clip;
	double temperature, held_out;
	int resume, dry_run, exact, recompute, no_whiten, recompute_old;
	uint64_t seed;
};

enum rl_tool { RL_RFT, RL_VPRETRAIN, RL_PPO };

extern const struct rl_opts rl_unset;

#define RL_OPTS(o) \
	{ OPT_STR, 0, "out", "DIR", "where checkpoints go", &(o).out, 0, 0 }, \
	{ OPT_CHOICE, 0, "preset", "paper|small", "defaults for the rest " \
	  "(small)", &(o).preset, 0, 0 }, \
	{ OPT_INT, 0, "steps", "N", "updates in all", &(o).steps, 0, 1e9 }, \
	{ OPT_INT, 0, "batch", "N", "trajectories of an update", \
	  &(o).batch, 1, 1e6 }, \
	{ OPT_INT, 0, "ctx", "N", "longest sequence in tokens", &(o).ctx, \
	  2, 0x1p24 }, \
	{ OPT_INT, 0, "tokens", "N", "tokens of a micro-batch (--ctx)", \
	  &(o).tokens, 2, 0x1p26 }, \
	{ OPT_INT, 0, "seqs", "N", "sequences of a micro-batch (64)", \
	  &(o).seqs, 1, 65536 }, \
	{ OPT_NUM, 0, "clip-grad", "X", "norm that gradients are scaled " \
	  "down to; 0: none (1)", &(o).clip_grad, 0, 1e9 }, \
	{ OPT_NUM, 0, "weight-decay", "X", "of AdamW (0.01)", &(o).decay, \
	  0, 1 }, \
	{ OPT_INT, 0, "save-every", "N", "updates between checkpoints", \
	  &(o).save_every, 1, 1e9 }, \
	{ OPT_INT, 0, "max-skipped", "N", "updates in a row that may fail " \
	  "(3)", &(o).max_skipped, 1, 1e6 }, \
	{ OPT_FLAG, 0, "resume", NULL, "go on from --out", &(o).resume, \
	  0, 0 }, \
	{ OPT_FLAG, 0, "dry-run", NULL, "only the plan of memory and what " \
	  "the data are", &(o).dry_run, 0, 0 }, \
	{ OPT_STR, 0, "device", "NAME", "cpu (the default), cuda or cuda:N", \
	  &(o).device, 0, 0 }, \
	{ OPT_INT, 0, "gpus", "N", "share the work among N GPUs", &(o).gpus, \
	  1, COMM_MAX }, \
	{ OPT_CHOICE, 0, "dtype", "fp32|bf16", "type of weights in products", \
	  &(o).dtype, 0, 0 }, \
	{ OPT_FLAG, 0, "recompute", NULL, "keep only each layer's input", \
	  &(o).recompute, 0, 0 }, \
	{ OPT_INT, 0, "ranks", "N", "processes that share the work (1)", \
	  &(o).ranks, 1, COMM_MAX }

/* Fills in what was not given.  CA_USAGE when --out or a model is missing or
 * options do not go together. */
int opts_settle(struct rl_opts *o, enum rl_tool tool, struct err *e);

/* One line for each thing that is not as in the paper. */
void opts_deviations(const struct rl_opts *o, enum rl_tool tool,
		     struct str *out);

/* What a training depends on, as an object, for its checkpoint. */
void opts_write(struct jw *w, const struct rl_opts *o, enum rl_tool tool);

/*
 * Against what a checkpoint has (NULL: it states nothing).  CA_CONFIG names
 * all that differs where going on would not be the same training: what decides
 * which trajectories an update reads, and ranks.  What may be changed on the
 * way, as learning rates, is appended to `changed`, a line each.
 */
int opts_compare(const struct rl_opts *o, enum rl_tool tool,
		 const struct json *was, struct str *changed, struct err *e);

/* For the engine and for batches. */
struct train_opts opts_train(const struct rl_opts *o, const char *dir,
			     int critic, struct comm *comm);
struct batch_opts opts_batch(const struct rl_opts *o);
struct train_adam opts_adam(double lr, const struct rl_opts *o);

#endif
