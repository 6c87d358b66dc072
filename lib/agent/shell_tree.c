/* SPDX-License-Identifier: Apache-2.0
 *
 * Descendants, by /proc.
 */
#define _GNU_SOURCE
#include "agent/shell_tree.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define SEEN_MAX 4096
#define ROUNDS 20

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
