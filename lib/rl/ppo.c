/* SPDX-License-Identifier: Apache-2.0
 *
 * Proximal policy optimisation: one update of actor and critic for each batch
 * of the stream.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "rec/stage.h"
#include "rl/run.h"

#define RHO_WARN 1e-2

struct ppo {
	struct run *r;
	struct learner actor, critic;
	char dir[2][CA_PATH_MAX];	/* --out/actor, --out/critic */
	const char *from[2];
	uint64_t skip;			/* lines of an earlier run */
	uint8_t digest[HASH_LEN];	/* of them, as it had it */
	struct traj first;		/* of the batch: what all must state */
	uint64_t in_batch;		/* trajectories read, dropped or not */
	int updates;			/* of this run */
	int unknown;			/* trajectories of no known weights */
	int done;			/* --steps reached, or told to stop */
};

/* Members of the metric that compare old and new log-probabilities. */
struct drift {
	double max_rho, max_diff, mean_diff, kl, clipped, entropy;
};

static struct drift measure(const struct batch *b)
{
	struct drift d = { 0, 0, 0, 0, 0, 0 };
	double n = b->act.n ? (double)b->act.n : 1;

	for (size_t i = 0; i < b->act.n; i++) {
		double now = (double)b->logprob[i], old = (double)b->old[i];
		double rho = fabs(expm1(log_ratio(now, old)));
		double diff = fabs(exp(now) - exp(old));

		d.max_rho = rho > d.max_rho ? rho : d.max_rho;
		d.max_diff = diff > d.max_diff ? diff : d.max_diff;
		d.mean_diff += diff / n;
		d.kl -= log_ratio(now, old) / n;
		d.entropy += (double)b->entropy[i] / n;
		d.clipped += ppo_term(&b->o->clip, now, old,
				      b->advantage[i]).clipped / n;
	}
	return d;
}

/* What the rollout says against what we compute: before the first update
 * they are the same policy. */
static int check_health(struct ppo *p, const struct drift *d, struct err *e)
{
	if (p->updates || p->r->o->recompute_old)
		return 0;
	jw_knum(&p->r->meter.w, "rho/max_dev_update0", d->max_rho);
	if (p->r->o->exact && d->max_rho != 0)
		return err_set(e, CA_DATAERR, "--exact, but rho is off by %g "
			       "before the first update: the trajectories are "
			       "not of these weights on this device",
			       d->max_rho);
	if (d->max_rho > RHO_WARN)
		warn("rho is off by up to %g before the first update, %.1f %% "
		     "clipped: rollout and training do not compute the same "
		     "policy", d->max_rho, 100 * d->clipped);
	return 0;
}

static int actor_pass(struct ppo *p, struct batch *b, struct err *e)
{
	struct jw *w = &p->r->meter.w;
	struct drift d;
	int rc = run_pass(p->r, &p->actor, b, batch_ppo(b, &p->actor, e), e);

	if (rc)
		return rc;
	d = measure(b);
	jw_knum(w, "actor/pg_loss", batch_ppo_loss(b));
	jw_knum(w, "actor/pg_clipfrac", d.clipped);
	jw_knum(w, "actor/ppo_kl", d.kl);
	jw_knum(w, "actor/entropy", d.entropy);
	jw_knum(w, "training/rollout_probs_diff_max", d.max_diff);
	jw_knum(w, "training/rollout_probs_diff_mean", d.mean_diff);
	if (check_health(p, &d, e))
		return -1;
	rc = run_update(p->r, &p->actor, b, BATCH_PPO, p->r->o->lr, e);
	snprintf(p->r->meter.note, sizeof p->r->meter.note,
		 ", reward %.3f, KL %.2g", b->n ? b->reward_in /
		 (double)b->n : 0, d.kl);
	return rc;
}

static void write_vpred(struct jw *w, const struct batch *b)
{
	double sum = 0;

	for (size_t i = 0; i < b->val.n; i++)
		sum += (double)b->value[i];
	if (b->val.n)
		jw_knum(w, "critic/vpred_mean", sum / (double)b->val.n);
}

static int critic_pass(struct ppo *p, struct batch *b, struct err *e)
{
	struct jw *w = &p->r->meter.w;
	int rc = run_pass(p->r, &p->critic, b, batch_critic(b, &p->critic, e),
			  e);

	if (rc)
		return rc;
	jw_knum(w, "critic/vf_loss", batch_value_loss(b));
	write_vpred(w, b);
	meter_critic(w, b);
	meter_spread(w, "critic/advantages", b->advantage, b->act.n);
	return run_update(p->r, &p->critic, b, BATCH_VALUE,
			  p->r->o->critic_lr, e);
}

static int publish(struct ppo *p, struct err *e)
{
	struct learner *const l[] = { &p->actor, &p->critic };
	struct save_state s = p->r->state;

	for (int i = 0; i < 2; i++) {
		s.gae = i ? p->r->o->gae : NULL;
		if (save_put(l[i], p->dir[i], access(p->dir[i], F_OK) ?
			     p->from[i] : p->dir[i], &s, e))
			return -1;
	}
	return 0;
}

/* The actor's weights for whoever draws the next trajectories; the ones before
 * stay, since they may be read just now. */
static int hand_out(struct ppo *p, struct err *e)
{
	const char *dir = p->r->o->publish;
	long long step = (long long)p->r->state.step;
	char now[CA_PATH_MAX], old[CA_PATH_MAX];

	if (!dir)
		return 0;
	if (snprintf(now, sizeof now, "%s/%lld", dir, step) >=
	    CA_PATH_MAX - 16)
		return err_set(e, CA_USAGE, "--publish is too long");
	snprintf(old, sizeof old, "%s/%lld", dir, step - 2);
	if (!comm_mine(p->r->comm) && mkdir_p(dir, 0755, e))
		return -1;
	if (save_publish(&p->actor, now, p->from[0], e))
		return -1;
	return !comm_mine(p->r->comm) && !access(old, F_OK) ?
	       remove_tree(old, e) : 0;
}

/* What both updates go by.  1: it is not finite, so there is neither. */
static int prepare(struct ppo *p, struct batch *b, struct err *e)
{
	struct run *r = p->r;
	int rc = 0;

	if (r->o->recompute_old)
		rc = run_pass(r, &p->actor, b,
			      batch_recompute(b, &p->actor, e), e);
	if (!rc)
		rc = run_pass(r, &p->critic, b,
			      batch_values(b, &p->critic, e), e);
	return rc;
}

static int learn(struct ppo *p, struct batch *b, struct err *e)
{
	struct run *r = p->r;
	int rc = prepare(p, b, e), a, c;

	if (rc)
		return rc < 0 || run_count(r, rc, e) ? -1 : 0;
	meter_work(&r->meter, &p->actor, &b->act, r->o->recompute_old ? 4 : 3);
	meter_work(&r->meter, &p->critic, &b->val, 4);
	a = actor_pass(p, b, e);
	c = a < 0 ? -1 : critic_pass(p, b, e);
	if (a < 0 || c < 0 || run_count(r, a || c, e))
		return -1;
	meter_batch(&r->meter.w, b, (size_t)r->o->ctx);
	return 0;
}

/* Whoever feeds us may go on for ever. */
static void read_no_more(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd > STDIN_FILENO) {
		dup2(fd, STDIN_FILENO);
		close(fd);
	}
}

/* A batch is complete. */
static int update(struct ppo *p, struct err *e)
{
	struct run *r = p->r;
	struct batch b;
	int rc = 0, stop = 0;

	meter_start(&r->meter);
	meter_begin(&r->meter, r->state.step);
	data_write(&r->meter.w, &r->data);
	r->batch.temperature = p->first.temperature;
	if (batch_init(&b, &r->batch, r->data.t, r->data.n, e))
		rc = -1;
	else if (r->data.n)
		rc = learn(p, &b, e);
	else if (!comm_mine(r->comm))
		warn("step %lld: no trajectory of the batch can be used",
		     (long long)r->state.step);
	batch_release(&b);
	if (rc)
		return -1;
	p->updates += r->data.n > 0;
	r->state.step++;
	r->state.lines += p->in_batch;
	memcpy(r->state.digest, r->data.digest, HASH_LEN);
	data_clear(&r->data);
	p->in_batch = 0;
	meter_draw(&r->meter, r->state.step);
	if (run_stopping(r, &stop, e))
		return -1;
	if (r->o->steps >= 0 && r->state.step >= r->o->steps)
		stop = 1;
	p->done = stop;
	/* The weights are there before the record that speaks of them. */
	if (hand_out(p, e))
		return -1;
	if ((stop || r->state.step % r->o->save_every == 0) && publish(p, e))
		return -1;
	gpu_turn_leave(&r->turn);
	if (stop && !comm_mine(r->comm))
		read_no_more();
	return meter_end(&r->meter, e);
}

/* Log-probabilities that are not of the distribution that was drawn from at
 * a temperature we know cannot be `old`. */
static int check_sampling(const struct ppo *p, struct traj *t, struct err *e)
{
	const struct rl_opts *o = p->r->o;
	const char *kind = t->logprobs[0] ? t->logprobs :
			   o->logprobs ? o->logprobs : "";

	if (isnan(t->temperature))
		t->temperature = o->temperature;
	if (isnan(t->temperature))
		return err_set(e, CA_DATAERR, "trajectory %s does not state "
			       "its temperature: --temperature says it",
			       t->id);
	if (t->temperature <= 0)
		return err_set(e, CA_DATAERR, "trajectory %s was not drawn at "
			       "random: its temperature is %g", t->id,
			       t->temperature);
	if (o->recompute_old)
		return 0;
	if (t->top_p < 1 || t->top_k > 0 || t->min_p > 0)
		return err_set(e, CA_DATAERR, "trajectory %s was drawn with "
			       "top-p, top-k or min-p, which its log-probabilities "
			       "do not have: --recompute-old computes them",
			       t->id);
	if (t->temperature != 1 && strcmp(kind, "temperature"))
		return err_set(e, CA_DATAERR, "trajectory %s was drawn at "
			       "temperature %g, and its log-probabilities "
			       "are %s: --recompute-old computes them, or "
			       "--logprobs temperature vouches for them", t->id,
			       t->temperature, *kind ? kind : "of an unknown "
			       "kind");
	return 0;
}

static const char *quoted(const char *version, char text[160])
{
	snprintf(text, 160, *version ? "'%s'" : "unknown", version);
	return text;
}

/* One policy per batch; what is not known is not what is known. */
static int check_batch(struct ppo *p, const struct traj *t, struct err *e)
{
	char was[160], now[160];

	if (!strcmp(t->version, "mixed"))
		return err_set(e, CA_DATAERR, "trajectory %s was drawn while "
			       "the weights changed", t->id);
	if (p->r->data.n == 1)
		p->first = *t;
	if (strcmp(t->version, p->first.version))
		return err_set(e, CA_DATAERR, "a batch mixes weight versions "
			       "%s and %s (trajectories %s, %s)",
			       quoted(p->first.version, was),
			       quoted(t->version, now), p->first.id, t->id);
	if (!*t->version && !p->unknown++ && !comm_mine(p->r->comm))
		warn("trajectory %s does not say which weights made it: a "
		     "batch of such ones is taken to be of one policy",
		     t->id);
	if (t->temperature != p->first.temperature)
		return err_set(e, CA_DATAERR, "a batch mixes temperatures %g "
			       "and %g", p->first.temperature,
			       t->temperature);
	return 0;
}

/* A line that is in the weights already. */
static int passed(struct ppo *p, const struct rec *rec, struct err *e)
{
	data_skip(&p->r->data, rec);
	if (--p->skip || !memcmp(p->r->data.digest, p->digest, HASH_LEN))
		return 0;
	return err_set(e, CA_CONFIG, "the input does not begin with the %llu "
		       "trajectories that '%s' was trained on",
		       (unsigned long long)p->r->state.lines, p->r->o->out);
}

static int take(void *ctx, struct rec *rec, struct err *e)
{
	struct ppo *p = ctx;
	int drop;

	if (p->done)
		return 0;
	if (p->skip)
		return passed(p, rec, e);
	drop = data_take(&p->r->data, rec, e);
	if (drop < 0)
		return -1;
	if (!drop) {
		struct traj *t = &p->r->data.t[p->r->data.n - 1];

		if (check_sampling(p, t, e) || check_batch(p, t, e))
			return -1;
	}
	if (++p->in_batch < (uint64_t)p->r->o->batch || p->r->o->dry_run)
		return 0;
	return update(p, e);
}

static int open_one(struct ppo *p, int critic, struct str *plan,
		    struct save_state *was, struct err *e)
{
	struct run *r = p->r;
	const char *dir = r->found ? p->dir[critic] : p->from[critic];
	const struct train_opts o = opts_train(r->o, dir, critic, r->comm);
	struct learner *l = critic ? &p->critic : &p->actor;

	if (critic && save_check_gae(dir, r->o->gae, e))
		return -1;
	str_addf(plan, "%s '%s'\n", critic ? "critic" : "actor", dir);
	if (learner_open(l, critic ? "critic" : "actor", &o, plan,
			 e) || run_join(r, l, e))
		return -1;
	if (!critic && train_model(l->t)->cfg.head != NN_HEAD_LM)
		return err_set(e, CA_CONFIG, "'%s' is a critic, no language "
			       "model", dir);
	if (!r->found)
		return 0;
	/* One command made both: what differs is said once. */
	return critic ? save_load(l, dir, was, NULL, e) :
	       run_load(r, l, dir, was, e);
}

static int open_both(struct ppo *p, struct err *e)
{
	struct run *r = p->r;
	struct save_state was = r->state;
	struct str plan = STR_INIT;
	int rc = open_one(p, 0, &plan, &was, e) ||
		 open_one(p, 1, &plan, &was, e) ? -1 : 0;

	run_announce(r, &plan);
	str_release(&plan);
	r->state = was;
	p->skip = was.lines;
	memcpy(p->digest, was.digest, HASH_LEN);
	r->meter.first = was.step;
	r->meter.last = r->o->steps;
	p->done = r->o->steps >= 0 && was.step >= r->o->steps;
	return rc;
}

static int finish(struct ppo *p, struct err *e)
{
	struct run *r = p->r;

	if (r->o->dry_run) {
		meter_begin(&r->meter, r->state.step);
		data_write(&r->meter.w, &r->data);
		return meter_end_plain(&r->meter, e);
	}
	if (p->skip)
		return err_set(e, CA_DATAERR, "the input ends before the "
			       "%llu trajectories that '%s' was trained on",
			       (unsigned long long)r->state.lines, r->o->out);
	if (p->in_batch && !p->done && !comm_mine(r->comm))
		warn("%llu trajectories are less than a batch of %lld: left "
		     "for next time", (unsigned long long)p->in_batch,
		     (long long)r->o->batch);
	if (!p->updates && !p->done && !stage_interrupted() &&
	    !p->in_batch && (r->data.seen || !r->state.lines))
		return err_set(e, run_nothing(r), "no trajectory of %llu can "
			       "be used", (unsigned long long)r->data.seen);
	/* What was not saved yet: updates between two of --save-every. */
	if (p->updates && r->state.step % r->o->save_every && !p->done)
		return publish(p, e);
	return 0;
}

static int names(struct ppo *p, struct err *e)
{
	const struct rl_opts *o = p->r->o;
	static const char *const part[] = { "actor", "critic" };

	p->from[0] = o->actor;
	p->from[1] = o->critic ? o->critic : o->actor;
	for (int i = 0; i < 2; i++)
		if (snprintf(p->dir[i], CA_PATH_MAX, "%s/%s",
			     o->out ? o->out : "", part[i]) >=
		    CA_PATH_MAX - 16)
			return err_set(e, CA_USAGE, "--out is too long");
	return text_same(p->from[0], p->from[1], e);
}

int ppo_run(struct run *r, struct err *e)
{
	struct ppo p = { .r = r };
	int rc;

	r->data.logprobs = 1;
	/* The metrics' line is drawn while the input is read. */
	r->alone = 1;
	rc = names(&p, e) ||
	     run_begin(r, r->o->actor, p.dir[0], p.dir[1], e) ||
	     open_both(&p, e) || run_read(r, take, &p, e) ||
	     finish(&p, e) ? -1 : r->code;
	learner_close(&p.actor);
	learner_close(&p.critic);
	return rc;
}
