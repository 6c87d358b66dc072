/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/io.h"
#include "judge/cuda.h"

static cpu_set_t allowed;	/* as the process was started */

/* Whether `other` is in the list ("0-1,8") of threads of cpu's core. */
static int same_core(int cpu, int other)
{
	char path[96];
	struct str s = STR_INIT;
	char *p, *end;
	int found = 0;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/"
		 "thread_siblings_list", cpu);
	if (read_file(path, 4096, &s, NULL)) {
		str_release(&s);
		return 0;
	}
	for (p = s.buf; p && *p >= '0' && *p <= '9' && !found; p = end) {
		long from = strtol(p, &end, 10), to = from;

		if (*end == '-')
			to = strtol(end + 1, &end, 10);
		found = other >= from && other <= to;
		if (*end == ',')
			end++;
	}
	str_release(&s);
	return found;
}

void cuda_cpus_find(struct cuda_cpus *c, int index)
{
	int skip = index > 0 ? 2 * index : 0;

	c->judge = c->runner = -1;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) ||
	    CPU_COUNT(&allowed) < 4)
		return;
	/* The highest numbers: interrupts and everybody else like the low. */
	for (int i = CPU_SETSIZE - 1; i >= 0 && c->runner < 0; i--) {
		if (!CPU_ISSET(i, &allowed) || skip-- > 0)
			continue;
		if (c->judge < 0)
			c->judge = i;
		else if (!same_core(c->judge, i))
			c->runner = i;
	}
	if (c->runner < 0)
		c->judge = -1;
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
