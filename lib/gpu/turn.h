/* SPDX-License-Identifier: Apache-2.0
 *
 * The lease of a device, shared, for whoever computes on it for long: held
 * while work is launched, and given up for a moment now and then, so that one
 * who waits to have the device alone gets a turn.
 */
#ifndef CA_GPU_TURN_H
#define CA_GPU_TURN_H

#include <stdint.h>

#include "cu/lease.h"
#include "gpu/gpu.h"

struct gpu_turn {		/* zero: not opened */
	char name[64];		/* of the lease; "": not opened */
	struct lease lease;
	int held, registered;
	int64_t since;
};

/* On a GPU also says that this process keeps to the lease: what it has there
 * without holding it does no work. */
int gpu_turn_open(struct gpu_turn *t, const struct gpu *g, struct err *e);
void gpu_turn_close(struct gpu_turn *t);

/* Holds the lease when it returns 0.  -1: somebody else has the device; ask
 * again. */
int gpu_turn_enter(struct gpu_turn *t);
/* Whether it does so at once, since it is held and not for long yet. */
int gpu_turn_goes_on(const struct gpu_turn *t);
/* The same, as long as it takes. */
void gpu_turn_wait(struct gpu_turn *t);
void gpu_turn_leave(struct gpu_turn *t);

#endif
