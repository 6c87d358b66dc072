/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the parts of the CUDA device: cuda_device.c (the table, leases,
 * opening), cuda_mem.c (memory), cuda_bracket.c (one iteration),
 * cuda_compare.c.
 */
#ifndef CA_JUDGE_CUDA_H
#define CA_JUDGE_CUDA_H

#include "cu/child/child.h"
#include "cu/cu.h"
#include "cu/nvml.h"
#include "judge/cuda_move.h"
#include "judge/device.h"

/*
 * Processors for the clock (cuda_cpus.c).  The judge's thread and a runner's
 * main thread each stay on a core of their own while brackets are timed:
 * where the scheduler puts them costs tens of microseconds, another amount in
 * each process.  Without two cores, or the right to say so, nothing is done.
 */
struct cuda_cpus { int judge, runner; };	/* -1: none */
void cuda_cpus_find(struct cuda_cpus *c, int index);
/* For the index-th GPU two whole cores that no other has, of those `allowed`
 * (flags of CUDA_CPUS processors); `root` is where the kernel tells which
 * share a core, "/sys/devices/system/cpu". */
#define CUDA_CPUS 1024
void cuda_cpus_choose(struct cuda_cpus *c, int index, const char *allowed,
		      const char *root);
void cuda_cpus_hold(const struct cuda_cpus *c, pid_t runner);
/* Lets the judge's thread run anywhere again. */
void cuda_cpus_let(const struct cuda_cpus *c);

/* Where the judge's kernels tell the host that the GPU got to them. */
struct cuda_stamp {
	uint64_t ns;		/* when, by the GPU's clock; STAMP_HOLDS: how
				 * long the hold did not run at most */
	uint64_t seq;		/* which bracket's; written last */
};
enum { STAMP_HOLDS, STAMP_HELD, STAMP_REVEALED, STAMP_ANSWERED, CUDA_STAMPS };

struct cuda {
	struct device dev;
	struct cu_dev *cu;
	cu_mod mod;
	cu_fn move, sweep, hold, stamp, probe, differs, spin, compare;
	struct cuda_stamp *stamps;	/* page-locked, CUDA_STAMPS of them */
	uint64_t stamped;		/* seq of the latest */
	struct cu_mem flush;	/* swept: more than the whole L2 */
	struct cu_mem scratch;	/* counters of the kernels, and behind them
				 * what zones are filled with */
	struct nvml *nvml;	/* NULL: no such evidence here */
	int nvml_tried;
	int lease;		/* descriptor, -1 */
	int registered, hosted;	/* descriptors: we and the host, -1 */
	struct cu_nodes nodes;
	struct cuda_cpus cpus;
	double late_us;		/* a probe that takes longer waited for
				 * somebody else's work */
};

#define CUDA_SCRATCH ((size_t)1 << 20)

/* CA_POOL_ZONE bytes that nobody else knows. */
static inline struct mem cuda_zone(const struct cuda *c)
{
	return (struct mem){
		.p = (void *)(uintptr_t)(c->scratch.ptr + CUDA_SCRATCH),
		.bytes = CA_POOL_ZONE,
		.fd = -1,
	};
}

static inline struct cuda *cuda_of(struct device *d)
{
	return (struct cuda *)d;
}

static inline cu_ptr cuda_at(const struct mem *m, size_t off)
{
	return (cu_ptr)(uintptr_t)m->p + off;
}

/* 0 when n bytes at off lie in m. */
int cuda_inside(const struct mem *m, size_t off, size_t n, struct err *e);

/* Memory (device_ops). */
int cuda_shared(struct device *d, size_t bytes, int host, struct mem *m,
		struct err *e);
int cuda_private(struct device *d, size_t bytes, struct mem *m,
		 struct err *e);
void cuda_release(struct device *d, struct mem *m);
int cuda_copy(struct device *d, struct mem *dst, size_t doff,
	      const struct mem *src, size_t soff, size_t n, struct err *e);
int cuda_download(struct device *d, void *dst, const struct mem *src,
		  size_t off, size_t n, struct err *e);
int cuda_upload(struct device *d, struct mem *dst, size_t off,
		const void *src, size_t n, struct err *e);
int cuda_poison(struct device *d, struct mem *m, size_t off, size_t n,
		uint64_t seed, struct err *e);
int cuda_differs(struct device *d, const struct mem *a, size_t aoff,
		 const struct mem *b, size_t boff, size_t n, struct err *e);

/* Moves, gathered in a table and launched when it is full or at the end.
 * They run in no particular order: no move may read what another writes. */
struct cuda_moves {
	struct cuda *c;
	struct moves t;
};
void cuda_moves_init(struct cuda_moves *m, struct cuda *c, uint64_t seed);
/* src 0: poison. */
int cuda_move(struct cuda_moves *m, cu_ptr dst, cu_ptr src, size_t bytes,
	      struct err *e);
int cuda_moves_end(struct cuda_moves *m, struct err *e);

/* Waits for the judge's stream; CA_SOFTWARE when it takes `seconds`. */
int cuda_sync(struct cuda *c, double seconds, struct err *e);

enum torch_wait cuda_answer(struct device *d, struct runner *r,
			    struct ca_msg *m, int64_t deadline);
int cuda_bracket(struct device *d, struct runner *r, const struct bracket *b,
		 struct bracket_result *res, struct err *e);
/* Nanoseconds from a probe's launch to its end; < 0 on failure. */
int64_t cuda_probe(struct cuda *c, struct err *e);

int cuda_compare(struct device *d, const struct cmp_rule *rule,
		 const struct view *got, const struct view *ref,
		 const struct view *fp64, struct cmp_result *r,
		 struct err *e);

#endif
