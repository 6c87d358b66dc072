/* SPDX-License-Identifier: Apache-2.0
 *
 * Room in a GPU's memory, where sizes are known before: tasks that are worked
 * on side by side may be too large together.  Where they are not known, who
 * finds no memory left tries again without the others (room_enter).
 */
#ifndef CA_SYNTH_ROOM_H
#define CA_SYNTH_ROOM_H

#include <pthread.h>

#include "judge/session.h"

/* The most that inputs or a result of an operator should take: what the
 * caller says, or (0) what the device passes through its memory within some
 * milliseconds. */
int64_t room_bytes(const struct judge *j, int64_t asked);

/* Bytes of the GPU's memory; 0 on the CPU. */
double room_total(const struct judge *j);

/*
 * Inside one process, where sizes are known: what those that work side by side
 * may take together.  In the order in which they come, so that a large one's
 * turn comes, too.
 */
struct admission {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	double used;
	uint64_t next, turn;	/* numbers of who comes, and whose turn it is */
};

void admission_init(struct admission *a);
void admission_release(struct admission *a);
/* Waits until `bytes` more are no more than `most`, or nobody is there.
 * CA_UNAVAILABLE, CA_TEMPFAIL. */
int admission_enter(struct admission *a, double bytes, double most,
		    double seconds, struct err *e);
void admission_leave(struct admission *a, double bytes);

#endif
