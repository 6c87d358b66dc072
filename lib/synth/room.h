/* SPDX-License-Identifier: Apache-2.0
 *
 * Room in a GPU's memory.  Tasks that are worked on side by side may be too
 * large together: who finds no memory left tries again without the others.
 */
#ifndef CA_SYNTH_ROOM_H
#define CA_SYNTH_ROOM_H

#include "judge/session.h"

/* The most that inputs or a result of an operator should take: what the
 * caller says, or (0) what the device passes through its memory within some
 * milliseconds. */
int64_t room_bytes(const struct judge *j, int64_t asked);

/* Waits until nobody is alone there, or (alone) until nobody is there at all.
 * *fd is for room_leave; -1 on the CPU, where the system sees to it.  Not
 * while the device's lease is held.  -1: CA_UNAVAILABLE, CA_TEMPFAIL. */
int room_enter(const struct judge *j, int alone, double seconds, int *fd,
	       struct err *e);
void room_leave(int *fd);

#endif
