/* SPDX-License-Identifier: Apache-2.0
 *
 * A lease beside the device's own.
 */
#include "synth/room.h"

#include <stdio.h>
#include <unistd.h>

#include "cu/lease.h"

#define BYTES ((int64_t)512 << 20)
#define BYTES_CUDA ((int64_t)3500 << 20)

int64_t room_bytes(const struct judge *j, int64_t asked)
{
	return asked ? asked : judge_on_cuda(j) ? BYTES_CUDA : BYTES;
}

int room_enter(const struct judge *j, int alone, double seconds, int *fd,
	       struct err *e)
{
	char name[128];

	*fd = -1;
	if (!judge_on_cuda(j))
		return 0;
	snprintf(name, sizeof(name), "%s.room", j->dev->name);
	*fd = lease_take(name, alone, seconds, e);
	return *fd < 0 ? -1 : 0;
}

void room_leave(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
