/* SPDX-License-Identifier: Apache-2.0
 *
 * The jail of a forked process: step 3, after which foreign code runs.
 */
#define _GNU_SOURCE
#include "jail/self.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "jail/filter.h"
#include "jail/landlock.h"
#include "jail/report.h"
#include "jail/view.h"

#define RULES 600

static int wants_cuda(const struct jail_seal *s)
{
	return s->profile == JAIL_WORKER_CUDA || (s->flags & JAIL_SELF_CUDA);
}

static int limit(int what, int64_t v, struct err *e)
{
	struct rlimit now, l = { (rlim_t)v, (rlim_t)v };

	if (getrlimit(what, &now))
		return err_sys(e, CA_SOFTWARE, "cannot read limit %d", what);
	if (l.rlim_max > now.rlim_max)
		l.rlim_cur = l.rlim_max = now.rlim_max;
	if (setrlimit(what, &l))
		return err_sys(e, CA_SOFTWARE, "cannot set limit %d", what);
	return 0;
}

/* Bytes of address space that are mapped now; torch alone has gigabytes. */
static int64_t mapped(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f)
		return 0;
	if (fscanf(f, "%ld", &pages) != 1)
		pages = 0;
	fclose(f);
	return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static int set_limits(const struct jail_seal *s, struct err *e)
{
	int64_t file = s->file_bytes > 0 ? s->file_bytes : 2ll << 30;

	if (limit(RLIMIT_CORE, 0, e) || limit(RLIMIT_RTPRIO, 0, e) ||
	    limit(RLIMIT_NICE, 0, e) || limit(RLIMIT_MSGQUEUE, 0, e) ||
	    limit(RLIMIT_NOFILE, s->nofile > 0 ? s->nofile : 1024, e) ||
	    limit(RLIMIT_FSIZE, file, e))
		return -1;
	/* Below level uid it would count all of the user's processes. */
	if (s->level >= JAIL_UID &&
	    limit(RLIMIT_NPROC, s->procs > 0 ? s->procs : 512, e))
		return -1;
	/* CUDA reserves address space without end. */
	if (s->mem_bytes > 0 && !wants_cuda(s) &&
	    limit(RLIMIT_AS, mapped() + s->mem_bytes, e))
		return -1;
	return 0;
}

static size_t add(struct landlock_rule *r, size_t n, const char *const *path,
		  unsigned access, int optional)
{
	for (; path && *path && n < RULES; path++)
		r[n++] = (struct landlock_rule){ *path, access, optional };
	return n;
}

static int rules(const struct jail_seal *s, struct err *e)
{
	static const char *const tmp[] = { "/tmp", "/dev/shm", NULL };
	struct landlock_rule r[RULES];
	unsigned rw = LL_READ | LL_WRITE | LL_EXEC;
	size_t n = view_rules(r, RULES, wants_cuda(s), 1);

	n = add(r, n, s->ro, LL_READ | LL_EXEC, 1);
	n = add(r, n, s->rw, rw, 0);
	n = add(r, n, s->dev, LL_READ | LL_WRITE | LL_DEVICE, 0);
	if (s->level == JAIL_FULL)
		n = add(r, n, tmp, rw, 1);
	if (n == RULES)
		return err_set(e, CA_CONFIG, "too many paths for a jail");
	return landlock_make(r, n, e);
}

/* Landlock and filters bind one thread; another one would stay free. */
static int one_thread(struct err *e)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *de;
	int n = 0;

	if (!d)
		return err_sys(e, CA_SOFTWARE, "cannot list threads");
	while ((de = readdir(d)))
		n += de->d_name[0] != '.';
	closedir(d);
	return n == 1 ? 0 : err_set(e, CA_SOFTWARE,
				    "%d threads run already", n);
}

static int seal(const struct jail_seal *s, struct err *e)
{
	int worker = s->profile == JAIL_WORKER_CPU ||
		     s->profile == JAIL_WORKER_CUDA;
	struct sock_fprog filter = { 0, NULL };
	int set = -1, rc = -1;

	if (s->profile < JAIL_WORKER_CPU || s->profile > JAIL_ORACLE)
		return err_set(e, CA_CONFIG, "no such profile: %d",
			       s->profile);
	if (one_thread(e))
		return -1;
	set = rules(s, e);
	if (set < 0)
		return -1;
	if (filter_make(worker ? FILTER_WORKER : FILTER_HELPER,
			wants_cuda(s), &filter, e))
		goto out;
	if (set_limits(s, e))
		goto out;
	if (landlock_enter(set))
		err_sys(e, CA_UNAVAILABLE, "landlock refuses");
	else if (filter_enter(&filter))
		err_sys(e, CA_UNAVAILABLE, "cannot install a filter");
	else
		rc = 0;
out:
	close(set);
	free(filter.filter);
	return rc;
}

int jail_self_seal(const struct jail_seal *s, char *msg, size_t msglen)
{
	struct err e = ERR_INIT;

	return jail_report(&e, seal(s, &e), msg, msglen);
}
