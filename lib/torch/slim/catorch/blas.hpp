// SPDX-License-Identifier: Apache-2.0
//
// torch's cuBLAS handle, for those who have cuBLAS's header; others see only
// its opaque type.
#pragma once

#include <catorch/cuda.hpp>

struct cublasContext;

namespace at::cuda {

inline cublasContext *getCurrentCUDABlasHandle()
{
	void *h;
	catorch::must(torch_get_current_cuda_blas_handle(&h), "cuBLAS handle");
	return static_cast<cublasContext *>(h);
}

} // namespace at::cuda
