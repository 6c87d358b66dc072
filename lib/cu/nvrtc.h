/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiling CUDA C++ to a cubin with NVRTC, through a cache on disk.  Needs
 * no GPU and no driver.  NVRTC runs in this process: for texts of our own
 * only (a candidate's go through the jail).
 */
#ifndef CA_CU_NVRTC_H
#define CA_CU_NVRTC_H

#include "base/err.h"
#include "base/str.h"

struct nvrtc_text { const char *name, *text; };

struct nvrtc_job {
	struct nvrtc_text source;
	const struct nvrtc_text *headers;	/* by #include "name" */
	size_t nheaders;
	const char *const *options;		/* besides -arch; NULL-ended */
	int major, minor;			/* of the device */
	int no_cache;
};

/* "13.0"; NULL and CA_UNAVAILABLE when there is no NVRTC. */
const char *nvrtc_version(struct err *e);

/*
 * Appends the cubin.  CA_DATAERR with the compiler's text when the source is
 * at fault.  Cached in path_cache("cubin") by sources, options, architecture
 * and version of NVRTC; a damaged cache entry is compiled again.
 */
int nvrtc_compile(const struct nvrtc_job *j, struct str *cubin,
		  struct err *e);

#endif
