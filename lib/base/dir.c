/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories: made with their parents, removed whole.
 */
#define _GNU_SOURCE
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#define DEPTH_MAX 64

/* One level; an existing directory is fine.  mkdir(2) is subject to umask,
 * but a cache must be readable by workers of another uid. */
static int make_dir(const char *path, unsigned mode, struct err *e)
{
	struct stat st;

	if (mkdir(path, mode) == 0) {
		if (chmod(path, mode))
			return err_sys(e, CA_CANTCREAT, "cannot chmod '%s'",
				       path);
		return 0;
	}
	if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	if (errno == EEXIST)
		errno = ENOTDIR;
	return err_sys(e, CA_CANTCREAT, "cannot create '%s'", path);
}

int mkdir_p(const char *path, unsigned mode, struct err *e)
{
	char buf[PATH_MAX], *p;
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	if ((size_t)snprintf(buf, sizeof buf, "%s", path) >= sizeof buf)
		return err_set(e, CA_CANTCREAT, "'%s' is too long a name",
			       path);
	for (p = buf + 1; *buf && *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (make_dir(buf, mode, e))
			return -1;
		*p = '/';
	}
	return make_dir(buf, mode, e);
}

/* What is being removed. */
struct removal {
	int top;		/* the directory whose content goes */
	dev_t dev;
	unsigned long moved;	/* directories hoisted so far */
	int again;		/* some were: another pass is needed */
};

static int clear_dir(struct removal *r, int fd, int depth, struct err *e);

/* A directory that lies too deep for recursion moves to the top. */
static int hoist(struct removal *r, int fd, const char *name, struct err *e)
{
	char to[64];

	snprintf(to, sizeof to, ".deep-%ld-%lu", (long)getpid(), r->moved++);
	if (renameat(fd, name, r->top, to))
		return err_sys(e, CA_IOERR, "cannot move '%s'", name);
	r->again = 1;
	return 0;
}

static int clear_subdir(struct removal *r, int fd, const char *name,
			int depth, struct err *e)
{
	struct stat st;
	int sub, rc = -1;

	if (depth >= DEPTH_MAX)
		return hoist(r, fd, name, e);
	/* A job may have taken its own permissions away. */
	sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub < 0 && errno == EACCES && !fchmodat(fd, name, 0700, 0))
		sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
			     O_CLOEXEC);
	if (sub < 0)
		return err_sys(e, CA_IOERR, "cannot open '%s'", name);
	if (fstat(sub, &st) || st.st_dev != r->dev) {
		err_set(e, CA_IOERR, "'%s' is on another file system", name);
		goto out;
	}
	fchmod(sub, 0700);
	if (clear_dir(r, sub, depth + 1, e))
		goto out;
	rc = 0;
	if (unlinkat(fd, name, AT_REMOVEDIR))
		rc = err_sys(e, CA_IOERR, "cannot remove '%s'", name);
out:
	close(sub);
	return rc;
}

static int clear_entry(struct removal *r, int fd, const char *name, int depth,
		       struct err *e)
{
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno == EISDIR || errno == EPERM)
		return clear_subdir(r, fd, name, depth, e);
	return err_sys(e, CA_IOERR, "cannot remove '%s'", name);
}

/* Removes everything in the directory fd (which stays open); goes on after a
 * failure, and reports the first. */
static int clear_dir(struct removal *r, int fd, int depth, struct err *e)
{
	struct dirent *d;
	int rc = 0, copy = dup(fd);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);

	if (!dir) {
		if (copy >= 0)
			close(copy);
		return err_sys(e, CA_IOERR, "cannot read a directory");
	}
	rewinddir(dir);
	while ((d = readdir(dir)))
		if (clear_entry(r, fd, d->d_name, depth, rc ? NULL : e))
			rc = -1;
	closedir(dir);
	return rc;
}

int empty_tree(const char *path, struct err *e)
{
	struct removal r = { -1, 0, 0, 0 };
	struct stat st;
	int rc;

	r.top = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r.top < 0)
		return err_sys(e, CA_IOERR, "cannot open '%s'", path);
	if (fstat(r.top, &st)) {
		close(r.top);
		return err_sys(e, CA_IOERR, "cannot stat '%s'", path);
	}
	r.dev = st.st_dev;
	do {
		r.again = 0;
		rc = clear_dir(&r, r.top, 0, e);
	} while (rc == 0 && r.again);
	close(r.top);
	return rc ? err_wrap(e, "cannot empty '%s'", path) : 0;
}

int remove_tree(const char *path, struct err *e)
{
	struct stat st;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 :
		       err_sys(e, CA_IOERR, "cannot stat '%s'", path);
	if (!S_ISDIR(st.st_mode))
		return unlink(path) ? err_sys(e, CA_IOERR,
					      "cannot remove '%s'", path) : 0;
	chmod(path, 0700);
	if (empty_tree(path, e))
		return -1;
	if (rmdir(path))
		return err_sys(e, CA_IOERR, "cannot remove '%s'", path);
	return 0;
}

int make_temp_dir(const char *prefix, char *out, size_t outlen, struct err *e)
{
	const char *tmp = getenv("TMPDIR");

	if (!tmp || !*tmp)
		tmp = "/tmp";
	if ((size_t)snprintf(out, outlen, "%s/%s.XXXXXX", tmp, prefix) >=
	    outlen)
		return err_set(e, CA_CANTCREAT, "'%s' is too long a name", tmp);
	if (!mkdtemp(out))
		return err_sys(e, CA_CANTCREAT, "cannot create '%s'", out);
	return 0;
}
