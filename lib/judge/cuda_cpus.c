/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/io.h"
#include "judge/cuda.h"

static cpu_set_t allowed;	/* as the process was started */

/* Marks all threads of a CPU's core (a list like "0-1,8"), itself at least. */
static void mark_core(const char *root, int cpu, char *used)
{
	char path[128];
	struct str s = STR_INIT;
	char *p, *end;

	used[cpu] = 1;
	snprintf(path, sizeof(path), "%s/cpu%d/topology/thread_siblings_list",
		 root, cpu);
	if (!read_file(path, 4096, &s, NULL))
		for (p = s.buf; p && *p >= '0' && *p <= '9'; p = end) {
			long from = strtol(p, &end, 10), to = from;

			if (*end == '-')
				to = strtol(end + 1, &end, 10);
			for (; from <= to && from < CUDA_CPUS; from++)
				used[from] = 1;
			if (*end == ',')
				end++;
		}
	str_release(&s);
}

void cuda_cpus_choose(struct cuda_cpus *c, int index, const char *may,
		      const char *root)
{
	int skip = index > 0 ? 2 * index : 0;
	char used[CUDA_CPUS] = { 0 };

	c->judge = c->runner = -1;
	/* The highest numbers: interrupts and everybody else like the low. */
	for (int i = CUDA_CPUS - 1; i >= 0 && c->runner < 0; i--) {
		if (!may[i] || used[i])
			continue;
		mark_core(root, i, used);
		if (skip-- > 0)
			continue;
		if (c->judge < 0)
			c->judge = i;
		else
			c->runner = i;
	}
	if (c->runner < 0)
		c->judge = -1;
}

void cuda_cpus_find(struct cuda_cpus *c, int index)
{
	char may[CUDA_CPUS] = { 0 };

	c->judge = c->runner = -1;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) ||
	    CPU_COUNT(&allowed) < 4)
		return;
	_Static_assert(CUDA_CPUS <= CPU_SETSIZE, "a set holds all");
	for (int i = 0; i < CUDA_CPUS; i++)
		may[i] = !!CPU_ISSET(i, &allowed);
	cuda_cpus_choose(c, index, may, "/sys/devices/system/cpu");
}

static void stay(pid_t thread, int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	/* Refused for another user's process without privilege. */
	sched_setaffinity(thread, sizeof(one), &one);
}

void cuda_cpus_hold(const struct cuda_cpus *c, pid_t runner)
{
	if (c->judge < 0 || runner <= 0)
		return;
	stay(0, c->judge);
	stay(runner, c->runner);
}

void cuda_cpus_let(const struct cuda_cpus *c)
{
	if (c->judge >= 0)
		sched_setaffinity(0, sizeof(allowed), &allowed);
}
