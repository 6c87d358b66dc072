/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *zeros(size_t n, size_t size, int *failed)
{
	void *p = calloc(n + 1, size);

	*failed |= !p;
	return p;
}

/* Weights of a set of rows, by how many each trajectory has. */
static void weigh(const struct rows *r, enum loss_agg agg, double *weight)
{
	size_t seqs = 0;

	for (size_t i = 0; i < r->ntraj; i++)
		seqs += r->first[i + 1] > r->first[i];
	for (size_t i = 0; i < r->ntraj; i++) {
		size_t own = r->first[i + 1] - r->first[i];
		double w = agg_weight(agg, own, r->n, seqs);

		for (size_t k = r->first[i]; k < r->first[i + 1]; k++)
			weight[k] = w;
	}
}

int batch_init(struct batch *b, const struct batch_opts *o,
	       const struct traj *t, size_t n, struct err *e)
{
	int failed = 0;

	memset(b, 0, sizeof *b);
	b->o = o;
	b->t = t;
	b->n = n;
	if (rows_make(&b->act, t, n, 0, e) ||
	    rows_make(&b->val, t, n, o->gae == GAE_ALL, e))
		return -1;
	b->weight = zeros(b->act.n, sizeof *b->weight, &failed);
	b->advantage = zeros(b->act.n, sizeof *b->advantage, &failed);
	b->logprob = zeros(b->act.n, sizeof *b->logprob, &failed);
	b->entropy = zeros(b->act.n, sizeof *b->entropy, &failed);
	b->old = zeros(b->act.n, sizeof *b->old, &failed);
	b->value_weight = zeros(b->val.n, sizeof *b->value_weight, &failed);
	b->returns = zeros(b->val.n, sizeof *b->returns, &failed);
	b->value = zeros(b->val.n, sizeof *b->value, &failed);
	b->old_value = zeros(b->val.n, sizeof *b->old_value, &failed);
	if (failed)
		return err_set(e, CA_SOFTWARE, "no memory");
	memcpy(b->old, b->act.logprob, b->act.n * sizeof *b->old);
	weigh(&b->act, o->agg, b->weight);
	weigh(&b->val, o->value_agg, b->value_weight);
	return 0;
}

void batch_release(struct batch *b)
{
	rows_release(&b->act);
	rows_release(&b->val);
	free(b->weight);
	free(b->advantage);
	free(b->logprob);
	free(b->entropy);
	free(b->old);
	free(b->value_weight);
	free(b->returns);
	free(b->value);
	free(b->old_value);
	memset(b, 0, sizeof *b);
}

/* One trajectory's steps, as gae() takes them. */
struct steps {
	size_t n, *from;		/* the output that each is */
	uint8_t *agent;
	double *reward, *value, *advantage, *returns;
};

static int steps_init(struct steps *s, size_t n)
{
	int failed = 0;

	s->from = zeros(n, sizeof *s->from, &failed);
	s->agent = zeros(n, 1, &failed);
	s->reward = zeros(n, sizeof *s->reward, &failed);
	s->value = zeros(n, sizeof *s->value, &failed);
	s->advantage = zeros(n, sizeof *s->advantage, &failed);
	s->returns = zeros(n, sizeof *s->returns, &failed);
	return failed ? -1 : 0;
}

static void steps_release(struct steps *s)
{
	free(s->from);
	free(s->agent);
	free(s->reward);
	free(s->value);
	free(s->advantage);
	free(s->returns);
}

/* Turns are told apart by a step of nobody's between them. */
static void steps_fill(struct steps *s, struct batch *b, size_t traj)
{
	const struct rows *r = &b->val;
	size_t last = SIZE_MAX;

	s->n = 0;
	for (size_t i = r->first[traj]; i < r->first[traj + 1]; i++) {
		if (b->o->gae == GAE_TURN && i > r->first[traj] &&
		    (r->opens[i] || r->row[i] != r->row[i - 1] + 1)) {
			s->agent[s->n] = 0;
			s->reward[s->n] = s->value[s->n] = 0;
			s->from[s->n++] = SIZE_MAX;
		}
		s->agent[s->n] = r->agent[i];
		s->reward[s->n] = 0;
		s->value[s->n] = (double)b->value[i];
		if (r->agent[i])
			last = s->n;
		s->from[s->n++] = i;
	}
	if (last == SIZE_MAX)
		return;
	s->reward[last] = b->t[traj].reward;
	b->reward_used += s->reward[last];
}

static void run_gae(struct steps *s, const struct batch_opts *o,
		    double lambda)
{
	const struct gae_opts g = { o->gae, o->gamma, lambda };

	gae(&g, s->n, s->agent, s->reward, s->value, s->advantage,
	    s->returns);
}

static void advantages_of(struct batch *b, struct steps *s, size_t traj)
{
	size_t at = b->act.first[traj];

	steps_fill(s, b, traj);
	run_gae(s, b->o, b->o->lambda_actor);
	for (size_t i = 0; i < s->n; i++)
		if (s->agent[i])
			b->advantage[at++] = s->advantage[i];
	run_gae(s, b->o, b->o->lambda_critic);
	for (size_t i = 0; i < s->n; i++)
		if (s->from[i] != SIZE_MAX)
			b->returns[s->from[i]] = s->returns[i];
}

static int all_advantages(struct batch *b, struct err *e)
{
	struct steps s;
	int rc = 0;

	b->reward_in = b->reward_used = 0;
	if (steps_init(&s, 2 * b->val.n))
		rc = err_set(e, CA_SOFTWARE, "no memory");
	for (size_t i = 0; i < b->n && !rc; i++) {
		b->reward_in += b->t[i].reward;
		advantages_of(b, &s, i);
	}
	steps_release(&s);
	if (!rc && b->o->whiten)
		whiten(b->act.n, b->advantage);
	if (!rc && b->reward_in != b->reward_used)
		rc = err_set(e, CA_SOFTWARE, "rewards of %.17g came in, %.17g "
			     "were used", b->reward_in, b->reward_used);
	return rc;
}

int batch_values(struct batch *b, struct learner *critic, struct err *e)
{
	int rc = learner_pass(critic, &b->val, 1, NULL, NULL, b->value, NULL,
			      e);

	if (rc)
		return rc;
	memcpy(b->old_value, b->value, b->val.n * sizeof *b->value);
	return all_advantages(b, e);
}

static float inv_temp(const struct batch *b)
{
	return (float)(1 / b->o->temperature);
}

int batch_recompute(struct batch *b, struct learner *actor, struct err *e)
{
	return learner_pass(actor, &b->act, inv_temp(b), NULL, NULL, b->old,
			    NULL, e);
}

static void rft_loss(void *ctx, size_t first, size_t n, const float *out,
		     float *dout)
{
	const struct batch *b = ctx;

	(void)out;
	for (size_t i = 0; i < n; i++)
		dout[i] = (float)-b->weight[first + i];
}

static void ppo_loss(void *ctx, size_t first, size_t n, const float *out,
		     float *dout)
{
	const struct batch *b = ctx;

	for (size_t i = 0; i < n; i++) {
		size_t k = first + i;

		dout[i] = (float)(b->weight[k] *
				  ppo_term(&b->o->clip, (double)out[i],
					   (double)b->old[k],
					   b->advantage[k]).grad);
	}
}

static void value_loss(void *ctx, size_t first, size_t n, const float *out,
		       float *dout)
{
	const struct batch *b = ctx;

	for (size_t i = 0; i < n; i++) {
		size_t k = first + i;

		dout[i] = (float)(b->value_weight[k] *
				  value_term((double)out[i],
					     (double)b->old_value[k],
					     b->returns[k],
					     b->o->value_clip).grad);
	}
}

int batch_rft(struct batch *b, struct learner *actor, struct err *e)
{
	return learner_pass(actor, &b->act, inv_temp(b), rft_loss, b,
			    b->logprob, NULL, e);
}

int batch_ppo(struct batch *b, struct learner *actor, struct err *e)
{
	return learner_pass(actor, &b->act, inv_temp(b), ppo_loss, b,
			    b->logprob, b->entropy, e);
}

int batch_critic(struct batch *b, struct learner *critic, struct err *e)
{
	return learner_pass(critic, &b->val, 1, value_loss, b, b->value,
			    NULL, e);
}

double batch_rft_loss(const struct batch *b)
{
	double sum = 0;

	for (size_t i = 0; i < b->act.n; i++)
		sum -= b->weight[i] * (double)b->logprob[i];
	return sum;
}

double batch_ppo_loss(const struct batch *b)
{
	double sum = 0;

	for (size_t i = 0; i < b->act.n; i++)
		sum += b->weight[i] *
		       ppo_term(&b->o->clip, (double)b->logprob[i],
				(double)b->old[i], b->advantage[i]).loss;
	return sum;
}

double batch_value_loss(const struct batch *b)
{
	double sum = 0;

	for (size_t i = 0; i < b->val.n; i++)
		sum += b->value_weight[i] *
		       value_term((double)b->value[i],
				  (double)b->old_value[i], b->returns[i],
				  b->o->value_clip).loss;
	return sum;
}

long batch_culprit(struct batch *b, struct learner *l, enum batch_loss which,
		   struct err *e)
{
	static learner_loss *const loss[] = { rft_loss, ppo_loss, value_loss };
	const struct rows *r = which == BATCH_VALUE ? &b->val : &b->act;
	float temp = which == BATCH_VALUE ? 1 : inv_temp(b);
	float *out = calloc(r->n + 1, sizeof *out);
	long found = (long)b->n;
	double norm = 0;

	if (!out)
		return err_set(e, CA_SOFTWARE, "no memory");
	for (size_t i = 0; i < r->nseq && found == (long)b->n; i++) {
		struct rows one = *r;

		one.seq += i;
		one.nseq = 1;
		int rc = learner_pass(l, &one, temp, loss[which], b, out,
				      NULL, e);

		if (rc < 0 || (!rc && train_grad_norm(l->t, &norm, e)) ||
		    train_clear(l->t, e))
			found = -1;
		else if (rc || !isfinite(norm))
			found = (long)r->seq[i].traj;
	}
	free(out);
	return found;
}
