/* SPDX-License-Identifier: Apache-2.0
 *
 * A library to be preloaded: kills the process at its N-th change of a file
 * below a directory .../run/ (CA_KILL_AT); CA_KILL_HALF=1 lets half of the
 * bytes of that write through first.  CA_KILL_COUNT names a file that gets
 * the number of changes.  CA_FORK_EVERY=N: of its forks only each N-th works.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int count;

/* Whether fd is a file below a rollout's directory. */
static int counts(int fd)
{
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return 0;
	path[n] = '\0';
	return strstr(path, "/run/") && !strstr(path, "/.bin/");
}

static int due(void)
{
	const char *at = getenv("CA_KILL_AT"), *to = getenv("CA_KILL_COUNT");
	FILE *f = to ? fopen(to, "w") : NULL;

	count++;
	if (f) {
		fprintf(f, "%d\n", count);
		fclose(f);
	}
	return at && count == atoi(at);
}

static void end(void)
{
	kill(getpid(), SIGKILL);
}

ssize_t write(int fd, const void *p, size_t len)
{
	const char *half = getenv("CA_KILL_HALF");

	if (counts(fd) && due()) {
		if (half && *half == '1')
			syscall(SYS_write, fd, p, len / 2);
		end();
	}
	return syscall(SYS_write, fd, p, len);
}

int rename(const char *from, const char *to)
{
	if (strstr(to, "trajectory") && due())
		end();
	return (int)syscall(SYS_rename, from, to);
}

int renameat(int a, const char *from, int b, const char *to)
{
	if (due())
		end();
	return (int)syscall(SYS_renameat, a, from, b, to);
}

int linkat(int a, const char *from, int b, const char *to, int flags)
{
	if (due())
		end();
	return (int)syscall(SYS_linkat, a, from, b, to, flags);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
	if (due())
		end();
	return (int)syscall(SYS_mkdirat, dir, path, mode);
}

int mkdir(const char *path, mode_t mode)
{
	if (strstr(path, "/run/") && due())
		end();
	return (int)syscall(SYS_mkdir, path, mode);
}

pid_t fork(void)
{
	static int n;
	const char *every = getenv("CA_FORK_EVERY");
	pid_t (*real)(void);

	if (every && ++n % atoi(every)) {
		errno = EAGAIN;
		return -1;
	}
	*(void **)&real = dlsym(RTLD_NEXT, "fork");
	return real();
}
