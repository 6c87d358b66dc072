/* SPDX-License-Identifier: Apache-2.0
 *
 * The host that tools share: who gets which, what becomes of it when tools or
 * the host itself end, and who is kept out.  With the real PyTorch.
 */
#define _GNU_SOURCE
#include "torch_kit.h"

#include <dirent.h>
#include <errno.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#define MARK "CA_TEST_MARK"
#define STRANGER 1879041234u	/* an uid that nobody has */

static char mark[64], folder[64];

static void nap(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

/* Hosts of this test: nobody else's environment has its mark. */
static int setup(void **state)
{
	struct jail_caps caps;
	char lib[4096];

	(void)state;
	snprintf(mark, sizeof(mark), "shared.%d", (int)getpid());
	setenv(MARK, mark, 1);
	setenv("CA_TORCH_IDLE", "60", 1);
	unsetenv("CA_TORCH_SHARED");
	if (!getenv("CA_LIBDIR") && realpath("lib", lib))
		setenv("CA_LIBDIR", lib, 1);
	snprintf(folder, sizeof(folder), "/tmp/cuda-agent-%u",
		 (unsigned)geteuid());
	if (!jail_probe(&caps, NULL))
		level = jail_level_name(caps.self);
	return 0;
}

static int has_mark(pid_t pid)
{
	struct str s = STR_INIT;
	char path[64];
	int found;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	found = !read_file(path, 1 << 20, &s, NULL) &&
		memmem(s.buf, s.len, mark, strlen(mark));
	str_release(&s);
	return found;
}

struct seen {
	int n;
	pid_t pid;
	int64_t clients, children;
	int leaving;
};

static int look(void *ctx, const struct json *j, struct err *e)
{
	struct seen *s = ctx;
	pid_t pid = (pid_t)json_get_int(j, "pid", 0);

	(void)e;
	if (!has_mark(pid))
		return 0;
	s->n++;
	s->pid = pid;
	s->clients = json_get_int(j, "clients", -1);
	s->children = json_get_int(j, "children", -1);
	s->leaving = json_get_bool(j, "leaving", 0);
	assert_true(json_get_int(j, "memory_bytes", 0) > 1 << 20);
	return 0;
}

/* The hosts of this test; told of the last one. */
static struct seen hosts(void)
{
	struct seen s = { 0, 0, 0, 0, 0 };
	struct err e = ERR_INIT;

	if (torch_shared("status", look, &s, &e))
		fail_msg("%s", e.msg);
	return s;
}

/* NULL where there is no torch or nothing can be confined. */
static struct torch_host *get(void)
{
	struct err e = ERR_INIT;
	struct torch_host *h;

	if (!strcmp(level, "none"))
		return NULL;
	h = torch_start(NULL, 1, &e);
	if (!h && e.code == CA_UNAVAILABLE)
		return NULL;
	if (!h || torch_ready(h, 120, &e))
		fail_msg("%s", e.msg);
	return h;
}

static int alive(pid_t pid)
{
	return !kill(pid, 0);
}

static void ends(pid_t pid)
{
	int64_t end = deadline_in(20);

	while (alive(pid) && now_ns() < end)
		nap(5);
	assert_false(alive(pid));
}

/* Ends the hosts of this test, so that each begins without. */
static int kill_hosts(void **state)
{
	struct seen s;

	(void)state;
	while ((s = hosts()).n) {
		kill(s.pid, SIGKILL);
		ends(s.pid);
	}
	return 0;
}

/* A second tool finds the first one's host; each has its own children, which
 * end with its connection. */
static void serves_several(void **state)
{
	struct torch_host *a = get(), *b;
	struct err e = ERR_INIT;
	struct seen s;
	struct kid k, l;

	(void)state;
	if (!a)
		skip();
	assert_true(torch_is_shared(a));
	b = get();
	assert_true(torch_is_shared(b));
	assert_string_equal(torch_version(a), torch_version(b));
	spawn_on(a, &k, "calib", level);
	spawn_on(b, &l, "calib", level);
	ASK(&k, "{'op':'jail'}");
	ASK(&l, "{'op':'jail'}");
	well(&k);
	well(&l);
	s = hosts();
	assert_int_equal(s.n, 1);
	assert_int_equal(s.clients, 2);
	assert_int_equal(s.children, 2);
	torch_close(a);
	ends(k.c.pid);
	close(k.c.fd);
	ASK(&l, "{'op':'jail'}");
	well(&l);
	assert_int_equal(torch_kill(b, &l.c, &e), 0);
	assert_true(WIFSIGNALED(l.c.status));
	assert_int_equal(hosts().children, 0);
	torch_close(b);
	assert_true(alive(s.pid));
}

/* Opens a lock file of a folder, each time anew. */
static int locked(const char *dir, const char *name)
{
	char path[128];

	if (!dir)
		return -1;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

/* Parks a child that maps a region of n bytes and begins when the gate is at
 * its end, and, if there is a folder, by the locks there. */
static void park(struct torch_host *h, const char *role, int registration,
		 int gate, size_t n, const char *locks)
{
	struct str req = STR_INIT;
	int fd = memfd_create("park", MFD_CLOEXEC);
	int fds[] = { fd, gate, locked(locks, "turn"), locked(locks, "gate"),
		      locked(locks, "lease") };
	const struct torch_spawn s = { .role = role, .device = "cpu",
				       .jail = level, .first = &req,
				       .fds = fds, .nfds = locks ? 5 : 2 };
	struct err e = ERR_INIT;

	assert_int_equal(ftruncate(fd, (off_t)n), 0);
	str_addf(&req, "{\"op\":\"warm\",\"regions\":[{\"name\":\"desc\","
		 "\"bytes\":%zu}],\"after\":1}", n);
	if (torch_park(h, &s, registration, fd, &e))
		fail_msg("%s", e.msg);
	str_release(&req);
	close(fd);
	for (int i = 2; i < 5; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static void await_children(int64_t n)
{
	int64_t end = deadline_in(20);

	while (hosts().children != n && now_ns() < end)
		nap(10);
	assert_int_equal(hosts().children, n);
}

/* What a tool has had parked outlives it, serves one that wants such a child,
 * and nobody else. */
static void parks_children(void **state)
{
	struct torch_spawn s = { .role = "calib", .device = "cpu",
				 .jail = level, .parked = 1 };
	struct torch_host *a = get(), *b;
	struct err e = ERR_INIT;
	struct kid k, l;
	struct stat st;
	int held[2], gate[2];

	(void)state;
	if (!a)
		skip();
	assert_int_equal(pipe(held), 0);
	assert_int_equal(pipe(gate), 0);
	park(a, "calib", held[1], gate[0], 4096, NULL);
	park(a, "eager", held[1], gate[0], 8192, NULL);
	close(held[1]);
	close(gate[0]);
	torch_close(a);
	await_children(2);
	b = get();
	memset(&k, 0, sizeof(k));
	memset(&l, 0, sizeof(l));
	assert_int_equal(torch_spawn_ahead(b, &s, &k.c, &e), 0);
	assert_int_equal(torch_spawned(b, &k.c, &e), 0);
	assert_true(k.c.kept >= 0);
	assert_int_equal(fstat(k.c.kept, &st), 0);
	assert_int_equal(st.st_size, 4096);
	/* Once it is taken it does not wait for the one that had it parked. */
	assert_int_equal(torch_recv(&k.c, &k.m, deadline_in(SECONDS)),
			 WAIT_OK);
	well(&k);
	assert_true(k.c.pid > 0);
	ASK(&k, "{'op':'trace'}");
	well(&k);
	/* There was one of these. */
	assert_int_equal(torch_spawn(b, &s, &l.c, &e), 0);
	assert_int_equal(l.c.kept, -1);
	assert_int_equal(torch_kill(b, &l.c, &e), 0);
	assert_int_equal(torch_kill(b, &k.c, &e), 0);
	assert_true(WIFSIGNALED(k.c.status));
	/* The other is no tool's: with the host, and its registration, it
	 * ends. */
	assert_int_equal(hosts().children, 1);
	assert_int_equal(wait_readable(held[0], deadline_in(0), NULL), 0);
	torch_close(b);
	kill_hosts(NULL);
	assert_int_equal(wait_readable(held[0], deadline_in(20), NULL), 1);
	close(gate[1]);
	close(held[0]);
}

/* Nobody has wanted one for as long as a host is idle before it leaves: it goes
 * although the host has tools. */
static void parked_ones_expire(void **state)
{
	struct torch_host *a;
	int held[2], gate[2];

	(void)state;
	setenv("CA_TORCH_IDLE", "1", 1);
	a = get();
	setenv("CA_TORCH_IDLE", "60", 1);
	if (!a)
		skip();
	assert_int_equal(pipe(held), 0);
	assert_int_equal(pipe(gate), 0);
	park(a, "calib", held[1], gate[0], 4096, NULL);
	close(held[1]);
	close(gate[0]);
	assert_int_equal(wait_readable(held[0], deadline_in(20), NULL), 1);
	await_children(0);
	assert_int_equal(hosts().clients, 1);
	torch_close(a);
	kill_hosts(NULL);
	close(gate[1]);
	close(held[0]);
}

/* Who lacks memory has them all end. */
static void parked_ones_give_way(void **state)
{
	struct torch_host *a = get();
	struct err e = ERR_INIT;
	int held[2], gate[2];

	(void)state;
	if (!a)
		skip();
	assert_int_equal(torch_unpark(a, &e), 0);
	assert_int_equal(pipe(held), 0);
	assert_int_equal(pipe(gate), 0);
	park(a, "calib", held[1], gate[0], 4096, NULL);
	park(a, "eager", held[1], gate[0], 4096, NULL);
	close(held[1]);
	close(gate[0]);
	await_children(2);
	assert_int_equal(torch_unpark(a, &e), 2);
	assert_int_equal(wait_readable(held[0], deadline_in(0), NULL), 1);
	assert_int_equal(hosts().children, 0);
	torch_close(a);
	close(gate[1]);
	close(held[0]);
}

/* Waits until a lock can be had (1) or not (0). */
static void await_lock(int fd, int free)
{
	int64_t end = deadline_in(20);

	int got;

	do {
		nap(5);
		got = flock(fd, LOCK_EX | LOCK_NB) == 0;
		flock(fd, LOCK_UN);
	} while (got != free && now_ns() < end);
	assert_int_equal(got, free);
}

/* They wait for their turn and the lease, which none of them has while it
 * waits; who is taken waits for neither. */
static void parked_ones_wait_for_the_lease(void **state)
{
	char dir[] = "/tmp/ca-turns.XXXXXX", path[128];
	struct torch_spawn s = { .role = "calib", .device = "cpu",
				 .jail = level, .parked = 1 };
	struct torch_host *a = get();
	struct err e = ERR_INIT;
	int held[2], gate[2], turn, lease;
	struct kid k;

	(void)state;
	if (!a)
		skip();
	memset(&k, 0, sizeof(k));
	assert_non_null(mkdtemp(dir));
	turn = locked(dir, "turn");
	lease = locked(dir, "lease");
	assert_int_equal(flock(lease, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(pipe(held), 0);
	assert_int_equal(pipe(gate), 0);
	park(a, "calib", held[1], gate[0], 4096, dir);
	park(a, "eager", held[1], gate[0], 4096, dir);
	close(gate[0]);
	close(gate[1]);
	await_lock(turn, 0);
	assert_int_equal(torch_spawn(a, &s, &k.c, &e), 0);
	assert_true(k.c.kept >= 0);
	assert_int_equal(torch_recv(&k.c, &k.m, deadline_in(SECONDS)),
			 WAIT_OK);
	well(&k);
	await_lock(turn, 0);		/* the other's */
	flock(lease, LOCK_UN);
	await_lock(turn, 1);		/* it is ready, and has given back */
	await_lock(lease, 1);
	assert_int_equal(hosts().children, 2);
	assert_int_equal(torch_kill(a, &k.c, &e), 0);
	torch_close(a);
	kill_hosts(NULL);
	for (int i = 0; i < 2; i++)
		close(held[i]);
	close(turn);
	close(lease);
	snprintf(path, sizeof(path), "rm -r %s", dir);
	assert_int_equal(system(path), 0);
}

/* A tool that leaves its host while a child lives, and ends when it may. */
static void leave_early(int held, int said, int may)
{
	struct torch_spawn s = { .role = "calib", .device = "cpu",
				 .jail = level };
	struct torch_host *h = torch_start(NULL, 1, NULL);
	struct torch_child c;
	char byte = 'x';

	if (!h || torch_ready(h, 120, NULL) || torch_spawn(h, &s, &c, NULL) ||
	    torch_hold(h, &held, 1, NULL))
		_exit(1);
	close(held);
	torch_close(h);
	if (write(said, &byte, 1) != 1 || read(may, &byte, 1))
		_exit(1);
	_exit(0);
}

/* What a tool has had held is open until its process has ended, and all that
 * was forked for it. */
static void holds_for_those_that_end(void **state)
{
	struct torch_host *a = get();
	int held[2], said[2], may[2], status;
	pid_t pid;

	(void)state;
	if (!a)
		skip();
	assert_int_equal(pipe2(held, O_CLOEXEC), 0);
	assert_int_equal(pipe2(said, O_CLOEXEC), 0);
	assert_int_equal(pipe2(may, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		close(may[1]);
		leave_early(held[1], said[1], may[0]);
	}
	close(held[1]);
	close(said[1]);
	assert_int_equal(wait_readable(said[0], deadline_in(60), NULL), 1);
	await_children(0);
	assert_int_equal(wait_readable(held[0], deadline_in(0), NULL), 0);
	close(may[1]);
	assert_int_equal(wait_readable(held[0], deadline_in(20), NULL), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	torch_close(a);
	close(held[0]);
	close(said[0]);
	close(may[0]);
}

/* A host that is killed takes its children along; the next tool gets a new
 * one at the same place. */
static void survives_a_kill(void **state)
{
	struct torch_host *a = get();
	struct torch_spawn s = { .role = "calib", .device = "cpu",
				 .jail = level };
	struct torch_child c;
	struct err e = ERR_INIT;
	struct kid k;
	pid_t pid;

	(void)state;
	if (!a)
		skip();
	pid = hosts().pid;
	spawn_on(a, &k, "calib", level);
	ASK(&k, "{'op':'jail'}");
	kill(pid, SIGKILL);
	ends(k.c.pid);
	assert_int_equal(torch_spawn(a, &s, &c, &e), -1);
	assert_int_equal(torch_kill(a, &k.c, NULL), 0);
	torch_close(a);
	a = get();
	assert_true(torch_is_shared(a));
	assert_int_equal(hosts().n, 1);
	assert_int_not_equal(hosts().pid, pid);
	torch_close(a);
}

/* One that does not answer costs some time, and nothing else. */
static void does_without_one_that_hangs(void **state)
{
	struct torch_host *a = get(), *b;
	struct err e = ERR_INIT;
	pid_t pid;

	(void)state;
	if (!a)
		skip();
	pid = hosts().pid;
	kill(pid, SIGSTOP);
	b = torch_start(NULL, 1, &e);
	assert_non_null(b);
	/* It has turned to one of its own then, however long that takes. */
	torch_ready(b, 2, &e);
	assert_false(torch_is_shared(b));
	torch_close(b);
	kill(pid, SIGCONT);
	torch_close(a);
}

/* What runs unconfined could do to others' children what it likes. */
static void forks_nothing_unconfined(void **state)
{
	struct torch_host *a = get();
	struct torch_spawn s = { .role = "calib", .device = "cpu",
				 .jail = "none" };
	struct torch_child c;
	struct err e = ERR_INIT;

	(void)state;
	if (!a)
		skip();
	assert_int_equal(torch_spawn(a, &s, &c, &e), -1);
	assert_non_null(strstr(e.msg, "confined"));
	torch_close(a);
}

static void copy_tree(const char *to)
{
	char cmd[8192];

	snprintf(cmd, sizeof(cmd), "cp -rp '%s/torch' '%s'",
		 getenv("CA_LIBDIR"), to);
	assert_int_equal(system(cmd), 0);
}

/* A host whose code has changed serves who is there and takes nobody else. */
static void leaves_when_outdated(void **state)
{
	char dir[] = "/tmp/ca-shared.XXXXXX", path[128], child[4096];
	char *lib = strdup(getenv("CA_LIBDIR"));
	struct torch_host *a, *b;
	struct err e = ERR_INIT;
	struct kid k;
	pid_t old;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	chmod(dir, 0755);
	copy_tree(dir);
	if (realpath("bin/libca-child.so", child))
		setenv("CA_CHILD_LIB", child, 0);
	setenv("CA_LIBDIR", dir, 1);
	a = get();
	if (!a)
		goto out;
	old = hosts().pid;
	snprintf(path, sizeof(path), "%s/torch/calib.py", dir);
	f = fopen(path, "a");
	assert_non_null(f);
	fputs("\n# newer\n", f);
	fclose(f);
	b = get();
	assert_true(torch_is_shared(b));
	assert_string_not_equal(torch_digest(a), torch_digest(b));
	assert_int_not_equal(hosts().pid, old);
	spawn_on(a, &k, "calib", level);
	ASK(&k, "{'op':'jail'}");
	well(&k);
	torch_kill(a, &k.c, NULL);
	torch_close(a);
	ends(old);
	torch_close(b);
	kill_hosts(NULL);
out:
	setenv("CA_LIBDIR", lib, 1);
	free(lib);
	assert_int_equal(remove_tree(dir, &e), 0);
}

static struct sockaddr_un address(pid_t *pid)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	DIR *d = opendir(folder);
	struct dirent *de;

	/* Ours is the one whose listener a process with our mark holds; its
	 * command line names the key. */
	*pid = hosts().pid;
	while (d && (de = readdir(d))) {
		struct str s = STR_INIT;
		char path[64];

		snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)*pid);
		if (strlen(de->d_name) == 32 &&
		    !read_file(path, 1 << 16, &s, NULL) &&
		    memmem(s.buf, s.len, de->d_name, 32))
			snprintf(a.sun_path, sizeof(a.sun_path), "%s/%.32s",
				 folder, de->d_name);
		str_release(&s);
	}
	closedir(d);
	assert_true(a.sun_path[0]);
	return a;
}

/* Sends a greeting with `fd`, and wants what a shared host gives.  Returns
 * whether it was let in. */
static int let_in(const struct sockaddr_un *a, int fd)
{
	static const char hello[] = "{\"op\":\"hello\"}";
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} c;
	struct iovec io = { (char *)hello, sizeof(hello) - 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
	char got[4096];
	ssize_t n;

	memset(&c, 0, sizeof(c));
	c.align.cmsg_level = SOL_SOCKET;
	c.align.cmsg_type = SCM_RIGHTS;
	c.align.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&c.align), &fd, sizeof(fd));
	if (fd >= 0) {
		m.msg_control = c.buf;
		m.msg_controllen = sizeof(c.buf);
	}
	if (connect(s, (const struct sockaddr *)a, sizeof(*a)) ||
	    sendmsg(s, &m, MSG_NOSIGNAL) < 0) {
		close(s);
		return 0;
	}
	assert_int_equal(wait_readable(s, deadline_in(30), NULL), 1);
	n = recv(s, got, sizeof(got), 0);
	close(s);
	return n > 0;
}

/* Runs `f` as another user; its result. */
static int as_stranger(int (*f)(const struct sockaddr_un *a),
		       const struct sockaddr_un *a)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(setresgid(STRANGER, STRANGER, STRANGER) ||
		      setresuid(STRANGER, STRANGER, STRANGER) ? 99 : f(a));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static int reaches(const struct sockaddr_un *a)
{
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	return !connect(s, (const struct sockaddr *)a, sizeof(*a));
}

/* Even with the lock file's descriptor in hand. */
static int stolen;

static int steals(const struct sockaddr_un *a)
{
	return let_in(a, stolen);
}

static void keeps_strangers_out(void **state)
{
	struct torch_host *a = get();
	struct sockaddr_un at;
	char path[96];
	int lock, other;
	pid_t pid;

	(void)state;
	if (!a)
		skip();
	at = address(&pid);
	snprintf(path, sizeof(path), "%s/lock", folder);
	lock = open(path, O_RDONLY | O_CLOEXEC);
	other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(lock >= 0 && other >= 0);
	assert_true(let_in(&at, lock));
	assert_false(let_in(&at, other));
	assert_false(let_in(&at, -1));
	if (!geteuid()) {
		assert_int_equal(as_stranger(reaches, &at), 0);
		/* And if the folder were open. */
		stolen = lock;
		chmod(folder, 0755);
		chmod(at.sun_path, 0777);
		other = as_stranger(steals, &at);
		chmod(folder, 0700);
		assert_int_equal(other, 0);
	}
	close(lock);
	torch_close(a);
}

/* Code of a task sees nothing of the folder, in whichever role. */
static void hides_from_children(void **state)
{
	struct kid o;
	char code[512];

	(void)state;
	if (strcmp(level, "full"))
		skip();
	host = get();
	if (!host)
		skip();
	snprintf(code, sizeof(code),
		 "import os, torch\n"
		 "class Model(torch.nn.Module):\n"
		 "    def forward(self, x):\n"
		 "        return x\n"
		 "def get_init_inputs():\n"
		 "    return []\n"
		 "def get_inputs():\n"
		 "    assert not os.path.exists('%s'), 'seen'\n"
		 "    return [torch.rand(3)]\n", folder);
	start_oracle(&o, code);
	end(&o);
	close_host(NULL);
}

static int in_a_bad_folder(const struct sockaddr_un *unused)
{
	struct torch_host *h;
	struct err e = ERR_INIT;
	char dir[64];
	int rc;

	(void)unused;
	snprintf(dir, sizeof(dir), "/tmp/cuda-agent-%u", STRANGER);
	setenv("CA_CACHE", "/tmp/ca-shared-stranger", 1);
	rmdir(dir);
	if (mkdir(dir, 0755))
		return 2;
	h = torch_start(NULL, 1, &e);
	rc = !h ? 3 : torch_is_shared(h);
	torch_close(h);
	rmdir(dir);
	remove_tree("/tmp/ca-shared-stranger", NULL);
	return rc;
}

/* A folder that others can enter is not used. */
static void wants_a_folder_of_its_own(void **state)
{
	char python[CA_PATH_MAX];

	(void)state;
	if (geteuid() || path_python(python, NULL))
		skip();
	setenv("CA_PYTHON", python, 1);
	assert_int_equal(as_stranger(in_a_bad_folder, NULL), 0);
	unsetenv("CA_PYTHON");
}

/* Last: everything of ours ends, told to or by itself. */
static void leaves(void **state)
{
	struct torch_host *a = get();
	struct sockaddr_un at;
	struct err e = ERR_INIT;
	pid_t pid;

	(void)state;
	if (!a)
		skip();
	torch_close(a);
	kill_hosts(NULL);
	setenv("CA_TORCH_IDLE", "0.2", 1);
	a = get();
	at = address(&pid);
	nap(400);
	assert_true(alive(pid));	/* it has a tool */
	torch_close(a);
	ends(pid);
	assert_int_equal(access(at.sun_path, F_OK), -1);
	assert_int_equal(hosts().n, 0);
	setenv("CA_TORCH_IDLE", "soon", 1);
	assert_null(torch_start(NULL, 1, &e));
	assert_int_equal(e.code, CA_CONFIG);
	setenv("CA_TORCH_IDLE", "60", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(serves_several),
		cmocka_unit_test(parks_children),
		cmocka_unit_test(parked_ones_expire),
		cmocka_unit_test(parked_ones_give_way),
		cmocka_unit_test(parked_ones_wait_for_the_lease),
		cmocka_unit_test(holds_for_those_that_end),
		cmocka_unit_test(hides_from_children),
		cmocka_unit_test(forks_nothing_unconfined),
		cmocka_unit_test(keeps_strangers_out),
		cmocka_unit_test(survives_a_kill),
		cmocka_unit_test(does_without_one_that_hangs),
		cmocka_unit_test_setup(leaves_when_outdated, kill_hosts),
		cmocka_unit_test(wants_a_folder_of_its_own),
		cmocka_unit_test(leaves),
	};

	return cmocka_run_group_tests_name("torch_shared", tests, setup,
					   kill_hosts);
}
