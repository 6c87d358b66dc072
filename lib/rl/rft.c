/* SPDX-License-Identifier: Apache-2.0
 *
 * Rejection fine-tuning: the trajectories that are worth it, again.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rec/stage.h"
#include "rl/epochs.h"
#include "rl/run.h"

static enum traj_drop worth(const struct rec *rec)
{
	struct traj t;
	int drop = traj_read(&t, rec->root, 0, NULL);

	traj_release(&t);
	/* Whoever trains elsewhere may have no use for ids. */
	if (drop == TRAJ_NO_REWARD || drop == TRAJ_OMITTED)
		return (enum traj_drop)drop;
	return traj_kept(&t);
}

static int nothing(void *ctx, struct rec *rec, struct err *e)
{
	(void)ctx;
	(void)rec;
	(void)e;
	return 0;
}

static int wants(void *ctx, enum rec_kind k)
{
	(void)ctx;
	return k == REC_TRAJECTORY;
}

static int keep(void *ctx, const struct rec *rec)
{
	(void)ctx;
	return worth(rec) == TRAJ_OK;
}

static const char *status(void *ctx, const struct rec *rec)
{
	enum traj_drop d = worth(rec);

	(void)ctx;
	return d ? traj_drop_name(d) : "kept";
}

int rft_select(const struct common *c, int argc, char **argv, int first)
{
	const struct stage_ops ops = {
		.name = "ca-rft", .record = nothing, .wants = wants,
		.keep = keep, .status = status,
	};

	return stage_run(&ops, c, argc, argv, first);
}

static int take(void *ctx, struct rec *rec, struct err *e)
{
	struct run *r = ctx;

	return data_take(&r->data, rec, e) < 0 ? -1 : 0;
}

static int update(struct epochs *p, struct batch *b, struct err *e)
{
	struct run *r = p->r;
	int rc = run_pass(r, &p->model, b, batch_rft(b, &p->model, e), e);

	if (rc)
		return rc;
	meter_work(&r->meter, &p->model, &b->act, 3);
	jw_knum(&r->meter.w, "actor/rft_loss", batch_rft_loss(b));
	meter_spread_f(&r->meter.w, "actor/logprob", b->logprob, b->act.n);
	rc = run_update(r, &p->model, b, BATCH_RFT, r->o->lr, e);
	meter_batch(&r->meter.w, b, (size_t)r->o->ctx);
	return rc;
}

int rft_run(struct run *r, struct err *e)
{
	struct epochs p = { .r = r, .from = r->o->actor, .update = update };
	int rc;

	r->data.tokenise = 1;
	r->data.kept = 1;
	rc = run_begin(r, r->o->actor, r->o->out, NULL, e) ||
	     run_read(r, take, r, e) ? -1 : epochs_run(&p, e);
	learner_close(&p.model);
	return rc;
}
