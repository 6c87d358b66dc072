/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories to build in.
 */
#define _GNU_SOURCE
#include "build/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

#define PREFIX "ca-build"
#define YOUNG 60	/* seconds in which one may not be locked yet */

static pthread_once_t swept = PTHREAD_ONCE_INIT;

static int open_dir(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Removes a directory of ours that nobody holds any more. */
static void sweep_one(const char *path)
{
	struct err ignored = ERR_INIT;
	struct stat st;
	int fd = open_dir(path);

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
	    time(NULL) - st.st_mtime > YOUNG &&
	    flock(fd, LOCK_EX | LOCK_NB) == 0)
		remove_tree(path, &ignored);
	close(fd);
}

static void sweep(void)
{
	const char *tmp = getenv("TMPDIR");
	char path[CA_PATH_MAX];
	struct dirent *de;
	DIR *d;

	tmp = tmp && *tmp ? tmp : "/tmp";
	d = opendir(tmp);
	while (d && (de = readdir(d))) {
		if (strncmp(de->d_name, PREFIX ".", strlen(PREFIX) + 1) ||
		    snprintf(path, sizeof(path), "%s/%s", tmp, de->d_name) >=
		    (int)sizeof(path))
			continue;
		sweep_one(path);
	}
	if (d)
		closedir(d);
}

int scratch_make(struct scratch *s, struct err *e)
{
	pthread_once(&swept, sweep);
	if (make_temp_dir(PREFIX, s->dir, sizeof(s->dir), e) < 0)
		return -1;
	s->lock = open_dir(s->dir);
	if (s->lock < 0 || flock(s->lock, LOCK_SH | LOCK_NB) < 0 ||
	    fchmod(s->lock, 0711) < 0)
		return err_sys(e, CA_CANTCREAT, "cannot use '%s'", s->dir);
	return 0;
}

void scratch_drop(struct scratch *s)
{
	struct err ignored = ERR_INIT;

	if (*s->dir)
		remove_tree(s->dir, &ignored);
	if (s->lock >= 0)
		close(s->lock);
	s->lock = -1;
	s->dir[0] = '\0';
}
