/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks that run one after another under one lease.
 */
#include "synth/clocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/sig.h"

#define GATHER_NS 500000000	/* until there are enough of them */
#define ENOUGH 4		/* of so many tasks in hand, one */
#define HELD_NS 1000000000	/* for all, when other processes may wait */

struct clocks *clocks_of(struct clocks all[CLOCKS_GPUS],
			 const struct device *d)
{
	const char *colon = strchr(d->name, ':');

	return &all[colon ? (size_t)atoi(colon + 1) % CLOCKS_GPUS : 0];
}

void clocks_init(struct clocks *c)
{
	memset(c, 0, sizeof(*c));
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
}

void clocks_release(struct clocks *c)
{
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->changed);
}

void clocks_task(struct clocks *c, int by)
{
	pthread_mutex_lock(&c->lock);
	c->tasks = by > 0 ? c->tasks + 1 : c->tasks - 1;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

/* Whether those that wait are enough to stop the others for.  Called with the
 * lock. */
static int gathered(const struct clocks *c, int64_t until)
{
	return c->waiting >= c->tasks ||
	       c->waiting > c->tasks / ENOUGH ||
	       now_ns() > until || sig_caught();
}

/* For all that wait.  Called with the lock, which is let go. */
static int lead(struct clocks *c, struct device *d, double seconds,
		struct err *e)
{
	int64_t until = now_ns() + GATHER_NS;
	int rc;

	c->led = 1;
	while (!gathered(c, until))
		sig_wait(&c->changed, &c->lock);
	pthread_mutex_unlock(&c->lock);
	rc = device_hold(d, HOLD_ALONE, seconds, e);
	pthread_mutex_lock(&c->lock);
	c->led = c->open = !rc;
	return rc;
}

int clocks_enter(struct clocks *c, struct device *d, double seconds,
		 int *leads, struct err *e)
{
	int64_t end = deadline_in(seconds);
	int rc = 0;

	d->ops->unlease(d);
	pthread_mutex_lock(&c->lock);
	c->waiting++;
	pthread_cond_broadcast(&c->changed);
	while (!rc && (c->running || (c->led && !c->open))) {
		if (sig_caught())
			rc = err_set(e, CA_TEMPFAIL, "interrupted");
		else if (now_ns() > end)
			rc = err_set(e, CA_UNAVAILABLE, "the device was not "
				     "free within %.0f s", seconds);
		else
			sig_wait(&c->changed, &c->lock);
	}
	*leads = !rc && !c->led;
	if (*leads)
		rc = lead(c, d, seconds, e);
	c->waiting--;
	c->running |= !rc;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

void clocks_leave(struct clocks *c, int leads)
{
	int64_t until = now_ns() + HELD_NS;

	pthread_mutex_lock(&c->lock);
	c->running = 0;
	pthread_cond_broadcast(&c->changed);
	while (leads && (c->running || (c->waiting && now_ns() < until))) {
		sig_wait(&c->changed, &c->lock);
		/* Those who still wait have a lease of their own. */
		if (now_ns() >= until)
			c->open = 0;
	}
	if (leads)
		c->led = c->open = 0;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}
