/* SPDX-License-Identifier: Apache-2.0
 *
 * One iteration on CUDA.  Contexts of different processes never run at the
 * same time, so the judge's own kernels order the runner's work, and stamps
 * of the GPU's clock among them are the judge's clock:
 *
 *	judge's stream	hold | reveal | stamp		  stamp | capture
 *	runner's	     (its launches queue up)  work
 *	host		go at the hold's start ... answer, then the capture
 *
 * What Python does before the first launches lies behind the hold, as it
 * lies behind earlier work where a model is used.  `go` says nothing that the
 * inputs do, which come when the hold has ended; the runner's first kernel, the
 * shim's own, keeps its stream's copies behind them as well.  A probe
 * afterwards that comes late tells that the runner still had work, that is,
 * that it computed behind its answer.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "judge/cuda.h"

#define SPIN_NS 20000000	/* then the judge sleeps until the answer */
#define SLICE_NS 2100000	/* then a waiting context gets its turn, and
				 * a capture may interrupt the work */
#define HOLD_NS 500000
#define HOLD_BYTES ((size_t)512 << 20)	/* revealed within the same slice */
#define TURN_NS 40000		/* until the GPU has turned to the runner */
#define GAP_NS 20000		/* longer ones are another context's turn */
#define REVEAL_NS 100000	/* a reveal's time that bytes do not tell */
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

/* Whether a block of the pool has room for zones: a runner says where it is. */
static int has_zones(const struct runner *r, const struct extent *b)
{
	return b->bytes && b->offset >= CA_POOL_ZONE &&
	       b->offset + b->bytes + CA_POOL_ZONE <= r->pool.bytes;
}

/* Fills the zones beside the blocks in which the last results lay.  torch keeps
 * its blocks, so that the next ones will lie there too. */
static int reveal_zones(struct cuda *c, struct runner *r,
			struct cuda_moves *m, struct err *e)
{
	struct mem zone = cuda_zone(c);

	r->nzoned = 0;
	for (unsigned i = 0; i < r->nlast; i++) {
		struct extent b = r->block[i];

		if (!has_zones(r, &b))
			continue;
		r->zoned[r->nzoned++] = b;
		if (cuda_move(m, cuda_at(&r->pool, b.offset - CA_POOL_ZONE),
			      cuda_at(&zone, 0), CA_POOL_ZONE, e) ||
		    cuda_move(m, cuda_at(&r->pool, b.offset + b.bytes),
			      cuda_at(&zone, 0), CA_POOL_ZONE, e))
			return -1;
	}
	return 0;
}

/* bracket_result's `stray`, after the clock has stopped. */
static int look_beside(struct device *d, const struct runner *r,
		       struct bracket_result *res, struct err *e)
{
	struct mem zone = cuda_zone(cuda_of(d));

	for (unsigned i = 0; i < r->nzoned && !res->stray; i++) {
		const struct extent *z = &r->zoned[i];
		int behind, before;
		uint32_t n = 0;

		while (n < res->msg.nleaf &&
		       (res->msg.leaf[n].from != z->offset ||
			res->msg.leaf[n].to != z->offset + z->bytes))
			n++;
		if (n == res->msg.nleaf)
			continue;
		behind = cuda_differs(d, &r->pool, z->offset + z->bytes,
				      &zone, 0, CA_POOL_ZONE, e);
		before = cuda_differs(d, &r->pool, z->offset - CA_POOL_ZONE,
				      &zone, 0, CA_POOL_ZONE, e);
		if (behind < 0 || before < 0)
			return -1;
		res->stray = behind ? (int)n + 1 : before ? -(int)n - 1 : 0;
	}
	return 0;
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
	if (reveal_zones(c, r, &m, e))
		return -1;
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

static size_t bytes_to_move(const struct runner *r, const struct bracket *b)
{
	size_t n = b->input_bytes + (b->params ? b->param_bytes : 0);

	for (unsigned i = 0; i < r->nlast; i++)
		n += r->last[i].bytes;
	return n;
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
		runner_last(r, &res->msg.leaf[i], &ext[i]);
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

/* Has the GPU say when it gets here in the judge's stream. */
static int stamp(struct cuda *c, int which, struct err *e)
{
	uint64_t *out = &c->stamps[which].ns, seq = c->stamped;
	void *args[] = { &out, &seq };

	return cu_launch(c->cu, c->stamp, 1, 1, args, e);
}

static int hold(struct cuda *c, struct err *e)
{
	uint64_t *out = &c->stamps[STAMP_HOLDS].ns, seq = c->stamped;
	uint64_t ns = HOLD_NS;
	void *args[] = { &out, &seq, &ns };

	return cu_launch(c->cu, c->hold, 1, 1, args, e) ||
		stamp(c, STAMP_HELD, e) ? -1 : 0;
}

/* Polls: a call of the driver's would take longer, each time differently. */
static int await(const struct cuda *c, int which, struct err *e)
{
	int64_t end = deadline_in(SWEEP_SECONDS);
	const uint64_t *seq = &c->stamps[which].seq;

	while (__atomic_load_n(seq, __ATOMIC_ACQUIRE) != c->stamped)
		if (now_ns() > end)
			return err_set(e, CA_SOFTWARE, "the GPU did nothing "
				       "for %d s", SWEEP_SECONDS);
	return 0;
}

/*
 * Launches the hold and the reveal, and returns when the GPU is held.  What
 * takes longer than a time slice is revealed before, since the runner's work
 * would get its turn in the middle: in the time of a hold nobody can do much
 * with so many bytes.
 */
static int hold_and_reveal(struct cuda *c, struct runner *r,
			   const struct bracket *b, int late, struct err *e)
{
	c->stamped++;
	if (!late && (reveal(c, r, b, e) || cuda_sync(c, SWEEP_SECONDS, e)))
		return -1;
	reveal_slots(r, b);
	if (hold(c, e) || (late && reveal(c, r, b, e)) ||
	    stamp(c, STAMP_REVEALED, e))
		return -1;
	return await(c, STAMP_HOLDS, e);
}

/* Waits until a capture cannot overtake the runner's work any more: the
 * judge's stream has nothing to do, and the GPU has turned to the runner. */
static int turn(const struct cuda *c, struct err *e)
{
	int64_t end;

	if (await(c, STAMP_REVEALED, e))
		return -1;
	end = now_ns() + TURN_NS;
	while (now_ns() < end)
		;
	return 0;
}

/*
 * Whether the order of things was another than the clock stands on: the
 * runner had the GPU before everything was revealed, or never had it.
 */
static int out_of_order(const struct cuda *c, size_t moved)
{
	const struct cuda_stamp *s = c->stamps;
	double bytes_per_ns = c->cu->info.bytes_per_s * 0.4e-9;
	double most = REVEAL_NS;

	if (bytes_per_ns > 0)
		most += 2 * (double)moved / bytes_per_ns;
	return s[STAMP_HOLDS].ns > GAP_NS ||
		(double)(s[STAMP_REVEALED].ns - s[STAMP_HELD].ns) > most ||
		s[STAMP_ANSWERED].ns - s[STAMP_REVEALED].ns < 2 * TURN_NS;
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
	if (turn(c, e) || stamp(c, STAMP_ANSWERED, e) ||
	    capture(c, r, b, ext, res, e))
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
	size_t moved = bytes_to_move(r, b);
	int rc;

	memset(res, 0, sizeof(*res));
	if (warm_up(d, r, b, res))
		return 0;
	if (clean_cache(c, e))
		return -1;
	go.magic = CA_MAGIC_GO;
	go.seq = ++r->seq;
	if (hold_and_reveal(c, r, b, moved <= HOLD_BYTES, e))
		return -1;
	if (torch_send_go(&r->child, &go, NULL)) {
		res->wait = WAIT_GONE;
		return 0;
	}
	res->wait = cuda_answer(d, r, &res->msg, b->deadline);
	if (res->wait != WAIT_OK)
		return 0;
	rc = finish(c, r, b, res, e);
	if (rc)
		return rc > 0 ? 0 : -1;
	res->ns = (int64_t)(c->stamps[STAMP_ANSWERED].ns -
			    c->stamps[STAMP_REVEALED].ns);
	res->disturbed = out_of_order(c, moved) ||
			 (!(go.flags & GO_SYNC) && res->ns > SLICE_NS);
	return busy_behind(c, &res->late, e) || look_beside(d, r, res, e) ?
		-1 : 0;
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
