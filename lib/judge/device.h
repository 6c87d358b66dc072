/* SPDX-License-Identifier: Apache-2.0
 *
 * What the judge needs of a device: memory that it owns and shares, and one
 * bracketed iteration of a confined process.  Two implementations: cpu.c
 * (memfds, ptrace) and cuda_device.c (VMM handles, SM kernels).  The flow of
 * verification and profiling is written against this table only.
 */
#ifndef CA_JUDGE_DEVICE_H
#define CA_JUDGE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "judge/attrib.h"
#include "torch/torch.h"

struct device;
struct witness;

/*
 * A piece of memory of the judge's.  p is an address in the judge: of the
 * host, or on CUDA of the device unless `host` is set.  Shared memory has a
 * descriptor that is sent to a child (CPU and host: a memfd sealed against
 * shrinking, growing and further seals; CUDA: a VMM handle exported as a
 * POSIX descriptor), private memory has fd -1.  `bytes` is what was asked
 * for, rounded up to the device's granularity.
 */
struct mem {
	void *p;
	size_t bytes;
	int fd;
	int host;
	uint64_t handle;	/* the device's own */
};

#define MEM_NONE { NULL, 0, -1, 0, 0 }

struct extent {
	uint64_t offset, bytes;
};

/* One confined process as the device sees it. */
struct runner {
	struct torch_child child;
	const char *role;
	struct mem in[2];	/* the two address sets */
	struct mem slots;	/* host: 2 x CA_SLOTS struct ca_slot */
	struct mem params;
	struct mem pool;
	struct mem seen;	/* host: what CUPTI saw ("trace"); CUDA only,
				 * and not with a desc */
	struct mem desc;	/* host: JSON of a baseline's table; only in
				 * processes that will be asked for one */
	int tabled;		/* is such a process */
	struct extent last[CA_LEAVES];	/* results of the previous iteration, */
	unsigned nlast;			/* poisoned at the next reveal */
	struct extent block[CA_LEAVES];	/* of the pool, that `last` lie in */
	struct extent zoned[CA_LEAVES];	/* CUDA: those whose zones are filled */
	unsigned nzoned;
	uint64_t seq;
	int warmed;		/* the last bracket made a warm call */
	uint64_t brackets;	/* so far; the next one's address set is
				 * brackets & 1 */
	void *trace;		/* the device's own (cpu: traced threads) */
	struct witness *witness;	/* CPU only */
	int fine;		/* nobody times it: the witness looks often */
	struct str image;	/* a candidate's object, as it was built */
	struct attribution saw; /* after detach: whose code ran */
	uint64_t ran, waited;	/* ns, when it was attached; CPU only */
	int ended;		/* after detach: how it had ended by itself, as
				 * waitpid; -1: unknown, ask the host */
};

/* One iteration.  Sources and `capture` are private memory or memory that is
 * shared with the oracle, never with the runner. */
struct bracket {
	struct ca_go go;		/* go.set chooses the address set */
	const struct mem *inputs;	/* copied to in[set]; may be empty */
	size_t input_bytes;
	const struct ca_slot *slots;	/* CA_SLOTS of them; NULL: none */
	const struct mem *params; /* NULL: left as they are; else copied */
	size_t param_bytes;		/* over the runner's in the same step */
	struct mem *capture;		/* results are packed here; NULL: not */
	uint64_t poison;		/* seed of the poison */
	int warm;			/* before the clock starts, a call on
					 * the previous inputs */
	int64_t deadline;		/* now_ns() scale */
};

struct bracket_result {
	enum torch_wait wait;		/* WAIT_OK, or why there is no answer */
	struct ca_msg msg;		/* valid with WAIT_OK */
	int64_t ns;			/* start of the clock to its stop; on
					 * CUDA by the GPU's clock, from the
					 * end of the reveal to the start of
					 * the capture */
	struct extent got[CA_LEAVES];	/* where each tensor leaf of msg lies in
					 * `capture`; bytes 0 for others */
	int bad_leaf;			/* a leaf outside the pool or absurd:
					 * nothing was captured, `tampered` */
	int disturbed;			/* CUDA: the order of things was broken,
					 * by nobody's fault: to be done again
					 * on other inputs */
	int stray;			/* somebody wrote beside the block that
					 * leaf stray - 1 was made in; < 0:
					 * before leaf -stray - 1; 0: nobody */
	int late;			/* CUDA: work of the runner ended after
					 * its answer; `tampered` */
};

struct cmp_rule;
struct cmp_result;
struct view;

struct device_ops {
	const char *name;		/* "cpu", "cuda" */
	void (*close)(struct device *d);
	/* The same where this process is about to end, and with it what a
	 * driver frees then; NULL: close. */
	void (*leave)(struct device *d);

	/* Memory.  Fresh shared memory is zeroed, fresh private is not. */
	int (*shared)(struct device *d, size_t bytes, int host, struct mem *m,
		      struct err *e);
	int (*private_mem)(struct device *d, size_t bytes, struct mem *m,
			   struct err *e);
	void (*release)(struct device *d, struct mem *m);
	int (*copy)(struct device *d, struct mem *dst, size_t doff,
		    const struct mem *src, size_t soff, size_t n,
		    struct err *e);
	int (*download)(struct device *d, void *dst, const struct mem *src,
			size_t off, size_t n, struct err *e);
	int (*upload)(struct device *d, struct mem *dst, size_t off,
		      const void *src, size_t n, struct err *e);
	int (*poison)(struct device *d, struct mem *m, size_t off, size_t n,
		      uint64_t seed, struct err *e);
	/* 1 when n bytes differ, 0 when equal, -1 on failure. */
	int (*differs)(struct device *d, const struct mem *a, size_t aoff,
		       const struct mem *b, size_t boff, size_t n,
		       struct err *e);
	/* compare.h's comparison; the views' data are addresses as in mem.p. */
	int (*compare)(struct device *d, const struct cmp_rule *rule,
		       const struct view *got, const struct view *ref,
		       const struct view *fp64, struct cmp_result *r,
		       struct err *e);

	/* Takes hold of a runner after it has answered {"op":"jail"} and before
	 * foreign code is loaded (cpu: ptrace); lets it go and forgets it. */
	int (*attach)(struct device *d, struct runner *r, struct err *e);
	void (*detach)(struct device *d, struct runner *r);

	/* Waits for an answer outside a bracket (map, load) while serving
	 * whatever the hold on the runner needs. */
	enum torch_wait (*answer)(struct device *d, struct runner *r,
				  struct ca_msg *m, int64_t deadline);

	/* One iteration.  -1 only when the judge itself failed. */
	int (*bracket)(struct device *d, struct runner *r,
		       const struct bracket *b, struct bracket_result *res,
		       struct err *e);

	/* Brings the device back after a fault of a runner (sticky errors,
	 * memory); -1 when it cannot be used any more. */
	int (*recover)(struct device *d, struct err *e);

	/* The lease: exclusive while a clock runs, shared while anything else
	 * of ours uses the device.  Waits at most `seconds`. */
	int (*lease)(struct device *d, int exclusive, double seconds,
		     struct err *e);
	void (*unlease)(struct device *d);
	/* Makes the lease that is held a shared one.  -1: somebody else has
	 * taken it meanwhile. */
	int (*share)(struct device *d);
	/* Whether somebody else uses the device (contention): on CUDA now, on
	 * the CPU since `trusted`, a process of ours, was attached. */
	int (*foreign)(struct device *d, const struct runner *trusted);
	/* Runners are forked by this process; NULL: it is no matter. */
	void (*hosted)(struct device *d, pid_t host);
};

struct device {
	const struct device_ops *ops;
	char name[32];			/* "cpu", "cuda:0": for children */
	const char *node; /* CUDA: "/dev/nvidia0"; NULL: unknown */
	const char *gpu;  /* CUDA: its UUID */
	char model[128];		/* what people call it */
	size_t granularity;		/* of shared memory */
	double bytes_per_s;		/* of memory; 0: unknown */
	double cache_bytes_per_s; /* more than all caches together can write;
				 * 0: four times bytes_per_s */
	double resolution_us;		/* what the clock can tell apart */
	pid_t host;			/* whose children are not foreign: the
					 * torch host, once it runs; 0: none */
	int witnessed;			/* runners have a witness outside */
	int waited;			/* device_lease has said so */
};

/*
 * Opens "cpu", "cuda" (any free GPU) or "cuda:N"; NULL means cuda when there
 * is a GPU, else cpu.  CA_UNAVAILABLE names the device that does not exist.
 */
struct device *device_open(const char *name, struct err *e);
void device_close(struct device *d);
void device_leave(struct device *d);	/* ops->leave */

/* ops->lease, and after `patience` seconds in vain a warning that somebody
 * else has the device. */
int device_lease(struct device *d, int exclusive, double seconds,
		 double patience, struct err *e);

/* The lease for what comes, instead of the one that is held: HOLD_NONE where
 * the device allows it (on the CPU everything disturbs a clock, so there it is
 * shared), HOLD_SHARED or HOLD_ALONE.  The numbers are turns.py's too. */
enum device_hold { HOLD_NONE, HOLD_SHARED, HOLD_ALONE };

int device_hold(struct device *d, enum device_hold how, double seconds,
		struct err *e);

/* Says which process forks the runners. */
void device_hosted(struct device *d, pid_t host);

/* For cpu.c and cuda_device.c. */
struct device *device_cpu_open(struct err *e);
struct device *device_cuda_open(int index, struct err *e);	/* -1: any */
int device_cuda_count(void);		/* 0 without a driver or a GPU */
/* Whether more contexts than are needed find room: a large GPU, of whose memory
 * at least half is free. */
int device_cuda_roomy(struct device *d);
/* Bytes of its memory; 0 when that cannot be asked. */
double device_cuda_total(struct device *d);
/*
 * Descriptors that let a process which cannot open them wait for its turn: a
 * lock that those who are parked take one after the other, then the gate and
 * the lock of the lease (lease.h).  0, or -1 and none.
 */
#define DEVICE_TURN 3
int device_cuda_turn(struct device *d, int fd[DEVICE_TURN]);
/* One more registration of the host, which holds until it is closed; -1. */
int device_cuda_registration(struct device *d);
/* What has to stay open until this process and all that was forked for it have
 * ended: the lease, and that they are no strangers.  How many; they stay the
 * device's. */
#define DEVICE_HELD 3
size_t device_cuda_held(struct device *d, int fd[DEVICE_HELD]);
/* Whether the device is at nobody's work for one and a half seconds, as far as
 * the judge's own is not held up; -1 when it cannot be asked.  As long as an
 * attempt, since a stranger's work may come in bursts. */
int device_cuda_still(struct device *d);
/* Whether foreign() can see anything: not where NVML is absent or numbers
 * processes by another namespace. */
int device_cuda_sees_processes(struct device *d);

/*
 * Checks leaves of an untrusted answer against a pool of `bytes`: kinds,
 * types, ranks, shapes, no overflow, offsets inside.  Fills bytes of each
 * tensor leaf (0 for others).  0, or -1 at the first that is wrong.
 */
int leaves_check(const struct ca_msg *m, size_t bytes,
		 struct extent ext[CA_LEAVES]);

/* A checked leaf becomes what the next reveal poisons. */
void runner_last(struct runner *r, const struct ca_leaf *l,
		 const struct extent *ext);

/* leaves_check for a runner's answer whose results nobody captures, and
 * runner_last of each. */
int runner_note(struct runner *r, const struct ca_msg *m);

#endif
