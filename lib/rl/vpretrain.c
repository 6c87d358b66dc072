/* SPDX-License-Identifier: Apache-2.0
 *
 * Value pretraining: a critic that knows what a trajectory will be worth,
 * before any policy is trained against it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rl/epochs.h"
#include "rl/run.h"

static int take(void *ctx, struct rec *rec, struct err *e)
{
	struct run *r = ctx;

	return data_take(&r->data, rec, e) < 0 ? -1 : 0;
}

/* The held-out ones go to the end, all else stays in order. */
static size_t hold_out(struct data *d, double share)
{
	struct traj *held = calloc(d->n + 1, sizeof *held);
	size_t n = 0, kept = 0;

	if (!held)
		return 0;
	for (size_t i = 0; i < d->n; i++)
		if (data_held_out(&d->t[i], share))
			held[n++] = d->t[i];
		else
			d->t[kept++] = d->t[i];
	memcpy(d->t + kept, held, n * sizeof *held);
	free(held);
	return n;
}

static void warn_one_sided(const struct data *d)
{
	size_t failed = 0;

	for (size_t i = 0; i < d->n; i++)
		failed += d->t[i].reward < 0;
	if (!failed && d->n)
		warn("no trajectory failed: a critic that sees only successes "
		     "learns a constant");
}

/* The targets come from the critic as it is now, each time. */
static int update(struct epochs *p, struct batch *b, struct err *e)
{
	struct run *r = p->r;
	int rc = batch_values(b, &p->model, e);

	if (!rc)
		rc = batch_critic(b, &p->model, e);
	rc = run_pass(r, &p->model, b, rc, e);
	if (rc)
		return rc;
	meter_work(&r->meter, &p->model, &b->val, 4);
	jw_knum(&r->meter.w, "critic/vf_loss", batch_value_loss(b));
	meter_critic(&r->meter.w, b);
	rc = run_update(r, &p->model, b, BATCH_VALUE, r->o->critic_lr, e);
	meter_batch(&r->meter.w, b, (size_t)r->o->ctx);
	return rc;
}

/* Explained variance against the outcome, in all and in quarters of the
 * trajectories' tokens. */
static void write_quarters(struct jw *w, const struct batch *b,
			   const double *outcome, uint8_t *use)
{
	char key[64];

	jw_knum(w, "val/mc_explained_var",
		explained(outcome, b->value, b->val.agent, b->val.n));
	for (size_t q = 0; q < 4; q++) {
		for (size_t i = 0; i < b->n; i++) {
			size_t at = b->val.first[i];
			size_t n = b->val.first[i + 1] - at;

			for (size_t k = 0; k < n; k++)
				use[at + k] = b->val.agent[at + k] &&
					      4 * k / n == q;
		}
		snprintf(key, sizeof key, "val/mc_explained_var_q%zu", q + 1);
		jw_knum(w, key, explained(outcome, b->value, use, b->val.n));
	}
}

static int report(struct epochs *p, struct err *e)
{
	struct run *r = p->r;
	size_t first = r->data.n - p->nheld;
	double *outcome = NULL;
	uint8_t *use = NULL;
	struct batch b;
	int rc = -1;

	if (!p->nheld)
		return 0;
	meter_begin(&r->meter, r->state.step);
	if (batch_init(&b, &r->batch, r->data.t + first, p->nheld, e))
		goto out;
	rc = run_pass(r, &p->model, &b, batch_values(&b, &p->model, e), e);
	if (rc) {
		/* Nothing is said of what is not finite. */
		rc = rc < 0 ? -1 : 0;
		goto out;
	}
	rc = -1;
	outcome = calloc(b.val.n + 1, sizeof *outcome);
	use = calloc(b.val.n + 1, 1);
	if (!outcome || !use) {
		err_set(e, CA_SOFTWARE, "no memory");
		goto out;
	}
	for (size_t i = 0; i < b.n; i++)
		for (size_t k = b.val.first[i]; k < b.val.first[i + 1]; k++)
			outcome[k] = b.t[i].reward;
	jw_knum(&r->meter.w, "val/vf_loss", batch_value_loss(&b));
	write_quarters(&r->meter.w, &b, outcome, use);
	rc = meter_end_plain(&r->meter, e);
out:
	free(outcome);
	free(use);
	batch_release(&b);
	return rc;
}

int vpretrain_run(struct run *r, struct err *e)
{
	const struct rl_opts *o = r->o;
	struct epochs p = { .r = r, .critic = 1, .update = update,
			    .report = report,
			    .from = o->critic ? o->critic : o->actor };
	int rc;

	r->data.tokenise = 1;
	rc = run_begin(r, p.from, o->out, NULL, e) ||
	     run_read(r, take, r, e) ? -1 : 0;
	if (!rc) {
		if (!comm_mine(r->comm))
			warn_one_sided(&r->data);
		p.nheld = hold_out(&r->data, o->held_out);
		rc = epochs_run(&p, e);
	}
	learner_close(&p.model);
	return rc;
}
