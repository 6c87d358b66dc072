/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "gpu/turn.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

#define TURN_NS 100000000	/* then others may have the device */
#define TRY_S   0.2

int gpu_turn_open(struct gpu_turn *t, const struct gpu *g, struct err *e)
{
	const char *name = gpu_lease_name(g);

	memset(t, 0, sizeof *t);
	t->registered = -1;
	if (lease_open(&t->lease, name, e))
		return -1;
	snprintf(t->name, sizeof t->name, "%s", name);
	if (gpu_is_cpu(g))
		return 0;
	t->registered = lease_register(name, getpid(), e);
	return t->registered < 0 ? -1 : 0;
}

void gpu_turn_close(struct gpu_turn *t)
{
	if (!*t->name)
		return;
	gpu_turn_leave(t);
	if (t->registered >= 0)
		lease_unregister(t->name, getpid(), t->registered);
	lease_close(&t->lease);
	*t->name = '\0';
}

int gpu_turn_goes_on(const struct gpu_turn *t)
{
	return t->held && now_ns() - t->since < TURN_NS;
}

int gpu_turn_enter(struct gpu_turn *t)
{
	const struct timespec nap = { 0, 20000000 };

	if (gpu_turn_goes_on(t))
		return 0;
	gpu_turn_leave(t);
	if (lease_lock(&t->lease, t->name, 0, TRY_S, NULL)) {
		/* A signal that was caught makes it return at once. */
		nanosleep(&nap, NULL);
		return -1;
	}
	t->held = 1;
	t->since = now_ns();
	return 0;
}

void gpu_turn_wait(struct gpu_turn *t)
{
	while (gpu_turn_enter(t))
		;
}

void gpu_turn_leave(struct gpu_turn *t)
{
	if (t->held)
		lease_unlock(&t->lease);
	t->held = 0;
}
