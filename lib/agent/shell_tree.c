/* SPDX-License-Identifier: Apache-2.0
 *
 * Descendants, by /proc.
 */
#define _GNU_SOURCE
#include "agent/shell_tree.h"

#include <dirent.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define SEEN_MAX 4096
#define ROUNDS 20
#define FILES_MAX 1024		/* told apart; further ones may count twice */

struct seen {
	pid_t pid[SEEN_MAX];
	size_t n;
};

static void add(struct seen *s, pid_t pid)
{
	size_t i;

	for (i = 0; i < s->n; i++)
		if (s->pid[i] == pid)
			return;
	if (s->n < SEEN_MAX)
		s->pid[s->n++] = pid;
}

static void add_children(struct seen *s, pid_t pid, const char *thread)
{
	char path[96];
	FILE *f;
	int child;

	snprintf(path, sizeof(path), "/proc/%d/task/%.20s/children", (int)pid,
		 thread);
	f = fopen(path, "re");
	if (!f)
		return;
	while (fscanf(f, "%d", &child) == 1)
		add(s, child);
	fclose(f);
}

static void add_of(struct seen *s, pid_t pid)
{
	char path[64];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return;
	while ((d = readdir(dir)))
		if (d->d_name[0] != '.')
			add_children(s, pid, d->d_name);
	closedir(dir);
}

int tree_signal(pid_t pid, int signo)
{
	struct seen *s = calloc(1, sizeof(*s));
	size_t before = 0, i;
	int round, count;

	if (!s)
		return 0;
	for (round = 0; round < ROUNDS; round++) {
		add_of(s, pid);
		for (i = 0; i < s->n; i++)
			add_of(s, s->pid[i]);
		for (i = before; i < s->n; i++)
			kill(s->pid[i], signo);
		if (s->n == before || signo != SIGSTOP)
			break;
		before = s->n;
	}
	count = (int)s->n;
	free(s);
	return count;
}

struct files {
	struct file {
		dev_t dev;
		ino_t ino;
	} v[FILES_MAX];
	size_t n;
	dev_t dev;
	int64_t bytes;
};

static int is_new(struct files *f, const struct stat *st)
{
	size_t i;

	for (i = 0; i < f->n; i++)
		if (f->v[i].dev == st->st_dev && f->v[i].ino == st->st_ino)
			return 0;
	if (f->n < FILES_MAX)
		f->v[f->n++] = (struct file){ st->st_dev, st->st_ino };
	return 1;
}

static int in_memory(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) || fs.f_type == TMPFS_MAGIC ||
	       fs.f_type == HUGETLBFS_MAGIC;
}

static void add_files(struct files *f, pid_t pid)
{
	char dir[64], path[512];
	struct dirent *d;
	struct stat st;
	DIR *fds;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", (int)pid);
	fds = opendir(dir);
	if (!fds)
		return;
	while ((d = readdir(fds))) {
		snprintf(path, sizeof(path), "%s/%s", dir, d->d_name);
		if (d->d_name[0] == '.' || stat(path, &st) || st.st_nlink ||
		    !S_ISREG(st.st_mode) ||
		    (st.st_dev != f->dev && in_memory(path)))
			continue;
		if (is_new(f, &st))
			f->bytes += (int64_t)st.st_blocks * 512;
	}
	closedir(fds);
}

int64_t tree_unlinked(pid_t pid, dev_t dev)
{
	struct seen *s = calloc(1, sizeof(*s));
	struct files *f = calloc(1, sizeof(*f));
	int64_t bytes = 0;
	size_t i;

	if (s && f) {
		f->dev = dev;
		add_of(s, pid);
		for (i = 0; i < s->n; i++) {
			add_of(s, s->pid[i]);
			add_files(f, s->pid[i]);
		}
		bytes = f->bytes;
	}
	free(s);
	free(f);
	return bytes;
}
