/* SPDX-License-Identifier: Apache-2.0
 *
 * Levels, uids of jobs, and the end of whatever runs under one.
 */
#define _GNU_SOURCE
#include "jail/jail.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/proc.h"

/* Uids that neither distributions nor container managers hand out: pid times
 * 64 and a counter fit, since pids stay below 2^22. */
#define UID_FIRST 0x70000000u
#define UID_LAST 0x7fffffffu

static const char *const level_names[] = { "none", "weak", "uid", "full" };

const char *jail_level_name(enum jail_level l)
{
	return level_names[l];
}

int jail_level_parse(const char *name)
{
	int i;

	for (i = JAIL_NONE; i <= JAIL_FULL; i++)
		if (!strcmp(name, level_names[i]))
			return i;
	return -1;
}

/* Whether our user namespace knows the whole range; root of a container may
 * have 65536 uids only. */
static int range_mapped(void)
{
	unsigned long in, out, n;
	FILE *f = fopen("/proc/self/uid_map", "re");
	int ok = 0;

	if (!f)
		return 0;
	while (!ok && fscanf(f, "%lu %lu %lu", &in, &out, &n) == 3)
		ok = in <= UID_FIRST && in + n > UID_LAST;
	fclose(f);
	return ok;
}

uid_t jail_new_uid(void)
{
	static atomic_uint count;
	unsigned n = atomic_fetch_add(&count, 1) & 63;
	unsigned pid = (unsigned)getpid();

	if (geteuid())
		return geteuid();
	if (range_mapped())
		return UID_FIRST + ((pid & 0x3fffff) << 6 | n);
	/* The range that systemd keeps for units' own users. */
	return 61184 + (pid * 64 + n) % 4336;
}

int jail_give(const char *dir, uid_t uid, struct err *e)
{
	if (geteuid() || !uid)
		return 0;
	if (lchown(dir, uid, uid))
		return err_sys(e, CA_CONFIG, "cannot give '%s' to the jail",
			       dir);
	return 0;
}

/* 1: a process of that uid that is not a zombie. */
static int is_live(const char *pid, uid_t uid)
{
	char state[64], owner[64];
	unsigned u = 0;

	return !proc_line(owner, sizeof(owner), "Uid", "/proc/%.20s/status",
			  pid) &&
	       sscanf(owner, "%u", &u) == 1 && u == uid &&
	       !proc_line(state, sizeof(state), "State", "/proc/%.20s/status",
			  pid) && !strpbrk(state, "ZX");
}

static int any_live(uid_t uid)
{
	DIR *d = opendir("/proc");
	struct dirent *de;
	int live = 0;

	if (!d)
		return 0;
	while (!live && (de = readdir(d)))
		if (de->d_name[0] >= '1' && de->d_name[0] <= '9')
			live = is_live(de->d_name, uid);
	closedir(d);
	return live;
}

/* One process of the same uid kills all others at once, so that none can
 * fork away from a list. */
static int kill_round(uid_t uid, struct err *e)
{
	pid_t pid = fork();

	if (pid < 0)
		return err_sys(e, CA_SOFTWARE, "cannot fork");
	if (!pid) {
		if (!syscall(SYS_setresuid, uid, uid, uid))
			kill(-1, SIGKILL);
		_exit(0);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

int jail_kill_uid(uid_t uid, struct err *e)
{
	struct timespec ms = { 0, 1000000 };
	int64_t end = deadline_in(5);

	if (geteuid() || !uid)
		return 0;
	while (now_ns() < end) {
		if (kill_round(uid, e))
			return -1;
		if (!any_live(uid))
			return 0;
		nanosleep(&ms, NULL);
	}
	return err_set(e, CA_SOFTWARE, "processes of uid %u do not end",
		       (unsigned)uid);
}
