/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that computes transformers: the CPU, or a GPU through CUDA, behind
 * one set of operations.
 *
 * Device memory is `void *`; only operations and copies look into it.  On
 * the CPU it is ordinary memory.  Operations run in the order of their calls
 * and may return before they are done; gpu_sync and gpu_download wait.  One
 * that fails (a launch, a library) is remembered and reported by the next
 * gpu_sync; what follows it is skipped.  One thread at a time for a device.
 *
 * Every operation is deterministic: same inputs, same bits.  On the CPU, and
 * on CUDA with `exact`, the bits of a row do not depend on the rows that are
 * computed beside it, so a token has the same log-probability in a batch of
 * one, in a prompt and in a training step.
 *
 * Types: activations are of the device's type (fp32 on the CPU, fp32 or bf16
 * on CUDA); matrices of weights state theirs (fp32 or bf16); vectors of
 * weights (norms, biases), gradients of weights, statistics and logits are
 * fp32.  Sums are fp32 everywhere.  Shapes: T tokens, C channels, H heads, K
 * heads of keys and values, D dimensions of a head, F of the MLP, V words.
 */
#ifndef CA_GPU_GPU_H
#define CA_GPU_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "gpu/comm.h"
#include "gpu/ops.h"
#include "gpu/type.h"

struct gpu;

enum { GPU_EXACT = 1 };		/* rows independent of their neighbours */

/* "cpu", "cuda" or "cuda:N".  CA_USAGE for other names, CA_CONFIG when the
 * device has no such activations, CA_UNAVAILABLE when it is not there. */
struct gpu *gpu_open(const char *device, enum gpu_type act, unsigned flags,
		     struct err *e);
void gpu_close(struct gpu *g);		/* NULL is fine */

/*
 * For main, before anything else.  OpenMP's threads wait for work in a loop
 * that by default takes whole time slices from whoever shares the machine, a
 * hundred times slower when somebody does.  How long they do is read from the
 * environment before main, so this sets it and executes the program again,
 * unless the user has set it.
 */
void gpu_calm_threads(char **argv);

enum gpu_type gpu_act(const struct gpu *g);	/* type of activations */
int gpu_is_cpu(const struct gpu *g);
const char *gpu_name(const struct gpu *g);	/* "NVIDIA H200" */
/* Under which name work on it is leased (cu/lease.h): "cpu" or its UUID. */
const char *gpu_lease_name(const struct gpu *g);
/* Bytes that can be planned now; 0 when not known. */
size_t gpu_avail(struct gpu *g);
/* Dense bf16 FLOP/s by the vendor's table; 0 when not known. */
double gpu_peak(const struct gpu *g);

/*
 * The plan of a device's memory.  Everything is added first, the table can
 * be printed, and one allocation serves it all: what does not fit is known
 * before any work is done.
 */
struct gpu_row {
	const char *name;
	void **where;
	size_t bytes;
};

struct gpu_plan {
	struct gpu_row *row;
	size_t n, alloc;
	size_t total;			/* bytes, alignment included */
	int failed;			/* no memory, or a size overflowed */
	void *base;
};

#define GPU_PLAN_INIT { NULL, 0, 0, 0, 0, NULL }

/* Adds n * size bytes; *where is set by gpu_plan_commit.  `name` and `where`
 * must live until then; rows of one name are shown as one. */
void gpu_plan_add(struct gpu_plan *p, const char *name, void **where,
		  size_t n, size_t size);
/* Appends the table, the largest first. */
void gpu_plan_print(const struct gpu_plan *p, struct str *out);
/* Allocates, zeroes and sets the pointers.  CA_UNAVAILABLE with both numbers
 * when the device has less memory free than is planned. */
int gpu_plan_commit(struct gpu *g, struct gpu_plan *p, struct err *e);
void gpu_plan_release(struct gpu *g, struct gpu_plan *p);

/*
 * Work space that the operations share: for steps of t rows through matrices
 * of at most `matrix` elements and `width` rows and columns together, forward
 * and backward.  It is planned with the rest and set once.
 */
size_t gpu_work_size(const struct gpu *g, size_t t, size_t width,
		     size_t matrix);
void gpu_set_work(struct gpu *g, void *work, size_t bytes);

/* Memory of the host, zeroed, from and to which copies are fast (on CUDA it is
 * page-locked); may be written again once a download has come after its
 * upload. */
void *gpu_host(struct gpu *g, size_t bytes, struct err *e);
void gpu_host_free(struct gpu *g, void *p);	/* NULL is fine */

void gpu_upload(struct gpu *g, void *dst, const void *src, size_t bytes);
int gpu_download(struct gpu *g, void *dst, const void *src, size_t bytes,
		 struct err *e);
void gpu_copy(struct gpu *g, void *dst, const void *src, size_t bytes);
void gpu_zero(struct gpu *g, void *dst, size_t bytes);
/* Waits for everything; reports the first failure since the last call. */
int gpu_sync(struct gpu *g, struct err *e);

/*
 * Makes the device one of several that compute the same model, one for each
 * rank; all ranks have to call it, and what follows, in the same order.  NULL
 * leaves it alone.  CA_UNAVAILABLE as comm_check, or without NCCL on GPUs.
 *
 * The two operations see what was computed before them and may still run
 * while what comes behind is computed, until gpu_collected: what follows that
 * sees their results.
 */
int gpu_join(struct gpu *g, struct comm *c, struct err *e);
/* Of x, `part` numbers for each rank: this rank's own become their sum over
 * the ranks, the others are left undefined. */
void gpu_reduce_scatter(struct gpu *g, float *x, size_t part);
/* Of x, `bytes` of each rank: all become those of whose they are. */
void gpu_all_gather(struct gpu *g, void *x, size_t bytes);
void gpu_collected(struct gpu *g);
/* Now and then in a long run of operations: others see that this rank gets
 * on, and it sees whether they are still there.  As gpu_sync reports. */
void gpu_mark(struct gpu *g);

/*
 * A run of operations that is repeated with the same pointers and sizes can
 * be recorded and replayed with one call (CUDA graphs).  gpu_record returns 0
 * where that is not possible, as on the CPU; then nothing has begun.
 */
struct gpu_tape;
int gpu_record(struct gpu *g);
struct gpu_tape *gpu_record_end(struct gpu *g);		/* NULL: failed */
void gpu_replay(struct gpu *g, const struct gpu_tape *t);
void gpu_tape_free(struct gpu *g, struct gpu_tape *t);

/* Whether it was done: 0 where the device or its operations as they are have
 * to do it one by one. */
int gpu_do_token(struct gpu *g, const struct gpu_token *a);

/* void gpu_do_linear(struct gpu *g, const struct gpu_linear *a); and so on. */
#define GPU_DECLARE(name, args) \
	void gpu_do_##name(struct gpu *g, const struct args *a);
GPU_OPS(GPU_DECLARE)
#undef GPU_DECLARE

#endif
