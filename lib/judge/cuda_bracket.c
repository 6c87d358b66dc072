/* SPDX-License-Identifier: Apache-2.0
 *
 * One iteration on CUDA.  Contexts of different processes never run at the
 * same time, so the judge's own kernels order the runner's work: the reveal
 * has ended before `go` is raised, and the capture waits for whatever the
 * runner has launched.  A probe afterwards that comes late tells that the
 * runner still had work, that is, that it computed behind its answer.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "judge/cuda.h"

#define SPIN_NS 20000000	/* then the judge sleeps until the answer */
#define SETTLE_NS 50000		/* time for a switch to a runner's work */
#define SWEEP_SECONDS 10
#define PACK 64

/*
 * Spins, because waking up costs tens of microseconds that differ from call
 * to call; a runner that takes long is worth no core.
 */
enum torch_wait cuda_answer(struct device *d, struct runner *r,
			    struct ca_msg *m, int64_t deadline)
{
	struct pollfd p = { .fd = r->child.fd, .events = POLLIN };
	int64_t end = now_ns() + SPIN_NS;

	(void)d;
	while (poll(&p, 1, 0) == 0) {
		int64_t now = now_ns();

		if (now > deadline)
			return WAIT_TIMEOUT;
		if (now > end)
			break;
	}
	return torch_recv(&r->child, m, deadline);
}

/* The same state of the L2 cache for everybody: no persisting lines, nothing
 * of earlier iterations. */
static int clean_cache(struct cuda *c, struct err *e)
{
	cu_ptr from = c->flush.ptr, sink = c->scratch.ptr;
	uint64_t words = c->flush.size / 16;
	void *args[] = { &from, &words, &sink };

	if (cu_check(c->cu->api, c->cu->api->ResetL2(),
		     "cuCtxResetPersistingL2Cache", e) ||
	    cu_launch(c->cu, c->sweep, (unsigned)c->cu->info.sms * 4, 512,
		      args, e))
		return -1;
	return cuda_sync(c, SWEEP_SECONDS, e);
}

/* Inputs, parameters and poison, in one launch where they fit its table. */
static int reveal(struct cuda *c, struct runner *r, const struct bracket *b,
		  struct err *e)
{
	struct mem *in = &r->in[b->go.set];
	struct cuda_moves m;

	if (b->input_bytes &&
	    (cuda_inside(in, 0, b->input_bytes, e) ||
	     cuda_inside(b->inputs, 0, b->input_bytes, e)))
		return -1;
	if (b->params &&
	    (cuda_inside(&r->params, 0, b->param_bytes, e) ||
	     cuda_inside(b->params, 0, b->param_bytes, e)))
		return -1;
	cuda_moves_init(&m, c, b->poison);
	for (unsigned i = 0; i < r->nlast; i++)
		if (cuda_move(&m, cuda_at(&r->pool, r->last[i].offset), 0,
			      r->last[i].bytes, e))
			return -1;
	r->nlast = 0;
	if (b->input_bytes &&
	    cuda_move(&m, cuda_at(in, 0), cuda_at(b->inputs, 0),
		      b->input_bytes, e))
		return -1;
	if (b->params &&
	    cuda_move(&m, cuda_at(&r->params, 0), cuda_at(b->params, 0),
		      b->param_bytes, e))
		return -1;
	return cuda_moves_end(&m, e);
}

static void reveal_slots(struct runner *r, const struct bracket *b)
{
	size_t n = CA_SLOTS * sizeof(struct ca_slot);

	if (b->slots)
		memcpy((char *)r->slots.p + b->go.set * n, b->slots, n);
}

/* Launches the capture of a checked answer; results are packed in order. */
static int capture(struct cuda *c, struct runner *r, const struct bracket *b,
		   const struct extent *ext, struct bracket_result *res,
		   struct err *e)
{
	struct cuda_moves m;
	uint64_t to = 0;

	cuda_moves_init(&m, c, 0);
	for (uint32_t i = 0; i < res->msg.nleaf; i++) {
		uint64_t n = ext[i].bytes;

		if (!n)
			continue;
		r->last[r->nlast++] = ext[i];
		/* More than the reference has is a wrong shape, which the
		 * leaves tell without the bytes. */
		if (!b->capture || to > b->capture->bytes ||
		    n > b->capture->bytes - to)
			continue;
		res->got[i].offset = to;
		res->got[i].bytes = n;
		if (cuda_move(&m, cuda_at(b->capture, to),
			      cuda_at(&r->pool, ext[i].offset), n, e))
			return -1;
		to += (n + PACK - 1) / PACK * PACK;
	}
	return cuda_moves_end(&m, e);
}

int64_t cuda_probe(struct cuda *c, struct err *e)
{
	cu_ptr p = c->scratch.ptr;
	void *args[] = { &p };
	int64_t t = now_ns();

	if (cu_launch(c->cu, c->probe, 1, 32, args, e) ||
	    cuda_sync(c, SWEEP_SECONDS, e))
		return -1;
	return now_ns() - t;
}

/* Whether the runner still has work on the GPU. */
static int busy_behind(struct cuda *c, int *late, struct err *e)
{
	const struct timespec settle = { 0, SETTLE_NS };
	int64_t ns;

	nanosleep(&settle, NULL);
	ns = cuda_probe(c, e);
	if (ns < 0)
		return -1;
	*late = ns > (int64_t)(c->late_us * 1e3);
	return 0;
}

/* From an answer to the stop of the clock.  1: the capture took too long. */
static int finish(struct cuda *c, struct runner *r, const struct bracket *b,
		  struct bracket_result *res, struct err *e)
{
	struct extent ext[CA_LEAVES];

	if (res->msg.seq != r->seq) {
		res->wait = WAIT_GARBAGE;
		return 1;
	}
	if (leaves_check(&res->msg, r->pool.bytes, ext)) {
		res->bad_leaf = 1;
		return 1;
	}
	if (capture(c, r, b, ext, res, e))
		return -1;
	switch (cu_wait(c->cu, b->deadline, e)) {
	case 0:
		return 0;
	case 1:
		res->wait = WAIT_TIMEOUT;
		return 1;
	default:
		return -1;
	}
}

/*
 * A call that nobody times, on what the previous bracket revealed: the
 * oracle's and the judge's work since then has cooled the runner's caches and
 * put its core to sleep.  1: it ended badly, as res->wait says.
 */
static int warm_up(struct device *d, struct runner *r,
		   const struct bracket *b, struct bracket_result *res)
{
	struct ca_go go = b->go;

	r->warmed = b->warm && r->brackets;
	if (!r->warmed)
		return 0;
	go.magic = CA_MAGIC_GO;
	go.seq = ++r->seq;
	go.set = !go.set;
	go.flags |= GO_SYNC;
	/* The real one comes with the real inputs. */
	go.forward_seed = b->poison;
	if (torch_send_go(&r->child, &go, NULL)) {
		res->wait = WAIT_GONE;
		return 1;
	}
	res->wait = cuda_answer(d, r, &res->msg, b->deadline);
	if (res->wait == WAIT_OK && res->msg.seq != r->seq)
		res->wait = WAIT_GARBAGE;
	if (res->wait != WAIT_OK || res->msg.end != END_OK)
		return 1;
	res->bad_leaf = runner_note(r, &res->msg);
	return !!res->bad_leaf;
}

static int timed(struct device *d, struct runner *r, const struct bracket *b,
		 struct bracket_result *res, struct err *e)
{
	struct cuda *c = cuda_of(d);
	struct ca_go go = b->go;
	int64_t t0;
	int rc;

	memset(res, 0, sizeof(*res));
	if (warm_up(d, r, b, res))
		return 0;
	if (clean_cache(c, e))
		return -1;
	go.magic = CA_MAGIC_GO;
	go.seq = ++r->seq;
	t0 = now_ns();
	if (reveal(c, r, b, e))
		return -1;
	reveal_slots(r, b);
	if (cuda_sync(c, SWEEP_SECONDS, e))
		return -1;
	if (torch_send_go(&r->child, &go, NULL)) {
		res->wait = WAIT_GONE;
		return 0;
	}
	res->wait = cuda_answer(d, r, &res->msg, b->deadline);
	if (res->wait != WAIT_OK)
		return 0;
	rc = finish(c, r, b, res, e);
	res->ns = now_ns() - t0;
	if (rc)
		return rc > 0 ? 0 : -1;
	return busy_behind(c, &res->late, e);
}

int cuda_bracket(struct device *d, struct runner *r, const struct bracket *b,
		 struct bracket_result *res, struct err *e)
{
	const struct cuda_cpus *cpus = &cuda_of(d)->cpus;
	int rc;

	if (!b->warm)
		return timed(d, r, b, res, e);
	cuda_cpus_hold(cpus, r->child.pid);
	rc = timed(d, r, b, res, e);
	cuda_cpus_let(cpus);
	return rc;
}
