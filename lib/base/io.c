/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors and whole files.
 */
#define _GNU_SOURCE
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/sig.h"

int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t deadline_in(double seconds)
{
	int64_t now = now_ns();

	if (!(seconds > 0))
		return now;
	if (seconds > 1e9)	/* about 30 years */
		seconds = 1e9;
	return now + (int64_t)(seconds * 1e9);
}

int deadline_ms(int64_t deadline)
{
	int64_t left = deadline - now_ns();

	if (left <= 0)
		return 0;
	left = (left + 999999) / 1000000;
	return left > INT_MAX ? INT_MAX : (int)left;
}

int write_full(int fd, const void *p, size_t len, struct err *e)
{
	const char *at = p;

	while (len) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, CA_IOERR, "cannot write");
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

ssize_t read_full(int fd, void *p, size_t len, struct err *e)
{
	char *at = p;
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, at + got, len - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, CA_IOERR, "cannot read");
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

/* stop: another descriptor that ends the wait; -1: none. */
static int wait_either(int fd, int stop, int64_t deadline, struct err *e)
{
	struct pollfd p[2] = { { fd, POLLIN, 0 }, { stop, POLLIN, 0 } };

	for (;;) {
		int n = poll(p, 2, deadline_ms(deadline));

		if (n > 0)
			return p[0].revents != 0;
		if (n < 0 && errno != EINTR)
			return err_sys(e, CA_IOERR, "cannot poll");
		if (n == 0 && now_ns() >= deadline)
			return 0;
	}
}

int wait_readable(int fd, int64_t deadline, struct err *e)
{
	return wait_either(fd, -1, deadline, e);
}

int wait_unless_signal(int fd, int64_t deadline, struct err *e)
{
	return wait_either(fd, sig_fd(), deadline, e);
}

/* Appends all of fd, which is open on a regular file. */
static int slurp(int fd, const char *name, size_t cap, struct str *s,
		 struct err *e)
{
	char buf[65536];
	size_t total = 0;

	for (;;) {
		ssize_t n = read(fd, buf, sizeof buf);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, CA_NOINPUT, "cannot read '%s'", name);
		if (n == 0)
			return 0;
		total += (size_t)n;
		if (total > cap)
			return err_set(e, CA_DATAERR,
				       "'%s' is longer than %zu bytes", name,
				       cap);
		if (str_add(s, buf, (size_t)n))
			return err_set(e, CA_SOFTWARE,
				       "no memory for '%s'", name);
	}
}

int read_file_at(int dirfd, const char *name, size_t cap, int follow,
		 struct str *s, struct err *e)
{
	struct stat st;
	int rc = -1, fd;

	fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
		    (follow ? 0 : O_NOFOLLOW));
	if (fd < 0 && errno == ELOOP && !follow)
		return err_set(e, CA_NOINPUT, "'%s' is a symbolic link", name);
	if (fd < 0)
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", name);
	if (fstat(fd, &st))
		err_sys(e, CA_NOINPUT, "cannot stat '%s'", name);
	else if (!S_ISREG(st.st_mode))
		err_set(e, CA_NOINPUT, "'%s' is not a regular file", name);
	else
		rc = slurp(fd, name, cap, s, e);
	close(fd);
	return rc;
}

int read_file(const char *path, size_t cap, struct str *s, struct err *e)
{
	return read_file_at(AT_FDCWD, path, cap, 1, s, e);
}

/* Makes a temporary file beside path; its name goes to temp. */
static int temp_beside(const char *path, char *temp, size_t len,
		       struct err *e)
{
	int fd;

	if ((size_t)snprintf(temp, len, "%s.XXXXXX", path) >= len)
		return err_set(e, CA_CANTCREAT, "'%s' is too long a name",
			       path);
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, CA_CANTCREAT, "cannot create '%s'", temp);
	return fd;
}

/* Closes fd and, when all went well so far, makes temp be path. */
static int settle(int fd, const char *temp, const char *path, int commit,
		  struct err *e)
{
	int rc = commit ? 0 : -1;

	if (commit && fsync(fd))
		rc = err_sys(e, CA_IOERR, "cannot write '%s'", path);
	if (close(fd) && rc == 0)
		rc = err_sys(e, CA_IOERR, "cannot close '%s'", path);
	if (rc == 0 && rename(temp, path))
		rc = err_sys(e, CA_CANTCREAT, "cannot create '%s'", path);
	if (rc)
		unlink(temp);
	return rc;
}

int write_file_atomic(const char *path, const void *p, size_t len,
		      unsigned mode, struct err *e)
{
	char temp[PATH_MAX];
	int fd = temp_beside(path, temp, sizeof temp, e), ok;

	if (fd < 0)
		return -1;
	ok = write_full(fd, p, len, e) == 0;
	if (!ok)
		err_wrap(e, "'%s'", path);
	else if (fchmod(fd, mode))
		ok = err_sys(e, CA_CANTCREAT, "cannot chmod '%s'", path) == 0;
	return settle(fd, temp, path, ok, e);
}

/* What -o names, with symbolic links followed; *regular is 0 when it exists
 * and must be written in place (a device, a pipe). */
static int resolve(const char *path, char *out, size_t len, int *regular,
		   struct err *e)
{
	struct stat st;
	char real[PATH_MAX];
	const char *name = path;

	*regular = 1;
	if (stat(path, &st) == 0) {
		*regular = S_ISREG(st.st_mode);
		if (*regular && realpath(path, real))
			name = real;
	}
	if ((size_t)snprintf(out, len, "%s", name) >= len)
		return err_set(e, CA_CANTCREAT, "'%s' is too long a name",
			       path);
	return 0;
}

int output_open(struct output *o, const char *path, struct err *e)
{
	mode_t mask;
	int regular;

	o->path[0] = o->temp[0] = '\0';
	o->fd = STDOUT_FILENO;
	if (strcmp(path, "-") == 0)
		return 0;
	if (resolve(path, o->path, sizeof o->path, &regular, e))
		return -1;
	if (!regular) {
		o->fd = open(o->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
		if (o->fd < 0)
			return err_sys(e, CA_CANTCREAT, "cannot create '%s'",
				       path);
		return 0;
	}
	o->fd = temp_beside(o->path, o->temp, sizeof o->temp, e);
	if (o->fd < 0)
		return -1;
	mask = umask(0);
	umask(mask);
	fchmod(o->fd, 0666 & ~mask);
	return 0;
}

int output_write(struct output *o, const void *p, size_t n, struct err *e)
{
	if (write_full(o->fd, p, n, NULL))
		return err_sys(e, CA_IOERR, "cannot write '%s'",
			       o->path[0] ? o->path : "stdout");
	return 0;
}

int output_close(struct output *o, int commit, struct err *e)
{
	int fd = o->fd;

	o->fd = -1;
	if (fd < 0)
		return 0;
	if (o->temp[0]) {
		int rc = settle(fd, o->temp, o->path, commit, e);

		return commit ? rc : 0;
	}
	if (close(fd))
		return err_sys(e, CA_IOERR, "cannot close '%s'",
			       o->path[0] ? o->path : "stdout");
	return 0;
}
