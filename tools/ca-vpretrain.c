/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-vpretrain: trains a critic on trajectories, before there is a policy to
 * train with it.
 */
#include "base/err.h"
#include "rl/run.h"

static struct rl_opts o;

static const struct opt options[] = {
	{ OPT_STR, 0, "actor", "DIR", "the language model that the critic "
	  "begins as", &o.actor, 0, 0 },
	{ OPT_STR, 0, "critic", "DIR", "a critic to begin with instead",
	  &o.critic, 0, 0 },
	{ OPT_INT, 0, "epochs", "N", "times through the data, without --steps "
	  "(1)", &o.epochs, 0, 1e6 },
	{ OPT_NUM, 0, "lr", "X", "learning rate (6e-6)", &o.critic_lr, 0, 1 },
	{ OPT_CHOICE, 0, "gae", "skip|all|turn", "what a step is (skip; with "
	  "--preset paper all)", &o.gae, 0, 0 },
	{ OPT_NUM, 0, "gamma", "X", "discount (1)", &o.gamma, 0, 1 },
	{ OPT_NUM, 0, "lambda-critic", "X", "of the targets (0.95)",
	  &o.lambda_critic, 0, 1 },
	{ OPT_NUM, 0, "held-out", "X", "share of the tasks that is not "
	  "trained on (0.1)", &o.held_out, 0, 1 },
	RL_OPTS(o),
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-vpretrain",
	.operands = "[FILE ...]",
	.purpose = "train a critic on trajectories",
	.opts = options,
	.common = OPTS_RECORDS | OPTS_SEED,
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
	rc = rl_main(&o, RL_VPRETRAIN, &c, argc, argv, first, &e);
	if (rc < 0)
		die_err(&e);
	opt_release(&tool);
	return rc;
}
