/* SPDX-License-Identifier: Apache-2.0
 *
 * How many compilers may run at once.
 */
#define _GNU_SOURCE
#include "build/limits.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/path.h"
#include "base/proc.h"

#define CGROUP "/sys/fs/cgroup"
#define COMPILER_PIDS 16	/* driver, front end, assembler, jail */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int running, alone, waiting_alone;
static int64_t filled;

/* The first line of a file; 0 or -1. */
static int first_line(const char *dir, const char *name, char *buf, int len)
{
	char path[CA_PATH_MAX];
	FILE *f;
	int ok;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >=
	    (int)sizeof(path))
		return -1;
	f = fopen(path, "re");
	if (!f)
		return -1;
	ok = fgets(buf, len, f) != NULL;
	fclose(f);
	return ok ? 0 : -1;
}

/* A number in a cgroup file; dflt for "max", none, or no file. */
static int64_t number(const char *dir, const char *name, int64_t dflt)
{
	char buf[64], *end;
	long long v;

	if (first_line(dir, name, buf, sizeof(buf)) < 0)
		return dflt;
	errno = 0;
	v = strtoll(buf, &end, 10);
	return end == buf || errno || v < 0 ? dflt : v;
}

static void lower(int64_t *v, int64_t limit)
{
	if (limit < *v)
		*v = limit;
}

static void cgroup_cpu(struct limits *l, const char *dir)
{
	char buf[64];
	long long quota, period;

	if (first_line(dir, "cpu.max", buf, sizeof(buf)) < 0 ||
	    sscanf(buf, "%lld %lld", &quota, &period) != 2 || period <= 0)
		return;
	quota = (quota + period - 1) / period;
	if (quota < l->cores)
		l->cores = quota > 0 ? (int)quota : 1;
}

/* What a cgroup holds of files: it gives that up when it wants memory. */
static int64_t file_cache(const char *dir)
{
	char path[CA_PATH_MAX], line[128];
	long long n, sum = 0;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/memory.stat", dir) >=
	    (int)sizeof(path) || !(f = fopen(path, "re")))
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "active_file %lld", &n) == 1 ||
		    sscanf(line, "inactive_file %lld", &n) == 1)
			sum += n;
	fclose(f);
	return sum;
}

static void cgroup_level(struct limits *l, const char *dir)
{
	int64_t max;

	cgroup_cpu(l, dir);
	max = number(dir, "memory.max", INT64_MAX);
	if (max != INT64_MAX)
		lower(&l->memory, max - number(dir, "memory.current", 0) +
		      file_cache(dir));
	max = number(dir, "pids.max", INT64_MAX);
	if (max != INT64_MAX)
		lower(&l->pids, max - number(dir, "pids.current", 0));
}

/* Our cgroup and all above it, up to what we can see. */
static void cgroups(struct limits *l)
{
	char line[CA_PATH_MAX - 64], dir[CA_PATH_MAX], *slash;

	cgroup_level(l, CGROUP);
	if (first_line("/proc/self", "cgroup", line, sizeof(line)) < 0 ||
	    strncmp(line, "0::/", 4) != 0)
		return;
	line[strcspn(line, "\n")] = '\0';
	snprintf(dir, sizeof(dir), CGROUP "%s", line + 3);
	while (strlen(dir) > strlen(CGROUP)) {
		cgroup_level(l, dir);
		slash = strrchr(dir, '/');
		*slash = '\0';
	}
}

static int64_t free_memory(void)
{
	int64_t n = proc_bytes("MemAvailable", "/proc/meminfo");

	return n < 0 ? INT64_MAX : n;
}

void limits_read(struct limits *l)
{
	cpu_set_t set;

	l->cores = sched_getaffinity(0, sizeof(set), &set) == 0 ?
		   CPU_COUNT(&set) : 1;
	l->memory = free_memory();
	l->pids = INT64_MAX;
	cgroups(l);
	if (l->cores < 1)
		l->cores = 1;
}

/* Whether one more fits; the lock is held. */
static int fits(int64_t memory, int max, const struct limits *l)
{
	int cores = max > 0 && max < l->cores ? max : l->cores;

	if (running == 0)
		return 1;
	if (alone || waiting_alone || memory == LIMITS_ALONE)
		return 0;
	return running < cores && memory <= l->memory &&
	       l->pids >= COMPILER_PIDS;
}

int limits_enter(int64_t memory, int max, int64_t deadline)
{
	struct limits l;
	struct timespec ts;
	int rc = 0;

	pthread_mutex_lock(&lock);
	waiting_alone += memory == LIMITS_ALONE;
	for (;;) {
		limits_read(&l);
		/* what runs has not yet filled all that it will */
		l.memory -= filled / 2;
		if (fits(memory, max, &l))
			break;
		if (now_ns() >= deadline) {
			rc = -1;
			break;
		}
		/* The other clock may be set back meanwhile. */
		clock_gettime(CLOCK_MONOTONIC, &ts);
		ts.tv_sec += 1;
		pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &ts);
	}
	waiting_alone -= memory == LIMITS_ALONE;
	if (rc == 0) {
		running++;
		alone += memory == LIMITS_ALONE;
		filled += memory == LIMITS_ALONE ? 0 : memory;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

void limits_leave(int64_t memory)
{
	pthread_mutex_lock(&lock);
	running--;
	alone -= memory == LIMITS_ALONE;
	filled -= memory == LIMITS_ALONE ? 0 : memory;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}
