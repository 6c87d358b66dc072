/* SPDX-License-Identifier: Apache-2.0
 *
 * The file systems of a forked process.  The interface is spelt out here,
 * since headers lag behind kernels.
 */
#define _GNU_SOURCE
#include "jail/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

enum { N_OPEN_TREE = 428, N_MOVE_MOUNT = 429, N_MOUNT_SETATTR = 442 };
enum { TREE_CLONE = 1, MOVE_FROM_FD = 4, RECURSIVE = 0x8000 };
enum { ATTR_RDONLY = 1, ATTR_NOSUID = 2 };

#define KEPT 128

struct attr {
	uint64_t set, clear, propagation, userns;
};

/* A tree that is shown again after its place was covered or frozen. */
struct kept {
	const char *path;
	int fd;
	int rw;
};

static int set_attr(int fd, const char *path, uint64_t set, uint64_t clear,
		    struct err *e)
{
	struct attr a = { set, clear, 0, 0 };
	unsigned how = RECURSIVE | (path[0] ? 0 : AT_EMPTY_PATH);

	if (!syscall(N_MOUNT_SETATTR, fd, path, how, &a, sizeof(a)))
		return 0;
	return err_sys(e, CA_UNAVAILABLE, "cannot make '%s' read-only",
		       path[0] ? path : "a mount");
}

static int covered(const char *path)
{
	return starts_with(path, "/tmp/") || starts_with(path, "/dev/shm/");
}

static int keep_tree(struct kept *k, const char *path, int rw, struct err *e)
{
	k->path = path;
	k->rw = rw;
	k->fd = (int)syscall(N_OPEN_TREE, AT_FDCWD, path,
			     TREE_CLONE | RECURSIVE | O_CLOEXEC);
	if (k->fd < 0)
		return err_sys(e, CA_CONFIG, "cannot take '%s' into the jail",
			       path);
	return set_attr(k->fd, "", ATTR_NOSUID | (rw ? 0 : ATTR_RDONLY), 0, e);
}

/* Places that will be covered, or have to stay writable. */
static int keep_trees(struct kept *k, size_t *n, const char *const *ro,
		      const char *const *rw, struct err *e)
{
	for (; ro && *ro; ro++) {
		if (!covered(*ro) || access(*ro, F_OK))
			continue;
		if (*n == KEPT)
			return err_set(e, CA_CONFIG, "too many paths");
		if (keep_tree(&k[(*n)++], *ro, 0, e))
			return -1;
	}
	for (; rw && *rw; rw++) {
		if (*n == KEPT)
			return err_set(e, CA_CONFIG, "too many paths");
		if (keep_tree(&k[(*n)++], *rw, 1, e))
			return -1;
	}
	return 0;
}

/* Directories down to path, and a file or directory to mount on. */
static int make_place(const struct kept *k, struct err *e)
{
	char dir[PATH_MAX], *slash;
	struct stat st;
	int fd;

	if (fstat(k->fd, &st))
		return err_sys(e, CA_SOFTWARE, "cannot stat '%s'", k->path);
	if (S_ISDIR(st.st_mode))
		return mkdir_p(k->path, 0755, e);
	snprintf(dir, sizeof(dir), "%s", k->path);
	slash = strrchr(dir, '/');
	*slash = '\0';
	if (mkdir_p(dir, 0755, e))
		return -1;
	fd = open(k->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, CA_SOFTWARE, "cannot make '%s'", k->path);
	close(fd);
	return 0;
}

static int show_trees(struct kept *k, size_t n, struct err *e)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (covered(k[i].path) && make_place(&k[i], e))
			return -1;
		if (syscall(N_MOVE_MOUNT, k[i].fd, "", AT_FDCWD, k[i].path,
			    MOVE_FROM_FD))
			return err_sys(e, CA_UNAVAILABLE, "cannot show '%s'",
				       k[i].path);
	}
	return 0;
}

static int mount_tmp(const char *path, int64_t bytes, struct err *e)
{
	char opt[64];

	snprintf(opt, sizeof(opt), "size=%lld,nr_inodes=65536,mode=0700",
		 (long long)(bytes > 0 ? bytes : 1ll << 30));
	if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, opt) &&
	    errno != ENOENT)
		return err_sys(e, CA_UNAVAILABLE, "cannot mount '%s'", path);
	return 0;
}

static int mount_all(struct kept *k, size_t n, int64_t tmp_bytes,
		     struct err *e)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return err_sys(e, CA_UNAVAILABLE, "cannot leave the mounts");
	if (set_attr(AT_FDCWD, "/", ATTR_RDONLY | ATTR_NOSUID, 0, e))
		return -1;
	if (mount_tmp("/tmp", tmp_bytes, e) ||
	    mount_tmp("/dev/shm", tmp_bytes, e))
		return -1;
	if (show_trees(k, n, e))
		return -1;
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  NULL))
		return err_sys(e, CA_UNAVAILABLE, "cannot mount '/proc'");
	if (chdir("/tmp"))
		return err_sys(e, CA_SOFTWARE, "cannot enter '/tmp'");
	return 0;
}

int mounts_make(const char *const *ro, const char *const *rw,
		int64_t tmp_bytes, struct err *e)
{
	struct kept k[KEPT];
	size_t n = 0, i;
	int rc = -1;

	if (!keep_trees(k, &n, ro, rw, e))
		rc = mount_all(k, n, tmp_bytes, e);
	for (i = 0; i < n; i++)
		if (k[i].fd >= 0)
			close(k[i].fd);
	return rc;
}
