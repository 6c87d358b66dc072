/* SPDX-License-Identifier: Apache-2.0
 *
 * How a host is started: the command and its environment.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "base/child.h"
#include "base/str.h"
#include "torch/internal.h"

#define IDLE "600"

/*
 * What of the caller's environment the host gets, and with it the code that is
 * judged: what programs, libraries and compilers are found by, and nothing
 * else, for the rest may hold secrets (keys of model servers, say).
 */
static int is_kept(const char *var)
{
	static const char *const kept[] = {
		"PATH=", "HOME=", "LANG=", "LC_", "TMPDIR=", "CC=", "CXX=",
		"LD_LIBRARY_PATH=", "LIBRARY_PATH=", "CPATH=", "CUDA_",
		"NVIDIA_", "XDG_CACHE_HOME=", "CA_", "OMP_", "GOMP_",
		"KMP_", "MKL_", "OPENBLAS_", "TORCH", "PYTORCH_", "TRITON_",
		"VIRTUAL_ENV=",
	};

	/* These are for who starts the host. */
	if (starts_with(var, "CA_TORCH_IDLE=") ||
	    starts_with(var, "CA_TORCH_SHARED="))
		return 0;
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
		if (starts_with(var, kept[i]))
			return 1;
	return 0;
}

/* After how many seconds without work a shared host leaves. */
static int idle_seconds(struct host_command *c, struct err *e)
{
	const char *text = getenv("CA_TORCH_IDLE");
	char *end;
	double v;

	c->idle = IDLE;
	if (!text || !*text)
		return 0;
	v = strtod(text, &end);
	if (*end || !(v > 0 && v < 1e8))
		return err_set(e, CA_CONFIG, "CA_TORCH_IDLE: '%s' is not a "
			       "number of seconds", text);
	c->idle = text;
	return 0;
}

int host_command(struct host_command *c, struct err *e)
{
	size_t n = 0;

	for (char **v = environ; *v && n < HOST_ENV - 1; v++)
		if (is_kept(*v))
			c->env[n++] = *v;
	c->env[n] = NULL;
	if (idle_seconds(c, e) || path_python(c->python, e) ||
	    path_lib(c->script, "torch/host.py", e))
		return -1;
	return path_cache(c->cache, "torch", e);
}

pid_t host_exec(const struct host_command *c, int fd,
		const char *const *more, size_t nmore, struct err *e)
{
	const char *argv[HOST_ARGS] = { c->python, "-I", c->script };
	struct child_opts o = { .argv = argv, .env = c->env, .keep = &fd,
				.nkeep = 1 };
	char number[16];
	size_t n = 3;

	snprintf(number, sizeof(number), "%d", fd);
	argv[n++] = number;
	argv[n++] = c->cache;
	for (size_t i = 0; i < nmore && n < HOST_ARGS - 1; i++)
		argv[n++] = more[i];
	argv[n] = NULL;
	return child_start(&o, e);
}
