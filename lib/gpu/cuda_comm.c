/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU among ranks: collective operations run on a stream of their own,
 * behind what was launched before them and beside what is launched after.
 * Nothing waits in the driver, where a rank that is gone would be waited for
 * for ever.  When one is, what waits for it on the device ends with this
 * process, and until then nothing that waits for the device may be called: to
 * free memory, or a communicator, is to wait.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "gpu/cuda.h"
#include "gpu/nccl.h"

#define AHEAD 8			/* marks that may be launched and not done */
#define END_S 8			/* for what ends when a rank is gone */

struct cuda_comm {
	struct comm *c;
	struct nccl *nccl;
	cu_stream stream;
	cu_event before, after;		/* computing to collecting, back */
	cu_event mark[AHEAD];
	unsigned marks;
	uint64_t met;			/* number of the last operation */
};

static struct cuda *of(struct gpu *g)
{
	return (struct cuda *)g;
}

static int make(struct cuda *c, struct cuda_comm *m, struct err *e)
{
	if (cu_bind(c->dev, e) ||
	    cu_check(c->dev->api, c->dev->api->StreamCreate(
			&m->stream, CU_NON_BLOCKING), "cuStreamCreate", e) ||
	    cu_event_new(c->dev, &m->before, e) ||
	    cu_event_new(c->dev, &m->after, e))
		return -1;
	for (int i = 0; i < AHEAD; i++)
		if (cu_event_new(c->dev, &m->mark[i], e))
			return -1;
	m->nccl = nccl_open(m->c, e);
	return m->nccl ? 0 : -1;
}

int cuda_join(struct gpu *g, struct comm *ranks, struct err *e)
{
	struct cuda *c = of(g);

	c->comm = calloc(1, sizeof *c->comm);
	if (!c->comm)
		return err_set(e, CA_SOFTWARE, "no memory");
	c->comm->c = ranks;
	if (make(c, c->comm, e)) {
		cuda_part(g);
		return -1;
	}
	comm_strict(ranks);
	return 0;
}

void cuda_part(struct gpu *g)
{
	struct cuda *c = of(g);
	struct cuda_comm *m = c->comm;

	if (!m)
		return;
	nccl_close(m->nccl);
	for (int i = 0; i < AHEAD; i++)
		cu_event_free(c->dev, m->mark[i]);
	cu_event_free(c->dev, m->before);
	cu_event_free(c->dev, m->after);
	if (m->stream)
		c->dev->api->StreamDestroy(m->stream);
	free(m);
	c->comm = NULL;
}

/* Whether the device has come to the last collective operation and is still in
 * it, which may be for want of another rank. */
static void tell_meeting(struct cuda *c)
{
	const struct cu_api *api = c->dev->api;
	struct cuda_comm *m = c->comm;

	if (m->met && !api->EventQuery(m->before) &&
	    api->StreamQuery(m->stream) == CU_NOT_READY)
		comm_meeting(m->c, m->met);
}

static void lose(struct cuda *c)
{
	c->comm->nccl = NULL;
	cuda_comm_lost(c);
}

/* What the device reports may be what the end of another rank has done to it:
 * then that is to be named. */
static void report(struct cuda *c, cu_rc rc)
{
	struct comm *ranks = c->comm->c;

	if (c->g.failed.code || !rc)
		return;
	if (!comm_seek(ranks, &c->g.failed)) {
		cu_check(c->dev->api, rc, "kernels", &c->g.failed);
		comm_fail(ranks, &c->g.failed);
	}
	lose(c);
}

/* Until `done` says something else than that it is not ready. */
static void poll(struct cuda *c, cu_rc (*done)(struct cuda *c, void *what),
		 void *what)
{
	const struct timespec nap = { 0, 20000 };
	cu_rc rc;

	while ((rc = done(c, what)) == CU_NOT_READY) {
		if (comm_check(c->comm->c, COMM_WAITING,
			       &c->g.failed) ||
		    nccl_check(c->comm->nccl, &c->g.failed)) {
			lose(c);
			return;
		}
		tell_meeting(c);
		nanosleep(&nap, NULL);
	}
	comm_beat(c->comm->c);
	report(c, rc);
}

static cu_rc stream_done(struct cuda *c, void *what)
{
	(void)what;
	return c->dev->api->StreamQuery(c->dev->stream);
}

static cu_rc event_done(struct cuda *c, void *what)
{
	return c->dev->api->EventQuery(*(cu_event *)what);
}

int cuda_comm_wait(struct cuda *c)
{
	if (c->comm && c->comm->nccl && !c->g.failed.code)
		poll(c, stream_done, NULL);
	else if (cuda_comm_lost(c) && !c->g.failed.code)
		comm_check(c->comm->c, COMM_GLANCE, &c->g.failed);
	return c->g.failed.code ? -1 : 0;
}

/* NCCL's kernels wait for a rank that is gone, and whatever waits for them
 * never ends: exit() too, where the driver's libraries do. */
int cuda_comm_lost(const struct cuda *c)
{
	struct err why = ERR_INIT;

	if (!c->comm || comm_failed(c->comm->c) < 0)
		return 0;
	comm_check(c->comm->c, COMM_GLANCE, &why);
	die_within(END_S, &why);
	return 1;
}

/* So that a rank that gets on can be told from one that hangs, not more than
 * a few marks are ahead of the device. */
void cuda_mark(struct gpu *g)
{
	struct cuda *c = of(g);
	struct cuda_comm *m = c->comm;
	cu_event *ev;

	if (!m || !m->nccl)
		return;
	ev = &m->mark[m->marks % AHEAD];
	if (m->marks++ >= AHEAD)
		poll(c, event_done, ev);
	if (!g->failed.code)
		cu_event_record(c->dev, *ev, &g->failed);
}

/* `second` goes on when `first` has come to where it is now. */
static int chain(struct cuda *c, cu_event ev, cu_stream first,
		 cu_stream second)
{
	const struct cu_api *api = c->dev->api;

	return cu_check(api, api->EventRecord(ev, first), "cuEventRecord",
			&c->g.failed) ||
	       cu_check(api, api->StreamWait(second, ev, 0),
			"cuStreamWaitEvent", &c->g.failed);
}

/* The next collective operation sees what was computed until now. */
static int meet(struct cuda *c)
{
	struct cuda_comm *m = c->comm;

	if (!m->nccl || chain(c, m->before, c->dev->stream, m->stream))
		return 0;
	m->met = comm_meet(m->c);
	return 1;
}

void cuda_reduce_scatter(struct gpu *g, float *x, size_t part)
{
	struct cuda *c = of(g);
	struct cuda_comm *m = c->comm;

	if (meet(c))
		nccl_reduce_scatter(m->nccl, m->stream, x, part, &g->failed);
}

void cuda_all_gather(struct gpu *g, void *x, size_t bytes)
{
	struct cuda *c = of(g);
	struct cuda_comm *m = c->comm;

	if (meet(c))
		nccl_all_gather(m->nccl, m->stream, x, bytes, &g->failed);
}

void cuda_collected(struct gpu *g)
{
	struct cuda *c = of(g);

	if (c->comm->nccl)
		chain(c, c->comm->after, c->comm->stream, c->dev->stream);
}
