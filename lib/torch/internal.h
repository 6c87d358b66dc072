/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of lib/torch.
 */
#ifndef CA_TORCH_INTERNAL_H
#define CA_TORCH_INTERNAL_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/path.h"
#include "torch/torch.h"

struct torch_host {
	int fd;			/* -1: gone */
	pid_t pid;		/* a child of ours, to be reaped; 0: none */
	pid_t self;		/* as it says itself; 0 until it is ready */
	int shared;
	int stale;		/* a shared one said that it is outdated */
	const char *prepare;	/* role to get ready for, or NULL */
	uint64_t next;		/* id of the next request */
	int cuda;
	char *version, *digest;
	struct torch_child **child;	/* those not reported ended */
	size_t nchild, alloc;
};

#define HOST_ENV 256
#define HOST_ARGS 12

/* How a host is started.  env points into the caller's own. */
struct host_command {
	char python[CA_PATH_MAX], script[CA_PATH_MAX], cache[CA_PATH_MAX];
	const char *env[HOST_ENV];
	const char *idle;	/* seconds until a shared one leaves */
};

/* CA_CONFIG for a wrong setting, CA_UNAVAILABLE where there is no Python with
 * torch. */
int host_command(struct host_command *c, struct err *e);

/* Runs it with descriptor fd and further arguments; the pid, or -1. */
pid_t host_exec(const struct host_command *c, int fd,
		const char *const *more, size_t nmore, struct err *e);

/*
 * Connects to the host that this user's tools share, and starts it where it
 * does not run; the greeting has been sent then, hello will come.  *starter
 * is a process to be reaped, which ends soon (0: the host ran already).
 * Returns the descriptor; -1 when there can be none, with the reason.
 */
int shared_connect(const struct host_command *c, pid_t *starter,
		   struct err *e);

/* No report of this child is expected any more; closes its channel. */
void child_forget(struct torch_host *h, struct torch_child *c);

/* One packet with descriptors; never SIGPIPE, never blocks for long. */
int packet_send(int fd, const void *p, size_t len, const int *fds,
		size_t nfds, struct err *e);

/*
 * Handles one packet of the host, waiting for it until the deadline.  A
 * packet that answers a request is parsed into *answer (may be NULL: then it
 * is dropped); exit reports are recorded.  1 handled, 0 deadline, -1 the host
 * is gone or talks nonsense (it is then given up).
 */
int host_packet(struct torch_host *h, int64_t deadline, struct json **answer,
		struct err *e);

#endif
