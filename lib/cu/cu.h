/* SPDX-License-Identifier: Apache-2.0
 *
 * A thin layer over libcuda.  Nothing is linked: where there is no driver or
 * no GPU, the first call answers CA_UNAVAILABLE and the program goes on.
 *
 * A struct cu_dev may be used by one thread at a time; cu_bind makes its
 * context current in the calling thread.  Memory, modules and events belong
 * to the device that made them and must be freed before cu_dev_close.
 */
#ifndef CA_CU_CU_H
#define CA_CU_CU_H

#include "base/err.h"
#include "base/path.h"
#include "cu/api.h"

#define CU_UUID_TEXT 41		/* "GPU-8-4-4-4-12" and NUL */

struct cu_info {
	int ordinal;
	char uuid[CU_UUID_TEXT];
	char name[128];
	char pci[16];		/* "0000:3b:00.0" */
	int major, minor;	/* compute capability */
	int sms;
	int minor_number;	/* N of /dev/nvidiaN; -1 when unknown */
	size_t l2;		/* bytes */
	size_t mem;		/* bytes */
	int driver;		/* 13000 for 13.0 */
	double bytes_per_s;	/* of memory, by its clock; 0 when unknown */
	int vmm;		/* memory can be shared by descriptor */
};

struct cu_dev {
	const struct cu_api *api;
	struct cu_info info;
	cu_ord ord;
	cu_ctx ctx;		/* primary context */
	cu_stream stream;	/* non-blocking */
	size_t granularity;	/* of shared memory */
};

/* The driver, opened and initialised once per process; NULL and
 * CA_UNAVAILABLE when there is none.  Thread safe. */
const struct cu_api *cu_api(struct err *e);

/* 0 when rc is success; else "what: NAME: text" in e (CA_UNAVAILABLE when
 * the device is out of memory, else CA_SOFTWARE) and -1. */
int cu_check(const struct cu_api *api, cu_rc rc, const char *what,
	     struct err *e);

/* Number of devices; -1 with CA_UNAVAILABLE without a driver. */
int cu_count(struct err *e);
int cu_info(int ordinal, struct cu_info *out, struct err *e);

/* "cuda" is device 0, "cuda:1" device 1.  The ordinal, or -1: CA_USAGE when
 * it is no CUDA device's name, CA_UNAVAILABLE when there is no such device. */
int cu_find(const char *device, struct err *e);

/* Opens a device with its primary context current in the calling thread;
 * the thread spins while it waits for the device. */
struct cu_dev *cu_dev_open(int ordinal, struct err *e);
void cu_dev_close(struct cu_dev *d);
int cu_bind(struct cu_dev *d, struct err *e);

/* Free and total bytes of the device. */
int cu_mem_info(struct cu_dev *d, size_t *avail, size_t *total,
		struct err *e);

/* Device memory of its own, mapped for reading and writing. */
struct cu_mem {
	cu_ptr ptr;		/* 0: none */
	size_t bytes;		/* as asked for */
	size_t size;		/* rounded up to the granularity */
	int fd;			/* for SCM_RIGHTS; -1 when not shared */
};

#define CU_MEM_INIT { 0, 0, 0, -1 }

/* At least one granule.  With `shared` a descriptor is exported that another
 * process can import. */
int cu_mem_new(struct cu_dev *d, size_t bytes, int shared, struct cu_mem *m,
	       struct err *e);
/* Maps what another process (or this one) exported; the descriptor stays the
 * caller's and m->fd is -1. */
int cu_mem_import(struct cu_dev *d, int fd, size_t bytes, struct cu_mem *m,
		  struct err *e);
void cu_mem_free(struct cu_dev *d, struct cu_mem *m);

/* Page-locked host memory, for fast copies. */
void *cu_host_new(struct cu_dev *d, size_t bytes, struct err *e);
void cu_host_free(struct cu_dev *d, void *p);

/* Copies on the device's stream, complete on return.  These use the copy
 * engines: never inside a bracket. */
int cu_upload(struct cu_dev *d, cu_ptr to, const void *from, size_t n,
	      struct err *e);
int cu_download(struct cu_dev *d, void *to, cu_ptr from, size_t n,
		struct err *e);
int cu_zero(struct cu_dev *d, cu_ptr to, size_t n, struct err *e);

int cu_module(struct cu_dev *d, const void *cubin, cu_mod *out,
	      struct err *e);
int cu_function(struct cu_dev *d, cu_mod m, const char *name, cu_fn *out,
		struct err *e);
void cu_module_free(struct cu_dev *d, cu_mod m);

/* One-dimensional launch on the device's stream. */
int cu_launch(struct cu_dev *d, cu_fn fn, unsigned blocks, unsigned threads,
	      void **args, struct err *e);

/* Waits until the stream is idle, by polling.  1 when the deadline (now_ns
 * scale) came first. */
int cu_wait(struct cu_dev *d, int64_t deadline, struct err *e);

int cu_event_new(struct cu_dev *d, cu_event *out, struct err *e);
void cu_event_free(struct cu_dev *d, cu_event ev);
int cu_event_record(struct cu_dev *d, cu_event ev, struct err *e);
/* Nanoseconds between two events that have happened; < 0 on failure. */
double cu_event_ns(struct cu_dev *d, cu_event from, cu_event to,
		   struct err *e);

/*
 * Opens one of NVIDIA's libraries ("libnvrtc.so"): by the loader's path, in
 * $CUDA_HOME/lib64, in /usr/local/cuda/lib64, then among the wheels of the
 * Python that has torch.  `where`, if not NULL, gets its path when it was
 * found by path, else "".  NULL and CA_UNAVAILABLE when there is none.
 */
void *cu_open_lib(const char *stem, char where[CA_PATH_MAX], struct err *e);

/* dlsym for a table of pointers: -1 names the first symbol that is missing.
 * Every member of the table must be a function pointer. */
struct cu_symbol { const char *name; size_t offset; };
int cu_resolve(void *lib, const struct cu_symbol *s, size_t n, void *table,
	       struct err *e);

/*
 * Device nodes that a process needs for this GPU only: /dev/nvidiaN,
 * nvidiactl, nvidia-uvm and nvidia-uvm-tools as far as they exist, then
 * NULL.  At most CU_NODES texts in `buf`.  CA_UNAVAILABLE when the GPU's own
 * node is not known or not there.
 */
#define CU_NODES 5
struct cu_nodes { char path[CU_NODES][32]; int n; };
int cu_nodes(const struct cu_info *i, struct cu_nodes *out, struct err *e);

#endif
