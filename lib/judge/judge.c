/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the judge, and what of an earlier verdict it believes.
 */
#include "judge/judge.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/sig.h"
#include "cu/lease.h"
#include "jail/jail.h"
#include "judge/ahead.h"
#include "judge/rules.h"
#include "judge/session.h"

/* More than any cache; on CUDA a millisecond, beside which the launch is
 * nothing. */
#define COPY_CPU ((size_t)256 << 20)
#define COPY_CUDA ((size_t)2 << 30)
#define PATIENCE_S 10		/* before it is said that we wait */
#define COPIES 6
#define REST_SECONDS 30		/* for processes to end */

void judge_defaults(struct judge_opts *o)
{
	memset(o, 0, sizeof(*o));
	o->load_s = 30;
	o->first_s = 60;
	o->call_s = 10;
	o->task_s = 60;
	o->lease_s = 600;
	o->inputs = 5;
	o->mode = "default";
	o->max_rounds = 24;
}

/* The level at which forked processes are confined here. */
static const char *jail_for(const struct judge_opts *o, struct err *e)
{
	struct jail_caps caps;

	if (o->no_jail)
		return "none";
	if (jail_probe(&caps, e))
		return NULL;
	if (caps.self >= JAIL_UID)
		return jail_level_name(caps.self);
	err_set(e, CA_UNAVAILABLE, "cannot confine candidates here: %s "
		"(--no-jail runs them unconfined)", caps.why);
	return NULL;
}

struct judge *judge_open(const struct judge_opts *o, struct err *e)
{
	struct judge *j = calloc(1, sizeof(*j));

	if (!j) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	j->o = *o;
	j->rules = &rules_paper;
	j->room = -1;
	for (size_t i = 0; i < RUNNER_MEMS; i++)
		j->spare[i] = (struct mem)MEM_NONE;
	if (o->seeded)
		rng_seeded(&j->rng, o->seed);
	else
		rng_fresh(&j->rng);
	j->jail = jail_for(o, e);
	if (j->jail && !mac_key_load(&j->key, o->trust_key, e))
		j->dev = device_open(o->device, e);
	if (j->dev)
		return j;
	judge_close(j);
	return NULL;
}

void judge_close(struct judge *j)
{
	if (!j)
		return;
	judge_rest(j);
	ahead_dismiss(j);
	ahead_provide(j);
	ahead_leave(j);
	if (j->dev) {
		j->defers = 0;
		judge_free_all(j);
		runner_forget(j);
		device_close(j->dev);
	}
	free(j);
}

void judge_end(struct judge *j)
{
	if (!j || !j->dev || ahead_bequeath(j)) {
		judge_close(j);
		return;
	}
	ahead_provide(j);
	ahead_leave(j);
	device_leave(j->dev);
	free(j);
}

int judge_on_cuda(const struct judge *j)
{
	return !strcmp(j->dev->ops->name, "cuda");
}

void judge_adopt(struct judge *j, struct torch_host *h)
{
	j->host = h;
}

/* The best of a few copies; -1 when there is not so much memory. */
static double copy_rate(struct device *d, size_t bytes)
{
	struct mem a = MEM_NONE, b = MEM_NONE;
	int64_t best = 0;

	if (!d->ops->private_mem(d, bytes, &a, NULL) &&
	    !d->ops->private_mem(d, bytes, &b, NULL) &&
	    !d->ops->poison(d, &a, 0, bytes, 1, NULL))
		for (int i = 0; i < COPIES; i++) {
			int64_t began = now_ns(), took;

			if (d->ops->copy(d, &b, 0, &a, 0, bytes, NULL))
				break;
			took = now_ns() - began;
			if (i && (!best || took < best))
				best = took;
		}
	d->ops->release(d, &a);
	d->ops->release(d, &b);
	return best ? 2e9 * (double)bytes / (double)best : -1;
}

int judge_turn(struct judge *j, enum turn at, struct fail *f)
{
	return j->turn ? j->turn(j->turns, at, f) : 0;
}

void spent(struct judge *j, enum spent what, int64_t began)
{
	j->spent[what] += now_ns() - began;
}

int judge_lease(struct judge *j, int exclusive, struct err *e)
{
	int64_t began = now_ns();
	double patience = j->o.shares ? j->o.lease_s : PATIENCE_S;
	int rc;

	if (j->rests && !exclusive) {
		j->rests = 0;
		return 0;
	}
	judge_rest(j);
	j->defers = ahead_parks(j) && device_cuda_roomy(j->dev);
	rc = device_lease(j->dev, exclusive, j->o.lease_s, patience, e);

	spent(j, SPENT_LEASE, began);
	return rc;
}

int room_enter(const struct judge *j, int alone, double seconds, int *fd,
	       struct err *e)
{
	char name[128];

	*fd = -1;
	if (!judge_on_cuda(j))
		return 0;
	snprintf(name, sizeof(name), "%s.room", j->dev->gpu);
	*fd = lease_take(name, alone, seconds, e);
	return *fd < 0 ? -1 : 0;
}

void room_leave(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int judge_enter(struct judge *j, int exclusive, struct err *e)
{
	int64_t began = now_ns();
	int rc;

	/* Nobody waits for room with the lease in hand. */
	if (exclusive || room_enter(j, 0, 0, &j->room, NULL)) {
		judge_rest(j);
		rc = room_enter(j, 0, j->o.lease_s, &j->room, e);
	} else {
		rc = 0;
	}
	spent(j, SPENT_LEASE, began);
	if (!rc)
		rc = judge_lease(j, exclusive, e);
	if (rc)
		room_leave(&j->room);
	return rc;
}

int judge_clear(struct judge *j, struct fail *f)
{
	struct err e = ERR_INIT;
	int64_t began = now_ns();

	ahead_settle(j);
	j->dev->ops->unlease(j->dev);
	j->rests = 0;
	room_leave(&j->room);
	if (!room_enter(j, 1, j->o.lease_s, &j->room, &e)) {
		spent(j, SPENT_LEASE, began);
		return judge_alone(j, f);
	}
	spent(j, SPENT_LEASE, began);
	j->unleased = 1;
	return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
}

void judge_free(struct judge *j, struct mem *m)
{
	if (!j->defers || j->nlater == LATER_MAX) {
		j->dev->ops->release(j->dev, m);
		return;
	}
	if (m->p)
		j->later[j->nlater++] = *m;
	*m = (struct mem)MEM_NONE;
}

void judge_free_all(struct judge *j)
{
	while (j->nlater)
		j->dev->ops->release(j->dev, &j->later[--j->nlater]);
}

/* What has ended for us ends, and the device is given back. */
static void end_all(struct judge *j)
{
	ahead_settle(j);
	j->dev->ops->unlease(j->dev);
	/* What was found out stands; others are not to live beside it. */
	if (j->undead)
		ahead_leave(j);
	j->undead = 0;
	room_leave(&j->room);
}

void judge_leave(struct judge *j)
{
	/* The ends of processes, of their contexts above all, would disturb
	 * somebody's clock, so that they keep the lease; but others may prepare
	 * meanwhile, whoever reads the record among them. */
	int later = (j->nending || j->nlater) &&
		    (!judge_on_cuda(j) || ahead_parks(j));

	if (later && !j->dev->ops->share(j->dev)) {
		/* Who wants to be alone in memory wants the lease, too. */
		room_leave(&j->room);
		j->rests = 1;
		return;
	}
	end_all(j);
}

void judge_rest(struct judge *j)
{
	if (!j || !j->rests)
		return;
	j->rests = 0;
	end_all(j);
}

int judge_rest_until(struct judge *j, int fd)
{
	int64_t end = deadline_in(REST_SECONDS);
	struct pollfd p[2] = { { fd, POLLIN, 0 }, { -1, POLLIN, 0 } };

	while (j->rests && ahead_parks(j) && !ahead_ended(j) &&
	       now_ns() < end && !sig_caught()) {
		p[1].fd = torch_fd(j->host);
		if (poll(p, 2, 1000) > 0 && p[0].revents)
			return 1;
	}
	judge_rest(j);
	return 0;
}

int judge_alone(struct judge *j, struct fail *f)
{
	struct err e = ERR_INIT;

	/* Between two leases somebody else's clock may run. */
	ahead_settle(j);
	if (!judge_lease(j, 1, &e))
		return 0;
	j->unleased = 1;
	return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
}

double judge_copy_rate(struct judge *j)
{
	size_t bytes = judge_on_cuda(j) ? COPY_CUDA : COPY_CPU;

	if (j->copy_rate || judge_lease(j, 1, NULL))
		return j->copy_rate > 0 ? j->copy_rate : 0;
	j->copy_rate = copy_rate(j->dev, bytes);
	j->dev->ops->unlease(j->dev);
	return j->copy_rate > 0 ? j->copy_rate : 0;
}

enum status judge_status(const struct rec *r, const char *field)
{
	struct json *root;
	const char *text;
	enum status s = ST_NONE;
	size_t len;

	text = rec_text(r, field, &len);
	if (!text)
		return ST_NONE;
	root = json_parse(text, len, JSON_MAX_LINE, NULL, NULL);
	if (root)
		s = status_parse(json_get_str(root, "status", NULL));
	json_free(root);
	return s;
}
