/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC and its cache.  An entry is the SHA-256 of the cubin, then the cubin.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/path.h"
#include "cu/builtins.h"
#include "cu/cu.h"
#include "cu/nvrtc.h"

#define MAX_HEADERS 16
#define MAX_OPTIONS 32
#define MAX_CUBIN ((size_t)64 << 20)

static struct nvrtc_api rtc;
static char version[16];
static struct err rtc_err;
static pthread_once_t rtc_once = PTHREAD_ONCE_INIT;

static void open_rtc(void)
{
#define ROW(name, sym, args) { sym, offsetof(struct nvrtc_api, name) },
	static const struct cu_symbol rows[] = { CU_NVRTC(ROW) };
#undef ROW
	char where[CA_PATH_MAX];
	void *lib = cu_open_lib("libnvrtc.so", where, &rtc_err);
	int major = 0, minor = 0;

	if (!lib)
		return;
	if (cu_resolve(lib, rows, sizeof(rows) / sizeof(rows[0]), &rtc,
		       &rtc_err)) {
		err_wrap(&rtc_err, "libnvrtc.so");
		return;
	}
	if (rtc.Version(&major, &minor)) {
		err_set(&rtc_err, CA_UNAVAILABLE, "nvrtcVersion failed");
		return;
	}
	nvrtc_builtins(where, major, minor);
	snprintf(version, sizeof(version), "%d.%d", major, minor);
}

const char *nvrtc_version(struct err *e)
{
	pthread_once(&rtc_once, open_rtc);
	if (!rtc_err.code)
		return version;
	err_set(e, rtc_err.code, "%s", rtc_err.msg);
	return NULL;
}

static int cache_name(const struct nvrtc_job *j, const char *arch,
		      char out[CA_PATH_MAX], struct err *e)
{
	char dir[CA_PATH_MAX], text[HASH_HEX];
	uint8_t sum[HASH_LEN];
	struct hash *h;

	if (path_cache(dir, "cubin", e))
		return -1;
	h = hash_new();
	if (!h)
		return err_sys(e, CA_SOFTWARE, "hash");
	hash_part(h, version, strlen(version));
	hash_part(h, arch, strlen(arch));
	hash_part(h, j->source.text, strlen(j->source.text));
	for (size_t i = 0; i < j->nheaders; i++) {
		const struct nvrtc_text *t = &j->headers[i];

		hash_part(h, t->name, strlen(t->name));
		hash_part(h, t->text, strlen(t->text));
	}
	hash_part(h, "", 0);
	for (size_t i = 0; j->options && j->options[i]; i++)
		hash_part(h, j->options[i], strlen(j->options[i]));
	hash_end(h, sum);
	hex(sum, HASH_LEN, text);
	if (snprintf(out, CA_PATH_MAX, "%s/%s", dir, text) >= CA_PATH_MAX)
		return err_set(e, CA_CANTCREAT, "cache path is too long");
	return 0;
}

/* 1 when the entry was there and whole. */
static int cache_get(const char *path, struct str *cubin)
{
	struct str s = STR_INIT;
	uint8_t sum[HASH_LEN];
	int hit = 0;

	if (read_file(path, MAX_CUBIN, &s, NULL) || s.len <= HASH_LEN)
		goto out;
	sha256(s.buf + HASH_LEN, s.len - HASH_LEN, sum);
	if (memcmp(sum, s.buf, HASH_LEN))
		goto out;
	hit = !str_add(cubin, s.buf + HASH_LEN, s.len - HASH_LEN);
out:
	str_release(&s);
	return hit;
}

/* A cache that cannot be written costs time, not the result. */
static void cache_put(const char *path, const char *cubin, size_t len)
{
	struct str s = STR_INIT;
	uint8_t sum[HASH_LEN];

	sha256(cubin, len, sum);
	if (!str_add(&s, sum, HASH_LEN) && !str_add(&s, cubin, len))
		write_file_atomic(path, s.buf, s.len, 0644, NULL);
	str_release(&s);
}

static void compiler_text(void *prog, const char *name, struct err *e)
{
	size_t n = 0;
	char *log = NULL;

	if (!rtc.LogSize(prog, &n) && n > 1)
		log = malloc(n);
	if (log && rtc.Log(prog, log))
		log[0] = '\0';
	err_set(e, CA_DATAERR, "%s does not compile: %s", name,
		log && log[0] ? log : "no text from NVRTC");
	free(log);
}

static int emit(void *prog, struct str *cubin, struct err *e)
{
	size_t n = 0;
	char *buf = NULL;
	int rc = -1;

	if (!rtc.CubinSize(prog, &n) && n && n <= MAX_CUBIN)
		buf = malloc(n);
	if (!buf || rtc.Cubin(prog, buf))
		err_set(e, CA_SOFTWARE, "NVRTC made no cubin");
	else if (str_add(cubin, buf, n))
		err_set(e, CA_SOFTWARE, "cubin: out of memory");
	else
		rc = 0;
	free(buf);
	return rc;
}

static int compile(const struct nvrtc_job *j, const char *arch,
		   struct str *cubin, struct err *e)
{
	const char *text[MAX_HEADERS], *name[MAX_HEADERS];
	const char *opt[MAX_OPTIONS] = { arch };
	void *prog = NULL;
	int n = 1, rc = -1;

	for (size_t i = 0; i < j->nheaders; i++) {
		text[i] = j->headers[i].text;
		name[i] = j->headers[i].name;
	}
	for (size_t i = 0; j->options && j->options[i]; i++) {
		if (n == MAX_OPTIONS)
			return err_set(e, CA_SOFTWARE, "too many options");
		opt[n++] = j->options[i];
	}
	if (rtc.Create(&prog, j->source.text, j->source.name,
		       (int)j->nheaders, text, name))
		return err_set(e, CA_SOFTWARE, "nvrtcCreateProgram failed");
	if (rtc.Compile(prog, n, opt))
		compiler_text(prog, j->source.name, e);
	else
		rc = emit(prog, cubin, e);
	rtc.Destroy(&prog);
	return rc;
}

int nvrtc_compile(const struct nvrtc_job *j, struct str *cubin,
		  struct err *e)
{
	char arch[32], path[CA_PATH_MAX] = "";
	size_t was = cubin->len;

	if (!nvrtc_version(e))
		return -1;
	if (j->nheaders > MAX_HEADERS)
		return err_set(e, CA_SOFTWARE, "too many headers");
	/* wgmma is there for code of exactly this architecture only. */
	snprintf(arch, sizeof(arch), "-arch=sm_%d%d%s", j->major, j->minor,
		 j->major == 9 ? "a" : "");
	if (!j->no_cache && cache_name(j, arch, path, e))
		return -1;
	if (path[0] && cache_get(path, cubin))
		return 0;
	if (compile(j, arch, cubin, e))
		return -1;
	if (path[0])
		cache_put(path, cubin->buf + was, cubin->len - was);
	return 0;
}
