/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands in the jail.  Level full is bubblewrap, started as the jail's uid;
 * below it the same limits, landlock and a filter are put on between fork and
 * exec.
 */
#define _GNU_SOURCE
#include "jail/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/io.h"
#include "base/proc.h"
#include "jail/filter.h"
#include "jail/landlock.h"
#include "jail/view.h"

#define ARGS 1024
#define KEEP 64
#define STATUS_MAX 4096

/* One run, made ready before the fork. */
struct run {
	const struct jail_cmd *c;
	struct arena mem;
	struct child_opts o;
	const char *argv[ARGS];
	size_t argc;
	int keep[KEEP];
	int filter_fd, status_fd, rules;
	struct sock_fprog filter;
	char tmp[4096];		/* private /tmp below level full */
	struct str said;	/* bubblewrap's own stderr, if nobody's */
	/* for the child side */
	uid_t uid;
	pid_t parent;
};

static void arg(struct run *r, const char *s)
{
	if (r->argc < ARGS)
		r->argv[r->argc++] = s;
}

static void args(struct run *r, const char *a, const char *b, const char *c)
{
	arg(r, a);
	if (b)
		arg(r, b);
	if (c)
		arg(r, c);
}

static const char *number(struct run *r, int64_t v)
{
	const char *s = arena_printf(&r->mem, "%lld", (long long)v);

	return s ? s : "0";
}

static int64_t or_default(int64_t v, int64_t dflt)
{
	return v > 0 ? v : dflt;
}

static int set_limit(int what, int64_t soft, int64_t hard)
{
	struct rlimit l = { (rlim_t)soft, (rlim_t)hard };
	struct rlimit now;

	if (getrlimit(what, &now))
		return -1;
	if (l.rlim_max > now.rlim_max)
		l.rlim_max = now.rlim_max;
	if (l.rlim_cur > l.rlim_max)
		l.rlim_cur = l.rlim_max;
	return setrlimit(what, &l);
}

static int set_limits(const struct jail_cmd *c)
{
	int64_t file = or_default(c->file_bytes, 2ll << 30);

	if (set_limit(RLIMIT_CORE, 0, 0) ||
	    set_limit(RLIMIT_NOFILE, 1024, 4096) ||
	    set_limit(RLIMIT_FSIZE, file, file))
		return -1;
	if (c->mem_bytes > 0 &&
	    set_limit(RLIMIT_AS, c->mem_bytes, c->mem_bytes))
		return -1;
	/* One second more, so that SIGXCPU tells what happened. */
	if (c->cpu_seconds > 0 &&
	    set_limit(RLIMIT_CPU, c->cpu_seconds, c->cpu_seconds + 1))
		return -1;
	/* Counted per uid; at level full it is set inside, where the jail
	 * has a count of its own. */
	if (c->level == JAIL_UID) {
		int64_t n = or_default(c->procs, 256);

		return set_limit(RLIMIT_NPROC, n, n);
	}
	return 0;
}

/* Raw calls: libc's would try to change the parent's other threads. */
static int drop_uid(uid_t uid)
{
	if (syscall(SYS_setgroups, 0, NULL) ||
	    syscall(SYS_setresgid, uid, uid, uid) ||
	    syscall(SYS_setresuid, uid, uid, uid))
		return -1;
	return 0;
}

/* The first that the kernel kills for memory, before the judge. */
static int volunteer(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	int rc = fd >= 0 && write(fd, "1000", 4) == 4 ? 0 : -1;

	if (fd >= 0)
		close(fd);
	return rc;
}

/* In the child, just before exec. */
static int confine(void *p)
{
	const struct run *r = p;

	if (set_limits(r->c) || volunteer())
		return -1;
	if (r->uid && drop_uid(r->uid))
		return -1;
	/* Changing the uid has cleared it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != r->parent)
		return -1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	if (r->rules >= 0 && landlock_enter(r->rules))
		return -1;
	if (r->filter.filter && filter_enter(&r->filter))
		return -1;
	return 0;
}

/* The filter as a file that bubblewrap reads. */
static int filter_file(struct run *r, struct err *e)
{
	struct sock_fprog p;
	int rc = -1;

	if (filter_make(FILTER_COMMAND, 0, &p, e))
		return -1;
	r->filter_fd = memfd_create("filter", MFD_CLOEXEC);
	if (r->filter_fd < 0 ||
	    write_full(r->filter_fd, p.filter, p.len * sizeof(*p.filter), e) ||
	    lseek(r->filter_fd, 0, SEEK_SET))
		err_sys(e, CA_SOFTWARE, "cannot store a filter");
	else
		rc = 0;
	free(p.filter);
	return rc;
}

static void add_system(struct run *r)
{
	const char *const *p;
	char to[256];
	ssize_t n;

	for (p = view_roots; *p; p++) {
		n = readlink(*p, to, sizeof(to));
		if (n > 0)
			args(r, "--symlink", arena_strndup(&r->mem, to,
							   (size_t)n), *p);
		else
			args(r, "--ro-bind-try", *p, *p);
	}
	for (p = view_etc; *p; p++)
		args(r, "--ro-bind-try", *p, *p);
	for (p = view_etc_user; !r->c->no_user_files && *p; p++)
		args(r, "--ro-bind-try", *p, *p);
}

static void add_devices(struct run *r)
{
	const char *size = number(r, or_default(r->c->tmp_bytes, 1ll << 30));
	const char *const *p;

	args(r, "--proc", "/proc", NULL);
	args(r, "--dev", "/dev", NULL);
	for (p = r->c->dev; p && *p; p++)
		args(r, "--dev-bind", *p, *p);
	for (p = view_nvidia; r->c->gpu && *p; p++)
		args(r, "--dev-bind-try", *p, *p);
	if (r->c->gpu)
		args(r, "--ro-bind", "/sys", "/sys");
	for (p = view_cpus; !r->c->gpu && *p; p++)
		args(r, "--ro-bind-try", *p, *p);
	args(r, "--size", size, NULL);
	args(r, "--tmpfs", "/dev/shm", NULL);
	args(r, "--remount-ro", "/dev", NULL);
	args(r, "--size", size, NULL);
	args(r, "--tmpfs", "/tmp", NULL);
}

static int bind_order(const void *a, const void *b)
{
	size_t x = strlen(((const struct jail_at *)a)->to);
	size_t y = strlen(((const struct jail_at *)b)->to);

	return x < y ? -1 : x > y;
}

static int check_path(const char *p, struct err *e)
{
	if (p[0] != '/')
		return err_set(e, CA_CONFIG, "'%s' is not an absolute path",
			       p);
	if (access(p, F_OK))
		return err_sys(e, CA_CONFIG, "cannot find '%s'", p);
	return 0;
}

static int check_paths(const char *const *p, struct err *e)
{
	for (; p && *p; p++)
		if (check_path(*p, e))
			return -1;
	return 0;
}

/* Outer paths first, so that one inside another keeps its own right. */
static int add_binds(struct run *r, struct err *e)
{
	struct jail_at b[256];
	const struct jail_at *at;
	const char *const *p;
	size_t n = 0, i;

	for (p = r->c->ro; p && *p && n < 256; p++)
		b[n++] = (struct jail_at){ *p, *p, 0 };
	for (p = r->c->rw; p && *p && n < 256; p++)
		b[n++] = (struct jail_at){ *p, *p, 1 };
	for (at = r->c->at; at && at->from && n < 256; at++) {
		if (check_path(at->from, e))
			return -1;
		b[n++] = *at;
	}
	if (n == 256)
		return err_set(e, CA_SOFTWARE, "too many paths for a jail");
	qsort(b, n, sizeof(*b), bind_order);
	for (i = 0; i < n; i++)
		args(r, b[i].rw ? "--bind" : "--ro-bind", b[i].from, b[i].to);
	return 0;
}

static int plan_full(struct run *r, struct err *e)
{
	const char *const fixed[] = {
		"bwrap", "--unshare-user", "--unshare-pid", "--unshare-net",
		"--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--die-with-parent", "--new-session", "--uid", "65534",
		"--gid", "65534", "--hostname", "jail"
	};
	size_t i;

	r->status_fd = memfd_create("status", MFD_CLOEXEC);
	if (r->status_fd < 0)
		return err_sys(e, CA_SOFTWARE, "cannot make a memory file");
	if (filter_file(r, e))
		return -1;
	for (i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
		arg(r, fixed[i]);
	args(r, "--seccomp", number(r, r->filter_fd), NULL);
	args(r, "--json-status-fd", number(r, r->status_fd), NULL);
	add_system(r);
	add_devices(r);
	if (add_binds(r, e))
		return -1;
	args(r, "--remount-ro", "/", NULL);
	args(r, "--chdir", r->c->dir ? r->c->dir : "/tmp", "--");
	args(r, "/usr/bin/prlimit",
	     arena_printf(&r->mem, "--nproc=%lld",
			  (long long)or_default(r->c->procs, 256)), "--");
	return 0;
}

static int plan_rules(struct run *r, struct err *e)
{
	struct landlock_rule *l;
	const char *const *p;
	size_t n = 0, max = 600;

	l = arena_alloc(&r->mem, max, sizeof(*l));
	if (!l)
		return err_set(e, CA_SOFTWARE, "out of memory");
	n = view_rules(l, max, r->c->gpu, !r->c->no_user_files);
	for (p = r->c->ro; p && *p && n < max; p++)
		l[n++] = (struct landlock_rule){ *p, LL_READ | LL_EXEC, 0 };
	for (p = r->c->rw; p && *p && n < max; p++)
		l[n++] = (struct landlock_rule){
			*p, LL_READ | LL_EXEC | LL_WRITE, 0 };
	for (p = r->c->dev; p && *p && n < max; p++)
		l[n++] = (struct landlock_rule){
			*p, LL_READ | LL_WRITE | LL_DEVICE, 0 };
	if (n == max)
		return err_set(e, CA_SOFTWARE, "too many paths for a jail");
	l[n++] = (struct landlock_rule){
		r->tmp, LL_READ | LL_EXEC | LL_WRITE, 0 };
	r->rules = landlock_make(l, n, e);
	return r->rules < 0 ? -1 : 0;
}

/* Without namespaces: a temporary directory of its own instead of /tmp. */
static int plan_bare(struct run *r, struct err *e)
{
	if (make_temp_dir("ca-jail", r->tmp, sizeof(r->tmp), e) ||
	    jail_give(r->tmp, r->uid, e))
		return -1;
	if (r->c->level == JAIL_NONE)
		return 0;
	if (plan_rules(r, e))
		return -1;
	return filter_make(FILTER_COMMAND_BARE, 0, &r->filter, e);
}

static int plan_env(struct run *r, struct err *e)
{
	const char *tmp = r->tmp[0] ? r->tmp : "/tmp";
	const char **v;
	size_t n = 0, extra = 0;

	while (r->c->env && r->c->env[extra])
		extra++;
	v = arena_alloc(&r->mem, extra + 8, sizeof(*v));
	if (!v)
		return err_set(e, CA_SOFTWARE, "out of memory");
	v[n++] = "PATH=/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin";
	v[n++] = "USER=nobody";
	v[n++] = "LOGNAME=nobody";
	v[n++] = "LANG=C.UTF-8";
	v[n++] = "SHELL=/bin/sh";
	v[n++] = arena_printf(&r->mem, "HOME=%s", tmp);
	v[n++] = arena_printf(&r->mem, "TMPDIR=%s", tmp);
	if (extra)
		memcpy(v + n, r->c->env, extra * sizeof(*v));
	r->o.env = v;
	return 0;
}

static int plan_keep(struct run *r, struct err *e)
{
	size_t n = r->o.nkeep;

	if (n + 2 > KEEP)
		return err_set(e, CA_SOFTWARE, "too many descriptors");
	if (n)
		memcpy(r->keep, r->o.keep, n * sizeof(*r->keep));
	if (r->filter_fd >= 0)
		r->keep[n++] = r->filter_fd;
	if (r->status_fd >= 0)
		r->keep[n++] = r->status_fd;
	r->o.keep = r->keep;
	r->o.nkeep = n;
	return 0;
}

static int plan(struct run *r, const struct child_opts *o, struct err *e)
{
	size_t i;

	r->o = *o;
	r->parent = getpid();
	if (!geteuid() && r->c->level >= JAIL_UID)
		r->uid = r->c->uid ? r->c->uid : jail_new_uid();
	if (r->c->level == JAIL_UID && !r->uid)
		return err_set(e, CA_UNAVAILABLE, "level uid needs root");
	if (r->c->at && r->c->level != JAIL_FULL)
		return err_set(e, CA_UNAVAILABLE, "other names for paths need "
			       "level full");
	if (check_paths(r->c->ro, e) || check_paths(r->c->rw, e) ||
	    check_paths(r->c->dev, e))
		return -1;
	if (r->c->level == JAIL_FULL ? plan_full(r, e) : plan_bare(r, e))
		return -1;
	if (plan_env(r, e) || plan_keep(r, e))
		return -1;
	for (i = 0; o->argv[i]; i++)
		arg(r, o->argv[i]);
	if (r->argc >= ARGS || r->mem.used > (16u << 20))
		return err_set(e, CA_DATAERR, "command line too long");
	r->argv[r->argc] = NULL;
	r->o.argv = r->argv;
	r->o.dir = r->c->level == JAIL_FULL ? "/" :
		   r->c->dir ? r->c->dir : r->tmp;
	/* bubblewrap's complaints must reach somebody. */
	if (!r->o.errout && !r->o.pass) {
		r->said.cap = 1 << 16;
		r->o.errout = &r->said;
	}
	r->o.before_exec = confine;
	r->o.before_arg = r;
	return 0;
}

/* The last line that bubblewrap wrote, without its name. */
static const char *last_words(struct run *r)
{
	const struct str *s = r->o.errout;
	const char *p, *last = NULL;

	if (r->o.pass)
		return "bubblewrap said why on stderr";
	if (!s || !s->buf)
		return "bubblewrap failed";
	for (p = s->buf; (p = strstr(p, "bwrap: ")); p++)
		last = p + 7;
	if (!last)
		return "bubblewrap failed";
	return arena_strndup(&r->mem, last, strcspn(last, "\n"));
}

/* bubblewrap reports an exit code only when the command ran. */
static int check_started(struct run *r, const char *status, struct err *e)
{
	if (strstr(status, "\"exit-code\""))
		return 0;
	return err_set(e, CA_UNAVAILABLE, "cannot make the jail: %s",
		       last_words(r));
}

/* Whether pid is the first process of a pid namespace below ours. */
static int heads_namespace(pid_t pid)
{
	char pids[256];
	int a = 0, b = 0;

	return !proc_line(pids, sizeof(pids), "NSpid", "/proc/%d/status",
			  (int)pid) &&
	       sscanf(pids, "%d %d", &a, &b) == 2 && a == pid && b == 1;
}

/*
 * bubblewrap ends as soon as the command has, while the kernel is still
 * killing the rest; the first process of the namespace ends last.  One whose
 * bubblewrap was killed before it asked to die with it has to be told.
 */
static int wait_empty(const char *status, struct err *e)
{
	const char *p = strstr(status, "\"child-pid\":");
	struct pollfd f = { -1, POLLIN, 0 };
	int64_t end = deadline_in(10);
	int n;

	f.fd = p ? (int)syscall(SYS_pidfd_open, atoi(p + 12), 0) : -1;
	if (f.fd < 0)
		return 0;
	if (heads_namespace(atoi(p + 12)))
		syscall(SYS_pidfd_send_signal, f.fd, SIGKILL, NULL, 0);
	do {
		n = poll(&f, 1, deadline_ms(end));
	} while (n < 0 && errno == EINTR);
	close(f.fd);
	return n > 0 ? 0 : err_set(e, CA_SOFTWARE,
				   "processes in the jail do not end");
}

static int conclude_full(struct run *r, const struct child_result *res,
			 struct err *e)
{
	char status[STATUS_MAX + 1];
	ssize_t n = pread(r->status_fd, status, STATUS_MAX, 0);

	status[n > 0 ? n : 0] = '\0';
	if (wait_empty(status, e))
		return -1;
	if (res->how == CHILD_EXITED)
		return check_started(r, status, e);
	/* Killed perhaps before it had a namespace. */
	return jail_kill_uid(r->uid, e);
}

/* Whoever left the group is found by namespace or uid. */
static int conclude(struct run *r, const struct child_result *res,
		    struct err *e)
{
	if (r->c->level == JAIL_FULL)
		return conclude_full(r, res, e);
	return jail_kill_uid(r->uid, e);
}

static void release(struct run *r)
{
	if (r->filter_fd >= 0)
		close(r->filter_fd);
	if (r->status_fd >= 0)
		close(r->status_fd);
	if (r->rules >= 0)
		close(r->rules);
	if (r->tmp[0])
		remove_tree(r->tmp, NULL);
	free(r->filter.filter);
	str_release(&r->said);
	arena_release(&r->mem);
}

int jail_run(const struct jail_cmd *c, const struct child_opts *o,
	     struct child_result *res, struct err *e)
{
	struct run *r = calloc(1, sizeof(*r));
	int rc = -1;

	if (!r)
		return err_set(e, CA_SOFTWARE, "out of memory");
	r->c = c;
	r->filter_fd = r->status_fd = r->rules = -1;
	if (plan(r, o, e))
		goto out;
	rc = child_run(&r->o, res, e);
	if (!rc)
		rc = conclude(r, res, e);
	if (rc)
		err_wrap(e, "jail");
out:
	release(r);
	free(r);
	return rc;
}
