/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/jail: both halves, attacked from inside, as root and as an ordinary
 * user.  Each scenario runs in a process of its own.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/io.h"
#include "jail/command.h"
#include "jail/self.h"
#include "jail_attacks.h"

#define USER 54321		/* an ordinary user; needs no account */
#define MIB (1ll << 20)

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1		/* needs terabytes of address space */
#else
#define SANITIZED 0
#endif

/* Within a scenario: says what is wrong and fails it. */
#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "# line %d: %s\n", __LINE__, #x); \
			bad = 1; \
		} \
	} while (0)

static const struct { const char *name; attack_fn *fn; } attacks[] = {
	{ "files", try_files }, { "proc", try_proc }, { "judge", try_judge },
	{ "net", try_net }, { "kernel", try_kernel }, { "worker", try_worker },
	{ "memory", try_memory }, { "daemon", try_daemon }, { NULL, NULL }
};

/* The machine to attack: files, sockets and the scenario's own process. */
struct ground {
	char dir[128];
	struct prey prey;
	int listener[3];
};

static char judge_memory[] = "judge";
static volatile sig_atomic_t signals;

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

static void write_file(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) < 0 || fchmod(fd, mode))
		fprintf(stderr, "# cannot write %s\n", path);
	close(fd);
}

static int listen_on(int domain, const void *addr, socklen_t len)
{
	int fd = socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, addr, len) || listen(fd, 5)) {
		fprintf(stderr, "# cannot listen: %s\n", strerror(errno));
		_exit(2);
	}
	return fd;
}

static void listen_all(struct ground *g)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(in);
	int n;

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	g->listener[0] = listen_on(AF_INET, &in, len);
	getsockname(g->listener[0], (struct sockaddr *)&in, &len);
	g->prey.port = ntohs(in.sin_port);
	n = snprintf(g->prey.abstract, sizeof(g->prey.abstract),
		     "ca-jail-test-%d", getpid());
	memcpy(un.sun_path + 1, g->prey.abstract, (size_t)n);
	len = (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 +
	      (socklen_t)n;
	g->listener[1] = listen_on(AF_UNIX, &un, len);
	memset(un.sun_path, 0, sizeof(un.sun_path));
	snprintf(un.sun_path, sizeof(un.sun_path), "%.90s/s", g->dir);
	snprintf(g->prey.path, sizeof(g->prey.path), "%s", un.sun_path);
	g->listener[2] = listen_on(AF_UNIX, &un, sizeof(un));
	chmod(g->prey.path, 0777);
}

static void ground_make(struct ground *g)
{
	struct err e = ERR_INIT;
	char path[300];

	memset(g, 0, sizeof(*g));
	if (make_temp_dir("ca-jail-test", g->dir, sizeof(g->dir), &e)) {
		fprintf(stderr, "# %s\n", e.msg);
		_exit(2);
	}
	chmod(g->dir, 0755);
	snprintf(g->prey.secret, sizeof(g->prey.secret), "%s/secret",
		 g->dir);
	write_file(g->prey.secret, "secret", 0600);
	snprintf(g->prey.outside, sizeof(g->prey.outside), "%s/out",
		 g->dir);
	mkdir(g->prey.outside, 0777);
	chmod(g->prey.outside, 0777);
	snprintf(path, sizeof(path), "%s/old", g->prey.outside);
	write_file(path, "old", 0666);
	listen_all(g);
	g->prey.pid = getpid();
	g->prey.mem = judge_memory;
	signal(SIGUSR1, on_signal);
}

static int entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	if (!d)
		return -1;
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static int holds(const char *path, const char *text)
{
	struct str s = STR_INIT;
	int same = !read_file(path, 1 << 20, &s, NULL) && s.buf &&
		   !strcmp(s.buf, text);

	str_release(&s);
	return same;
}

/* Whether all is as it was; removes it. */
static int ground_check(struct ground *g)
{
	char path[300];
	struct stat st;
	int bad = 0, i;

	CHECK(!stat(g->prey.secret, &st) && (st.st_mode & 0777) == 0600);
	CHECK(holds(g->prey.secret, "secret"));
	CHECK(entries(g->prey.outside) == 1);
	snprintf(path, sizeof(path), "%s/old", g->prey.outside);
	CHECK(holds(path, "old"));
	CHECK(!strcmp(judge_memory, "judge"));
	CHECK(!signals);
	for (i = 0; i < 3; i++)
		CHECK(accept(g->listener[i], NULL, NULL) < 0);
	CHECK(!remove_tree(g->dir, NULL));
	return bad;
}

/* A directory in the ground that the jail may write to. */
static void ground_rw(struct ground *g, char path[300], uid_t uid)
{
	snprintf(path, 300, "%s/rw", g->dir);
	mkdir(path, 0700);
	jail_give(path, uid, NULL);
}

static int scenario_level;	/* enum jail_level */

/* Runs a scenario in a child, as that uid if it is not 0. */
static void in_process(int (*scenario)(void), int level, uid_t uid)
{
	int status, i;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60);
		for (i = 1; i < 32; i++)	/* cmocka catches some */
			signal(i, SIG_DFL);
		scenario_level = level;
		if (uid && (setgroups(0, NULL) || setresgid(uid, uid, uid) ||
			    setresuid(uid, uid, uid)))
			_exit(2);
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		status = scenario();
		fflush(NULL);
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Whether this machine has the level; where it does not, the test says so. */
static void need(int command, int level)
{
	struct jail_caps c;
	struct err e = ERR_INIT;
	int best;

	assert_int_equal(jail_probe(&c, &e), 0);
	best = (int)(command ? c.command : c.self);
	if (best >= level)
		return;
	print_message("# best level is %s: %s\n",
		      jail_level_name((enum jail_level)best), c.why);
	skip();
}

static void as_root(int (*scenario)(void), int command, int level)
{
	if (geteuid())
		skip();
	need(command, level);
	in_process(scenario, level, 0);
}

/* Root of a container may have no other uid. */
static int can_become_user(void)
{
	int status = 1;
	pid_t pid = fork();

	if (!pid)
		_exit(setgroups(0, NULL) || setresuid(USER, USER, USER));
	return waitpid(pid, &status, 0) == pid && !status;
}

static void as_user(int (*scenario)(void), int command, int level)
{
	need(command, level);
	if (!geteuid() && !can_become_user())
		skip();
	in_process(scenario, level, geteuid() ? 0 : USER);
}

/* One scenario at each level and for each kind of user it must hold for. */
#define TESTS(half, name) \
	static void name##_root(void **state) \
	{ \
		(void)state; \
		as_root(name, half, JAIL_FULL); \
	} \
	static void name##_user(void **state) \
	{ \
		(void)state; \
		as_user(name, half, JAIL_FULL); \
	} \
	static void name##_uid(void **state) \
	{ \
		(void)state; \
		as_root(name, half, JAIL_UID); \
	}
#define RUNS(name) \
	cmocka_unit_test(name##_root), cmocka_unit_test(name##_user), \
	cmocka_unit_test(name##_uid)

/* Without a jail the attacks succeed: what is refused elsewhere is not
 * refused for being broken. */
static int attacks_bite(void)
{
	static attack_fn *const fn[] = { try_files, try_judge, try_net,
					 try_kernel, NULL };
	struct ground g;
	int bad = 0, i, status;
	pid_t pid;

	ground_make(&g);
	for (i = 0; fn[i]; i++) {
		pid = fork();
		if (!pid) {
			close(2);
			_exit(fn[i](&g.prey));
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	}
	remove_tree(g.dir, NULL);
	return bad;
}

static void attacks_bite_user(void **state)
{
	(void)state;
	as_user(attacks_bite, 0, JAIL_NONE);
}

/* This program, where the jail's uid can execute it. */
static const char *copy_self(struct ground *g)
{
	static char bin[300];
	struct str s = STR_INIT;

	snprintf(bin, sizeof(bin), "%s/bin", g->dir);
	if (read_file("/proc/self/exe", 64 << 20, &s, NULL) ||
	    write_file_atomic(bin, s.buf, s.len, 0755, NULL))
		_exit(2);
	str_release(&s);
	return bin;
}

struct run {
	struct jail_cmd c;
	struct child_opts o;
	struct child_result r;
	struct str out;
	struct err e;
	const char *ro[4], *rw[4], *argv[16];
};

static void run_init(struct run *x)
{
	memset(x, 0, sizeof(*x));
	x->c.level = (enum jail_level)scenario_level;
	x->c.uid = jail_new_uid();
	x->c.ro = x->ro;
	x->c.rw = x->rw;
	x->o.argv = x->argv;
	x->o.out = x->o.errout = &x->out;
	x->o.outcap = 1 << 20;
	x->o.deadline = deadline_in(50);
}

static int run(struct run *x)
{
	int rc = jail_run(&x->c, &x->o, &x->r, &x->e);

	if (rc)
		fprintf(stderr, "# %s\n", x->e.msg);
	return rc;
}

static int run_shell(struct run *x, const char *script)
{
	x->argv[0] = "sh";
	x->argv[1] = "-c";
	x->argv[2] = script;
	return run(x);
}

static void set_attack(struct run *x, struct ground *g, const char *name)
{
	static char port[16], pid[16], mem[32];

	snprintf(port, sizeof(port), "%d", g->prey.port);
	snprintf(pid, sizeof(pid), "%d", g->prey.pid);
	snprintf(mem, sizeof(mem), "%p", (void *)g->prey.mem);
	x->ro[0] = x->argv[0] = copy_self(g);
	x->argv[1] = "--attack";
	x->argv[2] = name;
	x->argv[3] = g->prey.secret;
	x->argv[4] = g->prey.outside;
	x->argv[5] = g->prey.abstract;
	x->argv[6] = g->prey.path;
	x->argv[7] = port;
	x->argv[8] = pid;
	x->argv[9] = mem;
}

/* The other side of set_attack. */
static int attack_main(int argc, char **argv)
{
	struct prey p;
	void *mem = NULL;
	int i;

	if (argc < 10)
		return 2;
	memset(&p, 0, sizeof(p));
	strncpy(p.secret, argv[3], sizeof(p.secret) - 1);
	strncpy(p.outside, argv[4], sizeof(p.outside) - 1);
	strncpy(p.abstract, argv[5], sizeof(p.abstract) - 1);
	strncpy(p.path, argv[6], sizeof(p.path) - 1);
	p.port = atoi(argv[7]);
	p.pid = atoi(argv[8]);
	if (sscanf(argv[9], "%p", &mem) != 1)
		return 2;
	p.mem = mem;
	if (!strcmp(argv[2], "forks"))
		return try_forks(40) < 0;
	for (i = 0; attacks[i].name; i++)
		if (!strcmp(argv[2], attacks[i].name))
			return attacks[i].fn(&p);
	return 2;
}

static int command_attacks(void)
{
	static const char *const names[] = { "files", "proc", "judge", "net",
					     "kernel", NULL };
	struct ground g;
	struct run x;
	int bad = 0, i;

	ground_make(&g);
	for (i = 0; names[i]; i++) {
		run_init(&x);
		set_attack(&x, &g, names[i]);
		CHECK(!run(&x));
		CHECK(x.r.how == CHILD_EXITED && x.r.code == 0);
		if (x.r.code)
			fprintf(stderr, "# %s:\n%s", names[i], x.out.buf);
		str_release(&x.out);
	}
	return bad | ground_check(&g);
}
TESTS(1, command_attacks)

/* A pipe whose end tells that nobody holds the other end any more. */
static int all_gone(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	char c;

	return poll(&p, 1, 2000) == 1 && read(fd, &c, 1) == 0;
}

static int command_leaves_nothing(void)
{
	struct ground g;
	struct run x;
	int fd[2], bad = 0;

	ground_make(&g);
	CHECK(!pipe2(fd, O_CLOEXEC));
	run_init(&x);
	set_attack(&x, &g, "daemon");
	x.o.keep = &fd[1];
	x.o.nkeep = 1;
	CHECK(!run(&x) && x.r.how == CHILD_EXITED && x.r.code == 0);
	close(fd[1]);
	CHECK(all_gone(fd[0]));
	close(fd[0]);
	str_release(&x.out);
	return bad | ground_check(&g);
}
TESTS(1, command_leaves_nothing)

static int command_timeout(void)
{
	struct run x;
	int fd[2], bad = 0;

	CHECK(!pipe2(fd, O_CLOEXEC));
	run_init(&x);
	x.o.keep = &fd[1];
	x.o.nkeep = 1;
	x.o.deadline = deadline_in(0.4);
	CHECK(!run_shell(&x, "trap '' TERM HUP INT; setsid sleep 300 & "
			     "setsid sh -c 'sleep 300 & sleep 300'"));
	CHECK(x.r.how == CHILD_TIMEOUT);
	close(fd[1]);
	CHECK(all_gone(fd[0]));
	str_release(&x.out);
	return bad;
}
TESTS(1, command_timeout)

static int command_fork_bomb(void)
{
	struct ground g;
	struct run x;
	int bad = 0;

	ground_make(&g);
	run_init(&x);
	set_attack(&x, &g, "forks");
	x.c.procs = 40;
	CHECK(!run(&x) && x.r.how == CHILD_EXITED && x.r.code == 0);
	str_release(&x.out);
	return bad | ground_check(&g);
}
TESTS(1, command_fork_bomb)

static int command_memory_bomb(void)
{
	struct ground g;
	struct run x;
	int bad = 0;

	if (SANITIZED)
		return 0;
	ground_make(&g);
	run_init(&x);
	set_attack(&x, &g, "memory");
	x.c.mem_bytes = 512 * MIB;
	CHECK(!run(&x) && x.r.how == CHILD_EXITED && x.r.code == 0);
	str_release(&x.out);
	return bad | ground_check(&g);
}
TESTS(1, command_memory_bomb)

static int command_flood(void)
{
	struct run x;
	int bad = 0;

	run_init(&x);
	CHECK(!run_shell(&x, "yes yes yes & yes no no"));
	CHECK(x.r.how == CHILD_OUTPUT);
	CHECK(x.out.len <= (1 << 20));
	str_release(&x.out);
	return bad;
}
TESTS(1, command_flood)

/* /tmp at level full has a size of its own; every file has a limit. */
static int command_disk(void)
{
	struct run x;
	int bad = 0;

	run_init(&x);
	x.c.tmp_bytes = 8 * MIB;
	x.c.file_bytes = 2 * MIB;
	CHECK(!run_shell(&x, "trap '' XFSZ; i=0; while [ $i -lt 9 ]; do "
			     "dd if=/dev/zero of=$TMPDIR/f$i bs=1M count=3 "
			     "2>/dev/null; i=$((i + 1)); done; "
			     "cat $TMPDIR/f* | wc -c"));
	CHECK(x.r.how == CHILD_EXITED && x.out.buf);
	CHECK(x.out.buf && atol(x.out.buf) ==
	      (scenario_level == JAIL_FULL ? 8 : 18) * MIB);
	str_release(&x.out);
	return bad;
}
TESTS(1, command_disk)

static int command_sees_little(void)
{
	struct run x;
	int bad = 0;

	setenv("CA_TEST_SECRET", "leak", 1);
	run_init(&x);
	x.c.env = (const char *const[]){ "GIVEN=yes", NULL };
	CHECK(!run_shell(&x, "env; ls /proc/self/fd | wc -l; "
			     "test -e /home -o -e /root && "
			     "ls /home /root"));
	CHECK(x.out.buf && strstr(x.out.buf, "GIVEN=yes\n"));
	CHECK(x.out.buf && !strstr(x.out.buf, "CA_TEST_SECRET"));
	/* 0, 1, 2 and the one that lists them. */
	CHECK(x.out.buf && strstr(x.out.buf, "\n4\n"));
	CHECK(x.r.how == CHILD_EXITED && x.r.code != 0);
	str_release(&x.out);
	return bad;
}
TESTS(1, command_sees_little)

static int command_paths(void)
{
	char rw[300], ro[320], path[340];
	struct ground g;
	struct run x;
	int bad = 0;

	ground_make(&g);
	run_init(&x);
	ground_rw(&g, rw, x.c.uid);
	snprintf(ro, sizeof(ro), "%s/ro", rw);
	mkdir(ro, 0777);
	chmod(ro, 0777);
	x.rw[0] = rw;
	x.ro[0] = ro;
	x.c.dir = rw;
	CHECK(!run_shell(&x, "echo text >made && cat made && "
			     "ln -s /etc/shadow link"));
	CHECK(x.r.how == CHILD_EXITED && x.r.code == 0);
	snprintf(path, sizeof(path), "%s/made", rw);
	CHECK(holds(path, "text\n"));
	/* Landlock's rights add up, so only namespaces can take one back. */
	str_reset(&x.out);
	if (scenario_level == JAIL_FULL) {
		CHECK(!run_shell(&x, "ls ro && ! touch ro/x"));
		CHECK(x.r.code == 0);
		CHECK(entries(ro) == 0);
	}
	str_release(&x.out);
	return bad | ground_check(&g);
}
TESTS(1, command_paths)

static int command_status(void)
{
	struct run x;
	int bad = 0;

	run_init(&x);
	CHECK(!run_shell(&x, "exit 42"));
	CHECK(x.r.how == CHILD_EXITED && x.r.code == 42);
	CHECK(!run_shell(&x, "kill -9 $$"));
	CHECK(scenario_level == JAIL_FULL ?
	      x.r.how == CHILD_EXITED && x.r.code == 137 :
	      x.r.how == CHILD_SIGNALED && x.r.code == 9);
	x.o.in = "in\n";
	x.o.inlen = 3;
	str_reset(&x.out);
	CHECK(!run_shell(&x, "cat"));
	CHECK(x.out.buf && !strcmp(x.out.buf, "in\n"));
	str_release(&x.out);
	return bad;
}
TESTS(1, command_status)

/* A jail that cannot be made is an error with a reason, not a result. */
static int command_refuses(void)
{
	struct run x;
	int bad = 0;

	run_init(&x);
	x.ro[0] = "/nonexistent/file";
	CHECK(run_shell(&x, "true") == -1);
	CHECK(strstr(x.e.msg, "/nonexistent"));
	x.ro[0] = "relative";
	err_clear(&x.e);
	CHECK(run_shell(&x, "true") == -1);
	CHECK(x.e.code == CA_CONFIG && strstr(x.e.msg, "'relative'"));
	x.ro[0] = NULL;
	x.c.level = JAIL_UID;
	if (geteuid()) {
		err_clear(&x.e);
		CHECK(run_shell(&x, "true") == -1);
		CHECK(x.e.code == CA_UNAVAILABLE);
		CHECK(strstr(x.e.msg, "root"));
	}
	str_release(&x.out);
	return bad;
}
TESTS(1, command_refuses)

/* One forked job, as the torch host makes it. */
struct job {
	int profile;
	int (*body)(const struct prey *p);
	const struct prey *prey;
	const char *ro[4], *rw[4];
	int64_t tmp_bytes, mem_bytes, procs;
	int keep;		/* a descriptor to keep; -1: none */
	unsigned uid;
};

static void job_init(struct job *j, const struct prey *prey,
		     int (*body)(const struct prey *))
{
	memset(j, 0, sizeof(*j));
	j->body = body;
	j->prey = prey;
	j->keep = -1;
	j->uid = jail_self_uid();
}

static int step(const char *what, int rc, const char *msg)
{
	if (rc)
		fprintf(stderr, "# %s: %d, %s\n", what, rc, msg);
	return rc;
}

static void confined(const struct job *j)
{
	struct jail_seal s = { 0 };
	char msg[256];
	int rc;

	if (step("mount", jail_self_mount(scenario_level, j->ro, j->rw,
					  j->tmp_bytes, msg, sizeof(msg)),
		 msg) ||
	    step("close", jail_self_close(&j->keep, j->keep >= 0, msg,
					  sizeof(msg)), msg))
		_exit(3);
	s.level = scenario_level;
	s.profile = j->profile;
	s.ro = j->ro;
	s.rw = j->rw;
	s.mem_bytes = j->mem_bytes;
	s.procs = j->procs;
	if (step("seal", jail_self_seal(&s, msg, sizeof(msg)), msg))
		_exit(3);
	rc = j->body(j->prey);
	fflush(NULL);
	_exit(rc);
}

/* The intermediate process, which the caller waits for. */
static pid_t job_start(const struct job *j)
{
	char msg[256];
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	alarm(0);
	if (step("unshare", jail_self_unshare(scenario_level, j->uid, msg,
					      sizeof(msg)), msg))
		_exit(3);
	pid = fork();
	if (!pid)
		confined(j);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) :
				    WEXITSTATUS(status));
}

/* 0 to 255 as a shell has it; -1 when it did not end by itself. */
static int job_wait(const struct job *j, pid_t pid)
{
	char msg[256];
	int status = 0, rc = 0;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	if (scenario_level == JAIL_UID)
		rc = step("kill", jail_self_kill(j->uid, msg, sizeof(msg)),
			  msg);
	return rc || WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
}

static int job_run(const struct job *j)
{
	return job_wait(j, job_start(j));
}

static int forked_attacks_as(int profile, attack_fn *const *more)
{
	static attack_fn *const fn[] = { try_files, try_proc, try_judge,
					 try_net, try_kernel, NULL };
	struct ground g;
	struct job j;
	int bad = 0, i;

	ground_make(&g);
	for (i = 0; fn[i]; i++) {
		job_init(&j, &g.prey, fn[i]);
		j.profile = profile;
		CHECK(job_run(&j) == 0);
	}
	for (; *more; more++) {
		job_init(&j, &g.prey, *more);
		j.profile = profile;
		CHECK(job_run(&j) == 0);
	}
	return bad | ground_check(&g);
}

static int forked_worker(void)
{
	static attack_fn *const more[] = { try_worker, try_growing, NULL };

	return forked_attacks_as(JAIL_WORKER_CPU, more);
}
TESTS(0, forked_worker)

static int forked_worker_cuda(void)
{
	static attack_fn *const more[] = { try_worker, NULL };

	return forked_attacks_as(JAIL_WORKER_CUDA, more);
}
TESTS(0, forked_worker_cuda)

static int forked_baseline(void)
{
	static attack_fn *const none[] = { NULL };

	return forked_attacks_as(JAIL_BASELINE, none);
}
TESTS(0, forked_baseline)

static int forked_oracle(void)
{
	static attack_fn *const none[] = { NULL };

	return forked_attacks_as(JAIL_ORACLE, none);
}
TESTS(0, forked_oracle)

/* Below level uid: the same kernel rules under one's own uid. */
static int forked_weak(void)
{
	static attack_fn *const fn[] = { try_judge, try_net, try_worker,
					 NULL };
	struct ground g;
	struct job j;
	int bad = 0, i;

	ground_make(&g);
	for (i = 0; fn[i]; i++) {
		job_init(&j, &g.prey, fn[i]);
		CHECK(job_run(&j) == 0);
	}
	return bad | ground_check(&g);
}

static void forked_weak_user(void **state)
{
	(void)state;
	as_user(forked_weak, 0, JAIL_WEAK);
}

static const char *const ns_names[] = { "user", "pid", "net", "ipc", "uts",
					"mnt", NULL };
static char ns_outside[6][64];

static void read_ns(int i, char id[64])
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", ns_names[i]);
	n = readlink(path, id, 63);
	id[n > 0 ? n : 0] = '\0';
}

static int body_state(const struct prey *p)
{
	int bad = 0, full = scenario_level == JAIL_FULL;
	char id[64];
	int i;

	(void)p;
	for (i = 0; ns_names[i]; i++) {
		read_ns(i, id);
		CHECK(id[0] && full == !!strcmp(id, ns_outside[i]));
	}
	CHECK(count_fds() == 0);
	CHECK(getuid() != 0 && geteuid() == getuid());
	CHECK(getgroups(0, NULL) <= full);
	CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
	CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	CHECK(!full || getpid() == 1);
	CHECK(!full || getuid() == 65534);
	CHECK(full == opens("/tmp/mine", O_RDWR | O_CREAT));
	CHECK(full == opens("/dev/shm/mine", O_RDWR | O_CREAT));
	CHECK(opens("/dev/null", O_RDWR));
	CHECK(opens("/etc/passwd", O_RDONLY));
	CHECK(!raise(SIGCONT));
	CHECK(!full || prctl(PR_CAPBSET_READ, 21, 0, 0, 0) == 0);
	return bad;
}

static int forked_state(void)
{
	struct job j;
	int bad = 0, i;

	for (i = 0; ns_names[i]; i++)
		read_ns(i, ns_outside[i]);
	job_init(&j, NULL, body_state);
	CHECK(job_run(&j) == 0);
	return bad;
}
TESTS(0, forked_state)

static int body_abort(const struct prey *p)
{
	(void)p;
	abort();
}

static int body_segv(const struct prey *p)
{
	(void)p;
	return *(volatile int *)(uintptr_t)getppid();
}

static int body_exit(const struct prey *p)
{
	(void)p;
	_exit(42);
}

static int forked_ends(void)
{
	struct job j;
	int bad = 0, rc;

	job_init(&j, NULL, body_exit);
	CHECK(job_run(&j) == 42);
	job_init(&j, NULL, body_abort);
	rc = job_run(&j);
	/* SIGABRT means nothing to pid 1; abort() then faults. */
	CHECK(rc == 128 + SIGABRT || rc == 128 + SIGSEGV ||
	      rc == 128 + SIGILL || rc == 127);
	if (SANITIZED)
		return bad;
	job_init(&j, NULL, body_segv);
	CHECK(job_run(&j) == 128 + SIGSEGV);
	return bad;
}
TESTS(0, forked_ends)

static int body_memory(const struct prey *p)
{
	return try_memory(p);
}

static int body_disk(const struct prey *p)
{
	int n = fill("/tmp") + fill("/dev/shm");

	(void)p;
	if (scenario_level < JAIL_FULL)
		return n != 0;
	if (n <= 16 && n >= 14)
		return 0;
	fprintf(stderr, "# %d MiB written\n", n);
	return 1;
}

static int forked_limits(void)
{
	struct job j;
	int bad = 0;

	job_init(&j, NULL, body_disk);
	j.tmp_bytes = 8 * MIB;
	CHECK(job_run(&j) == 0);
	if (SANITIZED)
		return bad;
	job_init(&j, NULL, body_memory);
	j.mem_bytes = 512 * MIB;
	CHECK(job_run(&j) == 0);
	return bad;
}
TESTS(0, forked_limits)

static int body_compiler(const struct prey *p)
{
	static char *const argv[] = { (char *)"sh", (char *)"-c",
		(char *)"test \"$(ls /usr | grep -x bin)\" = bin",
		NULL };
	int status = 1, n;
	pid_t pid = fork();

	(void)p;
	if (!pid) {
		execv("/bin/sh", argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return 1;
	n = try_forks(40);
	return n < 10;
}

/* A baseline may run compilers, but not without end. */
static int forked_processes(void)
{
	struct job j;
	int fd[2], bad = 0;

	CHECK(!pipe2(fd, O_CLOEXEC));
	job_init(&j, NULL, body_compiler);
	j.profile = JAIL_BASELINE;
	j.procs = 40;
	j.keep = fd[1];
	CHECK(job_run(&j) == 0);
	close(fd[1]);
	CHECK(all_gone(fd[0]));
	return bad;
}
TESTS(0, forked_processes)

static int forked_leaves_nothing(void)
{
	struct job j;
	int fd[2], bad = 0;

	CHECK(!pipe2(fd, O_CLOEXEC));
	job_init(&j, NULL, try_daemon);
	j.profile = JAIL_BASELINE;
	j.keep = fd[1];
	CHECK(job_run(&j) == 0);
	close(fd[1]);
	CHECK(all_gone(fd[0]));
	return bad;
}
TESTS(0, forked_leaves_nothing)

static const char *ro_dir, *rw_dir;

static int body_paths(const struct prey *p)
{
	char path[320];
	int bad = 0;

	(void)p;
	snprintf(path, sizeof(path), "%s/in", ro_dir);
	CHECK(opens(path, O_RDONLY));
	CHECK(!opens(path, O_RDWR));
	snprintf(path, sizeof(path), "%s/new", ro_dir);
	CHECK(!opens(path, O_RDWR | O_CREAT));
	snprintf(path, sizeof(path), "%s/made", rw_dir);
	CHECK(opens(path, O_RDWR | O_CREAT));
	return bad;
}

static int forked_paths(void)
{
	char rw[300], ro[300], path[320];
	struct ground g;
	struct job j;
	int bad = 0;

	ground_make(&g);
	job_init(&j, &g.prey, body_paths);
	ground_rw(&g, rw, j.uid);
	snprintf(ro, sizeof(ro), "%s/ro", g.dir);
	mkdir(ro, 0777);
	chmod(ro, 0777);
	snprintf(path, sizeof(path), "%s/in", ro);
	write_file(path, "in", 0666);
	j.ro[0] = ro_dir = ro;
	j.rw[0] = rw_dir = rw;
	CHECK(job_run(&j) == 0);
	CHECK(holds(path, "in"));
	snprintf(path, sizeof(path), "%s/made", rw);
	CHECK(!access(path, F_OK));
	return bad | ground_check(&g);
}
TESTS(0, forked_paths)

/* What judge and worker share in the next tests. */
static volatile long *counter;
static int channel[2];

static int body_count(const struct prey *p)
{
	(void)p;
	if (write(channel[1], "x", 1) != 1)
		return 1;
	for (;;)
		++*counter;
}

/* The pid of whoever sent a byte, as our pid namespace names it. */
static pid_t sender(int fd)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(struct ucred))];
	} c;
	char byte;
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1,
			    .msg_control = &c, .msg_controllen = sizeof(c) };
	struct pollfd p = { fd, POLLIN, 0 };
	struct ucred u;

	if (poll(&p, 1, 20000) != 1 || recvmsg(fd, &m, 0) != 1 ||
	    !CMSG_FIRSTHDR(&m))
		return -1;
	memcpy(&u, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(u));
	return u.pid;
}

static pid_t start_counter(struct job *j, pid_t *worker)
{
	int on = 1;
	pid_t middle;

	counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counter == MAP_FAILED ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel) ||
	    setsockopt(channel[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)))
		return -1;
	job_init(j, NULL, body_count);
	j->keep = channel[1];
	middle = job_start(j);
	close(channel[1]);
	*worker = sender(channel[0]);
	return middle;
}

static int moves(void)
{
	struct timespec ms = { 0, 20000000 };
	long before = *counter;
	int i;

	for (i = 0; i < 100 && *counter == before; i++)
		nanosleep(&ms, NULL);
	return *counter != before;
}

static int is_still(void)
{
	struct timespec ms = { 0, 50000000 };
	long before = *counter;

	nanosleep(&ms, NULL);
	return *counter == before;
}

/* The judge's clock stands on this: stopping a sealed worker from outside. */
static int forked_is_traced(void)
{
	struct job j;
	int bad = 0, status = 0;
	pid_t worker = -1, middle = start_counter(&j, &worker);

	CHECK(middle > 0 && worker > 0);
	CHECK(moves());
	CHECK(!ptrace(PTRACE_SEIZE, worker, NULL, NULL));
	CHECK(!ptrace(PTRACE_INTERRUPT, worker, NULL, NULL));
	CHECK(waitpid(worker, &status, __WALL) == worker);
	CHECK(WIFSTOPPED(status));
	CHECK(is_still());
	CHECK(!ptrace(PTRACE_CONT, worker, NULL, NULL));
	CHECK(moves());
	kill(worker, SIGKILL);
	CHECK(waitpid(worker, &status, __WALL) == worker);
	CHECK(job_wait(&j, middle) == 128 + SIGKILL);
	return bad;
}
TESTS(0, forked_is_traced)

/* The host's way to end a job: its child dies, and so does what is in it. */
static int forked_is_killed(void)
{
	struct job j;
	int bad = 0, status = 0;
	pid_t worker = -1, middle;

	CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
	middle = start_counter(&j, &worker);
	CHECK(middle > 0 && worker > 0 && moves());
	CHECK(!kill(middle, SIGKILL));
	CHECK(waitpid(middle, &status, 0) == middle);
	CHECK(waitpid(worker, &status, 0) == worker);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK(is_still());
	return bad;
}
TESTS(0, forked_is_killed)

/* A host that is killed leaves nothing either. */
static int forked_dies_with_host(void)
{
	struct job j;
	int bad = 0, status = 0, end[2];
	pid_t worker = -1, host;

	CHECK(!pipe2(end, O_CLOEXEC));
	fflush(NULL);
	host = fork();
	if (!host) {
		close(end[0]);
		start_counter(&j, &worker);
		if (worker > 0 && moves())
			raise(SIGKILL);
		_exit(1);
	}
	close(end[1]);
	CHECK(waitpid(host, &status, 0) == host);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	/* The intermediate process holds the pipe, and ends with the host. */
	CHECK(all_gone(end[0]));
	return bad;
}
TESTS(0, forked_dies_with_host)

static void *sleep_body(void *arg)
{
	pause();
	return arg;
}

static int body_late_seal(const struct prey *p)
{
	struct jail_seal s = { .level = JAIL_WEAK };
	char msg[128] = "";
	pthread_t t;
	int bad = 0;

	(void)p;
	CHECK(!pthread_create(&t, NULL, sleep_body, NULL));
	CHECK(jail_self_seal(&s, msg, sizeof(msg)) == -CA_SOFTWARE);
	CHECK(strstr(msg, "2 threads"));
	return bad;
}

static int forked_refuses(void)
{
	struct jail_seal s = { .level = JAIL_WEAK, .profile = 99 };
	char msg[128] = "", cut[4];
	int bad = 0;

	CHECK(jail_self_seal(&s, msg, sizeof(msg)) == -CA_CONFIG);
	CHECK(strstr(msg, "99"));
	CHECK(jail_self_unshare(77, 1, msg, sizeof(msg)) == -CA_CONFIG);
	CHECK(jail_self_seal(&s, cut, sizeof(cut)) == -CA_CONFIG);
	CHECK(strlen(cut) == 3);
	s.profile = 0;
	s.rw = (const char *const[]){ "/nonexistent", NULL };
	CHECK(jail_self_seal(&s, msg, sizeof(msg)) == -CA_CONFIG);
	CHECK(strstr(msg, "/nonexistent"));
	if (geteuid()) {
		CHECK(jail_self_unshare(JAIL_UID, 1, msg, sizeof(msg)) ==
		      -CA_UNAVAILABLE);
	} else {
		CHECK(jail_self_unshare(JAIL_UID, 0, msg, sizeof(msg)) ==
		      -CA_CONFIG);
	}
	/* Without the process of step 1. */
	CHECK(jail_self_mount(JAIL_WEAK, NULL, NULL, 0, msg, sizeof(msg)) ==
	      -CA_SOFTWARE);
	return bad | body_late_seal(NULL);
}
TESTS(0, forked_refuses)

/* The kernel's own switch for user namespaces, set for this test's own. */
static int no_namespaces(void)
{
	char msg[256] = "", line[64];
	int bad = 0, fd, rc;

	snprintf(line, sizeof(line), "%d %d 1", USER, (int)geteuid());
	if (unshare(CLONE_NEWUSER))
		return 2;
	fd = open("/proc/self/uid_map", O_WRONLY);
	CHECK(fd >= 0 && write(fd, line, strlen(line)) > 0);
	CHECK(geteuid() == USER);
	fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "0", 1) == 1);
	rc = jail_self_unshare(JAIL_FULL, 1, msg, sizeof(msg));
	CHECK(rc == -CA_UNAVAILABLE);
	CHECK(strstr(msg, "refuses namespaces"));
	return bad;
}

static void namespaces_refused(void **state)
{
	(void)state;
	as_user(no_namespaces, 0, JAIL_FULL);
}

static void probe_answers(void **state)
{
	struct jail_caps c;
	struct err e = ERR_INIT;
	char why[256] = "";
	int level = -1;

	(void)state;
	assert_int_equal(jail_probe(&c, &e), 0);
	assert_int_equal(jail_self_probe(&level, why, sizeof(why)), 0);
	assert_int_equal(level, c.self);
	assert_true((c.why[0] == '\0') ==
		    (c.command == JAIL_FULL && c.self == JAIL_FULL));
	assert_true(c.self != JAIL_FULL || (c.userns && c.seccomp));
	assert_true(!geteuid() || (c.self != JAIL_UID &&
				   c.command != JAIL_UID));
}

static void levels_have_names(void **state)
{
	(void)state;
	assert_int_equal(jail_level_parse("full"), JAIL_FULL);
	assert_int_equal(jail_level_parse("none"), JAIL_NONE);
	assert_int_equal(jail_level_parse("fuller"), -1);
	assert_string_equal(jail_level_name(JAIL_UID), "uid");
}

static int uids(void)
{
	unsigned a = jail_self_uid(), b = jail_self_uid();
	int bad = 0;

	CHECK(geteuid() ? a == geteuid() && b == a : a != b);
	CHECK(geteuid() || (a > 60000 && b > 60000));
	return bad;
}

static void uids_differ(void **state)
{
	(void)state;
	in_process(uids, 0, 0);
	as_user(uids, 0, JAIL_NONE);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(levels_have_names),
		cmocka_unit_test(probe_answers),
		cmocka_unit_test(uids_differ),
		cmocka_unit_test(attacks_bite_user),
		RUNS(command_attacks), RUNS(command_leaves_nothing),
		RUNS(command_timeout), RUNS(command_fork_bomb),
		RUNS(command_memory_bomb), RUNS(command_flood),
		RUNS(command_disk), RUNS(command_sees_little),
		RUNS(command_paths), RUNS(command_status),
		RUNS(command_refuses),
		RUNS(forked_worker), RUNS(forked_worker_cuda),
		RUNS(forked_baseline), RUNS(forked_oracle),
		cmocka_unit_test(forked_weak_user),
		RUNS(forked_state), RUNS(forked_ends), RUNS(forked_limits),
		RUNS(forked_processes), RUNS(forked_leaves_nothing),
		RUNS(forked_paths), RUNS(forked_is_traced),
		RUNS(forked_is_killed), RUNS(forked_dies_with_host),
		RUNS(forked_refuses),
		cmocka_unit_test(namespaces_refused)
	};

	if (argc > 2 && !strcmp(argv[1], "--attack")) {
		int rc = attack_main(argc, argv);

		fflush(NULL);
		_exit(rc);
	}
	unsetenv("TMPDIR");	/* other uids may not get there */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
