/* SPDX-License-Identifier: Apache-2.0
 *
 * rl LOSS ACTOR CRITIC GAE AGG TOKENS SEQS RANKS: what test/models compares
 * with PyTorch, and with itself.
 *
 * Reads trajectories, computes one batch of them in micro-batches of at most
 * TOKENS tokens and SEQS sequences on RANKS ranks, and writes the gradient of
 * LOSS (rft, ppo or value) by each tensor, fp32, in the order of the names
 * on stderr, whose first line is the loss, the norm of the gradient and the
 * number of trajectories that are used.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rec/reader.h"
#include "rec/rec.h"
#include "rl/batch.h"
#include "rl/ranks.h"
#include "gradients.h"

static struct err e = ERR_INIT;
static struct traj *trajs;
static size_t ntraj;
static struct ranks *ranks;

static void take(const char *line, size_t len)
{
	struct rec r;
	struct traj t;
	int drop;

	rec_init(&r);
	if (rec_parse(&r, line, len, NULL, &e))
		die_err(&e);
	drop = traj_read(&t, r.root, 1, &e);
	rec_release(&r);
	if (drop)
		return;
	trajs = realloc(trajs, (ntraj + 1) * sizeof *trajs);
	if (!trajs)
		die(CA_SOFTWARE, "no memory");
	trajs[ntraj++] = t;
}

static void read_all(void)
{
	struct reader in;
	char *line;
	size_t len;

	reader_init(&in, 0, -1);
	while (reader_next(&in, &line, &len, &e) == LINE_OK) {
		if (ranks_tell(ranks, line, len, &e))
			die_err(&e);
		take(line, len);
	}
	reader_release(&in);
	ranks_end(ranks);
}

static double pass(struct batch *b, struct learner *actor,
		   struct learner *critic, char which)
{
	if (which == 'r') {
		if (batch_rft(b, actor, &e))
			die_err(&e);
		return batch_rft_loss(b);
	}
	if (batch_values(b, critic, &e))
		die_err(&e);
	if (which == 'v' ? batch_critic(b, critic, &e) :
	    batch_ppo(b, actor, &e))
		die_err(&e);
	return which == 'v' ? batch_value_loss(b) : batch_ppo_loss(b);
}

int main(int argc, char **argv)
{
	struct batch_opts bo = { .gamma = 1, .lambda_actor = .95,
				 .lambda_critic = .9, .whiten = 1,
				 .clip = { .2, .28, INFINITY },
				 .value_clip = INFINITY, .temperature = .8 };
	struct train_opts o = { .device = "cpu" };
	struct learner actor, critic, *l;
	struct batch b;
	double loss, norm;

	if (argc != 9)
		die(CA_USAGE, "usage: rl LOSS ACTOR CRITIC GAE AGG TOKENS SEQS "
		    "RANKS");
	bo.gae = (enum gae_mode)gae_parse(argv[4]);
	bo.agg = bo.value_agg = (enum loss_agg)agg_parse(argv[5]);
	o.tokens = atoi(argv[6]);
	o.seqs = atoi(argv[7]);
	o.positions = 128;
	if (ranks_start(&ranks, atoi(argv[8]), &e))
		die_err(&e);
	read_all();
	o.comm = ranks_comm(ranks);
	o.dir = argv[2];
	if (learner_open(&actor, "actor", &o, NULL, &e))
		die_err(&e);
	o.dir = argv[3];
	o.critic = 1;
	if (learner_open(&critic, "critic", &o, NULL, &e) ||
	    batch_init(&b, &bo, trajs, ntraj, &e))
		die_err(&e);
	l = argv[1][0] == 'v' ? &critic : &actor;
	loss = pass(&b, &actor, &critic, argv[1][0]);
	if (train_grad_norm(l->t, &norm, &e))
		die_err(&e);
	if (!comm_mine(o.comm))
		fprintf(stderr, "%.17g %.17g %zu\n", loss, norm, ntraj);
	write_gradients(l->t, !comm_mine(o.comm));
	batch_release(&b);
	learner_close(&actor);
	learner_close(&critic);
	for (size_t i = 0; i < ntraj; i++)
		traj_release(&trajs[i]);
	free(trajs);
	if (ranks_finish(ranks, 0, &e))
		die_err(&e);
	return fflush(stdout) ? CA_IOERR : 0;
}
