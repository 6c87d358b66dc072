/* SPDX-License-Identifier: Apache-2.0
 *
 * libca-child.so: what a CUDA child of the torch host loads with ctypes.
 */
#ifndef CA_CU_CHILD_CHILD_H
#define CA_CU_CHILD_CHILD_H

#include <stdint.h>
#include <sys/types.h>

#define CA_POOL_ZONE 512

/* Resolves libcuda; called by the others as needed.  0 or -1. */
int ca_child_driver(void);

/* Maps a VMM handle that came as a descriptor into the current context of
 * `device`; bytes as the judge rounded them.  0, a CUresult, or -1. */
int ca_child_import(int device, int fd, uint64_t bytes, uint64_t *ptr);

/* Launches the kernel CA_NUDGE, which does nothing, in a stream of torch's.
 * 0, a CUresult, or -1. */
int ca_child_nudge(uint64_t stream);

/* The pool region, and torch's CUDAPluggableAllocator over it; when it is
 * full, memory outside of it is handed out. */
void ca_pool_set(uint64_t base, uint64_t len);
void *ca_pool_malloc(ssize_t size, int device, void *stream);
void ca_pool_free(void *ptr, ssize_t size, int device, void *stream);
/* The block that holds ptr, as offsets of its first byte and of the one behind
 * its last; both 0: none.  CA_POOL_ZONE bytes before and behind it are
 * nobody's. */
void ca_pool_block(uint64_t ptr, uint64_t at[2]);

/* Starts CUPTI over the region behind fd (see cu/trace.h).  Before the first
 * CUDA call of the process, else modules loaded by then are not seen.  0, or
 * -1 when there is no CUPTI or somebody else has subscribed. */
int ca_trace_start(int fd);
/* An iteration begins. */
void ca_trace_mark(uint64_t seq);
/* Brings what CUPTI still buffers into the region; waits for the GPU. */
void ca_trace_flush(void);

#endif
