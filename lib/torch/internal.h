/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by host.c and child.c.
 */
#ifndef CA_TORCH_INTERNAL_H
#define CA_TORCH_INTERNAL_H

#include <stdint.h>
#include <sys/types.h>

#include "torch/torch.h"

struct torch_host {
	int fd;			/* -1: gone */
	pid_t pid;
	uint64_t next;		/* id of the next request */
	int cuda;
	char *version, *digest;
	struct torch_child **child;	/* those not reported ended */
	size_t nchild, alloc;
};

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
