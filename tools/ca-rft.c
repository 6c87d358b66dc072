/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-rft: trains a model on its own trajectories that were worth it.
 */
#include "base/err.h"
#include "rl/run.h"

static struct rl_opts o;
static int only_select;

static const struct opt options[] = {
	{ OPT_FLAG, 0, "select", NULL, "only write the trajectories that are "
	  "kept", &only_select, 0, 0 },
	{ OPT_STR, 0, "actor", "DIR", "the model to begin with", &o.actor,
	  0, 0 },
	{ OPT_INT, 0, "epochs", "N", "times through the data, without --steps "
	  "(1)", &o.epochs, 0, 1e6 },
	{ OPT_NUM, 0, "lr", "X", "learning rate (1e-5)", &o.lr, 0, 1 },
	{ OPT_CHOICE, 0, "loss-agg", AGG_NAMES, "how tokens are weighed "
	  "(seq-mean-token-sum)", &o.agg, 0, 0 },
	RL_OPTS(o),
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-rft",
	.operands = "[FILE ...]",
	.purpose = "train a model on its trajectories that were worth it",
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
	rc = only_select ? rft_select(&c, argc, argv, first) :
	     rl_main(&o, RL_RFT, &c, argc, argv, first, &e);
	if (rc < 0)
		die_err(&e);
	opt_release(&tool);
	return rc;
}
