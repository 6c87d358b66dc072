/* SPDX-License-Identifier: Apache-2.0
 *
 * Two files: the lock itself, and a gate that everybody passes on the way to
 * it.  Who waits for the lock holds the gate, so that a stream of shared
 * holders cannot keep an exclusive one out for ever.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "base/sig.h"
#include "cu/lease.h"

/* Between two looks: a part of what was waited, so that little is added. */
#define RETRY_SHARE 16
#define RETRY_LEAST 200000
#define RETRY_MOST 20000000

struct wait {
	const char *name;
	double seconds;
	int64_t began, end;
};

static int open_lock(const char *dir, const char *name, const char *suffix,
		     struct err *e)
{
	char path[CA_PATH_MAX + 64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s%s", dir, name, suffix);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		err_sys(e, CA_CANTCREAT, "cannot open '%s'", path);
	return fd;
}

/* In a directory of the user's own, which nobody else can write. */
static int elsewhere(char dir[CA_PATH_MAX], struct err *e)
{
	struct stat st;

	snprintf(dir, CA_PATH_MAX, "/tmp/cuda-agent-lease-%u",
		 (unsigned)geteuid());
	if ((mkdir(dir, 0700) && errno != EEXIST) || lstat(dir, &st))
		return err_sys(e, CA_CANTCREAT, "cannot create '%s'", dir);
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	    !(st.st_mode & 022))
		return 0;
	return err_set(e, CA_CONFIG, "'%s' is no directory of this user's "
		       "alone", dir);
}

/* Whether files there can be locked; asked once. */
static int can_lock(const char *dir, struct err *e)
{
	static atomic_int known;	/* 1, or -1: no */
	int fd;

	if (known)
		return known > 0;
	fd = open_lock(dir, ".probe", "", e);
	if (fd < 0)
		return -1;
	known = flock(fd, LOCK_SH | LOCK_NB) && errno != EWOULDBLOCK &&
		errno != EINTR ? -1 : 1;
	close(fd);
	if (known < 0)
		mention("'%s' cannot be locked: leases are in /tmp", dir);
	return known > 0;
}

/*
 * Where the files are: below the cache, or, where that is on storage without
 * locks, below /tmp, since leases are about this machine.
 */
static int lease_dir(char dir[CA_PATH_MAX], struct err *e)
{
	int rc;

	if (path_cache(dir, "lease", e))
		return -1;
	rc = can_lock(dir, e);
	return rc > 0 ? 0 : rc < 0 ? -1 : elsewhere(dir, e);
}

static void rest(const struct wait *w)
{
	int64_t ns = (now_ns() - w->began) / RETRY_SHARE + RETRY_LEAST;
	struct timespec nap = { 0, ns < RETRY_MOST ? ns : RETRY_MOST };

	nanosleep(&nap, NULL);
}

static int lock(int fd, int how, const struct wait *w, struct err *e)
{
	while (flock(fd, how | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_sys(e, CA_UNAVAILABLE,
				       "cannot lock the lease of '%s'",
				       w->name);
		if (sig_caught())
			return err_set(e, CA_TEMPFAIL, "interrupted");
		if (now_ns() > w->end)
			return err_set(e, CA_UNAVAILABLE, "the lease of '%s' "
				       "was not free within %.0f s", w->name,
				       w->seconds);
		rest(w);
	}
	return 0;
}

int lease_open(struct lease *l, const char *name, struct err *e)
{
	char dir[CA_PATH_MAX];

	l->gate = l->lock = -1;
	if (lease_dir(dir, e))
		return -1;
	l->gate = open_lock(dir, name, ".gate", e);
	if (l->gate >= 0)
		l->lock = open_lock(dir, name, "", e);
	if (l->lock >= 0)
		return 0;
	lease_close(l);
	return -1;
}

int lease_lock(const struct lease *l, const char *name, int exclusive,
	       double seconds, struct err *e)
{
	const struct wait w = { name, seconds, now_ns(),
				deadline_in(seconds) };
	int how = exclusive ? LOCK_EX : LOCK_SH, rc;

	rc = lock(l->gate, how, &w, e);
	if (!rc) {
		rc = lock(l->lock, how, &w, e);
		flock(l->gate, LOCK_UN);
	}
	return rc;
}

void lease_unlock(const struct lease *l)
{
	flock(l->lock, LOCK_UN);
}

void lease_close(struct lease *l)
{
	if (l->gate >= 0)
		close(l->gate);
	if (l->lock >= 0)
		close(l->lock);
	l->gate = l->lock = -1;
}

int lease_take(const char *name, int exclusive, double seconds,
	       struct err *e)
{
	struct lease l;

	if (lease_open(&l, name, e))
		return -1;
	if (lease_lock(&l, name, exclusive, seconds, e)) {
		lease_close(&l);
		return -1;
	}
	close(l.gate);
	return l.lock;
}

int lease_share(int fd)
{
	/* The kernel gives the one up before it takes the other. */
	return flock(fd, LOCK_SH | LOCK_NB) ? -1 : 0;
}

static int user_path(const char *name, pid_t pid, char *path, size_t len,
		     struct err *e)
{
	char dir[CA_PATH_MAX];
	int n;

	if (lease_dir(dir, e))
		return -1;
	n = snprintf(path, len, "%s/%s.users", dir, name);
	if (n < 0 || (size_t)n + 16 > len)
		return err_set(e, CA_CONFIG, "cache path is too long");
	if (mkdir_p(path, 0755, e))
		return -1;
	snprintf(path + n, len - (size_t)n, "/%d", (int)pid);
	return 0;
}

/* Several may say it of one process, a host that they share. */
int lease_register(const char *name, pid_t pid, struct err *e)
{
	char path[CA_PATH_MAX + 16];
	struct stat st;
	int fd;

	if (user_path(name, pid, path, sizeof(path), e))
		return -1;
	for (;;) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) ||
		    fstat(fd, &st)) {
			err_sys(e, CA_CANTCREAT, "cannot lock '%s'", path);
			if (fd >= 0)
				close(fd);
			return -1;
		}
		if (st.st_nlink)
			return fd;
		close(fd);	/* removed by the last that had said it */
	}
}

/* Removes what nobody holds.  Whether somebody does. */
static int release(const char *path, int fd)
{
	if (flock(fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK;
	unlink(path);
	return 0;
}

void lease_unregister(const char *name, pid_t pid, int fd)
{
	char path[CA_PATH_MAX + 16];

	if (fd < 0)
		return;
	if (!user_path(name, pid, path, sizeof(path), NULL))
		release(path, fd);
	close(fd);
}

int lease_registered(const char *name, pid_t pid)
{
	char path[CA_PATH_MAX + 16];
	int fd, held;

	if (user_path(name, pid, path, sizeof(path), NULL))
		return 0;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return 0;
	/* Its process is gone?  Another may get its number. */
	held = release(path, fd);
	close(fd);
	return held;
}
