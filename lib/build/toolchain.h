/* SPDX-License-Identifier: Apache-2.0
 *
 * The compilers and libraries of this machine, found by looking, once per
 * process.
 */
#ifndef CA_BUILD_TOOLCHAIN_H
#define CA_BUILD_TOOLCHAIN_H

#include "base/err.h"
#include "base/path.h"

struct toolchain {
	char cc[CA_PATH_MAX], cxx[CA_PATH_MAX];	/* resolved, absolute */
	char nvcc[CA_PATH_MAX];		/* "" unless asked for */
	char cuda[CA_PATH_MAX];		/* its toolkit: bin/nvcc, include */
	char torch[CA_PATH_MAX];	/* .../site-packages/torch */
	char python_include[CA_PATH_MAX];
	char slim[CA_PATH_MAX];		/* our headers in place of torch's */
	char nvrtc[CA_PATH_MAX];	/* libnvrtc.so.N */
	char nvrtc_child[CA_PATH_MAX];	/* the program that runs it, where a
					 * jail can read it */
	char nvrtc_include[CA_PATH_MAX];
	char compiler[256];		/* for people: "g++ 12.2.0" */
	char id[65];			/* SHA-256 over paths, versions, times
					 * and, for -march=native, the CPU */
};

enum {
	TOOLCHAIN_HOST = 1,		/* gcc and g++ */
	TOOLCHAIN_CUDA = 2,		/* nvcc */
	TOOLCHAIN_TORCH = 4,		/* torch's headers, Python's */
	TOOLCHAIN_NVRTC = 8,		/* NVRTC, of the toolkit or torch's */
	TOOLCHAIN_WHEELS = 16		/* where torch is, for the packages
					 * beside it; not an error if nowhere */
};

/*
 * Fills *t for the parts in `need`.  gcc, g++ and nvcc are $CA_CC, $CA_CXX,
 * $CA_NVCC, else those on the path; nvcc also $CUDA_HOME/bin/nvcc and
 * /usr/local/cuda/bin/nvcc; torch is that of path_python.  CA_UNAVAILABLE
 * names what is missing.  Thread safe.
 */
int toolchain_find(unsigned need, struct toolchain *t, struct err *e);

/* The directory that holds a header of the toolkit's libraries ("cudnn.h"),
 * where it is not the toolkit's own include: then among the packages beside
 * torch.  0, or -1 when it is in the toolkit or nowhere. */
int toolchain_cuda_header(const struct toolchain *t, const char *name,
			  char out[CA_PATH_MAX]);

/*
 * The file to link for a library of the CUDA toolkit ("cublas"), from the
 * toolkit or from the packages beside torch.  CA_UNAVAILABLE.
 */
int toolchain_cuda_lib(const struct toolchain *t, const char *name,
		       char out[CA_PATH_MAX], struct err *e);

#endif
