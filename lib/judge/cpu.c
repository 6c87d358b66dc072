/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU as a device: shared memory is sealed memfds, runners are held by
 * ptrace, the clock runs from their restart until every thread has stopped,
 * and reveal and capture happen while they stand still.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/io.h"
#include "base/proc.h"
#include "base/sig.h"
#include "base/weaken.h"
#include "cu/lease.h"
#include "judge/compare.h"
#include "judge/device.h"
#include "judge/hostmem.h"
#include "judge/trace.h"
#include "judge/witness.h"
#include "torch/zone.h"

#define PAGE 4096u
/* Stores of 32 bytes at 6 GHz. */
#define CORE_BYTES_PER_S 192e9
#define STOP_SECONDS 2.0	/* to bring all threads of a runner to a stop */

struct cpu {
	struct device dev;
	int sigfd;
	sigset_t oldmask;
	int lease;		/* descriptor of the lock file, -1 */
};

static struct cpu *cpu_of(struct device *d)
{
	return (struct cpu *)d;
}

static size_t page_up(size_t n)
{
	return n ? (n + PAGE - 1) & ~(size_t)(PAGE - 1) : PAGE;
}

static int cpu_shared(struct device *d, size_t bytes, int host, struct mem *m,
		      struct err *e)
{
	(void)d;
	(void)host;	/* all memory is the host's */
	return hostmem_new(bytes, m, e);
}

static int cpu_private(struct device *d, size_t bytes, struct mem *m,
		       struct err *e)
{
	size_t n = page_up(bytes);

	(void)d;
	*m = (struct mem)MEM_NONE;
	if (hostmem_room(n, e))
		return -1;
	m->p = mmap(NULL, n, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (m->p == MAP_FAILED) {
		*m = (struct mem)MEM_NONE;
		return err_sys(e, CA_UNAVAILABLE, "no memory for %zu bytes",
			       n);
	}
	m->bytes = n;
	return 0;
}

static void cpu_release(struct device *d, struct mem *m)
{
	(void)d;
	hostmem_free(m);
}

static int inside(const struct mem *m, size_t off, size_t n, struct err *e)
{
	if (off <= m->bytes && n <= m->bytes - off)
		return 0;
	return err_set(e, CA_SOFTWARE, "access outside of memory "
		       "(%zu + %zu of %zu)", off, n, m->bytes);
}

static char *at(const struct mem *m, size_t off)
{
	return (char *)m->p + off;
}

static int cpu_copy(struct device *d, struct mem *dst, size_t doff,
		    const struct mem *src, size_t soff, size_t n,
		    struct err *e)
{
	(void)d;
	if (!n)
		return 0;
	if (inside(dst, doff, n, e) || inside(src, soff, n, e))
		return -1;
	memcpy(at(dst, doff), at(src, soff), n);
	return 0;
}

static int cpu_download(struct device *d, void *dst, const struct mem *src,
			size_t off, size_t n, struct err *e)
{
	(void)d;
	if (!n)
		return 0;
	if (inside(src, off, n, e))
		return -1;
	memcpy(dst, at(src, off), n);
	return 0;
}

static int cpu_upload(struct device *d, struct mem *dst, size_t off,
		      const void *src, size_t n, struct err *e)
{
	(void)d;
	if (!n)
		return 0;
	if (inside(dst, off, n, e))
		return -1;
	memcpy(at(dst, off), src, n);
	return 0;
}

/* A quick generator (xorshift64*): poison has to be unguessable in advance,
 * which its getrandom seed sees to, and cheap. */
static void scramble(char *p, size_t n, uint64_t x)
{
	x |= 1;
	for (; n >= 8; p += 8, n -= 8) {
		uint64_t v;

		x ^= x >> 12;
		x ^= x << 25;
		x ^= x >> 27;
		v = x * 0x2545f4914f6cdd1dull;
		memcpy(p, &v, 8);
	}
	memcpy(p, &x, n);
}

static int cpu_poison(struct device *d, struct mem *m, size_t off, size_t n,
		      uint64_t seed, struct err *e)
{
	(void)d;
	if (inside(m, off, n, e))
		return -1;
	scramble(at(m, off), n, seed);
	return 0;
}

static int cpu_differs(struct device *d, const struct mem *a, size_t aoff,
		       const struct mem *b, size_t boff, size_t n,
		       struct err *e)
{
	(void)d;
	if (!n)
		return 0;
	if (inside(a, aoff, n, e) || inside(b, boff, n, e))
		return -1;
	return memcmp(at(a, aoff), at(b, boff), n) != 0;
}

/* How long a process has run and has waited for a core, in ns. */
static void schedule(pid_t pid, uint64_t *ran, uint64_t *waited)
{
	struct str s = STR_INIT;
	char path[64];

	*ran = *waited = 0;
	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	if (!read_file(path, 256, &s, NULL))
		sscanf(s.buf, "%" SCNu64 " %" SCNu64, ran, waited);
	str_release(&s);
}

static int cpu_attach(struct device *d, struct runner *r, struct err *e)
{
	r->trace = trace_seize(r->child.pid, cpu_of(d)->sigfd, e);
	if (!r->trace)
		return -1;
	r->witness = witness_open(r->child.pid, r->trace,
				  r->fine ? WITNESS_FINE : 0, e);
	schedule(r->child.pid, &r->ran, &r->waited);
	return r->witness ? 0 : -1;
}

static void cpu_detach(struct device *d, struct runner *r)
{
	(void)d;
	if (!r->trace)
		return;
	if (r->witness)
		r->saw = *witness_saw(r->witness);
	witness_close(r->witness);
	r->witness = NULL;
	r->ended = trace_kill(r->trace);
	r->trace = NULL;
}

/* Of a runner that is gone.  Its last words may still be in the channel, and
 * one that dies of a fault needs a moment; but that the channel stays open,
 * because another process was forked with its end, is no sign of life. */
static enum torch_wait last_words(struct runner *r, struct ca_msg *m)
{
	enum torch_wait w = torch_recv(&r->child, m,
				       deadline_in(STOP_SECONDS));

	return w == WAIT_TIMEOUT ? WAIT_GONE : w;
}

/*
 * Waits for the runner's answer, serving the tracer's duties meanwhile, and
 * the witness's if it watches.  The judge sleeps in poll, so that it takes no
 * core from the runner.
 */
static enum torch_wait wait_for(struct device *d, struct runner *r,
				struct witness *w, struct ca_msg *m,
				int64_t deadline)
{
	struct pollfd p[3] = {
		{ .fd = r->child.fd, .events = POLLIN },
		{ .fd = cpu_of(d)->sigfd, .events = POLLIN },
		{ .fd = sig_fd(), .events = POLLIN },
	};

	if (!r->trace)
		return torch_recv(&r->child, m, deadline);
	for (;;) {
		int64_t now = now_ns(), left = deadline - now;
		struct timespec ts;
		int looked;

		if (left <= 0 || sig_caught())
			return WAIT_TIMEOUT;
		if (w && left > witness_next(w) - now)
			left = witness_next(w) > now ? witness_next(w) - now :
						       0;
		ts.tv_sec = left / 1000000000;
		ts.tv_nsec = left % 1000000000;
		if (ppoll(p, 3, &ts, NULL) < 0 && errno != EINTR)
			return WAIT_GONE;
		if (p[0].revents)
			return torch_recv(&r->child, m, deadline);
		looked = w ? witness_look(w) : 0;
		if (looked < 0)
			return WAIT_TIMEOUT;
		if (looked || (p[1].revents && trace_serve(r->trace)))
			return last_words(r, m);
	}
}

static enum torch_wait cpu_answer(struct device *d, struct runner *r,
				  struct ca_msg *m, int64_t deadline)
{
	return wait_for(d, r, NULL, m, deadline);
}

/* What the runner will find when it wakes. */
static int reveal(struct runner *r, const struct bracket *b, struct err *e)
{
	struct mem *in = &r->in[b->go.set];

	for (unsigned i = 0; i < r->nlast; i++)
		scramble(at(&r->pool, r->last[i].offset), r->last[i].bytes,
			 b->poison + i);
	r->nlast = 0;
	if (b->input_bytes) {
		if (inside(in, 0, b->input_bytes, e))
			return -1;
		memcpy(in->p, b->inputs->p, b->input_bytes);
	}
	if (b->slots)
		memcpy(at(&r->slots, b->go.set * CA_SLOTS *
			  sizeof(struct ca_slot)), b->slots,
		       CA_SLOTS * sizeof(struct ca_slot));
	if (b->params && b->param_bytes) {
		if (inside(&r->params, 0, b->param_bytes, e))
			return -1;
		memcpy(r->params.p, b->params->p, b->param_bytes);
	}
	return 0;
}

/* Whether the zones beside the block that a result was made in are whole:
 * bracket_result's `stray`, of the i-th leaf. */
static int beside(const struct mem *pool, const struct ca_leaf *l, uint32_t i)
{
	uint64_t end = (l->to + 63) & ~(uint64_t)63;

	if (l->kind != LEAF_TENSOR || !l->to || l->from < CA_ZONE ||
	    end + CA_ZONE > pool->bytes)
		return 0;
	if (!ca_zone_whole(pool->p, l->to, end + CA_ZONE))
		return (int)i + 1;
	return ca_zone_whole(pool->p, l->from - CA_ZONE, l->from) ?
		0 : -(int)i - 1;
}

/* Packs the results into private memory. */
static void capture(struct runner *r, const struct bracket *b,
		    struct bracket_result *res)
{
	struct extent ext[CA_LEAVES];
	size_t to = 0;

	if (leaves_check(&res->msg, r->pool.bytes, ext)) {
		res->bad_leaf = 1;
		return;
	}
	for (uint32_t i = 0; i < res->msg.nleaf; i++) {
		if (!res->stray)
			res->stray = beside(&r->pool, &res->msg.leaf[i], i);
		res->got[i].offset = to;
		res->got[i].bytes = ext[i].bytes;
		if (!ext[i].bytes)
			continue;
		runner_last(r, &res->msg.leaf[i], &ext[i]);
		if (!b->capture)
			continue;
		if (ext[i].bytes > b->capture->bytes - to) {
			/* More than the reference has: a wrong shape, which
			 * the leaves tell without the bytes. */
			res->got[i].bytes = 0;
			continue;
		}
		memcpy(at(b->capture, to), at(&r->pool, ext[i].offset),
		       ext[i].bytes);
		to += (ext[i].bytes + 63) & ~(uint64_t)63;
		if (to > b->capture->bytes)
			to = b->capture->bytes;
	}
}

/* Stops the runner for good or says how it went away. */
static int still(struct runner *r, struct bracket_result *res, int64_t *when)
{
	int rc = trace_stop(r->trace, deadline_in(STOP_SECONDS), when);

	if (rc > 0)
		res->wait = WAIT_GONE;
	else if (rc < 0)
		res->wait = WAIT_TIMEOUT;
	return rc;
}

/* One call: the runner goes on until it has answered and stands still again.
 * 1: it did not, as res->wait says. */
static int call(struct device *d, struct runner *r, struct ca_go *go,
		int64_t deadline, enum witness_what what,
		struct bracket_result *res)
{
	struct witness *w = r->witness;
	int64_t t0, t1, answered;

	go->magic = CA_MAGIC_GO;
	go->seq = ++r->seq;
	if (torch_send_go(&r->child, go, NULL)) {
		res->wait = WAIT_GONE;
		return 1;
	}
	witness_begin(w, now_ns());
	t0 = now_ns();
	trace_resume(r->trace);
	res->wait = wait_for(d, r, w, &res->msg, deadline);
	answered = now_ns();
	for (int i = 0; i < 300 && res->wait == WAIT_OK &&
			weakened("stop"); i++) {
		poll(NULL, 0, 1);
		trace_serve(r->trace);
	}
	if (res->wait != WAIT_OK || still(r, res, &t1))
		return 1;
	if (weakened("stop"))
		t1 = answered;
	res->ns = t1 - t0;
	witness_end(w, t1, what);
	if (res->msg.seq != r->seq)
		res->wait = WAIT_GARBAGE;
	return res->wait != WAIT_OK;
}

/*
 * A call on the previous inputs, at the other address set, that nobody times:
 * the work of the oracle and the judge since the last one has cooled the
 * runner's caches, differently for candidates and for baselines.
 */
static int warm_up(struct device *d, struct runner *r,
		   const struct bracket *b, struct bracket_result *res)
{
	struct ca_go go = b->go;

	r->warmed = b->warm && r->brackets;
	if (!r->warmed)
		return 0;
	go.set = !go.set;
	/* The real one comes with the real inputs. */
	go.forward_seed = b->poison;
	if (call(d, r, &go, b->deadline, WITNESS_WARM, res) ||
	    res->msg.end != END_OK)
		return 1;
	res->bad_leaf = runner_note(r, &res->msg);
	return !!res->bad_leaf;
}

/* After an iteration the runner stands still. */
static enum torch_wait cpu_outside(struct device *d, struct runner *r,
				   struct ca_msg *m, int64_t deadline)
{
	if (r->trace)
		trace_resume(r->trace);
	return cpu_answer(d, r, m, deadline);
}

static int cpu_bracket(struct device *d, struct runner *r,
		       const struct bracket *b, struct bracket_result *res,
		       struct err *e)
{
	struct ca_go go = b->go;
	int64_t when;

	memset(res, 0, sizeof(*res));
	if (still(r, res, &when) || warm_up(d, r, b, res))
		return 0;
	if (reveal(r, b, e))
		return -1;
	/* Folding of parameters is what the first call is for. */
	if (call(d, r, &go, b->deadline, go.flags & GO_FIRST ? WITNESS_FIRST :
		 WITNESS_COUNTS, res))
		return 0;
	capture(r, b, res);
	return 0;
}

static int cpu_compare(struct device *d, const struct cmp_rule *rule,
		       const struct view *got, const struct view *ref,
		       const struct view *fp64, struct cmp_result *r,
		       struct err *e)
{
	(void)d;
	return compare(rule, got, ref, fp64, 0, r, e);
}

static int cpu_recover(struct device *d, struct err *e)
{
	(void)d;
	(void)e;
	return 0;	/* a process that died leaves nothing behind here */
}

static void cpu_unlease(struct device *d)
{
	struct cpu *c = cpu_of(d);

	if (c->lease >= 0)
		close(c->lease);
	c->lease = -1;
}

static int cpu_lease(struct device *d, int exclusive, double seconds,
		     struct err *e)
{
	cpu_unlease(d);
	cpu_of(d)->lease = lease_take("cpu", exclusive, seconds, e);
	return cpu_of(d)->lease < 0 ? -1 : 0;
}

static int cpu_share(struct device *d)
{
	return lease_share(cpu_of(d)->lease);
}

/* Whether a process of ours has waited for a core as long as it has had one
 * since it was taken hold of: what is left is noise, which shows in the
 * rounds' spread. */
static int cpu_foreign(struct device *d, const struct runner *trusted)
{
	uint64_t ran, waited;

	(void)d;
	schedule(trusted->child.pid, &ran, &waited);
	return waited - trusted->waited > ran - trusted->ran;
}

static void cpu_close(struct device *d)
{
	struct cpu *c = cpu_of(d);

	cpu_unlease(d);
	close(c->sigfd);
	sigprocmask(SIG_SETMASK, &c->oldmask, NULL);
	free(c);
}

static const struct device_ops cpu_ops = {
	.name = "cpu",
	.close = cpu_close,
	.shared = cpu_shared,
	.private_mem = cpu_private,
	.release = cpu_release,
	.copy = cpu_copy,
	.download = cpu_download,
	.upload = cpu_upload,
	.poison = cpu_poison,
	.differs = cpu_differs,
	.compare = cpu_compare,
	.attach = cpu_attach,
	.detach = cpu_detach,
	.answer = cpu_outside,
	.bracket = cpu_bracket,
	.recover = cpu_recover,
	.lease = cpu_lease,
	.unlease = cpu_unlease,
	.share = cpu_share,
	.foreign = cpu_foreign,
};

/* "model name" of /proc/cpuinfo. */
static void cpu_model(char *out, size_t n)
{
	if (proc_line(out, n, "model name", "/proc/cpuinfo"))
		snprintf(out, n, "CPU");
}

struct device *device_cpu_open(struct err *e)
{
	struct cpu *c = calloc(1, sizeof(*c));
	sigset_t chld;

	if (!c) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	c->dev.ops = &cpu_ops;
	c->dev.granularity = PAGE;
	c->dev.resolution_us = 20;
	c->dev.cache_bytes_per_s = CORE_BYTES_PER_S *
				   (double)sysconf(_SC_NPROCESSORS_ONLN);
	c->dev.witnessed = 1;
	c->lease = -1;
	snprintf(c->dev.name, sizeof(c->dev.name), "cpu");
	cpu_model(c->dev.model, sizeof(c->dev.model));
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, &c->oldmask);
	c->sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (c->sigfd < 0) {
		err_sys(e, CA_SOFTWARE, "cannot watch children");
		free(c);
		return NULL;
	}
	return &c->dev;
}
