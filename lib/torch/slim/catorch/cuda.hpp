// SPDX-License-Identifier: Apache-2.0
//
// Streams, guards and checks of CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <catorch/check.hpp>

#define C10_CUDA_CHECK(expr)                                                                       \
	do {                                                                                       \
		cudaError_t catorch_rc = (expr);                                                   \
		if (C10_UNLIKELY(catorch_rc != cudaSuccess))                                       \
			throw c10::Error(c10::str("CUDA error: ",                                  \
						  cudaGetErrorString(catorch_rc)));                \
	} while (0)
#define AT_CUDA_CHECK(expr) C10_CUDA_CHECK(expr)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())

namespace c10::cuda {

inline DeviceIndex current_device()
{
	int32_t i;
	catorch::must(aoti_torch_get_current_device_index(&i), "current_device");
	return DeviceIndex(i);
}

inline DeviceIndex device_count()
{
	int n = 0;
	return cudaGetDeviceCount(&n) == cudaSuccess ? DeviceIndex(n) : DeviceIndex(0);
}

inline void set_device(DeviceIndex i) { C10_CUDA_CHECK(cudaSetDevice(i)); }
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

class CUDAStream {
	void *stream_;
	DeviceIndex device_;

public:
	CUDAStream(void *stream, DeviceIndex device) : stream_(stream), device_(device) {}
	cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_); }
	operator cudaStream_t() const { return stream(); }
	DeviceIndex device_index() const { return device_; }
	Device device() const { return {kCUDA, device_}; }
	void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream())); }
	bool query() const { return cudaStreamQuery(stream()) == cudaSuccess; }
	friend bool operator==(CUDAStream a, CUDAStream b) { return a.stream_ == b.stream_; }
	friend bool operator!=(CUDAStream a, CUDAStream b) { return a.stream_ != b.stream_; }
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1)
{
	void *s;

	if (device < 0)
		device = current_device();
	catorch::must(aoti_torch_get_current_cuda_stream(device, &s), "current stream");
	return {s, device};
}

inline CUDAStream getDefaultCUDAStream(DeviceIndex device = -1)
{
	return {nullptr, device < 0 ? current_device() : device};
}

inline CUDAStream getStreamFromPool(bool high = false, DeviceIndex device = -1)
{
	void *s;

	if (device < 0)
		device = current_device();
	catorch::must(torch_get_cuda_stream_from_pool(high, device, &s), "stream");
	return {s, device};
}

inline void setCurrentCUDAStream(CUDAStream s)
{
	catorch::must(torch_set_current_cuda_stream(s.stream(), s.device_index()), "set stream");
}

class CUDAGuard {
	DeviceGuardOpaque *g_;

public:
	explicit CUDAGuard(DeviceIndex i)
	{
		catorch::must(aoti_torch_create_device_guard(i, &g_), "device guard");
	}
	explicit CUDAGuard(Device d)
		: CUDAGuard(d.has_index() ? d.index() : c10::cuda::current_device()) {}
	CUDAGuard(const CUDAGuard &) = delete;
	~CUDAGuard() { aoti_torch_delete_device_guard(g_); }
	void set_index(DeviceIndex i)
	{
		catorch::must(aoti_torch_device_guard_set_index(g_, i), "device guard");
	}
	void set_device(Device d) { set_index(d.index()); }
	Device current_device() const { return {kCUDA, c10::cuda::current_device()}; }
};

class OptionalCUDAGuard {
	optional<CUDAGuard> g_;

public:
	OptionalCUDAGuard() = default;
	explicit OptionalCUDAGuard(optional<Device> d)
	{
		if (d)
			g_.emplace(*d);
	}
	explicit OptionalCUDAGuard(DeviceIndex i) { g_.emplace(i); }
	void set_device(Device d) { g_.emplace(d); }
	void set_index(DeviceIndex i) { g_.emplace(i); }
	void reset() { g_.reset(); }
};

class CUDAStreamGuard {
	CUDAStreamGuardOpaque *g_;

public:
	explicit CUDAStreamGuard(CUDAStream s)
	{
		catorch::must(aoti_torch_create_cuda_stream_guard(s.stream(), s.device_index(),
								  &g_), "stream guard");
	}
	CUDAStreamGuard(const CUDAStreamGuard &) = delete;
	~CUDAStreamGuard() { aoti_torch_delete_cuda_stream_guard(g_); }
};

} // namespace c10::cuda

namespace at::cuda {

using namespace c10::cuda;

inline cudaDeviceProp *getDeviceProperties(DeviceIndex device)
{
	static cudaDeviceProp prop[64];
	static bool known[64];

	TORCH_CHECK(device >= 0 && device < 64, "no such device");
	if (!known[device]) {
		C10_CUDA_CHECK(cudaGetDeviceProperties(&prop[device], device));
		known[device] = true;
	}
	return &prop[device];
}

inline cudaDeviceProp *getCurrentDeviceProperties()
{
	return getDeviceProperties(current_device());
}

} // namespace at::cuda
