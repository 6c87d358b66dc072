/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kind of device provides.
 */
#ifndef CA_GPU_DEVICE_H
#define CA_GPU_DEVICE_H

#include "gpu/gpu.h"

struct gpu_ops {
	void (*close)(struct gpu *g);
	void *(*alloc)(struct gpu *g, size_t bytes, struct err *e);
	void (*free)(struct gpu *g, void *p);
	void *(*host)(struct gpu *g, size_t bytes, struct err *e);
	void (*host_free)(struct gpu *g, void *p);
	/* See gpu_work_size. */
	size_t (*work_size)(size_t t, size_t width, size_t matrix);
	/* Bytes that can be allocated now; 0 when not known. */
	size_t (*avail)(struct gpu *g);
	void (*upload)(struct gpu *g, void *dst, const void *src, size_t n);
	void (*download)(struct gpu *g, void *dst, const void *src, size_t n);
	void (*copy)(struct gpu *g, void *dst, const void *src, size_t n);
	void (*zero)(struct gpu *g, void *dst, size_t n);
	void (*sync)(struct gpu *g);
	/* See gpu_join and what follows it; the others are only called after
	 * join.  `mark` comes between two steps of a long run. */
	int (*join)(struct gpu *g, struct comm *c, struct err *e);
	void (*mark)(struct gpu *g);
	void (*reduce_scatter)(struct gpu *g, float *x, size_t part);
	void (*all_gather)(struct gpu *g, void *x, size_t bytes);
	void (*collected)(struct gpu *g);
	/* NULL where nothing can be recorded. */
	int (*record)(struct gpu *g);
	struct gpu_tape *(*record_end)(struct gpu *g);
	void (*replay)(struct gpu *g, const struct gpu_tape *t);
	void (*tape_free)(struct gpu *g, struct gpu_tape *t);
	/* See gpu_do_token; NULL where it is never done. */
	int (*token)(struct gpu *g, const struct gpu_token *a);
#define GPU_POINTER(name, args) \
	void (*name)(struct gpu *g, const struct args *a);
	GPU_OPS(GPU_POINTER)
#undef GPU_POINTER
};

/* The beginning of every kind's own struct. */
struct gpu {
	const struct gpu_ops *ops;
	enum gpu_type act;
	unsigned flags;
	char name[128];
	char lease[64];			/* see gpu_lease_name */
	double peak;
	struct comm *comm;		/* NULL: alone */
	void *work;			/* gpu_set_work */
	size_t work_bytes;
	struct err failed;		/* first failure; code 0: none */
};

/* NULL with `e` on failure; `ops`, `act` and `flags` are set by gpu_open. */
struct gpu *gpu_open_cpu(struct err *e);

#endif
