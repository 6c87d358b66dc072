/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "rl/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rec/stage.h"

/* Without --resume nothing of an earlier run is touched. */
static int find(struct run *r, const char *dir, const char *other,
		struct err *e)
{
	if (r->o->dry_run && !r->o->resume)
		return 0;
	if (r->o->resume) {
		r->found = save_find(dir, other, e);
		return r->found < 0 ? -1 : 0;
	}
	if (!access(dir, F_OK) || (other && !access(other, F_OK)))
		return err_set(e, CA_CANTCREAT, "'%s' is there already: "
			       "--resume goes on from it", dir);
	return 0;
}

int run_begin(struct run *r, const char *folder, const char *dir,
	      const char *other, struct err *e)
{
	r->batch = opts_batch(r->o);
	if (find(r, dir, other, e) ||
	    text_open(&r->text, folder, e) ||
	    ranks_start(&r->ranks, (int)r->o->ranks, e))
		return -1;
	if (r->o->ranks > 1 && starts_with(r->o->device, "cuda")) {
		snprintf(r->device, sizeof r->device, "cuda:%d",
			 ranks_mine(r->ranks));
		r->o->device = r->device;
	}
	if (ranks_mine(r->ranks)) {
		/* Lines come through the pipe; the plan is the same. */
		r->argc = r->first;
		r->c.out = "-";
		r->c.quiet = 1;
		r->c.limit = -1;
		r->c.verbose = 0;
	}
	r->data.text = &r->text;
	r->data.longest = (size_t)r->o->ctx;
	return meter_open(&r->meter, r->name, &r->c, e);
}

struct reading {
	struct run *r;
	int (*take)(void *run, struct rec *rec, struct err *e);
	struct err fatal;
};

static int record(void *ctx, struct rec *rec, struct err *e)
{
	struct reading *g = ctx;
	struct err own = ERR_INIT;

	if (g->fatal.code)
		return 0;
	if (ranks_tell(g->r->ranks, rec->line, rec->len, &g->fatal))
		return 0;
	/* What goes wrong here ends the run, so it is said once, there. */
	(void)e;
	if (g->take(g->r, rec, &own))
		g->fatal = own;
	return 0;
}

static int wants(void *ctx, enum rec_kind k)
{
	(void)ctx;
	return k == REC_TRAJECTORY;
}

int run_read(struct run *r, int (*take)(void *run, struct rec *rec,
					struct err *e), struct err *e)
{
	struct reading g = { .r = r, .take = take };
	const struct stage_ops ops = {
		.name = r->name, .record = record, .wants = wants,
		.silent = 1, .ctx = &g,
	};
	struct common c = r->c;

	/* The metrics' output is ours. */
	c.out = "/dev/null";
	r->code = stage_run(&ops, &c, r->argc, r->argv, r->first);
	ranks_end(r->ranks);
	if (!g.fatal.code)
		return 0;
	*e = g.fatal;
	return -1;
}

void run_announce(struct run *r, const struct str *plan)
{
	struct str s = STR_INIT;
	char *line, *rest;

	if (ranks_mine(r->ranks))
		return;
	if (plan->buf && (r->c.verbose || r->o->dry_run))
		fputs(plan->buf, stderr);
	opts_deviations(r->o, r->tool, &s);
	rest = s.buf;
	while (rest && *rest && (line = strsep(&rest, "\n")))
		warn("not as in the paper: %s", line);
	str_release(&s);
}

int run_stopping(struct run *r, int *stop, struct err *e)
{
	*stop = stage_interrupted() != 0;
	return ranks_any(r->ranks, stop, e);
}

static int skip(struct run *r, struct learner *l, struct batch *b,
		enum batch_loss which, const struct err *why, struct err *e)
{
	long who = batch_culprit(b, l, which, e);

	if (who < 0)
		return -1;
	warn("step %lld: skipped: %s; trajectory %s",
	     (long long)r->state.step, why->msg, (size_t)who < b->n ?
	     b->t[who].id : "unknown");
	if (++r->skipped >= r->o->max_skipped)
		return err_set(e, CA_DATAERR, "%d updates in a row were not "
			       "finite; last: %s", r->skipped, why->msg);
	return 1;
}

int run_update(struct run *r, struct learner *l, struct batch *b,
	       enum batch_loss which, double lr, struct err *e)
{
	const struct train_adam a = opts_adam(lr, r->o);
	struct jw *w = &r->meter.w;
	struct err why = ERR_INIT;
	char key[64];
	double norm;
	int rc;

	if (learner_reduce(l, &norm, e))
		return -1;
	rc = learner_step(l, &a, norm, r->o->clip_grad, &why);
	if (rc < 0) {
		*e = why;
		return -1;
	}
	snprintf(key, sizeof key, "%s/grad_norm", l->name);
	jw_knum(w, key, norm);
	snprintf(key, sizeof key, "%s/lr", l->name);
	jw_knum(w, key, lr);
	snprintf(key, sizeof key, "%s/skipped", l->name);
	if (rc)
		jw_kbool(w, key, 1);
	if (rc)
		return skip(r, l, b, which, &why, e);
	return 0;
}

void run_end(struct run *r)
{
	data_release(&r->data);
	text_close(&r->text);
}
