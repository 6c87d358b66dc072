/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-ppo: improves actor and critic, a batch of trajectories at a time.
 */
#include "base/err.h"
#include "rl/run.h"

static struct rl_opts o;

static const struct opt options[] = {
	{ OPT_STR, 0, "actor", "DIR", "the model that made the trajectories",
	  &o.actor, 0, 0 },
	{ OPT_STR, 0, "critic", "DIR", "what ca-vpretrain made; without, the "
	  "actor's own weights", &o.critic, 0, 0 },
	{ OPT_NUM, 0, "lr", "X", "learning rate of the actor (3e-6)", &o.lr,
	  0, 1 },
	{ OPT_NUM, 0, "critic-lr", "X", "of the critic (6e-6)", &o.critic_lr,
	  0, 1 },
	{ OPT_CHOICE, 0, "loss-agg", AGG_NAMES, "how tokens are weighed "
	  "(seq-mean-token-mean)", &o.agg, 0, 0 },
	{ OPT_CHOICE, 0, "gae", "skip|all|turn", "what a step is (skip; with "
	  "--preset paper all)", &o.gae, 0, 0 },
	{ OPT_NUM, 0, "gamma", "X", "discount (1)", &o.gamma, 0, 1 },
	{ OPT_NUM, 0, "lambda-actor", "X", "of the advantages (0.95)",
	  &o.lambda_actor, 0, 1 },
	{ OPT_NUM, 0, "lambda-critic", "X", "of the critic's targets (0.95)",
	  &o.lambda_critic, 0, 1 },
	{ OPT_FLAG, 0, "no-whiten", NULL, "leave advantages as they are",
	  &o.no_whiten, 0, 0 },
	{ OPT_NUM, 0, "clip-low", "X", "rho is clipped at 1 - X (0.2)",
	  &o.clip_low, 0, 1 },
	{ OPT_NUM, 0, "clip-high", "X", "and at 1 + X (0.28)", &o.clip_high,
	  0, 1e9 },
	{ OPT_NUM, 0, "dual-clip", "X", "limit of rho where A < 0 (none)",
	  &o.dual, 1, 1e9 },
	{ OPT_NUM, 0, "value-clip", "X", "how far a value may move at once "
	  "(any)", &o.value_clip, 0, 1e9 },
	{ OPT_NUM, 0, "temperature", "T", "of trajectories that do not state "
	  "it", &o.temperature, 1e-6, 100 },
	{ OPT_CHOICE, 0, "logprobs", "raw|temperature", "what "
	  "log-probabilities are where it is not stated", &o.logprobs, 0, 0 },
	{ OPT_FLAG, 0, "recompute-old", NULL, "do not believe the rollouts' "
	  "log-probabilities", &o.recompute_old, 0, 0 },
	{ OPT_FLAG, 0, "exact", NULL, "insist that rollout and training "
	  "compute the same bits", &o.exact, 0, 0 },
	{ OPT_STR, 0, "publish", "DIR", "the actor's weights alone after each "
	  "update, in DIR/N", &o.publish, 0, 0 },
	RL_OPTS(o),
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-ppo",
	.operands = "[FILE ...]",
	.purpose = "improve a policy and its critic by what it earned",
	.opts = options,
	.common = OPTS_RECORDS,
	.max_operands = -1,
};

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;
	struct common c;
	int first, rc;

	gpu_calm_threads(argv);
	o = rl_unset;
	first = opt_parse(&tool, argc, argv, &c);
	rc = rl_main(&o, RL_PPO, &c, argc, argv, first, &e);
	if (rc < 0)
		die_err(&e);
	opt_release(&tool);
	return rc;
}
