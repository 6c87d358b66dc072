/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding and opening NVIDIA's libraries.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "cu/cu.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Where wheels put their libraries, below the prefix of a Python. */
static const char *const wheels[] = {
	"lib/python3*/site-packages/nvidia/cu1[0-9]",
	"lib/python3*/site-packages/nvidia/cuda_*",
	"lib/python3*/site-packages/nvidia/nccl",
	"lib/python3*/dist-packages/nvidia/cu1[0-9]",
	"lib/python3*/dist-packages/nvidia/cuda_*",
	"lib/python3*/dist-packages/nvidia/nccl",
	"local/lib/python3*/dist-packages/nvidia/cu1[0-9]",
	"local/lib/python3*/dist-packages/nvidia/cuda_*",
	"local/lib/python3*/dist-packages/nvidia/nccl",
};

static void *open_path(const char *path, char *where)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (lib && where)
		snprintf(where, CA_PATH_MAX, "%s", path);
	return lib;
}

static void *open_soname(const char *stem, char *where)
{
	/* NCCL counts by itself. */
	static const char *const tail[] = { ".13", ".12", ".2", ".1", "" };
	char name[64];
	void *lib = NULL;

	for (size_t i = 0; !lib && i < COUNT(tail); i++) {
		snprintf(name, sizeof(name), "%s%s", stem, tail[i]);
		lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	}
	if (lib && where)
		where[0] = '\0';
	return lib;
}

static void *open_below(const char *root, const char *stem, char *where)
{
	static const char *const tail[] = { ".13", ".12", "" };
	char path[CA_PATH_MAX];
	void *lib = NULL;

	for (size_t i = 0; !lib && i < COUNT(tail); i++) {
		snprintf(path, sizeof(path), "%s/lib64/%s%s", root, stem,
			 tail[i]);
		lib = open_path(path, where);
	}
	return lib;
}

static void *open_wheel(const char *stem, char *where)
{
	char python[CA_PATH_MAX], pattern[CA_PATH_MAX + 128];
	void *lib = NULL;
	glob_t g;

	if (path_python(python, NULL))
		return NULL;
	/* PREFIX/bin/python3; a link to another Python is not followed,
	 * since a virtual environment's packages are beside the link. */
	for (int up = 0; up < 2; up++) {
		char *slash = strrchr(python, '/');

		if (!slash)
			return NULL;
		*slash = '\0';
	}
	for (size_t i = 0; !lib && i < COUNT(wheels); i++) {
		snprintf(pattern, sizeof(pattern), "%s/%s/lib/%s.*[0-9]",
			 python, wheels[i], stem);
		if (glob(pattern, 0, NULL, &g))
			continue;
		for (size_t k = g.gl_pathc; !lib && k-- > 0; )
			lib = open_path(g.gl_pathv[k], where);
		globfree(&g);
	}
	return lib;
}

void *cu_open_lib(const char *stem, char where[CA_PATH_MAX], struct err *e)
{
	const char *home = getenv("CUDA_HOME");
	void *lib = open_soname(stem, where);

	if (!lib && home && *home)
		lib = open_below(home, stem, where);
	if (!lib)
		lib = open_below("/usr/local/cuda", stem, where);
	if (!lib)
		lib = open_wheel(stem, where);
	if (!lib)
		err_set(e, CA_UNAVAILABLE, "cannot find '%s'", stem);
	return lib;
}

int cu_resolve(void *lib, const struct cu_symbol *s, size_t n, void *table,
	       struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		void *p = dlsym(lib, s[i].name);

		if (!p)
			return err_set(e, CA_UNAVAILABLE,
				       "library is too old: no '%s'",
				       s[i].name);
		memcpy((char *)table + s[i].offset, &p, sizeof(p));
	}
	return 0;
}

static struct cu_api driver;
static struct err driver_err;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static void open_driver(void)
{
#define ROW(name, sym, args) { sym, offsetof(struct cu_api, name) },
	static const struct cu_symbol rows[] = { CU_DRIVER(ROW) };
#undef ROW
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	cu_rc rc;

	if (!lib) {
		err_set(&driver_err, CA_UNAVAILABLE,
			"no CUDA driver (libcuda.so.1)");
		return;
	}
	if (cu_resolve(lib, rows, COUNT(rows), &driver, &driver_err)) {
		err_wrap(&driver_err, "libcuda.so.1");
		return;
	}
	rc = driver.Init(0);
	if (cu_check(&driver, rc, "cuInit", &driver_err))
		driver_err.code = CA_UNAVAILABLE;
}

const struct cu_api *cu_api(struct err *e)
{
	pthread_once(&driver_once, open_driver);
	if (!driver_err.code)
		return &driver;
	err_set(e, driver_err.code, "%s", driver_err.msg);
	return NULL;
}

int cu_check(const struct cu_api *api, cu_rc rc, const char *what,
	     struct err *e)
{
	const char *name = NULL, *text = NULL;

	if (!rc)
		return 0;
	api->ErrorName(rc, &name);
	api->ErrorString(rc, &text);
	return err_set(e, rc == CU_OOM ? CA_UNAVAILABLE : CA_SOFTWARE,
		       "%s: %s (%d): %s", what, name ? name : "unknown error",
		       rc, text ? text : "");
}
