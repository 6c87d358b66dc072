/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "cu/nvml.h"

#define MAX_PROCESSES 256

enum { CLOCK_SM = 1, CLOCK_MEM = 2 };
enum { RC_SIZE = 7 };		/* NVML_ERROR_INSUFFICIENT_SIZE */

struct nvml {
	struct nvml_api api;
	void *lib;
	void *dev;
	int up;
};

static int check(int rc, const char *what, struct err *e)
{
	if (!rc)
		return 0;
	return err_set(e, CA_UNAVAILABLE, "%s: NVML error %d", what, rc);
}

struct nvml *nvml_open(const char *uuid, struct err *e)
{
#define ROW(name, sym, args) { sym, offsetof(struct nvml_api, name) },
	static const struct cu_symbol rows[] = { CU_NVML(ROW) };
#undef ROW
	struct nvml *n = calloc(1, sizeof(*n));

	if (!n) {
		err_sys(e, CA_SOFTWARE, "NVML");
		return NULL;
	}
	n->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!n->lib) {
		err_set(e, CA_UNAVAILABLE, "no NVML (libnvidia-ml.so.1)");
	} else if (!cu_resolve(n->lib, rows, sizeof(rows) / sizeof(rows[0]),
			       &n->api, e) &&
		   !check(n->api.Init(), "nvmlInit", e)) {
		n->up = 1;
		if (!check(n->api.ByUuid(uuid, &n->dev), uuid, e))
			return n;
	}
	nvml_close(n);
	return NULL;
}

void nvml_close(struct nvml *n)
{
	if (!n)
		return;
	if (n->up)
		n->api.Shutdown();
	if (n->lib)
		dlclose(n->lib);
	free(n);
}

int nvml_clock(struct nvml *n, struct nvml_clock *c, struct err *e)
{
	unsigned long long why = 0;

	if (check(n->api.Clock(n->dev, CLOCK_SM, &c->sm_mhz), "SM clock",
		  e) ||
	    check(n->api.Clock(n->dev, CLOCK_MEM, &c->mem_mhz),
		  "memory clock", e) ||
	    check(n->api.MaxClock(n->dev, CLOCK_SM, &c->sm_max_mhz),
		  "SM clock", e) ||
	    check(n->api.Throttle(n->dev, &why), "clock reasons", e))
		return -1;
	c->throttle = why;
	return 0;
}

int nvml_pids(struct nvml *n, pid_t *pids, int max, struct err *e)
{
	struct nvml_process p[MAX_PROCESSES];
	unsigned count = MAX_PROCESSES;
	int rc = n->api.Processes(n->dev, &count, p);

	if (rc == RC_SIZE)
		return (int)count;
	if (check(rc, "compute processes", e))
		return -1;
	for (unsigned i = 0; i < count && (int)i < max; i++)
		pids[i] = (pid_t)p[i].pid;
	return (int)count;
}

int nvml_minor(struct nvml *n, struct err *e)
{
	unsigned minor = 0;

	if (check(n->api.Minor(n->dev, &minor), "minor number", e))
		return -1;
	return (int)minor;
}
