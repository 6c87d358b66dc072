/* SPDX-License-Identifier: Apache-2.0
 *
 * Collective operations of GPUs by NCCL, opened at run time.
 */
#ifndef CA_GPU_NCCL_H
#define CA_GPU_NCCL_H

#include "cu/cu.h"
#include "gpu/comm.h"

struct nccl;

/*
 * A communicator of all ranks of c, each with the device whose context is
 * current; all have to call it.  CA_UNAVAILABLE when there is no NCCL of
 * version 2.14 or newer or it does not start, and as comm_check.
 */
struct nccl *nccl_open(struct comm *c, struct err *e);

/* Waits for nothing: what still runs is broken off.  NULL is fine. */
void nccl_close(struct nccl *n);

/* Launch comm_reduce_scatter and comm_all_gather on device memory. */
int nccl_reduce_scatter(struct nccl *n, cu_stream s, float *x, size_t part,
			struct err *e);
int nccl_all_gather(struct nccl *n, cu_stream s, void *x, size_t bytes,
		    struct err *e);

/* What has gone wrong on the way: CA_UNAVAILABLE. */
int nccl_check(struct nccl *n, struct err *e);

#endif
