/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/opts.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const struct rl_opts rl_unset = {
	.dtype = "fp32", .preset = "small",
	.steps = -1, .epochs = -1, .batch = -1, .ctx = -1, .tokens = -1,
	.seqs = 64, .ranks = -1, .gpus = -1, .save_every = -1, .max_skipped = 3,
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

static int check_given(const struct rl_opts *o, enum rl_tool tool,
		       struct err *e)
{
	if (tool == RL_VPRETRAIN && !o->actor == !o->critic)
		return err_set(e, CA_USAGE, "one of --actor and --critic is "
			       "needed");
	if (tool != RL_VPRETRAIN && !o->actor)
		return err_set(e, CA_USAGE, "--actor DIR is needed");
	if (!o->out && !o->dry_run)
		return err_set(e, CA_USAGE, "--out DIR is needed");
	return 0;
}

/* A rank for each GPU. */
static int devices(struct rl_opts *o, struct err *e)
{
	if (o->gpus > 0 && (o->ranks > 0 ||
			    (o->device && strcmp(o->device, "cuda"))))
		return err_set(e, CA_USAGE, "--gpus takes the GPUs from 0 on: "
			       "no --ranks, and no --device but cuda");
	if (!o->device)
		o->device = o->gpus > 0 ? "cuda" : "cpu";
	dflt(&o->ranks, o->gpus > 0 ? o->gpus : 1);
	return 0;
}

int opts_settle(struct rl_opts *o, enum rl_tool tool, struct err *e)
{
	int paper = !strcmp(o->preset, "paper");

	if (check_given(o, tool, e) || devices(o, e))
		return -1;
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

enum kind { INT, NUM, TEXT, FLAG };

enum {
	RFT = 1 << RL_RFT, VALUE = 1 << RL_VPRETRAIN, PPO = 1 << RL_PPO,
	EPOCHS = RFT | VALUE, CRITIC = VALUE | PPO, ALL = RFT | VALUE | PPO
};

/* What a training depends on; each by the masks of the tools for which it is
 * so. */
struct setting {
	const char *name;		/* in a checkpoint */
	const char *what;		/* in messages */
	enum kind kind;
	size_t at;
	int kept;			/* a checkpoint states it */
	int binding;			/* and nothing else goes on from it:
					 * which trajectories an update reads,
					 * or its bits, depend on it */
	int in_paper;			/* the paper states it, as: */
	double number;
	const char *text;
};

#define AT(m) offsetof(struct rl_opts, m)

static const struct setting settings[] = {
	{ "ctx", "context", INT, AT(ctx), ALL, EPOCHS, ALL, 131072, NULL },
	{ "batch", "batch", INT, AT(batch), ALL, EPOCHS, CRITIC, 1024, NULL },
	{ "ranks", "ranks", INT, AT(ranks), ALL, ALL, 0, 0, NULL },
	{ "held_out", "held-out share", NUM, AT(held_out), VALUE, VALUE, 0, 0,
	  NULL },
	{ "loss", "loss", TEXT, AT(agg), RFT, 0, RFT, 0,
	  "seq-mean-token-sum" },
	{ "loss", "loss", TEXT, AT(agg), PPO, 0, PPO, 0,
	  "seq-mean-token-mean" },
	{ "gae", "advantages over tokens:", TEXT, AT(gae), CRITIC, 0, CRITIC,
	  0, "all" },
	{ "gamma", "gamma", NUM, AT(gamma), CRITIC, 0, CRITIC, 1, NULL },
	{ "lambda_critic", "lambda of the critic's targets", NUM,
	  AT(lambda_critic), CRITIC, 0, CRITIC, .95, NULL },
	{ "critic_lr", "learning rate of the critic", NUM, AT(critic_lr),
	  CRITIC, 0, CRITIC, 6e-6, NULL },
	{ "value_clip", "clip of values", NUM, AT(value_clip), PPO, 0, PPO,
	  INFINITY, NULL },
	{ NULL, "updates", INT, AT(steps), 0, 0, PPO, 150, NULL },
	{ "lambda_actor", "lambda of the advantages", NUM, AT(lambda_actor),
	  PPO, 0, PPO, .95, NULL },
	{ "lr", "learning rate of the actor", NUM, AT(lr), RFT | PPO, 0, PPO,
	  3e-6, NULL },
	{ "clip_low", "clip below", NUM, AT(clip_low), PPO, 0, PPO, .2, NULL },
	{ "clip_high", "clip above", NUM, AT(clip_high), PPO, 0, PPO, .28,
	  NULL },
	{ "dual_clip", "dual clip", NUM, AT(dual), PPO, 0, PPO, INFINITY,
	  NULL },
	{ "no_whiten", "--no-whiten", FLAG, AT(no_whiten), PPO, 0, PPO, 1,
	  NULL },
	{ "recompute_old", "--recompute-old", FLAG, AT(recompute_old), PPO, 0,
	  PPO, 0, NULL },
	{ "exact", "--exact", FLAG, AT(exact), PPO, 0, 0, 0, NULL },
	{ "temperature", "temperature where none is stated", NUM,
	  AT(temperature), PPO, 0, 0, 0, NULL },
	{ "clip_grad", "norm of gradients", NUM, AT(clip_grad), ALL, 0, 0, 0,
	  NULL },
	{ "weight_decay", "weight decay", NUM, AT(decay), ALL, 0, 0, 0, NULL },
	{ "dtype", "type of weights in products:", TEXT, AT(dtype), ALL, 0, 0,
	  0, NULL },
	{ "tokens", "tokens of a micro-batch", INT, AT(tokens), ALL, 0, 0, 0,
	  NULL },
	{ "seqs", "sequences of a micro-batch", INT, AT(seqs), ALL, 0, 0, 0,
	  NULL },
};

#define SETTINGS (sizeof settings / sizeof *settings)

/* A setting's number, or its text. */
struct value {
	double number;			/* not finite: none */
	const char *text;		/* NULL: a number */
};

static struct value ours(const struct rl_opts *o, const struct setting *s)
{
	const char *p = (const char *)o + s->at;
	struct value v = { 0, NULL };

	if (s->kind == INT)
		v.number = (double)*(const int64_t *)(const void *)p;
	else if (s->kind == NUM)
		v.number = *(const double *)(const void *)p;
	else if (s->kind == FLAG)
		v.number = *(const int *)(const void *)p;
	else
		v.text = *(const char *const *)(const void *)p;
	return v;
}

static int same(struct value a, struct value b)
{
	if (a.text || b.text)
		return a.text && b.text && !strcmp(a.text, b.text);
	return a.number == b.number ||
	       (!isfinite(a.number) && !isfinite(b.number));
}

static void add_value(struct str *s, const struct setting *t, struct value v)
{
	if (v.text)
		str_adds(s, v.text);
	else if (t->kind == FLAG)
		str_adds(s, v.number > 0 ? "on" : "off");
	else if (isfinite(v.number))
		str_addf(s, "%g", v.number);
	else
		str_adds(s, "none");
}

/* "batch 64, in the paper 1024" */
static void add_line(struct str *s, const struct setting *t,
		     struct value mine, const char *where, struct value other)
{
	str_addf(s, "%s ", t->what);
	add_value(s, t, mine);
	str_addf(s, ", %s ", where);
	add_value(s, t, other);
}

void opts_deviations(const struct rl_opts *o, enum rl_tool tool,
		     struct str *s)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		const struct setting *t = &settings[i];
		const struct value mine = ours(o, t);
		const struct value paper = { t->number, t->text };

		if (!(t->in_paper & 1 << tool) || same(mine, paper) ||
		    mine.number < 0)
			continue;
		add_line(s, t, mine, "in the paper", paper);
		str_addc(s, '\n');
	}
}

void opts_write(struct jw *w, const struct rl_opts *o, enum rl_tool tool)
{
	jw_obj(w);
	for (size_t i = 0; i < SETTINGS; i++) {
		const struct setting *t = &settings[i];
		const struct value v = ours(o, t);

		if (!(t->kept & 1 << tool))
			continue;
		if (v.text)
			jw_kstr(w, t->name, v.text);
		else
			jw_knum(w, t->name, v.number);
	}
	jw_end_obj(w);
}

int opts_compare(const struct rl_opts *o, enum rl_tool tool,
		 const struct json *was, struct str *changed, struct err *e)
{
	struct str bound = STR_INIT;
	int rc = 0;

	for (size_t i = 0; was && i < SETTINGS; i++) {
		const struct setting *t = &settings[i];
		const struct json *j = json_get(was, t->name ? t->name : "");
		const struct value then = { json_num(j, (double)NAN),
					    json_str(j, NULL) };
		struct str *s = t->binding & 1 << tool ? &bound : changed;

		if (!(t->kept & 1 << tool) || !j || same(ours(o, t), then))
			continue;
		if (s == &bound && s->len)
			str_adds(s, "; ");
		add_line(s, t, ours(o, t), "in the checkpoint", then);
		if (s == changed)
			str_addc(s, '\n');
	}
	if (bound.len)
		rc = err_set(e, CA_CONFIG, "cannot go on with other settings: "
			     "%s", bound.buf);
	str_release(&bound);
	return rc;
}

struct train_opts opts_train(const struct rl_opts *o, const char *dir,
			     int critic, struct comm *comm)
{
	return (struct train_opts){
		.dir = dir, .device = o->device,
		.type = strcmp(o->dtype, "bf16") ? GPU_F32 : GPU_BF16,
		.flags = o->exact ? GPU_EXACT : 0,
		.tokens = (int)o->tokens, .seqs = (int)o->seqs,
		.positions = (int)o->ctx, .recompute = o->recompute,
		.critic = critic, .comm = comm,
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
