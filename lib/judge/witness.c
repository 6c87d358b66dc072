/* SPDX-License-Identifier: Apache-2.0
 *
 * The outside witness: see witness.h.
 */
#define _GNU_SOURCE
#include "judge/witness.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/io.h"
#include "base/rand.h"
#include "judge/sampler.h"

/* Of CPU time, give or take a quarter: a fixed rhythm could be waited for.
 * The coarse one costs every competitor the same 1 or 2 %. */
#define FINE_NS 50000
#define FINEST_NS 20000		/* where calls are short; the kernel has none
				 * below 10 us */
#define PER_CALL 64		/* samples that a call should give */
#define COARSE_NS 1000000
/* By ptrace, which stops all threads for a moment. */
#define LOOK_FINE_NS 500000
#define LOOK_COARSE_NS 4000000
/* Between samples that are ordered, at random. */
#define SPOT_FINE_NS 500000
#define SPOT_COARSE_NS 2000000
#define PAGE 4096u
#define NAMES 8
#define RAN 16

struct witness {
	pid_t pid;
	struct trace *trace;
	struct sampler *s;
	int by_trace;
	int fine;
	int64_t rhythm_ns;	/* by_trace: between two looks */
	int64_t shortest;	/* of the calls that counted */
	int64_t next, began, last; /* last: length of the call before */
	int64_t looked, stands;	/* by_trace: when, and how long after the
				 * time before */
	int64_t spot_at;		/* the next one */
	int64_t cpu;		/* at its begin */
	struct rng rng;
	struct stat own;	/* of the candidate's object */
	int has_own, may_blas;
	int mem, map;		/* /proc/PID/mem and pagemap */
	uint64_t checked;	/* page that was looked at last */
	int is_whole;		/* and what came out */
	struct modules ms;
	struct {
		char name[64];
		double ns;
	} lib[NAMES];		/* foreign ones */
	struct {
		uint64_t dev, ino;
	} ran[RAN];		/* strange files whose code was seen itself */
	size_t nran;
	struct attribution saw;
};

static int64_t around(struct witness *w, int64_t ns)
{
	return ns / 4 * 3 + (int64_t)(rng_u64(&w->rng) % (uint64_t)(ns / 2));
}

/* Some time from now, `ns` in the mean: at no time is it nearer than at any
 * other. */
static int64_t sometime(struct witness *w, int64_t ns)
{
	double u = ((double)(rng_u64(&w->rng) >> 11) + 1) * 0x1p-53;

	return (int64_t)(-log(u) * (double)ns);
}

static int open_of(pid_t pid, const char *name, int *fd, struct err *e)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	return *fd < 0 ? err_sys(e, CA_UNAVAILABLE, "cannot open '%s'", path) :
			 0;
}

struct witness *witness_open(pid_t pid, struct trace *t, unsigned flags,
			     struct err *e)
{
	struct witness *w = calloc(1, sizeof(*w));

	if (!w) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	w->mem = w->map = -1;
	w->pid = pid;
	w->trace = t;
	w->last = LOOK_COARSE_NS;
	w->shortest = INT64_MAX;
	w->fine = !!(flags & WITNESS_FINE);
	w->rhythm_ns = w->fine ? FINE_NS : COARSE_NS;
	rng_fresh(&w->rng);
	if (open_of(pid, "mem", &w->mem, e) ||
	    open_of(pid, "pagemap", &w->map, e)) {
		witness_close(w);
		return NULL;
	}
	if (!(flags & WITNESS_TRACE))
		w->s = sampler_open(pid, (uint64_t)around(w, w->rhythm_ns),
				    NULL);
	if (!w->s) {
		w->by_trace = 1;
		w->rhythm_ns = w->fine ? LOOK_FINE_NS : LOOK_COARSE_NS;
		w->s = sampler_manual(e);
	}
	if (!w->s) {
		witness_close(w);
		return NULL;
	}
	w->saw.by = w->by_trace ? "ptrace" : "perf";
	return w;
}

void witness_close(struct witness *w)
{
	if (!w)
		return;
	sampler_close(w->s);
	modules_free(&w->ms);
	if (w->mem >= 0)
		close(w->mem);
	if (w->map >= 0)
		close(w->map);
	free(w);
}

int witness_own(struct witness *w, int fd, int may_blas, struct err *e)
{
	if (fstat(fd, &w->own))
		return err_sys(e, CA_SOFTWARE, "the built object");
	w->has_own = 1;
	w->may_blas = may_blas;
	return 0;
}

/* When to look first: some time within the call, if it is like the last. */
static void plan(struct witness *w, int64_t t0)
{
	int64_t span = w->last < w->rhythm_ns ? w->last : w->rhythm_ns;

	if (!w->by_trace)
		w->next = t0 + sampler_patience(w->s);
	else
		w->next = t0 + (int64_t)(rng_u64(&w->rng) %
					 (uint64_t)(span > 1 ? span : 1));
}

/* Between two samples of the next call.  A long one among short ones does not
 * make it coarse. */
static int64_t rhythm(const struct witness *w)
{
	int64_t ns = w->shortest / PER_CALL;

	if (!w->fine || w->by_trace || ns >= w->rhythm_ns)
		return w->rhythm_ns;
	return ns > FINEST_NS ? ns : FINEST_NS;
}

static int64_t spot_ns(const struct witness *w)
{
	return (w->fine ? SPOT_FINE_NS : SPOT_COARSE_NS) *
	       (int64_t)sampler_seen(w->s)->rare;
}

void witness_begin(struct witness *w, int64_t t0)
{
	sampler_reset(w->s, (uint64_t)around(w, rhythm(w)));
	w->cpu = sampler_cpu_ns(w->s);
	w->began = w->looked = t0;
	w->spot_at = w->by_trace ? INT64_MAX : t0 + sometime(w, spot_ns(w));
	plan(w, t0);
}

int64_t witness_next(const struct witness *w)
{
	return w->next < w->spot_at ? w->next : w->spot_at;
}

static void look_at_once(struct witness *w)
{
	sampler_order(w->s, w->began);
	w->spot_at = now_ns() + sometime(w, spot_ns(w));
}

/* One thread, standing still, as the tracer sees it. */
static void on_thread(void *ctx, pid_t tid, uint64_t ip, uint64_t sp)
{
	struct witness *w = ctx;
	struct sample_at at = { .ip = ip, .when = w->looked,
				.stands = w->stands };
	struct iovec to = { at.stack, sizeof(at.stack) };
	struct iovec from = { (void *)(uintptr_t)sp, sizeof(at.stack) };
	ssize_t got = process_vm_readv(tid, &to, 1, &from, 1, 0);

	if (got > 0)
		at.n = (int)((size_t)got / sizeof(at.stack[0]));
	got = pread(w->mem, at.code, sizeof(at.code), (off_t)ip);
	at.ncode = got > 0 ? (int)got : 0;
	sampler_put(w->s, &at);
}

int witness_look(struct witness *w)
{
	int64_t now = now_ns();

	if (now >= w->spot_at)
		look_at_once(w);
	if (now < w->next)
		return 0;
	if (!w->by_trace) {
		sampler_drain(w->s, w->began);
		w->next = now + sampler_patience(w->s);
		return 0;
	}
	w->stands = now - w->looked;
	w->looked = now;
	w->next = now + sometime(w, w->rhythm_ns);
	return trace_look(w->trace, deadline_in(2), on_thread, w);
}

/* Whether the page that ran is its file's: present, and no copy that somebody
 * has written to.  Before Linux 6.11 a huge page does not say that it is a
 * file's. */
static int is_whole(struct witness *w, const struct module *m, uint64_t ip)
{
	const uint64_t present = UINT64_C(1) << 63, file = UINT64_C(1) << 61;
	uint64_t page = ip / PAGE, entry = 0;

	if (page == w->checked)
		return w->is_whole;
	w->checked = page;
	w->is_whole = pread(w->map, &entry, sizeof(entry),
			    (off_t)(page * sizeof(entry))) ==
			      (ssize_t)sizeof(entry) &&
		      entry & present &&
		      (entry & file || modules_clean(&w->ms, m, w->pid));
	return w->is_whole;
}

/* Whether there is still what ran, as far as that was looked at. */
static int is_same(const struct witness *w, const struct sample_at *at)
{
	unsigned char now[SAMPLE_CODE];
	size_t n = (size_t)at->ncode;

	return pread(w->mem, now, n, (off_t)at->ip) == (ssize_t)n &&
	       !memcmp(now, at->code, n);
}

static int is_trusted(enum place p)
{
	return p == PLACE_OWN || p == PLACE_BLAS || p == PLACE_PYTHON ||
	       p == PLACE_RUNTIME;
}

/* Whose a mapping is, apart from what its pages hold. */
static enum place whose(const struct witness *w, const struct module *m)
{
	if (is_trusted(m->place) && m->written)
		return PLACE_ANON;
	if (m->place == PLACE_OWN &&
	    (!w->has_own || m->ino != w->own.st_ino || m->dev != w->own.st_dev))
		return PLACE_OTHER;
	return m->place == PLACE_BLAS && !w->may_blas ? PLACE_OTHER : m->place;
}

/*
 * Whether a thread spins for work that nobody gives it: torch's pools do so
 * for milliseconds after they have been made.  The loop has a PAUSE in it.
 */
static int is_waiting(const struct witness *w, uint64_t ip)
{
	static const unsigned char pause[] = { 0xf3, 0x90 };
	unsigned char code[24];

	return pread(w->mem, code, sizeof(code), (off_t)(ip - 8)) ==
		       (ssize_t)sizeof(code) &&
	       memmem(code, sizeof(code), pause, sizeof(pause));
}

/* Whether code of that file was seen itself. */
static int has_run(const struct witness *w, const struct module *m)
{
	size_t i = 0;

	while (i < w->nran &&
	       (w->ran[i].dev != m->dev || w->ran[i].ino != m->ino))
		i++;
	return i < w->nran || w->nran == RAN;
}

static void note_run(struct witness *w, const struct module *m)
{
	if (has_run(w, m))
		return;
	w->ran[w->nran].dev = m->dev;
	w->ran[w->nran++].ino = m->ino;
}

/*
 * Of code that many call, the nearest caller on the stack.  A thread of
 * OpenMP's that waits has none: what lies on its stack is what it ran last.
 * So may any word there: an address in a library that was only ever loaded,
 * before this process was forked, is nobody's call.
 */
static const struct module *caller(const struct witness *w,
				   const struct sample_at *at)
{
	for (int i = 0; i < at->n; i++) {
		const struct module *m = modules_find(&w->ms, at->stack[i]);

		if (m && m->place != PLACE_RUNTIME &&
		    (whose(w, m) != PLACE_OTHER || has_run(w, m)))
			return m;
	}
	return NULL;
}

/* Keeps the library with most time. */
static void name_most(char *most, size_t size, double *most_ns,
		      const char *name, double ns)
{
	if (ns <= *most_ns)
		return;
	*most_ns = ns;
	snprintf(most, size, "%s", name);
}

static void name_foreign(struct witness *w, const struct module *m,
			 enum place p, double ns)
{
	const char *name = m && *m->name ? m->name : "generated code";
	struct attribution *a = &w->saw;

	for (int i = 0; i < NAMES; i++) {
		if (!*w->lib[i].name)
			snprintf(w->lib[i].name, sizeof(w->lib[i].name), "%s",
				 name);
		if (strcmp(w->lib[i].name, name))
			continue;
		w->lib[i].ns += ns;
		name_most(a->foreign, sizeof(a->foreign), &a->foreign_ns,
			  name, w->lib[i].ns);
		if (p != PLACE_TORCH)
			name_most(a->strange, sizeof(a->strange),
				  &a->strange_ns, name, w->lib[i].ns);
		return;
	}
}

/* *m: whose it is, NULL if nobody's. */
static enum place place_at(struct witness *w, const struct sample_at *at,
			   const struct module **m)
{
	enum place p;

	*m = NULL;
	if (at->kernel)
		return PLACE_KERNEL;
	*m = modules_find(&w->ms, at->ip);
	p = *m ? whose(w, *m) : PLACE_NOWHERE;
	if (is_trusted(p) && (!is_whole(w, *m, at->ip) || !is_same(w, at)))
		p = PLACE_ANON;
	if (p == PLACE_RUNTIME && !(*m)->waits) {
		/* Not all that looks like a caller has run. */
		*m = caller(w, at);
		return *m ? whose(w, *m) : PLACE_RUNTIME;
	}
	if (p == PLACE_TORCH && is_waiting(w, at->ip))
		return PLACE_RUNTIME;
	if (p == PLACE_OTHER)
		note_run(w, *m);
	return p;
}

static void attribute(struct witness *w, const struct sample_at *at, double ns)
{
	const struct module *m;
	enum place p = place_at(w, at, &m);

	attrib_see(&w->saw, at->when, p, ns);
	if (p == PLACE_TORCH || p == PLACE_OTHER || p == PLACE_ANON ||
	    p == PLACE_NOWHERE)
		name_foreign(w, m, p, ns);
}

/* The time that sample i stands for.  Looks of our own stand for the time
 * since the one before, and all together for the whole call. */
static double weight(const struct witness *w, const struct sampled *seen,
		     size_t i)
{
	double ns = (double)seen->at[i].stands * seen->thin;

	if (!w->by_trace || w->looked <= w->began)
		return ns;
	return ns * (double)w->last / (double)(w->looked - w->began);
}

void witness_end(struct witness *w, int64_t t1, enum witness_what what)
{
	const struct sampled *seen = sampler_seen(w->s);
	int known;
	double sum = 0;

	w->last = t1 - w->began;
	if (what == WITNESS_FIRST)
		return;
	sampler_drain(w->s, w->began);
	w->saw.moved += seen->mapped > 0;
	if (what == WITNESS_WARM)
		return;
	if (w->last < w->shortest)
		w->shortest = w->last;
	sampler_sort(w->s);
	attrib_call(&w->saw);
	w->saw.calls++;
	/* Without its mappings nothing can be attributed: all is missing. */
	known = (seen->n || seen->nspot) && !modules_read(&w->ms, w->pid, NULL);
	w->checked = 0;
	w->saw.samples += known ? seen->n : 0;
	for (size_t i = 0; i < seen->n; i++) {
		double ns = weight(w, seen, i);

		sum += ns;
		if (known)
			attribute(w, &seen->at[i], ns);
		else
			w->saw.missing_ns += ns;
	}
	for (size_t i = 0; known && i < seen->nspot; i++) {
		const struct sample_at *at = &seen->spot[i];
		const struct module *m;

		attrib_spot(&w->saw, at->pass, place_at(w, at, &m));
	}
	attrib_passes(&w->saw, seen->passes);
	attrib_keep(&w->saw, w->last);
	/* A call shorter than the rhythm is mostly unseen, and as often seen
	 * twice: the sum over calls is what counts. */
	w->saw.missing_ns += w->cpu < 0 ? seen->lost_ns :
		(double)(sampler_cpu_ns(w->s) - w->cpu) - sum;
}

const struct attribution *witness_saw(const struct witness *w)
{
	return &w->saw;
}
