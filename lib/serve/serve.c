/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/serve.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/sig.h"
#include "serve/admin.h"

#define TICK_S   0.2
#define SHOWN_S  1
#define SPARE_FDS 64

/* The line that a terminal shows. */
static void show(struct core *c, int64_t *next)
{
	struct str s = STR_INIT;

	if (now_ns() < *next)
		return;
	*next = deadline_in(SHOWN_S);
	admin_status(c, &s);
	if (s.buf)
		fprintf(stderr, "\r\033[K%s", s.buf);
	str_release(&s);
}

static void wipe(int shown)
{
	if (shown)
		fprintf(stderr, "\r\033[K");
}

/* Every connection is a descriptor. */
static void allow_descriptors(int connections)
{
	struct rlimit r;
	rlim_t want = (rlim_t)connections + SPARE_FDS;

	if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= want)
		return;
	r.rlim_cur = r.rlim_max == RLIM_INFINITY || r.rlim_max > want ?
		     want : r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}

/* What a request with a long prompt needs is some 100 KiB here and there: given
 * back after each, it would be faulted in anew for the next.  And what one
 * thread takes another gives back: with an arena for each of them some of that
 * lies idle in all.  (What is small, each thread keeps for itself anyway.) */
static void keep_memory(void)
{
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 2 << 20);
	mallopt(M_TRIM_THRESHOLD, 4 << 20);
}

static void nap(void)
{
	const struct timespec t = { 0, (long)(TICK_S * 1e9) };

	nanosleep(&t, NULL);
}

/* Until a signal comes. */
static void attend(struct core *c, struct http *h, int shown)
{
	int64_t next = deadline_in(SHOWN_S);

	while (!sig_caught()) {
		if (wait_readable(sig_fd(), deadline_in(TICK_S), NULL) < 0)
			nap();
		http_sweep(h);
		core_expire(c, 0);
		if (shown)
			show(c, &next);
	}
}

static void drain(struct core *c, struct http *h, double seconds)
{
	int64_t end = deadline_in(seconds);

	core_drain(c);
	http_quiesce(h);
	while (core_live(c) || http_orders(h)) {
		core_expire(c, now_ns() > end);
		http_sweep(h);
		nap();
	}
	/* The last answers are still on their way. */
	end = deadline_in(seconds < 2 ? seconds : 2);
	while (http_busy(h) && now_ns() < end)
		nap();
}

static struct gen *open_gen(const struct serve_opts *o, int i,
			    struct str *table, struct err *e)
{
	struct engine_opts own = o->engine;
	char name[32];

	snprintf(name, sizeof name, "cuda:%d", i);
	if (strcmp(own.device, "cpu"))
		own.device = o->replicas > 1 ? name : own.device;
	else
		own.sharing = o->replicas;
	return gen_open(&own, table, e);
}

static struct core *open_core(const struct serve_opts *o, struct str *table,
			      struct err *e)
{
	struct prompt *p = prompt_open(o->engine.dir, e);
	struct gen *g[CORE_GENS];
	struct core *c = NULL;
	int n = 0;

	while (p && n < o->replicas && (g[n] = open_gen(o, n, table, e)))
		n++;
	if (p && n == o->replicas)
		c = core_open(&o->core, g, n, p, e);
	if (c)
		return c;
	while (n > 0)
		gen_close(g[--n]);
	prompt_close(p);
	return NULL;
}

int serve_run(const struct serve_opts *o, struct str *table, struct err *e)
{
	struct core *c;
	struct http *h = NULL;
	int shown = !o->quiet && isatty(2), rc = -1;

	keep_memory();
	allow_descriptors(o->http.connections);
	if (sig_catch(e))
		return -1;
	c = open_core(o, table, e);
	if (c)
		h = http_open(&o->http, c, e);
	if (h && (!o->ready || !o->ready(o->ctx, http_port(h), e))) {
		rc = 0;
		attend(c, h, shown);
		wipe(shown);
		drain(c, h, o->drain_s);
	}
	http_close(h);
	core_close(c);
	return rc;
}
