/* SPDX-License-Identifier: Apache-2.0
 *
 * What is used of libcuda, NVRTC and NVML, declared by ourselves so that no
 * toolkit is needed to compile; the libraries are opened with dlopen.  Values
 * and argument lists are those of CUDA 13.0's cuda.h and nvrtc.h and of
 * nvml.h of driver 580; the versioned symbols named here are in every driver
 * since CUDA 12.0.
 */
#ifndef CA_CU_API_H
#define CA_CU_API_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_rc;		/* CUresult: 0 is success */
typedef int cu_ord;		/* CUdevice */
typedef uint64_t cu_ptr;	/* CUdeviceptr */
typedef struct CUctx_st *cu_ctx;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUmod_st *cu_mod;
typedef struct CUfunc_st *cu_fn;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphExec_st *cu_graph_exec;
typedef uint64_t cu_handle;	/* CUmemGenericAllocationHandle */

enum {
	CU_OK = 0,
	CU_OOM = 2,			/* CUDA_ERROR_OUT_OF_MEMORY */
	CU_NOT_READY = 600,		/* CUDA_ERROR_NOT_READY */
};

enum cu_attr {				/* CUdevice_attribute */
	CU_ATTR_CLOCK_KHZ = 13,
	CU_ATTR_SMS = 16,
	CU_ATTR_COMPUTE_MODE = 20,
	CU_ATTR_PCI_BUS = 33,
	CU_ATTR_PCI_DEVICE = 34,
	CU_ATTR_MEM_CLOCK_KHZ = 36,
	CU_ATTR_BUS_WIDTH = 37,
	CU_ATTR_L2 = 38,
	CU_ATTR_PCI_DOMAIN = 50,
	CU_ATTR_MAJOR = 75,
	CU_ATTR_MINOR = 76,
	CU_ATTR_VMM = 102,
	CU_ATTR_POSIX_FD = 103,
};

/* CUlaunchAttribute and CUlaunchConfig. */
struct cu_launch_attr {
	int id;				/* CU_LAUNCH_... */
	int pad;
	union { int allowed; char size[64]; } value;
};
struct cu_launch {
	unsigned grid[3], block[3], shared;
	cu_stream stream;
	struct cu_launch_attr *attr;
	unsigned nattr;
};

enum {
	CU_LAUNCH_TOGETHER = 2,		/* ..._COOPERATIVE */
	CU_LAUNCH_EARLY = 6,	/* ..._PROGRAMMATIC_STREAM_SERIALIZATION */
	CU_SCHED_SPIN = 1,		/* CU_CTX_SCHED_SPIN */
	CU_NON_BLOCKING = 1,		/* CU_STREAM_NON_BLOCKING */
	CU_HANDLE_FD = 1,	/* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
	CU_PINNED = 1,			/* CU_MEM_ALLOCATION_TYPE_PINNED */
	CU_LOC_DEVICE = 1,		/* CU_MEM_LOCATION_TYPE_DEVICE */
	CU_POINTER_TYPE = 2,	/* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
	CU_TYPE_DEVICE = 2,		/* CU_MEMORYTYPE_DEVICE */
	CU_CAPTURE_THREAD = 1,	/* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */
	CU_FN_SHARED = 8, /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
	CU_READ_WRITE = 3,	/* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
};

struct cu_uuid { unsigned char b[16]; };
struct cu_location { int type, id; };
struct cu_prop {			/* CUmemAllocationProp_v1 */
	int type;
	int handle_types;
	struct cu_location where;
	void *win32;
	unsigned char compression, rdma;
	unsigned short usage;
	unsigned char reserved[4];
};
struct cu_access { struct cu_location where; int flags; };

/* X(field, symbol, argument list) */
#define CU_DRIVER(X) \
	X(Init, "cuInit", (unsigned)) \
	X(DriverVersion, "cuDriverGetVersion", (int *)) \
	X(ErrorName, "cuGetErrorName", (cu_rc, const char **)) \
	X(ErrorString, "cuGetErrorString", (cu_rc, const char **)) \
	X(DeviceCount, "cuDeviceGetCount", (int *)) \
	X(DeviceGet, "cuDeviceGet", (cu_ord *, int)) \
	X(DeviceName, "cuDeviceGetName", (char *, int, cu_ord)) \
	X(DeviceUuid, "cuDeviceGetUuid_v2", (struct cu_uuid *, cu_ord)) \
	X(DeviceMem, "cuDeviceTotalMem_v2", (size_t *, cu_ord)) \
	X(DeviceAttr, "cuDeviceGetAttribute", (int *, int, cu_ord)) \
	X(PrimaryRetain, "cuDevicePrimaryCtxRetain", (cu_ctx *, cu_ord)) \
	X(PrimaryRelease, "cuDevicePrimaryCtxRelease_v2", (cu_ord)) \
	X(PrimaryFlags, "cuDevicePrimaryCtxSetFlags_v2", (cu_ord, unsigned)) \
	X(CtxSet, "cuCtxSetCurrent", (cu_ctx)) \
	X(CtxSync, "cuCtxSynchronize", (void)) \
	X(ResetL2, "cuCtxResetPersistingL2Cache", (void)) \
	X(MemInfo, "cuMemGetInfo_v2", (size_t *, size_t *)) \
	X(Granularity, "cuMemGetAllocationGranularity", \
	  (size_t *, const struct cu_prop *, int)) \
	X(MemCreate, "cuMemCreate", \
	  (cu_handle *, size_t, const struct cu_prop *, unsigned long long)) \
	X(MemRelease, "cuMemRelease", (cu_handle)) \
	X(MemExport, "cuMemExportToShareableHandle", \
	  (void *, cu_handle, int, unsigned long long)) \
	X(MemImport, "cuMemImportFromShareableHandle", \
	  (cu_handle *, void *, int)) \
	X(Reserve, "cuMemAddressReserve", \
	  (cu_ptr *, size_t, size_t, cu_ptr, unsigned long long)) \
	X(Unreserve, "cuMemAddressFree", (cu_ptr, size_t)) \
	X(Map, "cuMemMap", \
	  (cu_ptr, size_t, size_t, cu_handle, unsigned long long)) \
	X(Unmap, "cuMemUnmap", (cu_ptr, size_t)) \
	X(SetAccess, "cuMemSetAccess", \
	  (cu_ptr, size_t, const struct cu_access *, size_t)) \
	X(MemAlloc, "cuMemAlloc_v2", (cu_ptr *, size_t)) \
	X(MemFree, "cuMemFree_v2", (cu_ptr)) \
	X(HostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned)) \
	X(HostFree, "cuMemFreeHost", (void *)) \
	X(ToDevice, "cuMemcpyHtoDAsync_v2", \
	  (cu_ptr, const void *, size_t, cu_stream)) \
	X(ToHost, "cuMemcpyDtoHAsync_v2", \
	  (void *, cu_ptr, size_t, cu_stream)) \
	X(CopyDevice, "cuMemcpyDtoDAsync_v2", \
	  (cu_ptr, cu_ptr, size_t, cu_stream)) \
	X(PointerAttr, "cuPointerGetAttribute", (void *, int, cu_ptr)) \
	X(Memset, "cuMemsetD8Async", \
	  (cu_ptr, unsigned char, size_t, cu_stream)) \
	X(StreamCreate, "cuStreamCreate", (cu_stream *, unsigned)) \
	X(StreamDestroy, "cuStreamDestroy_v2", (cu_stream)) \
	X(StreamQuery, "cuStreamQuery", (cu_stream)) \
	X(StreamSync, "cuStreamSynchronize", (cu_stream)) \
	X(CaptureBegin, "cuStreamBeginCapture_v2", (cu_stream, int)) \
	X(CaptureEnd, "cuStreamEndCapture", (cu_stream, cu_graph *)) \
	X(GraphMake, "cuGraphInstantiateWithFlags", \
	  (cu_graph_exec *, cu_graph, unsigned long long)) \
	X(GraphLaunch, "cuGraphLaunch", (cu_graph_exec, cu_stream)) \
	X(GraphFree, "cuGraphDestroy", (cu_graph)) \
	X(GraphExecFree, "cuGraphExecDestroy", (cu_graph_exec)) \
	X(EventCreate, "cuEventCreate", (cu_event *, unsigned)) \
	X(EventDestroy, "cuEventDestroy_v2", (cu_event)) \
	X(EventRecord, "cuEventRecord", (cu_event, cu_stream)) \
	X(EventQuery, "cuEventQuery", (cu_event)) \
	X(StreamWait, "cuStreamWaitEvent", (cu_stream, cu_event, unsigned)) \
	X(EventElapsed, "cuEventElapsedTime", (float *, cu_event, cu_event)) \
	X(ModuleLoad, "cuModuleLoadData", (cu_mod *, const void *)) \
	X(ModuleUnload, "cuModuleUnload", (cu_mod)) \
	X(Function, "cuModuleGetFunction", (cu_fn *, cu_mod, const char *)) \
	X(FunctionSet, "cuFuncSetAttribute", (cu_fn, int, int)) \
	X(LaunchEx, "cuLaunchKernelEx", \
	  (const struct cu_launch *, cu_fn, void **, void **)) \
	X(Launch, "cuLaunchKernel", \
	  (cu_fn, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
	   unsigned, cu_stream, void **, void **))

#define CU_NVRTC(X) \
	X(Version, "nvrtcVersion", (int *, int *)) \
	X(Create, "nvrtcCreateProgram", \
	  (void **, const char *, const char *, int, const char *const *, \
	   const char *const *)) \
	X(Destroy, "nvrtcDestroyProgram", (void **)) \
	X(Compile, "nvrtcCompileProgram", \
	  (void *, int, const char *const *)) \
	X(LogSize, "nvrtcGetProgramLogSize", (void *, size_t *)) \
	X(Log, "nvrtcGetProgramLog", (void *, char *)) \
	X(CubinSize, "nvrtcGetCUBINSize", (void *, size_t *)) \
	X(Cubin, "nvrtcGetCUBIN", (void *, char *))

struct nvml_process {			/* nvmlProcessInfo_v2_t */
	unsigned pid;
	unsigned long long bytes;
	unsigned instance, compute;
};

#define CU_NVML(X) \
	X(Init, "nvmlInit_v2", (void)) \
	X(Shutdown, "nvmlShutdown", (void)) \
	X(ByUuid, "nvmlDeviceGetHandleByUUID", (const char *, void **)) \
	X(Minor, "nvmlDeviceGetMinorNumber", (void *, unsigned *)) \
	X(Clock, "nvmlDeviceGetClockInfo", (void *, int, unsigned *)) \
	X(MaxClock, "nvmlDeviceGetMaxClockInfo", (void *, int, unsigned *)) \
	X(Throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", \
	  (void *, unsigned long long *)) \
	X(Processes, "nvmlDeviceGetComputeRunningProcesses_v3", \
	  (void *, unsigned *, struct nvml_process *))

#define CU_FIELD(name, sym, args) int (*name) args;
struct cu_api { CU_DRIVER(CU_FIELD) };
struct nvml_api { CU_NVML(CU_FIELD) };
struct nvrtc_api { CU_NVRTC(CU_FIELD) };
#undef CU_FIELD

#endif
