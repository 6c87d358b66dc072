/* SPDX-License-Identifier: Apache-2.0 */
#include "judge/cuda_source.h"

#include "cu/nvrtc.h"

static const char kernels[] = {
#include "cuda_kernels.cu.inc"
	0
};
static const char move[] = {
#include "cuda_move.h.inc"
	0
};
static const char cmp[] = {
#include "cuda_cmp.h.inc"
	0
};
static const char elem[] = {
#include "compare_elem.h.inc"
	0
};

int cuda_source_compile(int major, int minor, struct str *cubin,
			struct err *e)
{
	const struct nvrtc_text headers[] = {
		{ "cuda_move.h", move }, { "cuda_cmp.h", cmp },
		{ "compare_elem.h", elem },
	};
	/* Contracted products would round unlike the C compiler's. */
	static const char *const options[] = {
		"-std=c++17", "-default-device", "-fmad=false", NULL
	};
	const struct nvrtc_job job = {
		.source = { "cuda_kernels.cu", kernels },
		.headers = headers,
		.nheaders = sizeof(headers) / sizeof(headers[0]),
		.options = options,
		.major = major,
		.minor = minor,
	};

	return nvrtc_compile(&job, cubin, e);
}
