/* SPDX-License-Identifier: Apache-2.0
 *
 * The jail of a forked process: leaving the parent's world (steps 1 and 2).
 */
#define _GNU_SOURCE
#include "jail/self.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"
#include "base/proc.h"
#include "jail/mounts.h"
#include "jail/report.h"

#define NOBODY 65534
#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | \
		    CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNS)

/* The intermediate process as the outer pid namespace calls it. */
static pid_t middle;

int jail_report(const struct err *e, int rc, char *msg, size_t msglen)
{
	if (msg && msglen)
		snprintf(msg, msglen, "%s", rc ? e->msg : "");
	return rc ? -(e->code ? e->code : CA_SOFTWARE) : 0;
}

unsigned jail_self_uid(void)
{
	return jail_new_uid();
}

int jail_self_kill(unsigned uid, char *msg, size_t msglen)
{
	struct err e = ERR_INIT;

	return jail_report(&e, jail_kill_uid(uid, &e), msg, msglen);
}

static int become(unsigned uid, struct err *e)
{
	if (!uid)
		return err_set(e, CA_CONFIG, "the jail does not run as root");
	if (syscall(SYS_setgroups, 0, NULL) || setresgid(uid, uid, uid) ||
	    setresuid(uid, uid, uid))
		return err_sys(e, CA_UNAVAILABLE, "cannot become uid %u", uid);
	return 0;
}

static int write_text(const char *path, const char *text, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return err_sys(e, CA_UNAVAILABLE, "cannot open '%s'", path);
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		rc = err_sys(e, CA_UNAVAILABLE, "cannot write '%s'", path);
	close(fd);
	return rc;
}

/* Both maps hold one line, ours; that needs no privilege outside. */
static int write_maps(uid_t uid, gid_t gid, struct err *e)
{
	char line[64];

	if (write_text("/proc/self/setgroups", "deny", e))
		return -1;
	snprintf(line, sizeof(line), "%d %u 1", NOBODY, (unsigned)uid);
	if (write_text("/proc/self/uid_map", line, e))
		return -1;
	snprintf(line, sizeof(line), "%d %u 1", NOBODY, (unsigned)gid);
	return write_text("/proc/self/gid_map", line, e);
}

/* Changes of credentials have cleared what the host may have set. */
static int bind_to_host(pid_t host, struct err *e)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		return err_sys(e, CA_SOFTWARE, "cannot set a death signal");
	if (getppid() != host)
		return err_set(e, CA_SOFTWARE, "the host is gone");
	return 0;
}

static int leave(int level, unsigned uid, struct err *e)
{
	pid_t host = getppid();
	gid_t gid;

	middle = getpid();
	if (level < JAIL_WEAK || level > JAIL_FULL)
		return err_set(e, CA_CONFIG, "no such level: %d", level);
	if (level == JAIL_UID && geteuid())
		return err_set(e, CA_UNAVAILABLE, "level uid needs root");
	/* While we may: what root has set, nobody else can lower again. */
	if (level >= JAIL_UID && !geteuid() &&
	    (write_text("/proc/self/oom_score_adj", "1000", e) ||
	     become(uid, e)))
		return -1;
	/* A change of uid takes /proc/self from us; so may unshare. */
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	if (level < JAIL_FULL)
		return bind_to_host(host, e);
	uid = geteuid();
	gid = getegid();
	if (unshare(NAMESPACES))
		return err_sys(e, CA_UNAVAILABLE,
			       "this machine refuses namespaces");
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	if (write_maps(uid, gid, e))
		return -1;
	return bind_to_host(host, e);
}

int jail_self_unshare(int level, unsigned uid, char *msg, size_t msglen)
{
	struct err e = ERR_INIT;

	return jail_report(&e, leave(level, uid, &e), msg, msglen);
}

/*
 * Our parent as the /proc of before names it: inside, getppid() is 0 whether
 * it lives or not.
 */
static pid_t outer_parent(void)
{
	char buf[512];
	const char *p = proc_stat(buf, sizeof(buf), "/proc/self/stat");
	int ppid = 0;

	return p && sscanf(p, "%*c %d", &ppid) == 1 ? ppid : 0;
}

static int bind_to_parent(struct err *e)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		return err_sys(e, CA_SOFTWARE, "cannot set a death signal");
	if (!middle || outer_parent() != middle)
		return err_set(e, CA_SOFTWARE,
			       "the process that entered the jail is gone");
	return write_text("/proc/self/oom_score_adj", "1000", e);
}

static int drop_caps(struct err *e)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2];
	int cap;

	memset(none, 0, sizeof(none));
	for (cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))
			return err_sys(e, CA_SOFTWARE,
				       "cannot drop capability %d", cap);
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) ||
	    syscall(SYS_capset, &h, none))
		return err_sys(e, CA_SOFTWARE, "cannot drop capabilities");
	return 0;
}

static int settle(int level, const char *const *ro, const char *const *rw,
		  int64_t tmp_bytes, struct err *e)
{
	if (bind_to_parent(e))
		return -1;
	if (level == JAIL_FULL &&
	    (mounts_make(ro, rw, tmp_bytes, e) || drop_caps(e)))
		return -1;
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
		return err_sys(e, CA_SOFTWARE, "cannot allow tracing");
	return 0;
}

int jail_self_mount(int level, const char *const *ro, const char *const *rw,
		    int64_t tmp_bytes, char *msg, size_t msglen)
{
	struct err e = ERR_INIT;

	return jail_report(&e, settle(level, ro, rw, tmp_bytes, &e), msg,
			   msglen);
}

static int int_order(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return x < y ? -1 : x > y;
}

/* Sorted in a copy; then the gaps between them are closed. */
static int close_others(const int *keep, size_t n, struct err *e)
{
	unsigned next = 3;
	int sorted[64];
	size_t i;

	if (n > sizeof(sorted) / sizeof(*sorted))
		return err_set(e, CA_CONFIG, "too many descriptors to keep");
	if (n)
		memcpy(sorted, keep, n * sizeof(*keep));
	qsort(sorted, n, sizeof(*sorted), int_order);
	for (i = 0; i < n; i++) {
		if (sorted[i] < (int)next)
			continue;
		if (sorted[i] > (int)next)
			syscall(SYS_close_range, next, sorted[i] - 1, 0);
		next = (unsigned)sorted[i] + 1;
	}
	if (syscall(SYS_close_range, next, ~0u, 0))
		return err_sys(e, CA_UNAVAILABLE, "cannot close descriptors");
	return 0;
}

int jail_self_close(const int *keep, size_t nkeep, char *msg, size_t msglen)
{
	struct err e = ERR_INIT;

	return jail_report(&e, close_others(keep, nkeep, &e), msg, msglen);
}
