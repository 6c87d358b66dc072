/* SPDX-License-Identifier: Apache-2.0
 *
 * The outside witness: see witness.h.
 */
#define _GNU_SOURCE
#include "judge/witness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/io.h"
#include "base/rand.h"
#include "judge/sampler.h"

/* Of CPU time, give or take a quarter: a fixed rhythm could be waited for.
 * The coarse one costs every competitor the same 1 or 2 %. */
#define FINE_NS 50000
#define COARSE_NS 1000000
/* By ptrace, which stops all threads for a moment. */
#define LOOK_FINE_NS 500000
#define LOOK_COARSE_NS 4000000
#define PAGE 4096u
#define NAMES 8

struct witness {
	pid_t pid;
	struct trace *trace;
	struct sampler *s;
	int by_trace;
	int64_t look_ns;	/* by_trace: between two looks */
	int64_t next, began, last; /* last: length of the call before */
	int64_t looked, since;	/* by_trace: when, and how long after the
				 * time before */
	int64_t cpu;		/* at its begin */
	struct rng rng;
	const unsigned char *own;
	size_t own_len;
	int may_blas;
	int mem;		/* /proc/PID/mem */
	uint64_t checked;	/* page that was compared last */
	int is_own;		/* and what came out */
	struct modules ms;
	struct {
		char name[64];
		double ns;
	} lib[NAMES];		/* foreign ones */
	struct attribution saw;
};

static int64_t around(struct witness *w, int64_t ns)
{
	return ns / 4 * 3 + (int64_t)(rng_u64(&w->rng) % (uint64_t)(ns / 2));
}

struct witness *witness_open(pid_t pid, struct trace *t, unsigned flags,
			     struct err *e)
{
	int fine = !!(flags & WITNESS_FINE);
	struct witness *w = calloc(1, sizeof(*w));
	char path[64];

	if (!w) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	w->pid = pid;
	w->trace = t;
	w->last = LOOK_COARSE_NS;
	w->look_ns = fine ? LOOK_FINE_NS : LOOK_COARSE_NS;
	rng_fresh(&w->rng);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	w->mem = open(path, O_RDONLY | O_CLOEXEC);
	if (w->mem < 0) {
		err_sys(e, CA_UNAVAILABLE, "cannot open '%s'", path);
		free(w);
		return NULL;
	}
	if (!(flags & WITNESS_TRACE))
		w->s = sampler_open(pid, (uint64_t)around(w, fine ? FINE_NS :
							  COARSE_NS), NULL);
	if (!w->s) {
		w->by_trace = 1;
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
	close(w->mem);
	free(w);
}

void witness_own(struct witness *w, const void *image, size_t len,
		 int may_blas)
{
	w->own = image;
	w->own_len = len;
	w->may_blas = may_blas;
}

/* When to look first: some time within the call, if it is like the last. */
static void plan(struct witness *w, int64_t t0)
{
	int64_t span = w->last < w->look_ns ? w->last : w->look_ns;

	if (!w->by_trace)
		w->next = t0 + sampler_patience(w->s);
	else
		w->next = t0 + (int64_t)(rng_u64(&w->rng) %
					 (uint64_t)(span > 1 ? span : 1));
}

void witness_begin(struct witness *w, int64_t t0)
{
	sampler_reset(w->s);
	w->cpu = sampler_cpu_ns(w->s);
	w->began = w->looked = t0;
	plan(w, t0);
}

int64_t witness_next(const struct witness *w)
{
	return w->next;
}

/* One thread, standing still, as the tracer sees it. */
static void on_thread(void *ctx, pid_t tid, uint64_t ip, uint64_t sp)
{
	struct witness *w = ctx;
	struct sample_at at = { .ip = ip, .when = w->looked,
				.since = w->since };
	struct iovec to = { at.stack, sizeof(at.stack) };
	struct iovec from = { (void *)(uintptr_t)sp, sizeof(at.stack) };
	ssize_t got = process_vm_readv(tid, &to, 1, &from, 1, 0);

	if (got > 0)
		at.n = (int)((size_t)got / sizeof(at.stack[0]));
	sampler_put(w->s, &at);
}

int witness_look(struct witness *w)
{
	int64_t now = now_ns();

	if (now < w->next)
		return 0;
	if (!w->by_trace) {
		sampler_drain(w->s, w->began);
		w->next = now + sampler_patience(w->s);
		return 0;
	}
	w->since = now - w->looked;
	w->looked = now;
	w->next = now + around(w, w->look_ns);
	return trace_look(w->trace, deadline_in(2), on_thread, w);
}

/* Whether the page that runs is the built object's, byte for byte. */
static int equals_own(struct witness *w, const struct module *m, uint64_t ip)
{
	uint64_t page = ip & ~(uint64_t)(PAGE - 1);
	uint64_t off = page - m->start + m->offset;
	unsigned char have[PAGE];
	size_t n = PAGE;

	if (page == w->checked)
		return w->is_own;
	w->checked = page;
	w->is_own = 0;
	if (!w->own || off >= w->own_len)
		return 0;
	if (n > w->own_len - off)
		n = (size_t)(w->own_len - off);
	w->is_own = pread(w->mem, have, n, (off_t)page) == (ssize_t)n &&
		    !memcmp(have, w->own + off, n);
	return w->is_own;
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

/* Of code that many call, the nearest caller on the stack.  A thread of
 * OpenMP's that waits has none: what lies on its stack is what it ran last. */
static const struct module *caller(const struct witness *w,
				   const struct sample_at *at)
{
	for (int i = 0; i < at->n; i++) {
		const struct module *m = modules_find(&w->ms, at->stack[i]);

		if (m && m->place != PLACE_RUNTIME)
			return m;
	}
	return NULL;
}

static void name_foreign(struct witness *w, const struct module *m, double ns)
{
	const char *name = m && *m->name ? m->name : "generated code";

	for (int i = 0; i < NAMES; i++) {
		if (!*w->lib[i].name)
			snprintf(w->lib[i].name, sizeof(w->lib[i].name), "%s",
				 name);
		if (strcmp(w->lib[i].name, name))
			continue;
		w->lib[i].ns += ns;
		if (w->lib[i].ns > w->saw.foreign_ns) {
			w->saw.foreign_ns = w->lib[i].ns;
			memcpy(w->saw.foreign, w->lib[i].name,
			       sizeof(w->saw.foreign));
		}
		return;
	}
}

static void attribute(struct witness *w, const struct sample_at *at, double ns)
{
	const struct module *m = NULL;
	enum place p = PLACE_KERNEL;

	if (!at->kernel) {
		m = modules_find(&w->ms, at->ip);
		p = m ? m->place : PLACE_NOWHERE;
		if (p == PLACE_OWN && !equals_own(w, m, at->ip))
			p = PLACE_OTHER;
		if (p == PLACE_RUNTIME && !m->waits) {
			m = caller(w, at);
			p = m ? m->place : PLACE_RUNTIME;
		}
		else if (p == PLACE_TORCH && is_waiting(w, at->ip))
			p = PLACE_RUNTIME;
		if (p == PLACE_BLAS && !w->may_blas)
			p = PLACE_OTHER;
	}
	attrib_see(&w->saw, at->when, p, ns);
	if (p == PLACE_TORCH || p == PLACE_OTHER || p == PLACE_ANON ||
	    p == PLACE_NOWHERE)
		name_foreign(w, m, ns);
}

/* The time that sample i stands for.  Looks of our own stand for the time
 * since the one before, and all together for the whole call. */
static double weight(const struct witness *w, const struct sampled *seen,
		     size_t i)
{
	if (!w->by_trace || w->looked <= w->began)
		return seen->weight_ns;
	return (double)seen->at[i].since * seen->thin * (double)w->last /
	       (double)(w->looked - w->began);
}

void witness_end(struct witness *w, int64_t t1, int counts)
{
	const struct sampled *seen = sampler_seen(w->s);

	w->last = t1 - w->began;
	if (!counts)
		return;
	sampler_drain(w->s, w->began);
	sampler_sort(w->s);
	attrib_call(&w->saw);
	w->saw.calls++;
	w->saw.moved += seen->mapped > 0;
	/* Without its mappings nothing can be attributed: all is missing. */
	if (seen->n && !modules_read(&w->ms, w->pid, NULL)) {
		w->checked = 0;
		w->saw.samples += seen->n;
		for (size_t i = 0; i < seen->n; i++)
			attribute(w, &seen->at[i], weight(w, seen, i));
	} else {
		for (size_t i = 0; i < seen->n; i++)
			w->saw.missing_ns += weight(w, seen, i);
	}
	attrib_keep(&w->saw, w->last);
	/* A call shorter than the rhythm is mostly unseen, and as often seen
	 * twice: the sum over calls is what counts. */
	if (w->cpu < 0)
		w->saw.missing_ns += (double)seen->lost * seen->weight_ns;
	else
		w->saw.missing_ns += (double)(sampler_cpu_ns(w->s) - w->cpu) -
				     (double)seen->n * seen->weight_ns;
}

const struct attribution *witness_saw(const struct witness *w)
{
	return &w->saw;
}
