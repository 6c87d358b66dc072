/* SPDX-License-Identifier: Apache-2.0
 *
 * The host that the tools of one user share.  Its socket lies in a folder of
 * the user's alone below /tmp, which no jail shows: jails have a /tmp of
 * their own, or another uid.  Who connects shows a descriptor of the folder's
 * lock file, which takes the place of a secret: children inherit the host's
 * memory, so what the host knew they would know.
 *
 * The name of the socket is a digest of all that children inherit from where
 * a host was started: another environment, cgroup, affinity or set of
 * namespaces gets another host.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/str.h"
#include "torch/internal.h"

#define FOLDER "/tmp/cuda-agent-%u"
#define LOCK "lock"
#define PROC_MAX ((size_t)64 << 10)
#define BACKLOG 128
#define LOCK_SECONDS 5
#define HELLO_SECONDS 60
#define ANSWER_SECONDS 60

struct place {
	char dir[64];
	int lock;		/* the folder's lock file */
};

static int sure_folder(const char *dir, struct err *e)
{
	struct stat st;

	if (lstat(dir, &st))
		return err_sys(e, CA_CONFIG, "cannot stat '%s'", dir);
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	    !(st.st_mode & 077))
		return 0;
	return err_set(e, CA_CONFIG, "'%s' is not a folder that only its "
		       "owner, who is us, can enter", dir);
}

/* Opens the folder, which is made if `make` is set.  1: there is none. */
static int place_open(struct place *p, int make, struct err *e)
{
	char path[96];

	p->lock = -1;
	snprintf(p->dir, sizeof(p->dir), FOLDER, (unsigned)geteuid());
	if (!make && access(p->dir, F_OK))
		return 1;
	if (make && mkdir(p->dir, 0700) && errno != EEXIST)
		return err_sys(e, CA_CANTCREAT, "cannot make '%s'", p->dir);
	if (sure_folder(p->dir, e))
		return -1;
	snprintf(path, sizeof(path), "%s/" LOCK, p->dir);
	p->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (p->lock < 0)
		return err_sys(e, CA_CANTCREAT, "cannot open '%s'", path);
	return 0;
}

static void place_close(struct place *p)
{
	if (p->lock >= 0)
		close(p->lock);
	p->lock = -1;
}

static int address(const struct place *p, const char *key,
		   struct sockaddr_un *a, struct err *e)
{
	int n;

	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	n = snprintf(a->sun_path, sizeof(a->sun_path), "%s/%s", p->dir, key);
	if (n < 0 || (size_t)n >= sizeof(a->sun_path))
		return err_set(e, CA_SOFTWARE, "'%s' is too long", p->dir);
	return 0;
}

static int is_ours(int fd)
{
	struct ucred u;
	socklen_t len = sizeof(u);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &len) &&
	       u.uid == geteuid();
}

/* Connects without waiting for a host that is too busy to take calls; -1
 * with errno ENOENT or ECONNREFUSED when nobody is there. */
static int dial(const struct place *p, const char *key, struct err *e)
{
	struct sockaddr_un a;
	int fd, why;

	if (address(p, key, &a, e))
		return -1;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, CA_UNAVAILABLE, "cannot make a socket");
	if (!connect(fd, (struct sockaddr *)&a, sizeof(a)) && is_ours(fd) &&
	    !fcntl(fd, F_SETFL, 0))
		return fd;
	why = errno;
	close(fd);
	errno = why;
	return err_sys(e, CA_UNAVAILABLE, "cannot connect to '%s'",
		       a.sun_path);
}

/* 0 or -1: somebody has held it for too long. */
static int lock(const struct place *p)
{
	const struct timespec ms = { 0, 1000000 };
	int64_t end = deadline_in(LOCK_SECONDS);

	while (flock(p->lock, LOCK_EX | LOCK_NB)) {
		if (now_ns() > end)
			return -1;
		nanosleep(&ms, NULL);
	}
	return 0;
}

static void unlock(const struct place *p)
{
	flock(p->lock, LOCK_UN);
}

static int greet(int fd, const struct place *p, struct err *e)
{
	static const char hello[] = "{\"op\":\"hello\"}";

	return packet_send(fd, hello, strlen(hello), &p->lock, 1, e);
}

static void hash_text(struct hash *h, const char *s)
{
	hash_part(h, s, strlen(s));
}

/* A file of /proc; of `status` only what children inherit. */
static int hash_proc(struct hash *h, const char *path,
		     const char *const *lines, struct err *e)
{
	struct str s = STR_INIT;
	char *line, *save;

	if (read_file(path, PROC_MAX, &s, e)) {
		str_release(&s);
		return -1;
	}
	line = s.buf ? strtok_r(s.buf, "\n", &save) : NULL;
	for (; line; line = strtok_r(NULL, "\n", &save)) {
		const char *const *l = lines;

		while (l && *l && !starts_with(line, *l))
			l++;
		if (!l || *l)
			hash_text(h, line);
	}
	str_release(&s);
	return 0;
}

/* What a process gets from the one that starts it, beside its environment. */
static int hash_surroundings(struct hash *h, struct err *e)
{
	static const char *const inherited[] = {
		"Umask:", "Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:",
		"Seccomp:", "Cpus_allowed:", "Mems_allowed:", NULL,
	};
	static const char *const space[] = {
		"cgroup", "ipc", "mnt", "net", "pid", "user", "uts",
	};
	int nice = getpriority(PRIO_PROCESS, 0);

	for (size_t i = 0; i < sizeof(space) / sizeof(*space); i++) {
		char path[64], to[64] = "";

		snprintf(path, sizeof(path), "/proc/self/ns/%s", space[i]);
		if (readlink(path, to, sizeof(to) - 1) < 0)
			return err_sys(e, CA_UNAVAILABLE, "cannot read '%s'",
				       path);
		hash_text(h, to);
	}
	hash_part(h, &nice, sizeof(nice));
	if (hash_proc(h, "/proc/self/status", inherited, e) ||
	    hash_proc(h, "/proc/self/limits", NULL, e))
		return -1;
	return hash_proc(h, "/proc/self/cgroup", NULL, e);
}

static int key_of(const struct host_command *c, char key[HASH_HEX],
		  struct err *e)
{
	struct hash *h = hash_new();
	uint8_t sum[HASH_LEN];
	int rc;

	if (!h)
		return err_set(e, CA_SOFTWARE, "out of memory");
	hash_text(h, c->python);
	hash_text(h, c->script);
	hash_text(h, c->cache);
	for (size_t i = 0; c->env[i]; i++)
		hash_text(h, c->env[i]);
	rc = hash_surroundings(h, e);
	hash_end(h, sum);
	hex(sum, HASH_LEN / 2, key);
	return rc;
}

static int listen_at(const struct place *p, const char *key, struct err *e)
{
	struct sockaddr_un a;
	int fd;

	if (address(p, key, &a, e))
		return -1;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, CA_UNAVAILABLE, "cannot make a socket");
	unlink(a.sun_path);
	if (!bind(fd, (struct sockaddr *)&a, sizeof(a)) &&
	    !listen(fd, BACKLOG))
		return fd;
	err_sys(e, CA_UNAVAILABLE, "cannot listen at '%s'", a.sun_path);
	close(fd);
	return -1;
}

/* With the lock held: somebody else's new host, or a new one of ours.  The
 * socket is there before the host is, so nobody waits to connect. */
static int start(const struct host_command *c, const struct place *p,
		 const char *key, pid_t *starter, struct err *e)
{
	const char *more[] = { p->dir, key, c->idle };
	int fd = dial(p, key, NULL), listener;

	if (fd >= 0)
		return fd;
	listener = listen_at(p, key, e);
	if (listener < 0)
		return -1;
	fd = dial(p, key, e);
	if (fd >= 0) {
		*starter = host_exec(c, listener, more, 3, e);
		if (*starter <= 0) {
			*starter = 0;
			close(fd);
			fd = -1;
		}
	}
	close(listener);
	return fd;
}

/* Whether sharing is wanted, and makes sense where the caller stands. */
static int may_share(const struct host_command *c, struct err *e)
{
	const char *v = getenv("CA_TORCH_SHARED");

	if (v && !strcmp(v, "0"))
		return err_set(e, CA_CONFIG, "CA_TORCH_SHARED is 0");
	if (getenv("CA_TORCH_STDERR"))
		return err_set(e, CA_CONFIG, "CA_TORCH_STDERR is set");
	if (c->python[0] != '/' || c->script[0] != '/' || c->cache[0] != '/')
		return err_set(e, CA_CONFIG, "CA_PYTHON, CA_LIBDIR or CA_CACHE "
			       "is not absolute");
	return 0;
}

int shared_connect(const struct host_command *c, pid_t *starter,
		   struct err *e)
{
	char key[HASH_HEX];
	struct place p;
	int fd = -1;

	*starter = 0;
	if (may_share(c, e) || key_of(c, key, e) || place_open(&p, 1, e))
		return -1;
	fd = dial(&p, key, NULL);
	if (fd < 0 && (errno == ENOENT || errno == ECONNREFUSED) &&
	    !lock(&p)) {
		fd = start(c, &p, key, starter, e);
		unlock(&p);
	} else if (fd < 0) {
		err_sys(e, CA_UNAVAILABLE, "cannot connect to the shared host");
	}
	if (fd >= 0 && greet(fd, &p, e)) {
		close(fd);
		fd = -1;
	}
	place_close(&p);
	return fd;
}

/* Asks one host, which tells about itself. */
static int inquire(int fd, const struct place *p, const char *op,
		   struct json **answer, struct err *e)
{
	struct torch_host h = { .fd = fd };
	char req[64];
	int n = snprintf(req, sizeof(req), "{\"id\":\"1\",\"op\":\"%s\"}", op);

	*answer = NULL;
	if (greet(fd, p, e) ||
	    host_packet(&h, deadline_in(HELLO_SECONDS), answer, e) <= 0)
		return -1;
	json_free(*answer);
	*answer = NULL;
	if (packet_send(fd, req, (size_t)n, NULL, 0, e) ||
	    host_packet(&h, deadline_in(ANSWER_SECONDS), answer, e) <= 0)
		return -1;
	return 0;
}

/* Removes what a host that was killed has left. */
static void bury(const struct place *p, const char *key)
{
	struct sockaddr_un a;
	int fd;

	if (address(p, key, &a, NULL) || lock(p))
		return;
	fd = dial(p, key, NULL);
	if (fd >= 0)
		close(fd);
	else if (errno == ECONNREFUSED)
		unlink(a.sun_path);
	unlock(p);
}

static int visit(const struct place *p, const char *key, const char *op,
		 torch_shared_told *told, void *ctx, struct err *e)
{
	struct json *answer;
	int fd = dial(p, key, NULL), rc = 0;

	if (fd < 0) {
		bury(p, key);
		return 0;
	}
	/* One that ends meanwhile has nothing to tell. */
	if (!inquire(fd, p, op, &answer, NULL))
		rc = told(ctx, answer, e);
	json_free(answer);
	close(fd);
	return rc;
}

int torch_shared(const char *op, torch_shared_told *told, void *ctx,
		 struct err *e)
{
	struct place p;
	struct dirent *de;
	DIR *d;
	int rc = place_open(&p, 0, e);

	if (rc)
		return rc < 0 ? -1 : 0;
	d = opendir(p.dir);
	if (!d)
		rc = err_sys(e, CA_NOINPUT, "cannot read '%s'", p.dir);
	while (d && !rc && (de = readdir(d)))
		if (de->d_name[0] != '.' && strcmp(de->d_name, LOCK))
			rc = visit(&p, de->d_name, op, told, ctx, e);
	if (d)
		closedir(d);
	place_close(&p);
	return rc;
}
