/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "rl/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nn/ckpt.h"
#include "rec/stage.h"

/* Better said now than after the first updates; and nothing is left of it, so
 * that a folder which is not there yet is tried from outside. */
static int check_places(const struct rl_opts *o, const char *dir,
			const char *other, struct err *e)
{
	int inside = !access(o->out, F_OK);

	return ckpt_try(inside ? dir : o->out, e) ||
	       (inside && other && ckpt_try(other, e)) ||
	       (o->publish && ckpt_try(o->publish, e)) ? -1 : 0;
}

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
	    (!r->o->dry_run && check_places(r->o, dir, other, e)) ||
	    ranks_start(&r->ranks, (int)r->o->ranks, e))
		return -1;
	r->comm = ranks_comm(r->ranks);
	comm_does(r->comm, COMM_READS);
	if (r->o->ranks > 1 && starts_with(r->o->device, "cuda")) {
		snprintf(r->device, sizeof r->device, "cuda:%d",
			 comm_mine(r->comm));
		r->o->device = r->device;
	}
	if (comm_mine(r->comm)) {
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
	int (*take)(void *ctx, struct rec *rec, struct err *e);
	void *ctx;
	struct err fatal;
};

static int record(void *ctx, struct rec *rec, struct err *e)
{
	struct reading *g = ctx;
	struct err own = ERR_INIT;

	if (g->fatal.code)
		return 0;
	/* However long it was in coming, others wait only from now on. */
	comm_does(g->r->comm, COMM_READS);
	if (ranks_tell(g->r->ranks, rec->line, rec->len, &g->fatal))
		return 0;
	/* What goes wrong here ends the run, so it is said once, there. */
	(void)e;
	if (g->take(g->ctx, rec, &own))
		g->fatal = own;
	return 0;
}

static int wants(void *ctx, enum rec_kind k)
{
	(void)ctx;
	return k == REC_TRAJECTORY;
}

int run_read(struct run *r, int (*take)(void *ctx, struct rec *rec,
					struct err *e), void *ctx,
	     struct err *e)
{
	struct reading g = { .r = r, .take = take, .ctx = ctx };
	const struct stage_ops ops = {
		.name = r->name, .record = record, .wants = wants,
		.silent = 1, .ctx = &g,
	};
	struct common c = r->c;

	/* The metrics' output is ours. */
	c.out = "/dev/null";
	c.quiet |= r->alone;
	r->code = stage_run(&ops, &c, r->argc, r->argv, r->first);
	comm_does(r->comm, COMM_READS);
	ranks_end(r->ranks);
	if (!g.fatal.code)
		return 0;
	*e = g.fatal;
	return -1;
}

int run_nothing(const struct run *r)
{
	return r->code == CA_NOINPUT ? CA_NOINPUT : CA_DATAERR;
}

int run_join(struct run *r, struct learner *l, struct err *e)
{
	l->turn = &r->turn;
	return *r->turn.name ? 0 : gpu_turn_open(&r->turn, train_gpu(l->t), e);
}

static void say_lines(const char *what, struct str *s)
{
	char *line, *rest = s->buf;

	while (rest && *rest && (line = strsep(&rest, "\n")))
		warn("%s: %s", what, line);
}

int run_load(struct run *r, struct learner *l, const char *dir,
	     struct save_state *was, struct err *e)
{
	struct str changed = STR_INIT;
	int rc = save_load(l, dir, was, &changed, e);

	if (!rc && !comm_mine(r->comm))
		say_lines("going on with other settings", &changed);
	str_release(&changed);
	return rc;
}

void run_announce(struct run *r, const struct str *plan)
{
	struct str s = STR_INIT;

	if (comm_mine(r->comm))
		return;
	if (plan->buf && (r->c.verbose || r->o->dry_run))
		fputs(plan->buf, stderr);
	opts_deviations(r->o, r->tool, &s);
	say_lines("not as in the paper", &s);
	str_release(&s);
}

int run_stopping(struct run *r, int *stop, struct err *e)
{
	*stop = stage_interrupted() != 0;
	return comm_any(r->comm, stop, e);
}

/* NAME's part of this update is left out, for trajectory `who` of b. */
static int skip(struct run *r, const char *name, const struct batch *b,
		size_t who, const char *why)
{
	char key[64];

	snprintf(key, sizeof key, "%s/skipped", name);
	jw_kbool(&r->meter.w, key, 1);
	snprintf(r->why, sizeof r->why, "%s; trajectory %s", why,
		 who < b->n ? b->t[who].id : "unknown");
	if (!comm_mine(r->comm))
		warn("step %lld: skipped: %s", (long long)r->state.step,
		     r->why);
	return 1;
}

int run_pass(struct run *r, const struct learner *l, const struct batch *b,
	     int rc, struct err *e)
{
	if (rc <= 0)
		return rc;
	skip(r, l->name, b, l->bad, e->msg);
	err_clear(e);
	return 1;
}

int run_count(struct run *r, int skipped, struct err *e)
{
	r->skipped = skipped ? r->skipped + 1 : 0;
	return r->skipped < r->o->max_skipped ? 0 :
	       err_set(e, CA_DATAERR, "%d updates in a row were not finite; "
		       "last: %s", r->skipped, r->why);
}

int run_update(struct run *r, struct learner *l, struct batch *b,
	       enum batch_loss which, double lr, struct err *e)
{
	const struct train_adam a = opts_adam(lr, r->o);
	struct jw *w = &r->meter.w;
	struct err why = ERR_INIT;
	char key[64];
	double norm;
	long who;
	int rc;

	if (train_grad_norm(l->t, &norm, e))
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
	if (!rc)
		return 0;
	who = batch_culprit(b, l, which, e);
	return who < 0 ? -1 : skip(r, l->name, b, (size_t)who, why.msg);
}

static int end(struct run *r, int rc, struct err *e)
{
	struct err more = ERR_INIT;

	data_release(&r->data);
	text_close(&r->text);
	gpu_turn_close(&r->turn);
	if (meter_close(&r->meter, rc >= 0, &more) && rc >= 0) {
		*e = more;
		rc = -1;
	}
	if (rc < 0)
		comm_fail(r->comm, e);
	/* Rank 0 says it for all, unless it is what is wrong; of what may be
	 * different from rank to rank, by name. */
	if (rc < 0 && comm_mine(r->comm) && comm_failed(r->comm))
		rc = e->code;
	else if (rc < 0 && e->code == CA_UNAVAILABLE)
		comm_check(r->comm, COMM_GLANCE, e);
	if (ranks_finish(r->ranks, rc < 0, &more)) {
		*e = more;
		rc = -1;
	}
	return rc;
}

int rl_main(struct rl_opts *o, enum rl_tool tool, const struct common *c,
	    int argc, char **argv, int first, struct err *e)
{
	static const struct {
		const char *name;
		int (*run)(struct run *r, struct err *e);
	} row[] = {
		[RL_RFT] = { "ca-rft", rft_run },
		[RL_VPRETRAIN] = { "ca-vpretrain", vpretrain_run },
		[RL_PPO] = { "ca-ppo", ppo_run },
	};
	struct run r = { .name = row[tool].name, .tool = tool, .o = o,
			 .c = *c, .argc = argc, .argv = argv,
			 .first = first };

	if (opts_settle(o, tool, e))
		return -1;
	o->seed = c->seed;
	r.state.tool = r.name;
	r.state.which = tool;
	r.state.opts = o;
	return end(&r, row[tool].run(&r, e), e);
}
