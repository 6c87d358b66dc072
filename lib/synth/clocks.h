/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks of one process's tasks.  While one runs nobody else works on the
 * device, and until all others have stopped much time is lost: tasks that want
 * theirs gather, and one of them takes the lease for all.
 */
#ifndef CA_SYNTH_CLOCKS_H
#define CA_SYNTH_CLOCKS_H

#include <pthread.h>

#include "judge/device.h"

struct clocks {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	size_t tasks;		/* in hand, those that wait among them */
	size_t waiting;
	int led;		/* somebody asks for the lease, or has it */
	int open;		/* and has it: others may run their clocks */
	int running;
};

/* A lease is one GPU's: those of each, of the `all` that a process has. */
#define CLOCKS_GPUS 64
struct clocks *clocks_of(struct clocks all[CLOCKS_GPUS],
			 const struct device *d);

void clocks_init(struct clocks *c);
void clocks_release(struct clocks *c);

/* A task that may want one is begun (1), or done (-1). */
void clocks_task(struct clocks *c, int by);

/* Waits until this task's clock may run; what it holds of the device it gives
 * back first.  *leads is for clocks_leave.  CA_UNAVAILABLE, CA_TEMPFAIL. */
int clocks_enter(struct clocks *c, struct device *d, double seconds,
		 int *leads, struct err *e);
/* It has run.  Who leads waits for the others, not for long, and then still
 * holds the lease. */
void clocks_leave(struct clocks *c, int leads);

#endif
