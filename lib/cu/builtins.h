/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVRTC opens by name when it first compiles.
 */
#ifndef CA_CU_BUILTINS_H
#define CA_CU_BUILTINS_H

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/*
 * Opens the builtins that lie beside `lib`, the path of an NVRTC of version
 * MAJOR.MINOR.  A wheel's folder is none where the loader looks, but a name
 * that is loaded already is found.  What is not there is left for NVRTC to
 * complain about; a `lib` without a folder came from the loader's own.
 */
static inline void nvrtc_builtins(const char *lib, int major, int minor)
{
	const char *slash = strrchr(lib, '/');
	char path[PATH_MAX];
	int n;

	if (!slash)
		return;
	n = snprintf(path, sizeof(path), "%.*s/libnvrtc-builtins.so.%d.%d",
		     (int)(slash - lib), lib, major, minor);
	if (n > 0 && (size_t)n < sizeof(path))
		dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

#endif
