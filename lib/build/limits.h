/* SPDX-License-Identifier: Apache-2.0
 *
 * How many compilers may run at once in this process: by the cores that we
 * may use, the cgroups' cpu.max, memory.max and pids.max, and the memory that
 * is free, each compiler being counted with what its kind needs.
 */
#ifndef CA_BUILD_LIMITS_H
#define CA_BUILD_LIMITS_H

#include <stdint.h>

struct limits {
	int cores;		/* at least 1 */
	int64_t memory;		/* bytes that compilers may fill together */
	int64_t pids;		/* processes that may be added; INT64_MAX */
};

/* Read anew at each call; what cannot be read does not limit. */
void limits_read(struct limits *l);

#define LIMITS_ALONE INT64_MAX	/* as `memory`: nothing else may run */

/*
 * Waits until a compiler that needs `memory` bytes may start beside those
 * that run (one may always); `max` > 0 lowers the number of cores.  Returns
 * 0, or -1 when the deadline (now_ns scale) came first.  limits_leave with
 * the same memory gives the place back.
 */
int limits_enter(int64_t memory, int max, int64_t deadline);
void limits_leave(int64_t memory);

#endif
