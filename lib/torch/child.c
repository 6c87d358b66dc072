/* SPDX-License-Identifier: Apache-2.0
 *
 * Talking to one forked child, and ending it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "torch/internal.h"

#define END_SECONDS 1		/* to end by itself, or after a kill */
#define REPORT_SECONDS 10
#ifndef MFD_EXEC
#define MFD_EXEC 0x10u
#endif

static int fill(int fd, const void *p, size_t len, struct err *e)
{
	if (fd < 0)
		return err_sys(e, CA_UNAVAILABLE, "cannot make a memfd");
	if (write_full(fd, p, len, e)) {
		close(fd);
		return -1;
	}
	return fd;
}

int memfd_of(const void *p, size_t len, struct err *e)
{
	return fill(memfd_create("cuda-agent-text", MFD_CLOEXEC), p, len, e);
}

int memfd_code(const void *p, size_t len, struct err *e)
{
	static const char name[] = "cuda_extension";
	const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create(name, flags | MFD_EXEC);

	if (fd < 0)		/* before Linux 6.3 */
		fd = memfd_create(name, flags);
	fd = fill(fd, p, len, e);
	if (fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW |
					      F_SEAL_SHRINK | F_SEAL_SEAL)) {
		close(fd);
		return err_sys(e, CA_UNAVAILABLE, "cannot seal a memfd");
	}
	return fd;
}

int torch_send(struct torch_child *c, const char *json, size_t len,
	       const int *fds, size_t nfds, struct err *e)
{
	if (len > CA_REQ_MAX)
		return err_set(e, CA_SOFTWARE, "a request of %zu bytes is too "
			       "long", len);
	return packet_send(c->fd, json, len, fds, nfds, e);
}

int torch_send_go(struct torch_child *c, const struct ca_go *go,
		  struct err *e)
{
	return packet_send(c->fd, go, sizeof(*go), NULL, 0, e);
}

/* The sender's pid, which the kernel vouches for. */
static pid_t sender(struct msghdr *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);
	struct ucred u;

	if (!c || c->cmsg_level != SOL_SOCKET ||
	    c->cmsg_type != SCM_CREDENTIALS ||
	    c->cmsg_len != CMSG_LEN(sizeof(u)))
		return 0;
	memcpy(&u, CMSG_DATA(c), sizeof(u));
	return u.pid;
}

enum torch_wait torch_recv(struct torch_child *c, struct ca_msg *msg,
			   int64_t deadline)
{
	/* Room for credentials and nothing else: descriptors that a child
	 * sends along are dropped by the kernel. */
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(struct ucred))];
	} ctl;
	struct iovec io = { msg, sizeof(*msg) };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1,
			    .msg_control = ctl.buf,
			    .msg_controllen = sizeof(ctl.buf) };
	struct err e = ERR_INIT;
	ssize_t n;
	int rc = wait_unless_signal(c->fd, deadline, &e);

	if (rc <= 0)
		return rc ? WAIT_GONE : WAIT_TIMEOUT;
	do
		n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 && errno == EAGAIN ? WAIT_TIMEOUT : WAIT_GONE;
	if (n != (ssize_t)sizeof(*msg) || msg->magic != CA_MAGIC_MSG ||
	    (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return WAIT_GARBAGE;
	if (!c->pid)
		c->pid = sender(&m);
	return WAIT_OK;
}

/* Hears the host until it has reported this child; 1 when it has. */
static int heard(struct torch_host *h, struct torch_child *c, double seconds)
{
	int64_t deadline = deadline_in(seconds);

	while (!c->ended && host_packet(h, deadline, NULL, NULL) > 0)
		;
	return c->ended;
}

static int hung_up(const struct torch_child *c)
{
	struct pollfd p = { c->fd, 0, 0 };

	return c->fd >= 0 && poll(&p, 1, 0) > 0 &&
	       (p.revents & (POLLHUP | POLLERR));
}

static void hit(pid_t pid)
{
	if (pid > 1)
		kill(pid, SIGKILL);
}

/* Without a host nobody reports: kill both and see them go. */
static int kill_orphan(struct torch_child *c)
{
	struct timespec ms = { 0, 1000000 };
	int64_t end = deadline_in(REPORT_SECONDS);

	hit(c->pid);
	hit(c->host_pid);
	while (now_ns() < end && hung_up(c) == 0)
		nanosleep(&ms, NULL);
	c->ended = 1;
	c->status = SIGKILL;
	return 0;
}

static int end_child(struct torch_host *h, struct torch_child *c,
		     struct err *e)
{
	torch_pump(h, NULL);
	/* One that was refused, or whose host is gone, never began. */
	if (!c->host_pid && torch_spawned(h, c, NULL))
		return 0;
	if (c->ended || (hung_up(c) && heard(h, c, END_SECONDS)))
		return 0;
	/* The confined process first: the one that the host forked passes
	 * its status on. */
	hit(c->pid);
	if (c->pid && heard(h, c, END_SECONDS))
		return 0;
	hit(c->host_pid);
	if (heard(h, c, REPORT_SECONDS))
		return 0;
	if (h->fd < 0)
		return kill_orphan(c);
	return err_set(e, CA_SOFTWARE, "process %d does not end",
		       (int)c->host_pid);
}

void torch_hit(struct torch_host *h, struct torch_child *c)
{
	torch_pump(h, NULL);
	if (!c->ended && !hung_up(c))
		hit(c->pid);
}

void child_forget(struct torch_host *h, struct torch_child *c)
{
	for (size_t i = 0; i < h->nchild; i++)
		if (h->child[i] == c) {
			h->child[i] = h->child[--h->nchild];
			break;
		}
	if (c->fd >= 0)
		close(c->fd);
	if (c->kept >= 0)
		close(c->kept);
	c->fd = c->kept = -1;
}

int torch_kill(struct torch_host *h, struct torch_child *c, struct err *e)
{
	int rc = end_child(h, c, e);

	child_forget(h, c);
	return rc;
}
