/* SPDX-License-Identifier: Apache-2.0
 *
 * What nn says beside times: memory that was planned and that was taken, and
 * on CUDA, where KERNELS names libca-child.so, the time of each kernel (which
 * costs some, so that the times of such a run are not to be compared).
 */
#ifndef CA_TEST_METER_H
#define CA_TEST_METER_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/proc.h"
#include "cu/cu.h"
#include "cu/trace.h"
#include "gpu/gpu.h"

struct meter {
	struct gpu *probe;		/* the same GPU; NULL on the CPU */
	size_t before;			/* bytes */
	void *region;			/* NULL: no kernels */
	void (*mark)(uint64_t seq);
	void (*flush)(void);
};

/* Anonymous memory of this process, in bytes. */
static size_t meter_rss(void)
{
	int64_t n = proc_bytes("RssAnon", "/proc/self/status");

	return n < 0 ? 0 : (size_t)n;
}

static void meter_trace(struct meter *m, const char *child)
{
	char path[] = "/tmp/nn-trace.XXXXXX";
	void *lib = dlopen(child, RTLD_NOW | RTLD_LOCAL);
	int fd = mkstemp(path);
	int (*start)(int fd) = NULL;
	void *p[3] = { NULL, NULL, NULL };

	/* CUPTI is found by its name once it is open. */
	cu_open_lib("libcupti.so", NULL, NULL);
	unlink(path);
	for (int i = 0; lib && i < 3; i++)
		p[i] = dlsym(lib, (const char *const[]){ "ca_trace_start",
			     "ca_trace_mark", "ca_trace_flush" }[i]);
	memcpy(&start, &p[0], sizeof start);
	memcpy(&m->mark, &p[1], sizeof m->mark);
	memcpy(&m->flush, &p[2], sizeof m->flush);
	if (fd >= 0 && !ftruncate(fd, TRACE_BYTES))
		m->region = mmap(NULL, TRACE_BYTES, PROT_READ, MAP_SHARED,
				 fd, 0);
	if (!start || !m->flush || !m->mark || m->region == MAP_FAILED ||
	    !m->region || start(fd)) {
		fprintf(stderr, "nn: kernels cannot be traced\n");
		m->region = NULL;
	}
	close(fd);
}

/* Before anything of CUDA. */
static void meter_start(struct meter *m, const char *device)
{
	const char *child = getenv("KERNELS");

	memset(m, 0, sizeof *m);
	if (child && *child && strcmp(device, "cpu"))
		meter_trace(m, child);
	if (strcmp(device, "cpu"))
		m->probe = gpu_open(device, GPU_F32, 0, NULL);
	m->before = m->probe ? gpu_avail(m->probe) : meter_rss();
}

/* At the end, while all is there; `table` is the plan's. */
static void meter_memory(const struct meter *m, const char *table)
{
	size_t now = m->probe ? gpu_avail(m->probe) : meter_rss();
	double taken = m->probe ? (double)m->before - (double)now :
			(double)now - (double)m->before;
	const char *end = strstr(table, " MiB  in all");
	double plan = 0;

	while (end && end > table && end[-1] != '\n')
		end--;
	if (end)
		plan = atof(end);
	taken /= 1048576;
	printf("memory: %.1f MiB planned, %.1f taken (%+.1f %%)\n", plan,
	       taken, plan > 0 ? 100 * (taken - plan) / plan : 0.0);
}

static void meter_mark(const struct meter *m, uint64_t seq)
{
	if (m->region)
		m->mark(seq);
}

/* Kernels of what began at mark 1 and ended at mark 2, which were `steps`
 * steps and took `wall` seconds. */
static void meter_kernels(const struct meter *m, double steps, double wall)
{
	struct err e = ERR_INIT;
	struct trace_table t;
	double sum = 0;

	if (!m->region)
		return;
	m->flush();
	if (trace_read(m->region, TRACE_BYTES, 1, 1, 1, &t, &e)) {
		fprintf(stderr, "nn: %s\n", e.msg);
		return;
	}
	for (size_t i = 0; i < t.n; i++)
		sum += (double)t.row[i].ns;
	printf("kernels: %.3f ms of the %.3f of a step (%llu lost)\n",
	       sum * 1e-6 / steps, wall * 1e3 / steps,
	       (unsigned long long)t.lost);
	for (size_t i = 0; i < t.n && i < 24; i++)
		printf("kernel %5.1f %% %10.2f us %8.1f x %9.2f us  %.60s\n",
		       100 * (double)t.row[i].ns / sum,
		       (double)t.row[i].ns * 1e-3 / steps,
		       (double)t.row[i].calls / steps,
		       (double)t.row[i].ns * 1e-3 / (double)t.row[i].calls,
		       t.row[i].name);
	trace_free(&t);
}

static void meter_end(struct meter *m)
{
	gpu_close(m->probe);
	if (m->region)
		munmap(m->region, TRACE_BYTES);
}

#endif
