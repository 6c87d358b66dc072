/* SPDX-License-Identifier: Apache-2.0
 *
 * Fresh directories.
 */
#define _GNU_SOURCE
#include "build/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

/* 1 when there is nothing in it, 0 when there is, -1 with errno. */
static int is_empty(const char *dir)
{
	struct dirent *de;
	DIR *d = opendir(dir);
	int empty = 1;

	if (!d)
		return -1;
	while ((de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
			empty = 0;
	closedir(d);
	return empty;
}

/* A directory that others have made as well as we belongs to who locks it
 * first; where there are no locks, to all. */
static int take(int fd, const char *dir, struct err *e)
{
	int empty;

	if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return err_set(e, CA_CANTCREAT, "'%s' is being filled by "
			       "another process", dir);
	empty = is_empty(dir);
	if (empty < 0)
		return err_sys(e, CA_CANTCREAT, "cannot read '%s'", dir);
	if (!empty)
		return err_set(e, CA_CANTCREAT, "'%s' exists and is not empty",
			       dir);
	return 0;
}

int tree_open(struct tree *t, const char *dir, struct err *e)
{
	t->dir = dir;
	t->made = mkdir(dir, 0755) == 0;
	t->fd = -1;
	if (!t->made && errno != EEXIST)
		return err_sys(e, CA_CANTCREAT, "cannot create '%s'", dir);
	t->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (t->fd < 0)
		return err_sys(e, CA_CANTCREAT, "cannot open '%s'", dir);
	if (take(t->fd, dir, e) < 0) {
		close(t->fd);
		t->fd = -1;
		return -1;
	}
	return 0;
}

int tree_close(struct tree *t, int rc)
{
	if (t->fd < 0)
		return rc;
	if (rc && t->made)
		remove_tree(t->dir, NULL);
	else if (rc)
		empty_tree(t->dir, NULL);
	close(t->fd);
	t->fd = -1;
	return rc;
}

/* A directory that we made lacks a place only where the names clash. */
static int cannot(const char *dir, const char *path, struct err *e)
{
	int clash = errno == ENOTDIR || errno == EISDIR || errno == EEXIST;

	return err_sys(e, clash ? CA_DATAERR : CA_CANTCREAT,
		       "cannot create '%s/%s'", dir, path);
}

int tree_dir(int fd, const char *dir, const char *path, struct err *e)
{
	if (mkdirat(fd, path, 0755) < 0 && errno != EEXIST)
		return cannot(dir, path, e);
	return 0;
}

int tree_put(int fd, const char *dir, const char *path, const void *data,
	     size_t len, struct err *e)
{
	char part[1024];
	const char *s = path, *slash;
	int out, rc;

	for (; (slash = strchr(s, '/')); s = slash + 1) {
		if ((size_t)(slash - path) >= sizeof(part))
			return err_set(e, CA_DATAERR, "name is too long");
		memcpy(part, path, (size_t)(slash - path));
		part[slash - path] = '\0';
		if (tree_dir(fd, dir, part, e) < 0)
			return -1;
	}
	out = openat(fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW |
		     O_CLOEXEC, 0644);
	if (out < 0)
		return cannot(dir, path, e);
	rc = write_full(out, data, len, e);
	if (rc < 0)
		err_wrap(e, "'%s/%s'", dir, path);
	if (close(out) < 0 && rc == 0)
		rc = err_sys(e, CA_IOERR, "cannot write '%s/%s'", dir, path);
	return rc;
}
