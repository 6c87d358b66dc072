/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/epochs.h"

#include <stdlib.h>
#include <string.h>

#include "base/sig.h"
#include "rec/stage.h"

struct walk {
	size_t n, *order;
	int64_t per, round, last;	/* updates of an epoch; in order[] */
	struct traj *batch;		/* shallow copies */
};

/* The trajectories of update `step`; how many. */
static size_t pick(struct epochs *p, struct walk *w, int64_t step)
{
	size_t size = (size_t)p->r->o->batch, at, n;

	if (step / w->per != w->round) {
		w->round = step / w->per;
		data_shuffle(w->order, w->n, p->r->state.seed,
			     (uint64_t)w->round);
	}
	at = (size_t)(step % w->per) * size;
	n = w->n - at < size ? w->n - at : size;
	for (size_t i = 0; i < n; i++)
		w->batch[i] = p->r->data.t[w->order[at + i]];
	return n;
}

static int one_step(struct epochs *p, struct walk *w, struct err *e)
{
	struct run *r = p->r;
	size_t n = pick(p, w, r->state.step);
	struct batch b;
	int rc;

	meter_start(&r->meter);
	meter_begin(&r->meter, r->state.step);
	rc = batch_init(&b, &r->batch, w->batch, n, e) ? -1 :
	     p->update(p, &b, e);
	batch_release(&b);
	if (rc < 0 || run_count(r, rc, e))
		return -1;
	r->state.step++;
	meter_draw(&r->meter, r->state.step);
	return meter_end(&r->meter, e);
}

static int save(struct epochs *p, struct err *e)
{
	struct run *r = p->r;
	const char *from = r->found ? r->o->out : p->from;

	return save_put(&p->model, r->o->out, from, &r->state, e);
}

static int loop(struct epochs *p, struct walk *w, struct err *e)
{
	struct run *r = p->r;
	int stop = 0, saved = 1;

	r->meter.first = r->state.step;
	r->meter.last = w->last;
	while (r->state.step < w->last) {
		if (run_stopping(r, &stop, e))
			return -1;
		if (stop)
			break;
		if (one_step(p, w, e))
			return -1;
		saved = r->state.step % r->o->save_every == 0;
		if (saved && save(p, e))
			return -1;
		gpu_turn_leave(&r->turn);
	}
	if (!stop && p->report && p->report(p, e))
		return -1;
	/* A run of no updates leaves a checkpoint too. */
	if ((!saved || r->state.step == 0) && save(p, e))
		return -1;
	return stop && sig_caught() ? 128 + sig_caught() : 0;
}

static int check_seen(struct run *r, const struct save_state *was,
		      struct err *e)
{
	if (r->c.seeded && was->seed != r->o->seed)
		return err_set(e, CA_CONFIG, "'%s' was made with --seed %llu",
			       r->o->out, (unsigned long long)was->seed);
	if (memcmp(was->digest, r->data.digest, HASH_LEN))
		return err_set(e, CA_CONFIG, "'%s' was made from other data "
			       "than these: cannot go on", r->o->out);
	r->state = *was;
	return 0;
}

static int open_model(struct epochs *p, struct err *e)
{
	struct run *r = p->r;
	const char *dir = r->found ? r->o->out : p->from;
	const struct train_opts o = opts_train(r->o, dir, p->critic,
					     r->comm);
	struct save_state was = r->state;
	struct str plan = STR_INIT;
	int rc = p->critic && save_check_gae(dir, r->o->gae, e) ? -1 :
		 learner_open(&p->model, p->critic ? "critic" : "actor", &o,
			      &plan, e);

	run_announce(r, &plan);
	str_release(&plan);
	if (rc || run_join(r, &p->model, e))
		return -1;
	if (train_model(p->model.t)->cfg.head !=
	    (p->critic ? NN_HEAD_VALUE : NN_HEAD_LM))
		return err_set(e, CA_CONFIG, "'%s' is a critic, no language "
			       "model", dir);
	if (r->found && (run_load(r, &p->model, dir, &was, e) ||
			 check_seen(r, &was, e)))
		return -1;
	return 0;
}

static int walk_init(struct epochs *p, struct walk *w, struct err *e)
{
	const struct rl_opts *o = p->r->o;

	w->n = p->r->data.n - p->nheld;
	w->per = (int64_t)((w->n + (size_t)o->batch - 1) / (size_t)o->batch);
	w->last = o->steps >= 0 ? o->steps : o->epochs * w->per;
	w->round = -1;
	w->order = calloc(w->n + 1, sizeof *w->order);
	w->batch = calloc((size_t)o->batch, sizeof *w->batch);
	return w->order && w->batch ? 0 : err_set(e, CA_SOFTWARE,
						  "no memory");
}

static int say_data(struct epochs *p, struct err *e)
{
	struct run *r = p->r;

	meter_begin(&r->meter, r->state.step);
	data_write(&r->meter.w, &r->data);
	if (p->nheld)
		jw_kint(&r->meter.w, "data/held_out", (int64_t)p->nheld);
	return meter_end_plain(&r->meter, e);
}

int epochs_run(struct epochs *p, struct err *e)
{
	struct run *r = p->r;
	struct walk w = { .n = 0 };
	int rc = -1;

	if (stage_interrupted())
		return r->code;
	r->state.seed = r->o->seed;
	r->state.lines = r->data.seen;
	memcpy(r->state.digest, r->data.digest, HASH_LEN);
	if (p->critic)
		r->state.gae = r->o->gae;
	if (say_data(p, e))
		return -1;
	if (r->data.n == p->nheld)
		return err_set(e, run_nothing(r), "no trajectory of %llu %s",
			       (unsigned long long)r->data.seen, p->nheld ?
			       "is left: all that can be used are held out" :
			       "can be used");
	if (open_model(p, e))
		return -1;
	if (r->o->dry_run)
		return r->code;
	if (!walk_init(p, &w, e) &&
	    (r->state.step > 0 || !p->report || !p->report(p, e)))
		rc = loop(p, &w, e);
	free(w.order);
	free(w.batch);
	return rc ? rc : r->code;
}
