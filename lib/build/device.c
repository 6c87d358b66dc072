/* SPDX-License-Identifier: Apache-2.0
 *
 * Which device a tool works for when it is not told.
 */
#define _GNU_SOURCE
#include "build/device.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/path.h"
#include "cu/cu.h"

static int add_text(struct hash *h, const char *path)
{
	struct str s = STR_INIT;
	int rc = read_file(path, 1 << 16, &s, NULL);

	if (!rc)
		hash_part(h, s.buf ? s.buf : "", s.len);
	str_release(&s);
	return rc;
}

static void add_env(struct hash *h, const char *name)
{
	const char *v = getenv(name);

	hash_part(h, v ? v : "", v ? strlen(v) : 0);
	hash_part(h, v ? "set" : "", v ? 3 : 0);
}

static void add_link(struct hash *h, const char *path)
{
	char to[64];
	ssize_t n = readlink(path, to, sizeof(to));

	hash_part(h, to, n > 0 ? (size_t)n : 0);
}

/*
 * Where it is remembered which GPUs there are, since CUDA takes 0.1 s to start:
 * until the machine is, for this driver, these device nodes, this cgroup and
 * this environment.  -1: it is not.
 */
static int notes(char path[CA_PATH_MAX + HASH_HEX + 8])
{
	char dir[CA_PATH_MAX], name[HASH_HEX];
	struct hash *h = hash_new();
	uint8_t sum[HASH_LEN];
	glob_t g;
	int rc;

	if (!h)
		return -1;
	rc = add_text(h, "/proc/sys/kernel/random/boot_id") ||
	     add_text(h, "/proc/driver/nvidia/version") ? -1 : 0;
	add_env(h, "CUDA_VISIBLE_DEVICES");
	add_env(h, "CUDA_DEVICE_ORDER");
	/* A cgroup may leave some GPUs out (a Slurm job's, a container's). */
	(void)add_text(h, "/proc/self/cgroup");
	add_link(h, "/proc/self/ns/cgroup");
	if (!rc && !glob("/dev/nvidia*", 0, NULL, &g)) {
		for (size_t i = 0; i < g.gl_pathc; i++)
			hash_part(h, g.gl_pathv[i], strlen(g.gl_pathv[i]));
		globfree(&g);
	}
	hash_end(h, sum);
	hex(sum, HASH_LEN, name);
	if (rc || path_cache(dir, "gpus", NULL))
		return -1;
	snprintf(path, CA_PATH_MAX + HASH_HEX + 8, "%s/%s.txt", dir, name);
	return 0;
}

int gpus_read(const char *text, struct gpus *g)
{
	int used;

	for (g->n = 0; g->n < GPUS_NOTED && *text; g->n++) {
		struct gpu *it = &g->gpu[g->n];

		used = 0;
		if (sscanf(text, "%15[a-z0-9_] %40[-A-Za-z0-9]%n", it->arch,
			   it->uuid, &used) != 2 || text[used] != '\n' ||
		    device_check_arch(it->arch, NULL))
			return -1;
		text += used + 1;
	}
	return g->n && !*text ? 0 : -1;
}

void gpus_write(const struct gpus *g, struct str *out)
{
	for (int i = 0; i < g->n; i++)
		str_addf(out, "%s %s\n", g->gpu[i].arch, g->gpu[i].uuid);
}

static int recall(const char *path, struct gpus *g)
{
	struct str s = STR_INIT;
	int rc = read_file(path, GPUS_NOTED * sizeof(struct gpu), &s, NULL) ||
		 !s.len ? -1 : gpus_read(s.buf, g);

	str_release(&s);
	return rc;
}

static void keep(const char *path, const struct gpus *g)
{
	struct str s = STR_INIT;

	gpus_write(g, &s);
	if (g->n && !s.failed)
		(void)write_file_atomic(path, s.buf, s.len, 0644, NULL);
	str_release(&s);
}

void gpus_find(struct gpus *g)
{
	char path[CA_PATH_MAX + HASH_HEX + 8];
	int noted = !notes(path), n;
	struct cu_info i;

	if (noted && !recall(path, g))
		return;
	n = cu_count(NULL);
	for (g->n = 0; g->n < n && g->n < GPUS_NOTED; g->n++) {
		struct gpu *it = &g->gpu[g->n];

		if (cu_info(g->n, &i, NULL) < 0)
			break;
		snprintf(it->arch, sizeof(it->arch), "sm_%d%d%s",
			 i.major % 100, i.minor % 10, i.major >= 9 ? "a" : "");
		snprintf(it->uuid, sizeof(it->uuid), "%s", i.uuid);
	}
	if (noted)
		keep(path, g);
}

int gpus_noted(struct gpus *g)
{
	char path[CA_PATH_MAX + HASH_HEX + 8];

	return notes(path) ? -1 : recall(path, g);
}

const char *device_default(void)
{
	struct gpus g;

	gpus_find(&g);
	return g.n > 0 ? "cuda" : "cpu";
}

int device_check(const char *name, struct err *e)
{
	const char *n = name + 5;

	if (strcmp(name, "cpu") == 0 || strcmp(name, "cuda") == 0)
		return 0;
	if (strncmp(name, "cuda:", 5) == 0 && *n && strlen(n) <= 3 &&
	    strspn(n, "0123456789") == strlen(n))
		return 0;
	return err_set(e, CA_USAGE, "no device: '%s' (cpu, cuda, cuda:N)",
		       name);
}

int device_check_arch(const char *name, struct err *e)
{
	size_t n = strlen(name), digits;

	if (strncmp(name, "sm_", 3) == 0 && n <= 8) {
		digits = strspn(name + 3, "0123456789");
		if (digits >= 2 && (digits + 3 == n ||
		    (digits + 4 == n && strchr("af", name[n - 1]))))
			return 0;
	}
	return err_set(e, CA_USAGE, "no architecture: '%s' (sm_90a, sm_80)",
		       name);
}

void device_arch(const char *name, char out[16])
{
	int ordinal = name[4] == ':' ? atoi(name + 5) : 0;
	struct gpus g;

	gpus_find(&g);
	strcpy(out, ordinal < g.n ? g.gpu[ordinal].arch : "sm_90a");
}
