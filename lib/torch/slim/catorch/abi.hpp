// SPDX-License-Identifier: Apache-2.0
//
// torch's stable C shim, as far as these headers use it (libtorch exports it;
// since torch 2.11), declared here so that no header of torch is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

extern "C" {
struct AtenTensorOpaque;
struct StreamOpaque;
struct DeviceGuardOpaque;
struct CUDAStreamGuardOpaque;
struct StableListOpaque;
using AtenTensorHandle = AtenTensorOpaque *;
using AOTITorchError = int32_t;		// 0: success

AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle);
AOTITorchError aoti_torch_new_tensor_handle(AtenTensorHandle, AtenTensorHandle *);
AOTITorchError aoti_torch_is_defined(AtenTensorHandle, bool *);
AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle, void **);
AOTITorchError aoti_torch_get_dim(AtenTensorHandle, int64_t *);
AOTITorchError aoti_torch_get_numel(AtenTensorHandle, int64_t *);
AOTITorchError aoti_torch_get_size(AtenTensorHandle, int64_t, int64_t *);
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle, int64_t **);
AOTITorchError aoti_torch_get_stride(AtenTensorHandle, int64_t, int64_t *);
AOTITorchError aoti_torch_get_strides(AtenTensorHandle, int64_t **);
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle, int32_t *);
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle, int32_t *);
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle, int32_t *);
AOTITorchError aoti_torch_get_layout(AtenTensorHandle, int32_t *);
AOTITorchError aoti_torch_get_storage_offset(AtenTensorHandle, int64_t *);
AOTITorchError aoti_torch_is_contiguous(AtenTensorHandle, bool *);
AOTITorchError aoti_torch_empty_strided(int64_t, const int64_t *, const int64_t *, int32_t,
					int32_t, int32_t, AtenTensorHandle *);
AOTITorchError aoti_torch_create_tensor_from_blob(void *, int64_t, const int64_t *,
						  const int64_t *, int64_t, int32_t, int32_t,
						  int32_t, AtenTensorHandle *);
AOTITorchError aoti_torch__reinterpret_tensor(AtenTensorHandle, int64_t, const int64_t *,
					      const int64_t *, int64_t, AtenTensorHandle *);
AOTITorchError aoti_torch_clone(AtenTensorHandle, AtenTensorHandle *);
AOTITorchError aoti_torch_copy_(AtenTensorHandle, AtenTensorHandle, int32_t);
AOTITorchError aoti_torch_zero_(AtenTensorHandle);
AOTITorchError aoti_torch_aten_subtract_Tensor(AtenTensorHandle, AtenTensorHandle, double,
					       AtenTensorHandle *);
AOTITorchError aoti_torch_aten_fill__Scalar(AtenTensorHandle, double);
AOTITorchError torch_call_dispatcher(const char *, const char *, uint64_t *, uint64_t);
AOTITorchError torch_new_list_reserve_size(size_t, StableListOpaque **);
AOTITorchError torch_list_push_back(StableListOpaque *, uint64_t);
AOTITorchError torch_list_size(StableListOpaque *, size_t *);
AOTITorchError torch_list_get_item(StableListOpaque *, size_t, uint64_t *);
AOTITorchError torch_delete_list(StableListOpaque *);
AOTITorchError aoti_torch_create_device_guard(int32_t, DeviceGuardOpaque **);
AOTITorchError aoti_torch_delete_device_guard(DeviceGuardOpaque *);
AOTITorchError aoti_torch_device_guard_set_index(DeviceGuardOpaque *, int32_t);
AOTITorchError aoti_torch_get_current_device_index(int32_t *);
AOTITorchError aoti_torch_get_current_cuda_stream(int32_t, void **);
AOTITorchError aoti_torch_create_cuda_stream_guard(void *, int32_t, CUDAStreamGuardOpaque **);
AOTITorchError aoti_torch_delete_cuda_stream_guard(CUDAStreamGuardOpaque *);
AOTITorchError torch_get_cuda_stream_from_pool(bool, int32_t, void **);
AOTITorchError torch_set_current_cuda_stream(void *, int32_t);
AOTITorchError torch_get_current_cuda_blas_handle(void **);
AOTITorchError torch_parallel_for(int64_t, int64_t, int64_t, void (*)(int64_t, int64_t, void *),
				  void *);
AOTITorchError torch_get_num_threads(uint32_t *);
AOTITorchError torch_get_thread_idx(uint32_t *);
}

namespace catorch {

// Encodes the version whose meaning of arguments we follow, 2.11.
constexpr uint64_t abi_version = uint64_t(2) << 56 | uint64_t(11) << 48;

// torch has written the reason to stderr.
inline void must(AOTITorchError rc, const char *what)
{
	if (rc)
		throw std::runtime_error(std::string("torch: ") + what + " failed");
}

} // namespace catorch
