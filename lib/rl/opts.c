/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/opts.h"

#include <math.h>
#include <string.h>

const struct rl_opts rl_unset = {
	.device = "cpu", .dtype = "fp32", .preset = "small",
	.steps = -1, .epochs = -1, .batch = -1, .ctx = -1, .tokens = -1,
	.seqs = 64, .ranks = 1, .save_every = -1, .max_skipped = 3,
	.lr = -1, .critic_lr = -1, .clip_grad = 1, .decay = .01, .gamma = 1,
	.lambda_actor = .95, .lambda_critic = .95, .clip_low = .2,
	.clip_high = .28, .dual = INFINITY, .value_clip = INFINITY,
	.temperature = (double)NAN, .held_out = .1,
};

static void dflt(int64_t *x, int64_t v)
{
	if (*x < 0)
		*x = v;
}

/* The paper says nothing of the rate of fine-tuning. */
static void rates(struct rl_opts *o, enum rl_tool tool)
{
	if (o->lr < 0)
		o->lr = tool == RL_RFT ? 1e-5 : 3e-6;
	if (o->critic_lr < 0)
		o->critic_lr = 6e-6;
}

int opts_settle(struct rl_opts *o, enum rl_tool tool, struct err *e)
{
	int paper = !strcmp(o->preset, "paper");

	if (!o->out && !o->dry_run)
		return err_set(e, CA_USAGE, "--out DIR is needed");
	dflt(&o->batch, paper ? 1024 : 64);
	dflt(&o->ctx, paper ? 131072 : 4096);
	dflt(&o->tokens, o->ctx);
	dflt(&o->save_every, tool == RL_PPO ? 1 : 50);
	if (tool == RL_PPO && paper)
		dflt(&o->steps, 150);
	dflt(&o->epochs, 1);
	rates(o, tool);
	if (!o->gae)
		o->gae = paper ? "all" : "skip";
	if (paper)
		o->no_whiten = 1;
	if (!o->agg)
		o->agg = tool == RL_RFT ? "seq-mean-token-sum" :
			 "seq-mean-token-mean";
	if (o->tokens < o->ctx)
		return err_set(e, CA_USAGE, "--tokens is less than --ctx");
	return 0;
}

static void differ(struct str *s, const char *what, double ours, double paper)
{
	if (ours >= 0 && ours != paper)
		str_addf(s, "%s %g, in the paper %g\n", what, ours, paper);
}

static void differ_text(struct str *s, const char *what, const char *ours,
			const char *paper)
{
	if (strcmp(ours, paper))
		str_addf(s, "%s %s, in the paper %s\n", what, ours, paper);
}

void opts_deviations(const struct rl_opts *o, enum rl_tool tool,
		     struct str *s)
{
	static const char literal[] = "all (its formula taken literally)";

	differ(s, "context", (double)o->ctx, 131072);
	if (tool == RL_RFT) {
		differ_text(s, "loss", o->agg, "seq-mean-token-sum");
		return;
	}
	differ(s, "batch", (double)o->batch, 1024);
	differ_text(s, "advantages over tokens:",
		    strcmp(o->gae, "all") ? o->gae : literal, literal);
	differ(s, "gamma", o->gamma, 1);
	differ(s, "lambda of the critic's targets", o->lambda_critic, .95);
	differ(s, "learning rate of the critic", o->critic_lr, 6e-6);
	if (isfinite(o->value_clip))
		str_addf(s, "values are clipped at %g, in the paper not\n",
			 o->value_clip);
	if (tool == RL_VPRETRAIN)
		return;
	differ(s, "updates", (double)o->steps, 150);
	differ(s, "lambda of the advantages", o->lambda_actor, .95);
	differ(s, "learning rate of the actor", o->lr, 3e-6);
	differ(s, "clip below", o->clip_low, .2);
	differ(s, "clip above", o->clip_high, .28);
	differ_text(s, "loss", o->agg, "seq-mean-token-mean");
	if (!o->no_whiten)
		str_adds(s, "advantages are whitened, in the paper not\n");
	if (isfinite(o->dual))
		str_addf(s, "dual clip at %g, in the paper none\n", o->dual);
	if (o->recompute_old)
		str_adds(s, "old log-probabilities are computed here, in "
			 "the paper those of the rollout\n");
}

struct train_opts opts_train(const struct rl_opts *o, const char *dir,
			     int critic)
{
	return (struct train_opts){
		.dir = dir, .device = o->device,
		.type = strcmp(o->dtype, "bf16") ? GPU_F32 : GPU_BF16,
		.flags = o->exact ? GPU_EXACT : 0,
		.tokens = (int)o->tokens, .seqs = (int)o->seqs,
		.positions = (int)o->ctx, .recompute = o->recompute,
		.critic = critic,
	};
}

struct batch_opts opts_batch(const struct rl_opts *o)
{
	enum loss_agg agg = (enum loss_agg)agg_parse(o->agg);

	return (struct batch_opts){
		.agg = agg, .value_agg = AGG_SEQ_MEAN,
		.gae = (enum gae_mode)gae_parse(o->gae), .gamma = o->gamma,
		.lambda_actor = o->lambda_actor,
		.lambda_critic = o->lambda_critic, .whiten = !o->no_whiten,
		.clip = { o->clip_low, o->clip_high, o->dual },
		.value_clip = o->value_clip,
		.temperature = isnan(o->temperature) ? 1 : o->temperature,
	};
}

struct train_adam opts_adam(double lr, const struct rl_opts *o)
{
	return (struct train_adam){ lr, .9, .999, 1e-8, o->decay, 1 };
}
