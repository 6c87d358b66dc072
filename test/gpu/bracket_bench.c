/* SPDX-License-Identifier: Apache-2.0
 *
 * The bracket clock's bias: bracket less the peer's own work, over sizes and
 * lengths of work.  It depends on the bytes and not on the work, or the clock
 * is no clock.  Prints a table; run by hand and by `make bench-gpu`.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "peer.h"

#define TIMES 100
#define WARM 5

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct series {
	double bracket[TIMES], own[TIMES], bias[TIMES];
	int late, disturbed;
};

static int measure(struct device *d, struct runner *r, struct bracket *b,
		   struct series *s, struct err *e)
{
	struct bracket_result res;

	s->late = s->disturbed = 0;
	for (int i = -WARM; i < TIMES; i++) {
		b->go.set = (unsigned)(i & 1);
		b->poison = (uint64_t)(i + WARM);
		b->deadline = deadline_in(20);
		if (d->ops->bracket(d, r, b, &res, e))
			return -1;
		if (res.wait != WAIT_OK)
			return err_set(e, CA_SOFTWARE, "no answer");
		if (i < 0)
			continue;
		s->bracket[i] = (double)res.ns * 1e-3;
		s->own[i] = (double)res.msg.own_ns * 1e-3;
		s->bias[i] = s->bracket[i] - s->own[i];
		s->late += res.late;
		s->disturbed += res.disturbed;
	}
	qsort(s->bracket, TIMES, sizeof(double), by_value);
	qsort(s->own, TIMES, sizeof(double), by_value);
	qsort(s->bias, TIMES, sizeof(double), by_value);
	return 0;
}

static void row(const char *what, size_t mib, unsigned n,
		const struct series *s)
{
	printf("%-10s %5zu %8u %10.1f %10.1f %9.1f %9.1f %9.1f %5d %5d\n", what,
	       mib, n, s->own[TIMES / 2], s->bracket[TIMES / 2],
	       s->bias[TIMES / 2], s->bias[TIMES / 20],
	       s->bias[TIMES - 1 - TIMES / 20], s->late, s->disturbed);
	fflush(stdout);
}

static int bench(struct device *d, const char *what, enum peer_mode mode,
		 size_t mib, const unsigned *n, size_t count, unsigned flags,
		 struct err *e)
{
	struct mem source, capture;
	struct bracket b;
	struct runner r;
	struct series s;

	memset(&b, 0, sizeof(b));
	if (d->ops->private_mem(d, mib << 20, &source, e) ||
	    d->ops->private_mem(d, mib << 20, &capture, e) ||
	    d->ops->poison(d, &source, 0, mib << 20, 1, e) ||
	    peer_start(d, &r, mode, mib << 20, e))
		return -1;
	b.inputs = &source;
	b.input_bytes = mib << 20;
	b.capture = &capture;
	b.go.flags = flags;
	for (size_t i = 0; i < count; i++) {
		b.go.idle_us = n[i];
		if (measure(d, &r, &b, &s, e))
			return -1;
		row(what, mib, n[i], &s);
	}
	peer_stop(d, &r);
	d->ops->release(d, &source);
	d->ops->release(d, &capture);
	return 0;
}

int main(int argc, char **argv)
{
	static const unsigned times[] = { 1, 2, 8, 32 };
	static const unsigned us[] = { 5, 50, 200, 500, 900, 2000, 10000 };
	static const unsigned quick[] = { 5, 50, 200, 900, 1500 };
	struct err e = ERR_INIT;
	struct device *d;
	int rc = 0;

	peer_main(argc, argv);
	d = device_cuda_open(0, &e);
	if (!d) {
		printf("skipped: %s\n", e.msg);
		return e.code == CA_UNAVAILABLE ? 0 : 1;
	}
	printf("%s\n%-10s %5s %8s %10s %10s %9s %9s %9s %5s %5s\n", d->model,
	       "work", "MiB", "n or us", "own us", "bracket", "bias", "p5",
	       "p95", "late", "again");
	for (size_t mib = 1; !rc && mib <= 512; mib *= 8)
		rc = bench(d, "copies", PEER_HONEST, mib, times, 4, GO_SYNC,
			   &e);
	if (!rc)
		rc = bench(d, "spin", PEER_SPIN, 1, us, 7, GO_SYNC, &e);
	if (!rc)
		rc = bench(d, "spin", PEER_SPIN, 64, us, 7, GO_SYNC, &e);
	if (!rc)
		rc = bench(d, "no sync", PEER_SPIN, 1, quick, 5, 0, &e);
	if (!rc)
		rc = bench(d, "no sync", PEER_SPIN, 64, quick, 5, 0, &e);
	if (!rc)
		rc = bench(d, "nothing", PEER_UNWRITTEN, 1, times, 1, 0, &e);
	if (rc)
		fprintf(stderr, "bracket_bench: %s\n", e.msg);
	d->ops->close(d);
	return rc ? 1 : 0;
}
