/* SPDX-License-Identifier: Apache-2.0
 *
 * /proc/PID/maps, and whose code a file is.
 */
#include "judge/modules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/str.h"

#define MAPPINGS_MAX 100000

const char *place_name(enum place p)
{
	static const char *const name[PLACES] = {
		"own", "blas", "torch", "python", "other", "anonymous",
		"nowhere", "runtime", "kernel",
	};

	return name[p];
}

static int starts_with_any(const char *s, const char *const *list)
{
	for (; *list; list++)
		if (starts_with(s, *list))
			return 1;
	return 0;
}

/* Files of a package that pip installed, torch left out: never BLAS and never
 * a run-time library, whatever they are called. */
static enum place place_of_package(const char *path, const char *base)
{
	const char *torch = strstr(path, "-packages/torch/");

	if (!torch)
		return PLACE_OTHER;
	if (starts_with(base, "libgomp"))
		return PLACE_RUNTIME;
	if (starts_with(base, "libtorch_python") || starts_with(base, "_C."))
		return PLACE_PYTHON;
	return PLACE_TORCH;
}

enum place place_of(const char *path)
{
	static const char *const writable[] = {
		"/tmp/", "/dev/", "/memfd:", "/var/tmp/", NULL
	};
	static const char *const runtime[] = {
		"libc.", "libc-", "libm.", "libm-", "libmvec", "libpthread",
		"libdl.", "libdl-", "librt.", "librt-", "libgomp", "libomp",
		"libiomp5", "libstdc++", "libgcc_s", "ld-", "libatomic",
		"libquadmath", NULL
	};
	static const char *const blas[] = {
		"libopenblas", "libblas", "libcblas", "libblis", "libmkl_",
		/* has matmul in it, and comes with these */
		"libgfortran",
		NULL
	};
	static const char *const python[] = {
		"python3", "libpython3", "libffi", "libca-child", NULL
	};
	const char *base = strrchr(path, '/');

	if (!*path || starts_with(path, "[anon") || starts_with(path, "[heap")
	    || starts_with(path, "[stack") || starts_with(path, "/dev/zero"))
		return PLACE_ANON;
	if (*path == '[')
		return PLACE_RUNTIME;	/* vdso */
	if (starts_with(path, "/memfd:cuda_extension"))
		return PLACE_OWN;
	if (*path != '/' || starts_with_any(path, writable) ||
	    ends_with(path, " (deleted)"))
		return PLACE_OTHER;
	base++;
	if (strstr(path, "-packages/"))
		return place_of_package(path, base);
	/* Where torch is a distribution's or conda's. */
	if (starts_with(base, "libtorch_python"))
		return PLACE_PYTHON;
	if (starts_with(base, "libtorch") || starts_with(base, "libc10"))
		return PLACE_TORCH;
	if (strstr(path, "/lib-dynload/") || strstr(path, "/torch/alloc-") ||
	    starts_with_any(base, python))
		return PLACE_PYTHON;
	if (starts_with_any(base, runtime))
		return PLACE_RUNTIME;
	return starts_with_any(base, blas) ? PLACE_BLAS : PLACE_OTHER;
}

static int is_openmp(const char *base)
{
	static const char *const name[] = { "libgomp", "libomp", "libiomp5",
					    NULL };

	return starts_with_any(base, name);
}

static struct module *add(struct modules *ms)
{
	size_t alloc = ms->alloc ? 2 * ms->alloc : 256;
	struct module *p;

	if (ms->n == ms->alloc) {
		if (alloc > MAPPINGS_MAX)
			return NULL;
		p = realloc(ms->m, alloc * sizeof(*p));
		if (!p)
			return NULL;
		ms->m = p;
		ms->alloc = alloc;
	}
	return &ms->m[ms->n++];
}

/* One line; what is not executable is left out. */
static int read_line(struct modules *ms, char *line)
{
	unsigned long long start, end, ino;
	unsigned major, minor;
	struct module *m;
	char perms[8];
	const char *base;
	int at = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%llx-%llx %7s %*s %x:%x %llu %n", &start, &end, perms,
		   &major, &minor, &ino, &at) < 6 || !at)
		return 0;
	if (!strchr(perms, 'x'))
		return 0;
	m = add(ms);
	if (!m)
		return -1;
	m->start = start;
	m->end = end;
	m->dev = makedev(major, minor);
	m->ino = ino;
	m->written = perms[1] == 'w' || perms[3] != 'p';
	m->place = place_of(line + at);
	base = strrchr(line + at, '/');
	base = base ? base + 1 : line + at;
	m->waits = m->place == PLACE_RUNTIME && is_openmp(base);
	m->clean = 0;
	snprintf(m->name, sizeof(m->name), "%.60s", base);
	return 0;
}

int modules_read(struct modules *ms, pid_t pid, struct err *e)
{
	char path[64], line[4500];
	int rc = 0;
	FILE *f;

	ms->n = 0;
	ms->asked = 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return err_sys(e, CA_UNAVAILABLE, "cannot read '%s'", path);
	while (!rc && fgets(line, sizeof(line), f))
		rc = read_line(ms, line);
	fclose(f);
	return rc ? err_set(e, CA_UNAVAILABLE, "the process has too many "
			    "mappings") : 0;
}

/* The module whose mapping a line of smaps begins, NULL for another one's;
 * `now` for a line that begins none. */
static struct module *begun(struct modules *ms, const char *line,
			    struct module *now)
{
	unsigned long long start, end;

	if (sscanf(line, "%llx-%llx ", &start, &end) != 2)
		return now;
	for (size_t i = 0; i < ms->n; i++)
		if (ms->m[i].start == start && ms->m[i].end == end)
			return &ms->m[i];
	return NULL;
}

int modules_clean(struct modules *ms, const struct module *m, pid_t pid)
{
	char path[64], line[4500];
	struct module *now = NULL;
	unsigned long long kb;
	FILE *f = NULL;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	if (!ms->asked)
		f = fopen(path, "re");
	ms->asked = 1;
	while (f && fgets(line, sizeof(line), f)) {
		now = begun(ms, line, now);
		if (now && sscanf(line, "Anonymous: %llu kB", &kb) == 1)
			now->clean = now->ino && !kb;
	}
	if (f)
		fclose(f);
	return m->clean;
}

void modules_free(struct modules *ms)
{
	free(ms->m);
	memset(ms, 0, sizeof(*ms));
}

const struct module *modules_find(const struct modules *ms, uint64_t ip)
{
	size_t low = 0, high = ms->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct module *m = &ms->m[mid];

		if (ip >= m->end)
			low = mid + 1;
		else if (ip < m->start)
			high = mid;
		else
			return m;
	}
	return NULL;
}
