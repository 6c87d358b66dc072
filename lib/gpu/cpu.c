/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU as a device: memory and the table of operations.
 */
#include "gpu/cpu/level.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/proc.h"

static void close_cpu(struct gpu *g)
{
	free(g);
}

static void *alloc_cpu(struct gpu *g, size_t bytes, struct err *e)
{
	/* Fresh pages are zero already, and only those that are touched take
	 * memory. */
	void *p = calloc(1, bytes + 64);

	(void)g;
	if (!p)
		err_set(e, CA_UNAVAILABLE, "no memory");
	return p;
}

static void free_cpu(struct gpu *g, void *p)
{
	(void)g;
	free(p);
}

static size_t avail_cpu(struct gpu *g)
{
	int64_t n = proc_bytes("MemAvailable", "/proc/meminfo");

	(void)g;
	return n < 0 ? 0 : (size_t)n;
}

static void copy_cpu(struct gpu *g, void *dst, const void *src, size_t n)
{
	(void)g;
	memcpy(dst, src, n);
}

static void zero_cpu(struct gpu *g, void *dst, size_t n)
{
	(void)g;
	memset(dst, 0, n);
}

static void sync_cpu(struct gpu *g)
{
	(void)g;
}

/* Memory is the process's own: shared memory serves it. */
static int join_cpu(struct gpu *g, struct comm *c, struct err *e)
{
	(void)g;
	(void)c;
	(void)e;
	return 0;
}

static void mark_cpu(struct gpu *g)
{
	comm_beat(g->comm);
}

static void reduce_scatter_cpu(struct gpu *g, float *x, size_t part)
{
	comm_reduce_scatter(g->comm, x, part, &g->failed);
}

static void all_gather_cpu(struct gpu *g, void *x, size_t bytes)
{
	comm_all_gather(g->comm, x, bytes, &g->failed);
}

/* Transposed copies of a matrix, or of both sides of a product. */
static size_t work_size_cpu(size_t t, size_t width, size_t matrix)
{
	size_t both = t * width;

	return (both > matrix ? both : matrix) * sizeof(float) + 65536;
}

static struct gpu_ops ops = {
	.close = close_cpu, .alloc = alloc_cpu, .free = free_cpu,
	.host = alloc_cpu, .host_free = free_cpu,
	.work_size = work_size_cpu, .avail = avail_cpu, .upload = copy_cpu,
	.download = copy_cpu, .copy = copy_cpu, .zero = zero_cpu,
	.sync = sync_cpu, .join = join_cpu, .mark = mark_cpu,
	.reduce_scatter = reduce_scatter_cpu, .all_gather = all_gather_cpu,
	.collected = sync_cpu,
};
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
void cpu3_fill(struct gpu_ops *o);
void cpu4_fill(struct gpu_ops *o);
#endif

static void choose_level(void)
{
	cpu1_fill(&ops);
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512bw"))
		cpu4_fill(&ops);
	else if (__builtin_cpu_supports("avx2") &&
		 __builtin_cpu_supports("fma"))
		cpu3_fill(&ops);
#endif
}

void gpu_calm_threads(char **argv)
{
	const char *name = argv[0] ? strrchr(argv[0], '/') : NULL;

	/* Through /proc it would be called "exe". */
	if (argv[0])
		prctl(PR_SET_NAME, name ? name + 1 : argv[0]);
	if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ||
	    setenv("GOMP_SPINCOUNT", "5000", 1))
		return;
	/* If that fails, things are as they would have been. */
	execv("/proc/self/exe", argv);
}

struct gpu *gpu_open_cpu(struct err *e)
{
	struct gpu *g = calloc(1, sizeof *g);

	if (!g) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	pthread_once(&once, choose_level);
	g->ops = &ops;
	snprintf(g->name, sizeof g->name, "cpu");
	snprintf(g->lease, sizeof g->lease, "cpu");
	return g;
}
