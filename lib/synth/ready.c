/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that prepare.
 */
#include "synth/ready.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sig.h"
#include "synth/room.h"

#define AHEAD 128		/* names */
#define BATCH 4			/* of each thread, where they take turns */
#define TASK_SECONDS 120
#define TRIES 2			/* a process may be ended from outside */

enum stage { IDLE, ASKED, PREPARED, TAKEN };

struct name {
	const char *text;
	enum stage stage;
	struct json *drafts;
	char why[160];
};

struct ready {
	struct harvest *h;
	const char *role;
	int64_t bytes;		/* of inputs and results at most */
	int on_cpu;		/* whose clocks our work would disturb */
	size_t batch;		/* names between two turns there */
	struct hand *hand;
	size_t nhand;
	pthread_mutex_t lock;	/* for what follows */
	pthread_cond_t changed;
	struct json *list;
	char *version;
	struct name *name;
	size_t n, asked, taken;
	size_t busy;		/* that are asked for and not prepared */
	int named, stop, failed;
	int growing;		/* it is the caller's turn: on the CPU each of
				 * his clocks would wait for what all are at */
	int64_t ns;
	struct err err;
};

/* One thread and its process. */
struct hand {
	struct ready *r;
	pthread_t thread;
	struct judge *j;
	struct oracle o;
	int open;
};

double ready_timeout(const struct harvest *h)
{
	return h->o->task_s > 0 ? h->o->task_s : TASK_SECONDS;
}

static void hand_close(struct hand *d)
{
	if (d->open)
		oracle_stop(d->j, &d->o);
	d->open = 0;
}

/* One request, under a shared lease where the CPU is what is timed.  1 when it
 * fails, -1 when nothing can work. */
static int hand_ask(struct hand *d, const char *text, struct json **told,
		    struct fail *f, struct err *e)
{
	struct device *dev = d->j->dev;
	struct str req = STR_INIT;
	int rc = 0;

	if (d->r->on_cpu)
		rc = device_hold(dev, HOLD_SHARED, d->r->h->o->lease_s, e);
	if (!rc && !d->open) {
		rc = harvest_process(d->j, &d->o, d->r->role, e);
		d->open = !rc;
	}
	if (!rc) {
		str_adds(&req, text);
		rc = oracle_ask(d->j, &d->o, &req, told, f) ? 1 : 0;
		/* Nobody answered; an answer may still come. */
		if (rc && !f->phase)
			hand_close(d);
	}
	dev->ops->unlease(dev);
	str_release(&req);
	return rc;
}

/* As hand_ask; once more where the process ended. */
static int hand_ask_again(struct hand *d, const char *text,
			  struct json **told, struct fail *f, struct err *e)
{
	int rc = 0;

	for (int i = 0; i < TRIES && !sig_caught(); i++) {
		memset(f, 0, sizeof(*f));
		rc = hand_ask(d, text, told, f, e);
		if (rc <= 0 || f->phase || !f->fault)
			break;
	}
	return rc >= 0 && sig_caught() ?
		err_set(e, CA_TEMPFAIL, "interrupted") : rc;
}

/* What only the first thread does, and the others prepare for. */
static int begin(struct hand *d, int first, struct json **list,
		 struct err *e)
{
	struct fail f = { .status = ST_OK };
	int rc;

	if (!first) {
		/* What prevents it shows with the first name. */
		rc = hand_ask(d, "{\"op\":\"ready\",\"threads\":1}", list, &f,
			      e);
		return rc < 0 ? -1 : 0;
	}
	rc = hand_ask_again(d, "{\"op\":\"list\",\"threads\":1}", list, &f, e);
	return rc > 0 ? err_set(e, CA_UNAVAILABLE, "'%s' cannot be listed: "
				"%.500s", d->r->h->source, f.text) : rc;
}

static void write_request(const struct ready *r, const char *name,
			  struct str *req)
{
	struct jw w;

	jw_init(&w, req);
	jw_obj(&w);
	jw_kstr(&w, "op", "prepare");
	jw_kstr(&w, "name", name);
	jw_kint(&w, "bytes", r->bytes);
	jw_kint(&w, "threads", 1);
	jw_end_obj(&w);
}

static int prepare(struct hand *d, struct name *n, struct err *e)
{
	struct str req = STR_INIT;
	struct fail f = { .status = ST_OK };
	int rc;

	write_request(d->r, n->text, &req);
	rc = req.failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     hand_ask_again(d, req.buf, &n->drafts, &f, e);
	if (rc > 0)
		snprintf(n->why, sizeof(n->why), "%s", harvest_short(f.text));
	str_release(&req);
	return rc < 0 ? -1 : 0;
}

/* Whether there is enough ahead.  Called with the lock. */
static int is_ahead(const struct ready *r)
{
	size_t ahead = r->asked - r->taken;

	return r->on_cpu ? r->growing || ahead >= r->batch :
	       ahead >= AHEAD;
}

/* The next name, waiting for it; NULL at the end.  Called with the lock. */
static struct name *next_name(struct ready *r)
{
	while (!r->stop && !r->failed &&
	       (!r->named || (r->asked < r->n && is_ahead(r))))
		pthread_cond_wait(&r->changed, &r->lock);
	if (r->stop || r->failed || r->asked == r->n)
		return NULL;
	r->busy++;
	r->name[r->asked].stage = ASKED;
	return &r->name[r->asked++];
}

/* Called with the lock. */
static void give_up(struct ready *r, const struct err *e)
{
	if (!r->failed)
		r->err = *e;
	r->failed = 1;
	pthread_cond_broadcast(&r->changed);
}

static void work(struct ready *r, struct hand *d)
{
	struct name *n;

	pthread_mutex_lock(&r->lock);
	while ((n = next_name(r))) {
		struct err e = ERR_INIT;
		int64_t began = now_ns();
		int rc;

		pthread_mutex_unlock(&r->lock);
		rc = prepare(d, n, &e);
		pthread_mutex_lock(&r->lock);
		r->ns += now_ns() - began;
		r->busy--;
		/* What is not known is no reason to leave it out. */
		n->stage = rc ? ASKED : PREPARED;
		if (rc)
			give_up(r, &e);
		pthread_cond_broadcast(&r->changed);
	}
	pthread_mutex_unlock(&r->lock);
}

static int hand_open(struct hand *d, struct err *e)
{
	struct judge_opts o;

	judge_defaults(&o);
	o.device = "cpu";
	o.task_s = ready_timeout(d->r->h);
	d->j = judge_open(&o, e);
	return d->j ? 0 : -1;
}

static void tell_list(struct ready *r, struct hand *d, struct json *list)
{
	const char *version = torch_version(d->j->host);

	r->list = list;
	r->version = version ? strdup(version) : NULL;
}

static void *run(void *arg)
{
	struct hand *d = arg;
	struct ready *r = d->r;
	struct json *told = NULL;
	struct err e = ERR_INIT;
	int first = d == r->hand, rc;

	rc = hand_open(d, &e) || begin(d, first, &told, &e) ? -1 : 0;
	pthread_mutex_lock(&r->lock);
	if (rc && first)
		give_up(r, &e);
	else if (rc && !sig_caught())
		warn("prepares with one process less: %s", e.msg);
	else if (first)
		tell_list(r, d, told);
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
	if (rc || !first)
		json_free(told);
	if (!rc)
		work(r, d);
	hand_close(d);
	judge_close(d->j);
	return NULL;
}

struct ready *ready_open(struct harvest *h, const char *role, size_t n,
			 int64_t bytes, int on_cpu, struct err *e)
{
	struct ready *r = calloc(1, sizeof(*r));

	if (!r || !(r->hand = calloc(n, sizeof(*r->hand)))) {
		free(r);
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	r->h = h;
	r->role = role;
	r->bytes = bytes;
	r->on_cpu = on_cpu;
	r->batch = BATCH * n;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	for (; r->nhand < n; r->nhand++) {
		struct hand *d = &r->hand[r->nhand];

		d->r = r;
		if (pthread_create(&d->thread, NULL, run, d))
			break;
	}
	if (r->nhand)
		return r;
	ready_close(r);
	err_set(e, CA_SOFTWARE, "cannot start a thread");
	return NULL;
}

/* Waits a little; -1 when a signal came or a thread gave up.  Called with the
 * lock. */
static int look(struct ready *r, struct err *e)
{
	if (sig_caught())
		return err_set(e, CA_TEMPFAIL, "interrupted");
	if (r->failed) {
		*e = r->err;
		return -1;
	}
	sig_wait(&r->changed, &r->lock);
	return 0;
}

const struct json *ready_list(struct ready *r, struct err *e)
{
	const struct json *list;

	pthread_mutex_lock(&r->lock);
	while (!r->list && !look(r, e))
		;
	list = r->list;
	pthread_mutex_unlock(&r->lock);
	return list;
}

int ready_names(struct ready *r, const char *const *name, size_t n,
		struct err *e)
{
	struct name *list = calloc(n + 1, sizeof(*list));

	if (!list)
		return err_set(e, CA_SOFTWARE, "out of memory");
	for (size_t i = 0; i < n; i++)
		list[i].text = name[i];
	pthread_mutex_lock(&r->lock);
	r->name = list;
	r->n = n;
	r->named = 1;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
	return 0;
}

/* Whose turn it is, where turns are taken.  Called with the lock. */
static void take_turns(struct ready *r)
{
	int was = r->growing;
	size_t ahead = r->asked - r->taken;

	if (was)
		r->growing = ahead > 0;
	else
		r->growing = !r->busy && ahead &&
			(r->asked == r->n || ahead >= r->batch);
	if (was != r->growing)
		pthread_cond_broadcast(&r->changed);
}

/* The first that is prepared; n: none.  Called with the lock. */
static size_t find_prepared(struct ready *r)
{
	size_t i = 0;

	if (r->on_cpu) {
		take_turns(r);
		if (!r->growing)
			return r->n;
	}
	while (i < r->asked && r->name[i].stage != PREPARED)
		i++;
	return i < r->asked ? i : r->n;
}

int ready_next(struct ready *r, int wait, size_t *i, struct json **drafts,
	       const char **why, struct err *e)
{
	int rc = 0;

	pthread_mutex_lock(&r->lock);
	while ((*i = find_prepared(r)) == r->n && wait && !rc &&
	       r->taken < r->n)
		rc = look(r, e);
	if (!rc && *i < r->n) {
		struct name *n = &r->name[*i];

		n->stage = TAKEN;
		*drafts = n->drafts;
		*why = n->why;
		n->drafts = NULL;
		r->taken++;
		pthread_cond_broadcast(&r->changed);
		rc = 1;
	}
	pthread_mutex_unlock(&r->lock);
	return rc;
}

const char *ready_version(const struct ready *r)
{
	return r->version;
}

double ready_seconds(struct ready *r)
{
	int64_t ns;

	pthread_mutex_lock(&r->lock);
	ns = r->ns;
	pthread_mutex_unlock(&r->lock);
	return (double)ns / 1e9;
}

void ready_stop(struct ready *r)
{
	pthread_mutex_lock(&r->lock);
	r->stop = 1;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
	for (size_t i = 0; i < r->nhand; i++)
		pthread_join(r->hand[i].thread, NULL);
	r->nhand = 0;
}

void ready_close(struct ready *r)
{
	if (!r)
		return;
	ready_stop(r);
	for (size_t i = 0; i < r->n; i++)
		json_free(r->name[i].drafts);
	json_free(r->list);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->changed);
	free(r->version);
	free(r->name);
	free(r->hand);
	free(r);
}
