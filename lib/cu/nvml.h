/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVML says about a GPU: clocks, why they are low, who else is there.
 * A machine without NVML can judge all the same; it then has no such
 * evidence, and the record says so.
 */
#ifndef CA_CU_NVML_H
#define CA_CU_NVML_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "cu/cu.h"

struct nvml;

/* NULL and CA_UNAVAILABLE without NVML or without this GPU. */
struct nvml *nvml_open(const char *uuid, struct err *e);
void nvml_close(struct nvml *n);

struct nvml_clock {
	unsigned sm_mhz, mem_mhz, sm_max_mhz;
	uint64_t throttle;	/* NVML's bits; 0 and 1 (idle) are fine */
};

/* Reasons among `throttle` that make a timed round void: power, thermal and
 * hardware slowdowns. */
#define NVML_SLOWED (0x4ull | 0x8 | 0x20 | 0x40 | 0x80)

int nvml_clock(struct nvml *n, struct nvml_clock *c, struct err *e);

/* Processes with a compute context on the GPU, at most max of them in
 * pids; their number, which may exceed max, or -1.  In a container NVML may
 * name them by the host's numbers, or none. */
int nvml_pids(struct nvml *n, pid_t *pids, int max, struct err *e);

int nvml_minor(struct nvml *n, struct err *e);	/* N of /dev/nvidiaN or -1 */

#endif
