/* SPDX-License-Identifier: Apache-2.0
 *
 * An NVIDIA GPU as a device of the judge.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/proc.h"
#include "base/rand.h"
#include "cu/lease.h"
#include "judge/ahead.h"
#include "judge/cuda.h"
#include "judge/cuda_source.h"

#define SWEEP_TIMES 2		/* of the L2 cache's size */
#define MIN_SWEEP ((size_t)32 << 20)
#define PROBES 32
#define LATE_FACTOR 8
#define LATE_LEAST_US 250	/* a time slice is some 2 ms */
#define STILL_TIMES 600		/* over one and a half seconds */
#define STILL_GAP_NS 2500000
#define MAX_PIDS 64
#define ROOMY ((size_t)32 << 30)	/* contexts take half a GiB each */
#define RECOVER_SECONDS 30
#define OPEN_SECONDS 600	/* for somebody's clock to stop */
#define QUEUES "CUDA_DEVICE_MAX_CONNECTIONS"

int device_cuda_count(void)
{
	int n = cu_count(NULL);

	return n > 0 ? n : 0;
}

static int cuda_attach(struct device *d, struct runner *r, struct err *e)
{
	/* Nothing to hold: the GPU orders the work, not the process. */
	(void)d;
	(void)e;
	r->trace = NULL;
	return 0;
}

static void cuda_detach(struct device *d, struct runner *r)
{
	(void)d;
	r->trace = NULL;
}

/* Contexts of other processes survive one that faulted; ours is tried. */
static int cuda_recover(struct device *d, struct err *e)
{
	struct cuda *c = cuda_of(d);

	if (cuda_sync(c, RECOVER_SECONDS, e) || cuda_probe(c, e) < 0)
		return err_wrap(e, "the GPU did not recover");
	return 0;
}

static void cuda_unlease(struct device *d)
{
	struct cuda *c = cuda_of(d);

	if (c->lease >= 0)
		close(c->lease);
	c->lease = -1;
}

static int cuda_lease(struct device *d, int exclusive, double seconds,
		      struct err *e)
{
	struct cuda *c = cuda_of(d);

	cuda_unlease(d);
	c->lease = lease_take(c->cu->info.uuid, exclusive, seconds, e);
	return c->lease < 0 ? -1 : 0;
}

static int cuda_share(struct device *d)
{
	return lease_share(cuda_of(d)->lease);
}

/* The parent of pid; 0 when there is no such process here. */
static pid_t parent_of(pid_t pid)
{
	char buf[512];
	const char *p = proc_stat(buf, sizeof(buf), "/proc/%d/stat", (int)pid);
	int ppid = 0;

	return p && sscanf(p, "%*c %d", &ppid) == 1 ? ppid : 0;
}

/* Of this process, or of another that keeps to the lease. */
static int is_ours(const struct cuda *c, pid_t pid)
{
	for (int depth = 0; pid > 1 && depth < 64; depth++) {
		if (pid == getpid() || pid == c->dev.host ||
		    lease_registered(c->cu->info.uuid, pid))
			return 1;
		pid = parent_of(pid);
	}
	return 0;
}

/* The host may be one that another terminal's tools do not know: what it has
 * forked for us is no stranger to them either. */
static void cuda_hosted(struct device *d, pid_t host)
{
	struct cuda *c = cuda_of(d);

	lease_unregister(c->cu->info.uuid, d->host, c->hosted);
	c->hosted = lease_register(c->cu->info.uuid, host, NULL);
}

/* Counts processes on the GPU: ours, and others that exist here.  -1 without
 * NVML. */
static int count_processes(struct cuda *c, int *here, int *other)
{
	pid_t pid[MAX_PIDS];
	int n;

	*here = *other = 0;
	if (!c->nvml_tried) {
		c->nvml_tried = 1;
		c->nvml = nvml_open(c->cu->info.uuid, NULL);
	}
	n = c->nvml ? nvml_pids(c->nvml, pid, MAX_PIDS, NULL) : -1;
	for (int i = 0; i < n && i < MAX_PIDS; i++) {
		if (is_ours(c, pid[i]))
			++*here;
		else if (parent_of(pid[i]))
			++*other;
	}
	return n;
}

int device_cuda_roomy(struct device *d)
{
	size_t avail, total;

	return !cu_mem_info(cuda_of(d)->cu, &avail, &total, NULL) &&
	       total >= ROOMY && avail >= total / 2;
}

double device_cuda_total(struct device *d)
{
	size_t avail, total;

	return cu_mem_info(cuda_of(d)->cu, &avail, &total, NULL) ? 0 :
	       (double)total;
}

int device_cuda_turn(struct device *d, int fd[DEVICE_TURN])
{
	char name[CU_UUID_TEXT + sizeof(".turn")];
	struct lease turn, lease;

	snprintf(name, sizeof(name), "%s.turn", cuda_of(d)->cu->info.uuid);
	if (lease_open(&turn, name, NULL))
		return -1;
	close(turn.gate);
	if (lease_open(&lease, cuda_of(d)->cu->info.uuid, NULL)) {
		close(turn.lock);
		return -1;
	}
	fd[0] = turn.lock;
	fd[1] = lease.gate;
	fd[2] = lease.lock;
	return 0;
}

int device_cuda_registration(struct device *d)
{
	return lease_register(cuda_of(d)->cu->info.uuid, d->host, NULL);
}

size_t device_cuda_held(struct device *d, int fd[DEVICE_HELD])
{
	const struct cuda *c = cuda_of(d);
	const int all[DEVICE_HELD] = { c->lease, c->registered, c->hosted };
	size_t n = 0;

	for (size_t i = 0; i < DEVICE_HELD; i++)
		if (all[i] >= 0)
			fd[n++] = all[i];
	return n;
}

int device_cuda_still(struct device *d)
{
	const struct timespec gap = { 0, STILL_GAP_NS };
	struct cuda *c = cuda_of(d);

	for (int i = 0; i < STILL_TIMES; i++) {
		int64_t ns = cuda_probe(c, NULL);

		if (ns < 0)
			return -1;
		if (ns > (int64_t)(c->late_us * 1e3))
			return 0;
		nanosleep(&gap, NULL);
	}
	return 1;
}

int device_cuda_sees_processes(struct device *d)
{
	int here, other;

	/* Where NVML does not even name us, its numbers are of another
	 * namespace and say nothing. */
	return count_processes(cuda_of(d), &here, &other) > 0 && here;
}

static int cuda_foreign(struct device *d, const struct runner *trusted)
{
	int here, other, n = count_processes(cuda_of(d), &here, &other);

	(void)trusted;
	return n > MAX_PIDS || (here && other);
}

static void cuda_close(struct device *d)
{
	struct cuda *c = cuda_of(d);

	cuda_unlease(d);
	nvml_close(c->nvml);
	if (c->cu) {
		lease_unregister(c->cu->info.uuid, getpid(), c->registered);
		lease_unregister(c->cu->info.uuid, c->dev.host, c->hosted);
		cu_mem_free(c->cu, &c->flush);
		cu_mem_free(c->cu, &c->scratch);
		cu_host_free(c->cu, c->stamps);
		cu_module_free(c->cu, c->mod);
		cu_dev_close(c->cu);
	}
	free(c);
}

/* To free memory and end a context takes longer than to end the process does,
 * and who looks at the GPU before that still has to know whose it is. */
static void cuda_leave(struct device *d)
{
	cuda_unlease(d);
}

static const struct device_ops cuda_ops = {
	.name = "cuda",
	.close = cuda_close,
	.leave = cuda_leave,
	.shared = cuda_shared,
	.private_mem = cuda_private,
	.release = cuda_release,
	.copy = cuda_copy,
	.download = cuda_download,
	.upload = cuda_upload,
	.poison = cuda_poison,
	.differs = cuda_differs,
	.compare = cuda_compare,
	.attach = cuda_attach,
	.detach = cuda_detach,
	.answer = cuda_answer,
	.bracket = cuda_bracket,
	.recover = cuda_recover,
	.lease = cuda_lease,
	.unlease = cuda_unlease,
	.share = cuda_share,
	.foreign = cuda_foreign,
	.hosted = cuda_hosted,
};

static int load_kernels(struct cuda *c, struct err *e)
{
	const struct { const char *name; cu_fn *fn; } row[] = {
		{ "move", &c->move }, { "sweep", &c->sweep },
		{ "hold", &c->hold }, { "stamp", &c->stamp },
		{ "probe", &c->probe },
		{ "differs", &c->differs }, { "spin", &c->spin },
		{ "compare", &c->compare },
	};
	struct str cubin = STR_INIT;
	int rc = -1;

	if (cuda_source_compile(c->cu->info.major, c->cu->info.minor, &cubin,
				e) ||
	    cu_module(c->cu, cubin.buf, &c->mod, e))
		goto out;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		if (cu_function(c->cu, c->mod, row[i].name, row[i].fn, e))
			goto out;
	rc = 0;
out:
	str_release(&cubin);
	return rc;
}

/* What a probe takes on this machine when nobody else works: the least, since
 * others of ours may be loading something. */
static int calibrate_probe(struct cuda *c, struct err *e)
{
	int64_t least = INT64_MAX;

	for (int i = 0; i < PROBES; i++) {
		int64_t ns = cuda_probe(c, e);

		if (ns < 0)
			return -1;
		if (ns < least)
			least = ns;
	}
	c->late_us = fmax((double)least * 1e-3 * LATE_FACTOR, LATE_LEAST_US);
	return 0;
}

/* The first GPU whose lease is free now, else the first. */
static int any_gpu(struct err *e)
{
	int n = cu_count(e);

	if (n < 0)
		return -1;
	if (n == 0)
		return err_set(e, CA_UNAVAILABLE, "there is no GPU");
	for (int i = 0; i < n; i++) {
		struct cu_info info;
		int fd;

		if (cu_info(i, &info, e))
			return -1;
		fd = lease_take(info.uuid, 1, 0, NULL);
		if (fd < 0)
			continue;
		close(fd);
		return i;
	}
	return 0;
}

static int open_parts(struct cuda *c, int index, struct err *e)
{
	unsigned char zone[CA_POOL_ZONE];
	struct rng rng;
	size_t sweep;

	rng_fresh(&rng);
	rng_fill(&rng, zone, sizeof(zone));
	c->cu = cu_dev_open(index, e);
	if (!c->cu)
		return -1;
	if (!c->cu->info.vmm)
		return err_set(e, CA_UNAVAILABLE, "'%s' cannot share memory "
			       "by descriptor", c->cu->info.name);
	sweep = c->cu->info.l2 * SWEEP_TIMES;
	if (sweep < MIN_SWEEP)
		sweep = MIN_SWEEP;
	if (cu_mem_new(c->cu, sweep, 0, &c->flush, e) ||
	    cu_mem_new(c->cu, CUDA_SCRATCH + CA_POOL_ZONE, 0, &c->scratch, e) ||
	    cu_upload(c->cu, c->scratch.ptr + CUDA_SCRATCH, zone,
		      sizeof(zone), e) ||
	    cu_zero(c->cu, c->flush.ptr, c->flush.size, e) ||
	    load_kernels(c, e))
		return -1;
	c->stamps = cu_host_new(c->cu, CUDA_STAMPS * sizeof(*c->stamps), e);
	if (!c->stamps)
		return -1;
	memset(c->stamps, 0, CUDA_STAMPS * sizeof(*c->stamps));
	return calibrate_probe(c, e);
}

/* Under the lease, because a new context and its first kernels would disturb
 * somebody's clock. */
static int open_leased(struct cuda *c, int index, struct err *e)
{
	struct cu_info info;
	int lease, rc;

	if (cu_info(index, &info, e))
		return -1;
	lease = lease_take(info.uuid, 0, OPEN_SECONDS, e);
	if (lease < 0)
		return -1;
	rc = open_parts(c, index, e);
	close(lease);
	return rc;
}

static struct device *open_gpu(int index, struct err *e)
{
	struct cuda *c;
	int n;

	if (index < 0)
		index = any_gpu(e);
	if (index < 0)
		return NULL;
	n = cu_count(e);
	if (n < 0)
		return NULL;
	if (index >= n) {
		err_set(e, CA_UNAVAILABLE, "no device 'cuda:%d': %d found",
			index, n);
		return NULL;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		err_sys(e, CA_SOFTWARE, "device");
		return NULL;
	}
	c->dev.ops = &cuda_ops;
	c->lease = c->registered = c->hosted = -1;
	c->flush = c->scratch = (struct cu_mem)CU_MEM_INIT;
	if (open_leased(c, index, e)) {
		cuda_close(&c->dev);
		return NULL;
	}
	/* Without it others take this process for a stranger, no more. */
	c->registered = lease_register(c->cu->info.uuid, getpid(), NULL);
	snprintf(c->dev.name, sizeof(c->dev.name), "cuda:%d", index);
	snprintf(c->dev.model, sizeof(c->dev.model), "%s", c->cu->info.name);
	cuda_cpus_find(&c->cpus, index);
	if (!cu_nodes(&c->cu->info, &c->nodes, NULL))
		c->dev.node = c->nodes.path[0];
	c->dev.gpu = c->cu->info.uuid;
	c->dev.granularity = c->cu->granularity;
	c->dev.bytes_per_s = c->cu->info.bytes_per_s;
	c->dev.resolution_us = 2;
	return &c->dev;
}

/* The judge works in one stream: with one queue to the GPU its context is made
 * and ended in half the time.  What it starts is to have as many as usual. */
struct device *device_cuda_open(int index, struct err *e)
{
	int ours = ahead_wanted() && !getenv(QUEUES) &&
		   !setenv(QUEUES, "1", 0);
	struct device *d = open_gpu(index, e);

	if (ours)
		unsetenv(QUEUES);
	return d;
}
