/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and files beneath the root of a work directory.
 */
#define _GNU_SOURCE
#include "agent/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"

static int open_beneath(int root, const char *name, int flags, unsigned mode)
{
	/* O_PATH opens nothing that could block, and takes no such flags. */
	int more = flags & O_PATH ? O_CLOEXEC :
				    O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | more),
		.mode = flags & O_CREAT ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS |
			   RESOLVE_NO_XDEV,
	};

	return (int)syscall(SYS_openat2, root, name, &how, sizeof(how));
}

const char *place_below(const char *path, struct err *e)
{
	const size_t n = sizeof(PLACE_SHOWN) - 1;

	if (!*path)
		goto out;
	if (*path != '/')
		return path;
	if (!strncmp(path, PLACE_SHOWN, n) && (path[n] == '/' || !path[n])) {
		path += n;
		while (*path == '/')
			path++;
		return *path ? path : ".";
	}
out:
	err_set(e, CA_DATAERR, "'%s' is not below " PLACE_SHOWN, path);
	return NULL;
}

int place_file(const struct place *p, const char *name, int flags,
	       unsigned mode, struct err *e)
{
	int fd = open_beneath(p->fd, name, flags, mode);

	if (fd >= 0)
		return fd;
	if (errno == EXDEV || errno == ELOOP)
		return err_set(e, CA_DATAERR, "'%s' leads out of " PLACE_SHOWN,
			       name);
	if (errno == ENOENT)
		return err_set(e, CA_DATAERR, "'%s' does not exist", name);
	if (errno == EACCES || errno == EPERM)
		return err_set(e, CA_DATAERR, "'%s' may not be %s", name,
			       flags & (O_WRONLY | O_RDWR) ? "changed" :
							     "read");
	return err_sys(e, CA_DATAERR, "cannot open '%s'", name);
}

/* Opens dir/part, after making it if asked to. */
static int step(const struct place *p, const char *upto, int make,
		struct err *e)
{
	char dir[4096];
	const char *slash = strrchr(upto, '/');
	int parent, rc = 0;

	if (make && strcmp(upto, ".")) {
		snprintf(dir, sizeof(dir), "%.*s",
			 slash ? (int)(slash - upto) : 1, slash ? upto : ".");
		parent = place_file(p, dir, O_PATH | O_DIRECTORY, 0, e);
		if (parent < 0)
			return -1;
		if (mkdirat(parent, slash ? slash + 1 : upto, 0755) &&
		    errno != EEXIST)
			rc = err_sys(e, CA_DATAERR, "cannot make '%s'", upto);
		close(parent);
	}
	return rc ? -1 : place_file(p, upto, O_PATH | O_DIRECTORY, 0, e);
}

int place_parent(const struct place *p, const char *name, int make,
		 const char **last, struct err *e)
{
	char upto[4096];
	const char *slash = strrchr(name, '/');
	size_t i;
	int fd;

	*last = slash ? slash + 1 : name;
	if (!**last || !strcmp(*last, ".") || !strcmp(*last, ".."))
		return err_set(e, CA_DATAERR, "'%s' names no file", name);
	if (strlen(name) >= sizeof(upto))
		return err_set(e, CA_DATAERR, "the name is too long");
	if (!slash)
		return place_file(p, ".", O_PATH | O_DIRECTORY, 0, e);
	/* Each directory on the way, the last one stays open. */
	for (i = 1; make && name + i < slash; i++) {
		if (name[i] != '/' || name[i - 1] == '/')
			continue;
		snprintf(upto, sizeof(upto), "%.*s", (int)i, name);
		fd = step(p, upto, make, e);
		if (fd < 0)
			return -1;
		close(fd);
	}
	i = (size_t)(slash - name);
	while (i > 1 && name[i - 1] == '/')
		i--;
	snprintf(upto, sizeof(upto), "%.*s", (int)i, name);
	return step(p, upto, make, e);
}

int place_is_fixed(const struct place *p, const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < p->nfixed; i++)
		if (strlen(p->fixed[i]) == len &&
		    !strncmp(p->fixed[i], name, len))
			return 1;
	return 0;
}

int place_writable(const struct place *p, int dir, const char *last,
		   struct err *e)
{
	char link[64], real[4096];
	size_t root = strlen(p->path), n;
	ssize_t len;
	const char *rest;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
	len = readlink(link, real, sizeof(real) - 1);
	if (len < 0)
		return err_sys(e, CA_SOFTWARE, "cannot read a link");
	real[len] = '\0';
	if (strncmp(real, p->path, root) || (real[root] && real[root] != '/'))
		return err_set(e, CA_DATAERR, "it is not below " PLACE_SHOWN);
	rest = real[root] ? real + root + 1 : last;
	n = strcspn(rest, "/");
	if (place_is_fixed(p, rest, n))
		return err_set(e, CA_DATAERR, "'%.*s' is protected: it may be "
			       "read, not changed", (int)n, rest);
	return 0;
}

static int write_in(int dir, const char *last, const void *data, size_t len,
		    struct err *e)
{
	char temp[300];
	struct stat st;
	mode_t mode = 0644;
	int fd, rc;

	if (fstatat(dir, last, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!S_ISREG(st.st_mode))
			return err_set(e, CA_DATAERR, "'%s' is not a regular "
				       "file", last);
		mode = st.st_mode & 0777;
	}
	snprintf(temp, sizeof(temp), ".%.200s.%d~", last, (int)getpid());
	fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW |
		    O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, CA_DATAERR, "cannot write '%s'", last);
	rc = write_full(fd, data, len, e);
	if (!rc && fchmod(fd, mode))
		rc = err_sys(e, CA_DATAERR, "cannot write '%s'", last);
	close(fd);
	if (!rc && renameat(dir, temp, dir, last))
		rc = err_sys(e, CA_DATAERR, "cannot write '%s'", last);
	if (rc)
		unlinkat(dir, temp, 0);
	return rc;
}

int place_write(const struct place *p, const char *name, const void *data,
		size_t len, struct err *e)
{
	const char *last;
	int dir = place_parent(p, name, 1, &last, e), rc = -1, real;

	if (dir < 0)
		return -1;
	/* O_PATH descriptors cannot be written through on old kernels. */
	real = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (real < 0)
		err_sys(e, CA_DATAERR, "cannot open the directory of '%s'",
			name);
	else if (!place_writable(p, real, last, e))
		rc = write_in(real, last, data, len, e);
	if (real >= 0)
		close(real);
	close(dir);
	return rc;
}

int place_read(const struct place *p, const char *name, size_t cap,
	       struct str *out, struct err *e)
{
	int fd = place_file(p, name, O_RDONLY, 0, e), rc = -1;
	struct stat st;
	char buf[65536];
	ssize_t n;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		err_set(e, CA_DATAERR, "'%s' is not a regular file", name);
		goto out;
	}
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		if (out->len + (size_t)n > cap) {
			err_set(e, CA_DATAERR, "'%s' is longer than %zu bytes",
				name, cap);
			goto out;
		}
		if (str_add(out, buf, (size_t)n)) {
			err_set(e, CA_SOFTWARE, "out of memory");
			goto out;
		}
	}
	rc = n < 0 ? err_sys(e, CA_DATAERR, "cannot read '%s'", name) :
		     str_add(out, "", 0);
out:
	close(fd);
	return rc;
}

void place_close(struct place *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}
