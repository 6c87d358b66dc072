/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA as a device.
 */
#ifndef CA_GPU_CUDA_H
#define CA_GPU_CUDA_H

#include "cu/cu.h"
#include "gpu/cublas.h"
#include "gpu/device.h"

#define CUDA_KERNELS(X) \
	X(embed) X(embed_back) X(rmsnorm) X(rmsnorm_dx) X(column_parts) \
	X(add_parts) X(bias) X(swiglu) X(swiglu_back) X(rows) X(score) \
	X(score_dx) X(score_dw) X(adamw) X(sumsq) X(sum_double) X(pick) \
	X(pick_back) X(sample) X(gemm_plain) X(rope) X(rope_back) X(attn_8) \
	X(attn_16) X(attn_32) X(attn_delta) X(attn_dq) X(attn_dkdv)
/* Only with bf16 activations. */
#define CUDA_KERNELS_BF16(X) \
	X(gemm) X(gemv1) X(gemv2) X(gemv4) X(gemv8) \
	X(gemv_row_2) X(gemv_row_3) \
	X(flash_64) X(flash_128) \
	X(flash_dq_64) X(flash_dq_128) X(flash_dkdv_64) X(flash_dkdv_128) \
	X(wide_norm_4) X(wide_norm_8) X(wide_norm_16) X(wide_norm_back_4) \
	X(wide_norm_back_8) X(wide_norm_back_16) X(wide_parts) X(wide_rope) \
	X(wide_rope_back) X(wide_delta)
/* Only on Hopper, with bf16 activations. */
#define CUDA_KERNELS_HOPPER(X) \
	X(wg_64_1) X(wg_64_3) X(wg_128_1) X(wg_128_2) X(wg_merge) \
	X(stream_64) X(stream_128) X(stream_join) \
	X(wg_dq_64) X(wg_dq_128) X(wg_dkdv_64) X(wg_dkdv_128) \
	X(step)

struct cuda {
	struct gpu g;			/* first */
	struct cu_dev *dev;
	struct cublas *blas;
	cu_mod module;
	int hopper;			/* has wgmma; 2: and keys stream */
	struct cuda_comm *comm;		/* NULL: alone */
	/* Kernels k_NAME. */
#define CUDA_FIELD(name) cu_fn name;
	CUDA_KERNELS(CUDA_FIELD) CUDA_KERNELS_BF16(CUDA_FIELD)
	CUDA_KERNELS_HOPPER(CUDA_FIELD)
#undef CUDA_FIELD
};

struct gpu *gpu_open_cuda(const char *device, enum gpu_type act,
			  struct err *e);

/* Launches on the device's stream, unless something has failed before;
 * `shared` bytes of dynamic shared memory. */
struct cuda_grid { unsigned x, y, z; };
void cuda_launch(struct cuda *c, cu_fn fn, struct cuda_grid grid,
		 unsigned threads, unsigned shared, void **args);

/* As cuda_launch, of a kernel that calls follow(): from Hopper on it may be
 * started before the one in front of it has ended. */
void cuda_launch_early(struct cuda *c, cu_fn fn, struct cuda_grid grid,
		       unsigned threads, unsigned shared, void **args);

/* Of so many blocks that are there at the same time. */
void cuda_launch_together(struct cuda *c, cu_fn fn, unsigned blocks,
			  unsigned threads, unsigned shared, void **args);

/* Shared memory of a tile kernel for heads of D dimensions. */
unsigned cuda_tile_bytes(int tiles, int dim);

/* What a kernel of row.cuh with so many slots may take: with three of them,
 * two blocks still fit on a multiprocessor. */
unsigned cuda_row_bytes(const struct cuda *c, int slots);

/* At most of step.cuh's kernel, on Hopper. */
#define CUDA_STEP_BYTES (227 * 1024 - 512)

/* Of a kernel of hopper.cuh whose tiles have so many rows together. */
unsigned cuda_hopper_bytes(int dim, int rows);
#define HOPPER_DQ_64	(2 * 64 + 6 * 64)
#define HOPPER_DQ_128	(2 * 128 + 6 * 64)
/* With four rows' room for numbers of rows. */
#define HOPPER_DKDV	(2 * 128 + 8 * 64 + 4)
#define HOPPER_STREAM_64  (3 * 64 + 8 * 128)
#define HOPPER_STREAM_128 (2 * 64 + 6 * 128)

/* Among ranks (cuda_comm.c); see struct gpu_ops.  cuda_comm_wait waits for
 * the device's stream, and for nothing when it is alone: 0, or -1 when nothing
 * may wait for it any more, since one of them is gone (cuda_comm_lost; from
 * then on the process has some seconds left). */
int cuda_join(struct gpu *g, struct comm *ranks, struct err *e);
void cuda_part(struct gpu *g);
void cuda_mark(struct gpu *g);
void cuda_reduce_scatter(struct gpu *g, float *x, size_t part);
void cuda_all_gather(struct gpu *g, void *x, size_t bytes);
void cuda_collected(struct gpu *g);
int cuda_comm_wait(struct cuda *c);
int cuda_comm_lost(const struct cuda *c);

/* Compiles the kernels; see nvrtc_compile. */
int cuda_text_compile(int major, int minor, enum gpu_type act,
		      struct str *cubin, struct err *e);

/* The work space behind cuBLASLt's part. */
void *cuda_work(const struct cuda *c);

int cuda_token(struct gpu *g, const struct gpu_token *a);
#define CUDA_DECLARE(name, args) \
	void cuda_##name(struct gpu *g, const struct args *a);
GPU_OPS(CUDA_DECLARE)
#undef CUDA_DECLARE

#endif
