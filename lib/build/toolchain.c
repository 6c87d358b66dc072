/* SPDX-License-Identifier: Apache-2.0
 *
 * The compilers and libraries of this machine.
 */
#define _GNU_SOURCE
#include "build/toolchain.h"

#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/proc.h"
#include "build/slim.h"

#define NEEDS 32
#define SAID 8
#define CHILD_MAX ((size_t)4 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct toolchain found[NEEDS];
static int have[NEEDS];
static struct {
	const char *first, *second;	/* of argv; ours */
	struct str text;
} said[SAID];
static size_t nsaid;

/* Joins; a result that is cut is no path. */
static int put(char out[CA_PATH_MAX], const char *dir, const char *name)
{
	int n = snprintf(out, CA_PATH_MAX, "%s/%s", dir, name);

	return n > 0 && n < CA_PATH_MAX ? 0 : -1;
}

static int resolve_file(char out[CA_PATH_MAX], const char *path)
{
	char real[PATH_MAX];

	if (access(path, R_OK) < 0 || !realpath(path, real) ||
	    strlen(real) >= CA_PATH_MAX)
		return -1;
	strcpy(out, real);
	return 0;
}

static int resolve(char out[CA_PATH_MAX], const char *path)
{
	return access(path, X_OK) < 0 ? -1 : resolve_file(out, path);
}

static int on_path(char out[CA_PATH_MAX], const char *name)
{
	const char *p = getenv("PATH"), *colon;
	char dir[CA_PATH_MAX], try[CA_PATH_MAX];
	size_t n;

	for (; p && *p; p = *colon ? colon + 1 : colon) {
		colon = p + strcspn(p, ":");
		n = (size_t)(colon - p);
		if (n == 0 || n >= sizeof(dir))
			continue;
		memcpy(dir, p, n);
		dir[n] = '\0';
		if (put(try, dir, name) == 0 && resolve(out, try) == 0)
			return 0;
	}
	return -1;
}

static int find_program(char out[CA_PATH_MAX], const char *env,
			const char *name, struct err *e)
{
	const char *own = getenv(env);

	if (own && *own) {
		if (resolve(out, own) == 0)
			return 0;
		return err_set(e, CA_UNAVAILABLE, "%s='%s' cannot be run",
			       env, own);
	}
	if (on_path(out, name) == 0)
		return 0;
	return err_set(e, CA_UNAVAILABLE, "no compiler: cannot find '%s' on "
		       "the path (or set %s)", name, env);
}

/* nvcc elsewhere than on the path; not where $CA_NVCC names one. */
static int find_nvcc_home(char out[CA_PATH_MAX])
{
	const char *home = getenv("CUDA_HOME"), *own = getenv("CA_NVCC");
	char try[CA_PATH_MAX];

	if (own && *own)
		return -1;
	if (home && put(try, home, "bin/nvcc") == 0 && resolve(out, try) == 0)
		return 0;
	return resolve(out, "/usr/local/cuda/bin/nvcc");
}

static int find_nvcc(struct toolchain *t, struct err *e)
{
	char *slash;

	if (find_program(t->nvcc, "CA_NVCC", "nvcc", e) < 0 &&
	    find_nvcc_home(t->nvcc) < 0)
		return -1;
	if (e)
		err_clear(e);
	strcpy(t->cuda, t->nvcc);
	slash = strrchr(t->cuda, '/');
	*slash = '\0';
	slash = strrchr(t->cuda, '/');
	if (!slash || slash == t->cuda)
		return err_set(e, CA_UNAVAILABLE,
			       "'%s' is in no CUDA toolkit", t->nvcc);
	*slash = '\0';
	return 0;
}

/* Runs a trusted program and appends what it says. */
static int run(const char *const *argv, struct str *out, struct err *e)
{
	struct child_opts o = { 0 };
	struct child_result r;

	o.argv = argv;
	o.out = out;
	o.errout = NULL;
	o.outcap = 1 << 16;
	o.deadline = deadline_in(60);
	if (child_run(&o, &r, e) < 0)
		return -1;
	if (r.how != CHILD_EXITED || r.code != 0)
		return err_set(e, CA_UNAVAILABLE, "'%s' failed", argv[0]);
	return 0;
}

/* The same, once per process: by what is asked of which program. */
static int ask(const char *const *argv, struct str *out, struct err *e)
{
	struct str text = STR_INIT;
	size_t i = 0;

	while (i < nsaid && (strcmp(said[i].first, argv[0]) ||
			     strcmp(said[i].second, argv[1])))
		i++;
	if (i < nsaid)
		return str_add(out, said[i].text.buf, said[i].text.len);
	if (run(argv, &text, e) || str_add(out, text.buf, text.len)) {
		str_release(&text);
		return -1;
	}
	if (i < SAID) {
		said[i].first = strdup(argv[0]);
		said[i].second = strdup(argv[1]);
		said[i].text = text;
		nsaid += said[i].first && said[i].second;
	} else {
		str_release(&text);
	}
	return 0;
}

/* Adds path, size and time of a file to the identity. */
static int add_file(struct hash *h, const char *path, struct err *e)
{
	char buf[CA_PATH_MAX + 128];
	struct stat st;

	if (stat(path, &st) < 0)
		return err_sys(e, CA_UNAVAILABLE, "cannot stat '%s'", path);
	snprintf(buf, sizeof(buf), "%s %lld %lld.%09ld", path,
		 (long long)st.st_size, (long long)st.st_mtim.tv_sec,
		 st.st_mtim.tv_nsec);
	hash_part(h, buf, strlen(buf));
	return 0;
}

/* The same and the version of a program. */
static int identify(struct hash *h, const char *path, struct str *version,
		    struct err *e)
{
	const char *argv[] = { path, "--version", NULL };

	str_reset(version);
	if (ask(argv, version, e) < 0 || add_file(h, path, e) < 0)
		return -1;
	hash_part(h, version->buf ? version->buf : "", version->len);
	return 0;
}

/* -march=native means this CPU. */
static void identify_cpu(struct hash *h)
{
	static const char *const names[] = { "model name", "flags" };
	char line[8192];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!proc_line(line, sizeof(line), names[i], "/proc/cpuinfo"))
			hash_part(h, line, strlen(line));
}

/* "g++ (Debian 12.2.0-14) 12.2.0\n…" to "g++ 12.2.0"; nvcc says
 * "…\nCuda compilation tools, release 13.0, V13.0.88\n…". */
static void describe(struct toolchain *t, const struct str *v, int cuda)
{
	const char *s = v->buf ? v->buf : "", *w;
	size_t n = strcspn(s, "\n");
	size_t used = strlen(t->compiler);

	if (cuda) {
		w = strstr(s, "release ");
		n = w ? strcspn(w + 8, ",") : 0;
		snprintf(t->compiler + used, sizeof(t->compiler) - used,
			 "nvcc %.*s, ", (int)(n < 32 ? n : 32),
			 w ? w + 8 : "");
		return;
	}
	for (w = s + n; w > s && w[-1] != ' '; w--)
		;
	n -= (size_t)(w - s);
	snprintf(t->compiler + used, sizeof(t->compiler) - used, "g++ %.*s",
		 (int)(n < 32 ? n : 32), w);
}

static const char torch_script[] =
	"import importlib.util, sysconfig, os\n"
	"s = importlib.util.find_spec('torch')\n"
	"print(os.path.dirname(s.origin))\n"
	"print(sysconfig.get_paths()['include'])\n";

static int take_line(char out[CA_PATH_MAX], const char **s)
{
	size_t n = strcspn(*s, "\n");

	if (n == 0 || n >= CA_PATH_MAX)
		return -1;
	memcpy(out, *s, n);
	out[n] = '\0';
	*s += n + ((*s)[n] == '\n');
	return 0;
}

static int find_torch(struct toolchain *t, struct err *e)
{
	char python[CA_PATH_MAX];
	const char *argv[] = { python, "-I", "-c", torch_script,
			       NULL };
	struct str s = STR_INIT;
	const char *p;
	int rc = -1;

	if (path_python(python, e) < 0 || ask(argv, &s, e) < 0)
		goto out;
	p = s.buf ? s.buf : "";
	rc = 0;
	if (take_line(t->torch, &p) < 0 ||
	    take_line(t->python_include, &p) < 0)
		rc = err_set(e, CA_UNAVAILABLE,
			     "'%s' does not say where torch is", python);
out:
	str_release(&s);
	return rc;
}

static int find_headers(struct toolchain *t, struct hash *h, struct err *e)
{
	char file[CA_PATH_MAX], slim[HASH_HEX];
	struct str ver = STR_INIT;
	int rc = -1;

	if (find_torch(t, e) < 0 || slim_find(t->slim, slim, e) < 0)
		goto out;
	if (put(file, t->python_include, "Python.h") < 0 ||
	    access(file, R_OK) < 0) {
		err_set(e, CA_UNAVAILABLE, "no '%s/Python.h': the paper and "
			"inline forms need Python's headers (python3-dev)",
			t->python_include);
		goto out;
	}
	if (put(file, t->torch, "version.py") < 0 ||
	    read_file(file, 1 << 16, &ver, e) < 0)
		goto out;
	hash_part(h, t->torch, strlen(t->torch));
	hash_part(h, t->python_include, strlen(t->python_include));
	hash_part(h, ver.buf, ver.len);
	hash_part(h, slim, strlen(slim));
	rc = 0;
out:
	str_release(&ver);
	return rc;
}

static int find_cuda(struct toolchain *t, struct hash *h, struct err *e)
{
	struct str v = STR_INIT;
	int rc = -1;

	if (find_nvcc(t, e) == 0 && identify(h, t->nvcc, &v, e) == 0) {
		describe(t, &v, 1);
		rc = 0;
	}
	str_release(&v);
	return rc;
}

static int find_host(struct toolchain *t, struct hash *h, struct err *e)
{
	struct str v = STR_INIT;
	int rc = -1;

	if (find_program(t->cc, "CA_CC", "gcc", e) == 0 &&
	    find_program(t->cxx, "CA_CXX", "g++", e) == 0 &&
	    identify(h, t->cc, &v, e) == 0 &&
	    identify(h, t->cxx, &v, e) == 0) {
		describe(t, &v, 0);
		identify_cpu(h);
		rc = 0;
	}
	str_release(&v);
	return rc;
}

/*
 * A jail's uid may not be able to reach a checkout (in a home of mode 0700),
 * but it can read the cache: the program is copied there under its hash.
 */
static int place_child(struct toolchain *t, struct hash *h, struct err *e)
{
	char from[CA_PATH_MAX], sum[HASH_HEX], name[96];
	struct str s = STR_INIT;
	int rc = -1;

	if (path_helper(from, "nvrtc-child", e) < 0 ||
	    read_file(from, CHILD_MAX, &s, e) < 0 ||
	    path_cache(from, "bin", e) < 0)
		goto out;
	sha256_hex(s.buf, s.len, sum);
	hash_part(h, sum, strlen(sum));
	snprintf(name, sizeof(name), "nvrtc-%s", sum);
	if (put(t->nvrtc_child, from, name) < 0) {
		err_set(e, CA_CONFIG, "cache path is too long");
		goto out;
	}
	rc = access(t->nvrtc_child, X_OK) == 0 ? 0 :
	     write_file_atomic(t->nvrtc_child, s.buf, s.len, 0755, e);
out:
	str_release(&s);
	return rc;
}

static int find_nvrtc(struct toolchain *t, struct hash *h, struct err *e)
{
	const char *ask_version[] = { t->nvrtc_child, t->nvrtc, "version",
				      NULL };
	struct str v = STR_INIT;
	char lib[CA_PATH_MAX], *slash;
	int rc = -1;

	if (find_nvcc(t, NULL) == 0 &&
	    toolchain_cuda_lib(t, "nvrtc", lib, NULL) == 0) {
		if (put(t->nvrtc_include, t->cuda, "include") < 0)
			goto out;
	} else if (find_torch(t, e) < 0 ||
		   toolchain_cuda_lib(t, "nvrtc", lib, e) < 0) {
		goto out;
	} else {
		strcpy(t->nvrtc_include, lib);
		slash = strstr(t->nvrtc_include, "/lib/libnvrtc");
		if (slash)
			strcpy(slash, "/include");
	}
	if (resolve_file(t->nvrtc, lib) < 0) {
		err_set(e, CA_UNAVAILABLE, "cannot read '%s'", lib);
		goto out;
	}
	if (place_child(t, h, e) < 0 || ask(ask_version, &v, e) < 0 ||
	    add_file(h, t->nvrtc, e) < 0)
		goto out;
	hash_part(h, v.buf, v.len);
	snprintf(t->compiler, sizeof(t->compiler), "%.*s",
		 (int)strcspn(v.buf, "\n"), v.buf);
	rc = 0;
out:
	str_release(&v);
	return rc;
}

static int find_all(unsigned need, struct toolchain *t, struct hash *h,
		    struct err *e)
{
	if ((need & TOOLCHAIN_CUDA) && find_cuda(t, h, e) < 0)
		return -1;
	if ((need & TOOLCHAIN_HOST) && find_host(t, h, e) < 0)
		return -1;
	if ((need & TOOLCHAIN_TORCH) && find_headers(t, h, e) < 0)
		return -1;
	if ((need & TOOLCHAIN_WHEELS) && find_torch(t, NULL) == 0)
		hash_part(h, t->torch, strlen(t->torch));
	if ((need & TOOLCHAIN_NVRTC) && find_nvrtc(t, h, e) < 0)
		return -1;
	return 0;
}

int toolchain_find(unsigned need, struct toolchain *t, struct err *e)
{
	uint8_t sum[HASH_LEN];
	struct hash *h;
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!have[need % NEEDS]) {
		memset(t, 0, sizeof(*t));
		h = hash_new();
		if (!h) {
			rc = err_set(e, CA_SOFTWARE, "out of memory");
			goto out;
		}
		rc = find_all(need, t, h, e);
		hash_end(h, sum);
		if (rc < 0)
			goto out;
		hex(sum, sizeof(sum), t->id);
		found[need % NEEDS] = *t;
		have[need % NEEDS] = 1;
	}
	*t = found[need % NEEDS];
out:
	pthread_mutex_unlock(&lock);
	return rc;
}

/* The first file that a pattern matches. */
static int first_match(const char *dir, const char *pattern,
		       char out[CA_PATH_MAX])
{
	char all[CA_PATH_MAX];
	glob_t g;
	int ok;

	if (put(all, dir, pattern) < 0)
		return -1;
	ok = glob(all, 0, NULL, &g) == 0 && g.gl_pathc > 0 &&
	     strlen(g.gl_pathv[0]) < CA_PATH_MAX;
	if (ok)
		strcpy(out, g.gl_pathv[0]);
	globfree(&g);
	return ok ? 0 : -1;
}

int toolchain_cuda_header(const struct toolchain *t, const char *name,
			  char out[CA_PATH_MAX])
{
	char path[CA_PATH_MAX], pattern[256], *slash;

	snprintf(pattern, sizeof(pattern), "include/%s", name);
	if (put(path, t->cuda, pattern) == 0 && access(path, R_OK) == 0)
		return -1;
	snprintf(pattern, sizeof(pattern), "../nvidia/*/include/%s", name);
	if (!*t->torch || first_match(t->torch, pattern, out) < 0)
		return -1;
	slash = strrchr(out, '/');
	*slash = '\0';
	return 0;
}

int toolchain_cuda_lib(const struct toolchain *t, const char *name,
		       char out[CA_PATH_MAX], struct err *e)
{
	static const char *const dir[] = { "lib64", "targets/x86_64-linux/lib",
					   "lib" };
	char pattern[256];
	size_t i;

	for (i = 0; i < sizeof(dir) / sizeof(*dir); i++) {
		snprintf(pattern, sizeof(pattern), "%s/lib%s.so", dir[i],
			 name);
		if (first_match(t->cuda, pattern, out) == 0)
			return 0;
	}
	snprintf(pattern, sizeof(pattern), "../nvidia/*/lib/lib%s.so.*", name);
	if (*t->torch && first_match(t->torch, pattern, out) == 0)
		return 0;
	return err_set(e, CA_UNAVAILABLE, "cannot find 'lib%s.so' in '%s'%s",
		       name, t->cuda, *t->torch ? " or beside torch" : "");
}
