/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting the torch host, asking it for children, hearing how they ended.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/child.h"
#include "base/io.h"
#include "base/path.h"
#include "base/sig.h"
#include "torch/internal.h"

#define PACKET_MAX ((size_t)65536)
#define FDS_MAX 16
#define KEPT_MAX 2		/* descriptors that come with a parked child */
#define SPAWN_SECONDS 360	/* the first `compile` may prime inductor */
#define LEAVE_SECONDS 10
#define SHARED_SECONDS 30	/* for one that runs to say hello; it may be
				 * busy with another tool's wish */

static int make_pair(int fd[2], struct err *e)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
		return err_sys(e, CA_UNAVAILABLE, "cannot make a socket pair");
	return 0;
}

int packet_send(int fd, const void *p, size_t len, const int *fds,
		size_t nfds, struct err *e)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} c;
	struct iovec io = { (void *)p, len };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
	ssize_t n;

	if (nfds > FDS_MAX)
		return err_set(e, CA_SOFTWARE, "more than %d descriptors",
			       FDS_MAX);
	if (nfds) {
		memset(&c, 0, sizeof(c));
		m.msg_control = c.buf;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c.align.cmsg_level = SOL_SOCKET;
		c.align.cmsg_type = SCM_RIGHTS;
		c.align.cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(&c.align), fds, nfds * sizeof(int));
	}
	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(e, CA_SOFTWARE, "cannot send a request");
	return 0;
}

/* The host is gone: what it forked dies with it, and nobody reports. */
static void give_up(struct torch_host *h)
{
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
}

static void record_exit(struct torch_host *h, const struct json *j)
{
	int64_t pid = json_get_int(j, "exit", 0);

	for (size_t i = 0; i < h->nchild; i++) {
		struct torch_child *c = h->child[i];

		if (c->host_pid != pid)
			continue;
		c->ended = 1;
		c->status = (int)json_get_int(j, "status", SIGKILL);
		h->child[i] = h->child[--h->nchild];
		return;
	}
}

/* A parked child has a channel, and perhaps memory, of its own.  It may wait
 * for a lease still, which whoever takes it has. */
static void take_parked(struct torch_child *c, int *fds, size_t n)
{
	close(c->fd);
	c->fd = fds[0];
	fds[0] = -1;
	(void)packet_send(c->fd, CA_TAKEN, strlen(CA_TAKEN), NULL, 0, NULL);
	if (n < 2)
		return;
	c->kept = fds[1];
	fds[1] = -1;
}

/* The answer to a torch_spawn_ahead: 1 when it was one. */
static int record_spawn(struct torch_host *h, const struct json *j, int *fds,
			size_t nfds)
{
	uint64_t id;

	if (json_u64(json_get(j, "id"), &id))
		return 0;
	for (size_t i = 0; i < h->nchild; i++) {
		struct torch_child *c = h->child[i];

		if (c->id != id || c->host_pid || c->refused[0])
			continue;
		c->host_pid = (pid_t)json_get_int(j, "pid", 0);
		if (json_get(j, "note"))
			mention("%s", json_get_str(j, "note", ""));
		if (c->host_pid <= 0)
			snprintf(c->refused, sizeof(c->refused), "%s",
				 json_get_str(j, "error", "no process"));
		else if (nfds)
			take_parked(c, fds, nfds);
		return 1;
	}
	return 0;
}

static int take_packet(struct torch_host *h, const char *buf, size_t n,
		       int *fds, size_t nfds, struct json **answer,
		       struct err *e)
{
	struct json *j = json_parse(buf, n, PACKET_MAX, NULL, e);

	if (!j) {
		give_up(h);
		return err_wrap(e, "the torch host talks nonsense");
	}
	if (json_get(j, "exit")) {
		record_exit(h, j);
	} else if (record_spawn(h, j, fds, nfds)) {
		;
	} else if (answer) {
		*answer = j;
		return 1;
	}
	json_free(j);
	return 1;
}

/* As recv, with the descriptors that came along (at most KEPT_MAX). */
static ssize_t receive(int fd, char *buf, int *fds, size_t *nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(KEPT_MAX * sizeof(int))];
	} ctl;
	struct iovec io = { buf, PACKET_MAX };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1,
			    .msg_control = ctl.buf,
			    .msg_controllen = sizeof(ctl.buf) };
	struct cmsghdr *c;
	ssize_t n;

	*nfds = 0;
	do
		n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	c = n >= 0 ? CMSG_FIRSTHDR(&m) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		*nfds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), *nfds * sizeof(int));
	}
	return n;
}

int host_packet(struct torch_host *h, int64_t deadline, struct json **answer,
		struct err *e)
{
	char buf[PACKET_MAX];
	int fds[KEPT_MAX], rc;
	size_t nfds;
	ssize_t n;

	if (answer)
		*answer = NULL;
	if (h->fd < 0)
		return err_set(e, CA_UNAVAILABLE, "the torch host is gone");
	rc = wait_readable(h->fd, deadline, e);
	if (rc <= 0)
		return rc;
	n = receive(h->fd, buf, fds, &nfds);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n > 0) {
		rc = take_packet(h, buf, (size_t)n, fds, nfds, answer, e);
		while (nfds--)
			if (fds[nfds] >= 0)
				close(fds[nfds]);
		return rc;
	}
	give_up(h);
	return err_set(e, CA_UNAVAILABLE, "the torch host ended");
}

static int read_hello(struct torch_host *h, const struct json *j,
		      struct err *e)
{
	const char *why = json_get_str(j, "error", NULL);

	h->stale = json_get_bool(j, "stale", 0);
	if (why)
		return err_set(e, CA_UNAVAILABLE, "the torch host cannot "
			       "start: %s", why);
	if (json_get_int(j, "hello", -1) != CA_PROTO)
		return err_set(e, CA_SOFTWARE, "the torch host speaks another "
			       "version of the protocol");
	h->version = strdup(json_get_str(j, "torch", "?"));
	h->digest = strdup(json_get_str(j, "digest", ""));
	h->cuda = json_get_bool(j, "cuda", 0);
	h->self = (pid_t)json_get_int(j, "pid", 0);
	if (!h->version || !h->digest)
		return err_set(e, CA_SOFTWARE, "out of memory");
	return 0;
}

/* A host that is gone before it said hello: a killed one may be tried again,
 * one that ended by itself would do it again. */
static int never_ready(struct torch_host *h, struct err *e)
{
	int status = 0;

	err_clear(e);
	child_finish(h->pid, deadline_in(LEAVE_SECONDS), &status);
	h->pid = 0;
	if (WIFSIGNALED(status))
		return err_set(e, CA_TEMPFAIL, "the torch host was killed "
			       "(signal %d)", WTERMSIG(status));
	return err_set(e, CA_UNAVAILABLE, "the torch host ended with status "
		       "%d before it was ready", WEXITSTATUS(status));
}

static int hear_hello(struct torch_host *h, double seconds, struct err *e)
{
	struct json *j = NULL;
	int64_t deadline = deadline_in(seconds);
	int rc = wait_unless_signal(h->fd, deadline, e);

	if (rc == 0 && sig_caught())
		return err_set(e, CA_TEMPFAIL, "interrupted");
	if (rc > 0)
		rc = host_packet(h, deadline, &j, e);
	if (rc < 0 && h->fd < 0 && h->pid > 0 && !h->shared)
		return never_ready(h, e);
	if (rc == 0)
		err_set(e, CA_UNAVAILABLE, "the torch host was not ready "
			"within %g s", seconds);
	if (rc <= 0)
		return -1;
	rc = read_hello(h, j, e);
	json_free(j);
	return rc;
}

static int launch(struct torch_host *h, const struct host_command *c,
		  struct err *e)
{
	int fd[2];

	if (make_pair(fd, e))
		return -1;
	h->fd = fd[0];
	h->pid = host_exec(c, fd[1], NULL, 0, e);
	close(fd[1]);
	return h->pid > 0 ? 0 : -1;
}

/* Reaps the process that started a host, or the host. */
static void reap(struct torch_host *h)
{
	int status;

	if (h->pid > 0)
		child_finish(h->pid, deadline_in(LEAVE_SECONDS), &status);
	h->pid = 0;
}

/* Begins with a host of either kind.  Where none can be shared, whatever the
 * reason, it is a private one. */
static int begin(struct torch_host *h, int share, struct err *e)
{
	struct host_command c;
	struct str req = STR_INIT;
	int rc;

	if (host_command(&c, e))
		return -1;
	h->fd = share ? shared_connect(&c, &h->pid, NULL) : -1;
	h->shared = h->fd >= 0;
	h->stale = 0;
	if (!h->shared && launch(h, &c, e))
		return -1;
	if (!h->prepare)
		return 0;
	/* Nobody waits for request 0; its answer is passed over. */
	str_addf(&req, "{\"id\":\"0\",\"op\":\"prepare\",\"role\":\"%s\"}",
		 h->prepare);
	rc = req.failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     packet_send(h->fd, req.buf, req.len, NULL, 0, e);
	str_release(&req);
	return rc;
}

struct torch_host *torch_start(const char *prepare, int share, struct err *e)
{
	struct torch_host *h = calloc(1, sizeof(*h));

	if (!h) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	h->fd = -1;
	h->prepare = prepare;
	/* A shared host that leaves at this very moment shows when it is
	 * waited for. */
	if (!begin(h, share, e))
		return h;
	if (h->shared) {
		err_clear(e);
		return h;
	}
	torch_close(h);
	return NULL;
}

int torch_ready(struct torch_host *h, double seconds, struct err *e)
{
	int again = 1;

	if (h->version)
		return 0;
	while (h->shared) {
		double most = h->pid ? seconds : SHARED_SECONDS;

		if (!hear_hello(h, most < seconds ? most : seconds, e))
			return 0;
		if (sig_caught())
			return -1;
		/* It was killed, hangs or is outdated: another one, or, the
		 * second time, one of our own, which tells what is wrong. */
		again = again && (h->stale || h->fd < 0);
		give_up(h);
		reap(h);
		err_clear(e);
		if (begin(h, again, e) && !h->shared)
			return -1;
		again = 0;
	}
	return hear_hello(h, seconds, e);
}

struct torch_host *torch_open(double seconds, struct err *e)
{
	struct torch_host *h = torch_start(NULL, 0, e);

	if (h && torch_ready(h, seconds, e)) {
		torch_close(h);
		h = NULL;
	}
	return h;
}

void torch_close(struct torch_host *h)
{
	if (!h)
		return;
	give_up(h);
	reap(h);
	free(h->version);
	free(h->digest);
	free(h->child);
	free(h);
}

const char *torch_version(const struct torch_host *h)
{
	return h->version;
}

const char *torch_digest(const struct torch_host *h)
{
	return h->digest;
}

int torch_has_cuda(const struct torch_host *h)
{
	return h->cuda;
}

int torch_is_shared(const struct torch_host *h)
{
	return h->shared;
}

pid_t torch_pid(const struct torch_host *h)
{
	return h->self;
}

int torch_fd(const struct torch_host *h)
{
	return h->fd;
}

int torch_pump(struct torch_host *h, struct err *e)
{
	int rc;

	do
		rc = host_packet(h, 0, NULL, e);
	while (rc > 0);
	return rc;
}

static int remember(struct torch_host *h, struct torch_child *c,
		    struct err *e)
{
	if (h->nchild == h->alloc) {
		size_t n = h->alloc ? 2 * h->alloc : 8;
		void *p = realloc(h->child, n * sizeof(*h->child));

		if (!p)
			return err_set(e, CA_SOFTWARE, "out of memory");
		h->child = p;
		h->alloc = n;
	}
	h->child[h->nchild++] = c;
	return 0;
}

/* Waits for the answer to request `id`. */
static int await(struct torch_host *h, uint64_t id, struct json **answer,
		 struct err *e)
{
	int64_t deadline = deadline_in(SPAWN_SECONDS);
	uint64_t got;
	int rc;

	for (;;) {
		rc = host_packet(h, deadline, answer, e);
		if (rc == 0) {
			give_up(h);
			err_set(e, CA_UNAVAILABLE, "the torch host does not "
				"answer");
		}
		if (rc <= 0)
			return -1;
		if (!*answer)
			continue;
		if (!json_u64(json_get(*answer, "id"), &got) && got == id)
			return 0;
		json_free(*answer);
	}
}

static int ask(struct torch_host *h, struct str *req, uint64_t id,
	       struct json **answer, struct err *e)
{
	const char *why;

	if (req->failed)
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (packet_send(h->fd, req->buf, req->len, NULL, 0, e) ||
	    await(h, id, answer, e))
		return -1;
	why = json_get_str(*answer, "error", NULL);
	if (!why)
		return 0;
	err_set(e, CA_UNAVAILABLE, "the torch host: %s", why);
	json_free(*answer);
	*answer = NULL;
	return -1;
}

static void write_spawn(struct str *req, const struct torch_spawn *s,
			int park, uint64_t id)
{
	struct jw w;

	jw_init(&w, req);
	jw_obj(&w);
	jw_ku64(&w, "id", id);
	jw_kstr(&w, "op", "spawn");
	jw_kstr(&w, "role", s->role);
	jw_kstr(&w, "device", s->device);
	jw_kstr(&w, "jail", s->jail);
	if (s->node)
		jw_kstr(&w, "node", s->node);
	if (s->gpu)
		jw_kstr(&w, "gpu", s->gpu);
	jw_kbool(&w, "may_exec", s->may_exec);
	jw_ku64(&w, "mem_bytes", s->mem_bytes > 0 ? (uint64_t)s->mem_bytes :
		0);
	if (s->cache)
		jw_kstr(&w, "cache", s->cache);
	if (s->queues)
		jw_kint(&w, "queues", s->queues);
	if (s->parked || park)
		jw_kbool(&w, park ? "park" : "parked", 1);
	jw_end_obj(&w);
}

/* A channel whose first end hears who sent what. */
static int make_channel(int fd[2], struct err *e)
{
	int one = 1;

	if (make_pair(fd, e))
		return -1;
	if (!setsockopt(fd[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)))
		return 0;
	err_sys(e, CA_SOFTWARE, "cannot ask for credentials");
	close(fd[0]);
	close(fd[1]);
	return -1;
}

static int send_first(int fd, const struct torch_spawn *s, struct err *e)
{
	if (s->first->failed)
		return err_set(e, CA_SOFTWARE, "out of memory");
	return packet_send(fd, s->first->buf, s->first->len, s->fds, s->nfds,
			   e);
}

int torch_spawn_ahead(struct torch_host *h, const struct torch_spawn *s,
		      struct torch_child *c, struct err *e)
{
	struct str req = STR_INIT;
	int fd[2], rc = -1;

	memset(c, 0, sizeof(*c));
	c->fd = c->kept = -1;
	c->id = ++h->next;
	if (h->fd < 0)
		return err_set(e, CA_UNAVAILABLE, "the torch host is gone");
	if (make_channel(fd, e))
		return -1;
	write_spawn(&req, s, 0, c->id);
	if (req.failed)
		err_set(e, CA_SOFTWARE, "out of memory");
	else if (!s->first || !send_first(fd[0], s, e))
		rc = packet_send(h->fd, req.buf, req.len, &fd[1], 1, e) ||
		     remember(h, c, e) ? -1 : 0;
	if (!rc)
		c->fd = fd[0];
	str_release(&req);
	close(fd[1]);
	if (rc)
		close(fd[0]);
	return rc;
}

int torch_spawned(struct torch_host *h, struct torch_child *c, struct err *e)
{
	int64_t deadline = deadline_in(SPAWN_SECONDS);
	int rc = 1;

	while (!c->host_pid && !c->refused[0] && rc > 0) {
		rc = host_packet(h, deadline, NULL, e);
		if (rc == 0) {
			give_up(h);
			err_set(e, CA_UNAVAILABLE, "the torch host does not "
				"answer");
		}
	}
	if (rc > 0 && c->refused[0])
		err_set(e, CA_UNAVAILABLE, "the torch host: %s", c->refused);
	return c->host_pid > 0 ? 0 : -1;
}

int torch_spawn(struct torch_host *h, const struct torch_spawn *s,
		struct torch_child *c, struct err *e)
{
	if (torch_spawn_ahead(h, s, c, e))
		return -1;
	if (!torch_spawned(h, c, e))
		return 0;
	child_forget(h, c);
	return -1;
}

void torch_move(struct torch_host *h, struct torch_child *to,
		struct torch_child *from)
{
	*to = *from;
	from->fd = from->kept = -1;
	for (size_t i = 0; i < h->nchild; i++)
		if (h->child[i] == from)
			h->child[i] = to;
}

int torch_park(struct torch_host *h, const struct torch_spawn *s,
	       int registration, int kept, struct err *e)
{
	struct str spawn = STR_INIT;
	int fd[2], rc;

	if (h->fd < 0 || !h->shared)
		return err_set(e, CA_UNAVAILABLE, "there is no shared host");
	if (make_channel(fd, e))
		return -1;
	write_spawn(&spawn, s, 1, ++h->next);
	if (spawn.failed)
		rc = err_set(e, CA_SOFTWARE, "out of memory");
	else
		rc = send_first(fd[0], s, e) ||
		     packet_send(h->fd, spawn.buf, spawn.len,
				 (const int[]){ fd[1], registration, fd[0],
						kept }, kept < 0 ? 3 : 4, e) ?
		     -1 : 0;
	str_release(&spawn);
	close(fd[0]);
	close(fd[1]);
	return rc;
}

int torch_hold(struct torch_host *h, const int *fds, size_t nfds,
	       struct err *e)
{
	static const char req[] = "{\"op\":\"hold\"}";

	if (h->fd < 0 || !h->shared)
		return err_set(e, CA_UNAVAILABLE, "there is no shared host");
	return packet_send(h->fd, req, strlen(req), fds, nfds, e);
}

int torch_unpark(struct torch_host *h, struct err *e)
{
	struct str req = STR_INIT;
	struct json *answer = NULL;
	uint64_t id = ++h->next;
	int rc = -1;

	if (h->fd < 0 || !h->shared)
		return err_set(e, CA_UNAVAILABLE, "there is no shared host");
	str_addf(&req, "{\"id\":\"%llu\",\"op\":\"unpark\"}",
		 (unsigned long long)id);
	if (!ask(h, &req, id, &answer, e))
		rc = (int)json_get_int(answer, "ended", 0);
	json_free(answer);
	str_release(&req);
	return rc;
}

int torch_prepare(struct torch_host *h, const char *role, struct err *e)
{
	struct str req = STR_INIT;
	struct json *answer = NULL;
	uint64_t id = ++h->next;
	int rc;

	if (h->fd < 0)
		return err_set(e, CA_UNAVAILABLE, "the torch host is gone");
	str_addf(&req, "{\"id\":\"%llu\",\"op\":\"prepare\",\"role\":\"%s\"}",
		 (unsigned long long)id, role);
	rc = ask(h, &req, id, &answer, e);
	if (!rc)
		json_free(answer);
	str_release(&req);
	return rc;
}
