/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "cu/lease.h"

#define RETRY_NS 20000000

int lease_take(const char *name, int exclusive, double seconds,
	       struct err *e)
{
	const struct timespec nap = { 0, RETRY_NS };
	char dir[CA_PATH_MAX], path[CA_PATH_MAX + 64];
	int64_t end = deadline_in(seconds);
	int how = (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB;
	int fd;

	if (path_cache(dir, "lease", e))
		return -1;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_sys(e, CA_CANTCREAT, "cannot open '%s'", path);
	while (flock(fd, how)) {
		if (errno != EWOULDBLOCK && errno != EINTR) {
			err_sys(e, CA_UNAVAILABLE, "cannot lock '%s'", path);
			goto fail;
		}
		if (now_ns() > end) {
			err_set(e, CA_UNAVAILABLE, "the lease of '%s' was not "
				"free within %.0f s", name, seconds);
			goto fail;
		}
		nanosleep(&nap, NULL);
	}
	return fd;
fail:
	close(fd);
	return -1;
}
