/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of lib/gpu/cuda, as part of the library.
 */
#include "cu/nvrtc.h"
#include "gpu/cuda.h"

/* "-DNAME=VALUE", more than once, to try other shapes. */
#ifndef CUDA_TEXT_OPTIONS
#define CUDA_TEXT_OPTIONS
#endif

static const char kernels[] = {
#include "kernels.cu.inc"
	0
};
static const char common[] = {
#include "common.cuh.inc"
	0
};
static const char args[] = {
#include "args.h.inc"
	0
};
static const char mma[] = {
#include "mma.cuh.inc"
	0
};
static const char rows[] = {
#include "rows.cuh.inc"
	0
};
static const char head[] = {
#include "head.cuh.inc"
	0
};
static const char gemm[] = {
#include "gemm.cuh.inc"
	0
};
static const char row[] = {
#include "row.cuh.inc"
	0
};
static const char attn[] = {
#include "attn.cuh.inc"
	0
};
static const char flash[] = {
#include "flash.cuh.inc"
	0
};
static const char wide[] = {
#include "wide.cuh.inc"
	0
};
static const char step[] = {
#include "step.cuh.inc"
	0
};
static const char wgmma[] = {
#include "wgmma.cuh.inc"
	0
};
static const char hopper[] = {
#include "hopper.cuh.inc"
	0
};
static const char stream[] = {
#include "stream.cuh.inc"
	0
};

int cuda_text_compile(int major, int minor, enum gpu_type act,
		      struct str *cubin, struct err *e)
{
	const struct nvrtc_text headers[] = {
		{ "common.cuh", common }, { "args.h", args },
		{ "mma.cuh", mma }, { "rows.cuh", rows },
		{ "head.cuh", head }, { "gemm.cuh", gemm },
		{ "attn.cuh", attn }, { "flash.cuh", flash },
		{ "wide.cuh", wide }, { "wgmma.cuh", wgmma },
		{ "hopper.cuh", hopper }, { "stream.cuh", stream },
		{ "row.cuh", row }, { "step.cuh", step },
	};
	const char *const options[] = {
		"-std=c++17",
		act == GPU_BF16 ? "-DACT_BF16=1" : "-DACT_BF16=0",
		CUDA_TEXT_OPTIONS NULL
	};
	const struct nvrtc_job job = {
		.source = { "kernels.cu", kernels },
		.headers = headers,
		.nheaders = sizeof headers / sizeof *headers,
		.options = options,
		.major = major,
		.minor = minor,
	};

	return nvrtc_compile(&job, cubin, e);
}
