/* SPDX-License-Identifier: Apache-2.0
 *
 * The toolkit's folders.
 */
#define _GNU_SOURCE
#include "base/path.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

/* Joins parts into out, empty `name` adds nothing. */
static int join(char out[CA_PATH_MAX], const char *dir, const char *sub,
		const char *name, struct err *e)
{
	int n = snprintf(out, CA_PATH_MAX, "%s%s%s%s", dir, sub,
			 name && *name ? "/" : "", name ? name : "");

	if (n < 0 || n >= CA_PATH_MAX)
		return err_set(e, CA_CONFIG, "'%s' is too long a name", dir);
	return 0;
}

static const char *env_path(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

/* The folder of the running program. */
static int program_dir(char out[CA_PATH_MAX], struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", out, CA_PATH_MAX - 1);
	char *slash;

	if (n < 0)
		return err_sys(e, CA_SOFTWARE, "cannot read '/proc/self/exe'");
	out[n] = '\0';
	slash = strrchr(out, '/');
	if (!slash)
		return err_set(e, CA_SOFTWARE, "'%s' has no folder", out);
	*slash = '\0';
	return 0;
}

/* A program of bin/ has lib/ beside that; a test in build/test/ has it two
 * levels up. */
static int find_lib(const char *dir, char out[CA_PATH_MAX], struct err *e)
{
	static const char *const sub[] = {
		"/../lib", "/../../lib", "/../lib/cuda-agent"
	};
	char probe[CA_PATH_MAX];
	size_t i;

	for (i = 0; i < sizeof sub / sizeof *sub; i++) {
		if (join(probe, dir, sub[i], "torch/host.py", e))
			return -1;
		if (access(probe, R_OK) == 0)
			return join(out, dir, sub[i], NULL, e);
	}
	return err_set(e, CA_CONFIG, "cannot find 'lib/torch/host.py' near "
		       "'%s'; set CA_LIBDIR", dir);
}

int path_lib(char out[CA_PATH_MAX], const char *name, struct err *e)
{
	const char *env = env_path("CA_LIBDIR");
	char dir[CA_PATH_MAX], found[CA_PATH_MAX], *real;
	int rc;

	if (env)
		return join(out, env, "", name, e);
	if (program_dir(dir, e) || find_lib(dir, found, e))
		return -1;
	real = realpath(found, NULL);
	if (!real)
		return err_sys(e, CA_CONFIG, "cannot resolve '%s'", found);
	rc = join(out, real, "", name, e);
	free(real);
	return rc;
}

int path_skill(char out[CA_PATH_MAX], const char *name, struct err *e)
{
	static const char *const places[] = { "skills", "../skills" };
	char below[256];

	for (size_t i = 0; i < 2; i++) {
		snprintf(below, sizeof below, "%s/%s", places[i], name);
		if (path_lib(out, below, e))
			return -1;
		if (!access(out, R_OK))
			return 0;
	}
	return err_set(e, CA_NOINPUT, "cannot find 'skills/%s'", name);
}

int path_helper(char out[CA_PATH_MAX], const char *name, struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", out, CA_PATH_MAX - 1);
	char below[CA_PATH_MAX];
	char *slash;

	if (n > 0) {
		out[n] = '\0';
		slash = strrchr(out, '/');
		if (slash && (size_t)(slash - out) + strlen(name) + 2 <
			     CA_PATH_MAX) {
			strcpy(slash + 1, name);
			if (access(out, X_OK) == 0)
				return 0;
		}
	}
	if (path_lib(out, name, NULL) == 0 && access(out, X_OK) == 0)
		return 0;
	snprintf(below, sizeof below, "../bin/%s", name);
	if (path_lib(out, below, NULL) == 0 && access(out, X_OK) == 0)
		return 0;
	return err_set(e, CA_UNAVAILABLE, "cannot find '%s'", name);
}

/* The user's home: $HOME, else the password file. */
static const char *home(struct err *e)
{
	const char *h = env_path("HOME");
	struct passwd *pw = h ? NULL : getpwuid(getuid());

	if (pw && pw->pw_dir && *pw->pw_dir)
		h = pw->pw_dir;
	/* It is not ours to make. */
	if (h && access(h, F_OK) == 0)
		return h;
	if (h)
		err_set(e, CA_CONFIG, "there is no home directory '%s': set "
			"HOME", h);
	else
		err_set(e, CA_CONFIG, "no home directory: set HOME");
	return NULL;
}

/* $own, else $xdg/cuda-agent, else ~/dot/cuda-agent. */
static int user_dir(char out[CA_PATH_MAX], const char *own, const char *xdg,
		    const char *dot, struct err *e)
{
	const char *h;

	if (env_path(own))
		return join(out, env_path(own), "", NULL, e);
	if (env_path(xdg))
		return join(out, env_path(xdg), "/cuda-agent", NULL, e);
	h = home(e);
	return h ? join(out, h, dot, "cuda-agent", e) : -1;
}

int path_cache(char out[CA_PATH_MAX], const char *name, struct err *e)
{
	char base[CA_PATH_MAX];

	if (!env_path("CA_CACHE") && geteuid() == 0) {
		if (join(base, "/var/cache/cuda-agent", "", NULL, e))
			return -1;
	} else if (user_dir(base, "CA_CACHE", "XDG_CACHE_HOME", "/.cache", e)) {
		return -1;
	}
	if (join(out, base, "", name, e))
		return -1;
	return mkdir_p(out, 0755, e);
}

int path_config(char out[CA_PATH_MAX], const char *name, struct err *e)
{
	char base[CA_PATH_MAX];

	if (user_dir(base, "CA_CONFIG", "XDG_CONFIG_HOME", "/.config", e) ||
	    mkdir_p(base, 0700, e))
		return -1;
	return join(out, base, "", name, e);
}
