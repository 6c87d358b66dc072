/* SPDX-License-Identifier: Apache-2.0
 *
 * libca-child.so, memory: what a CUDA child of the torch host needs so that
 * the judge's memory becomes its own.  Loaded with ctypes; libcuda is the one
 * that torch has loaded.  Nothing here is trusted by the judge.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "cu/api.h"
#include "cu/child/child.h"
#include "cu/trace.h"

#define BLOCKS 4096
#define ALIGN ((uint64_t)512)
#define ZONE ((uint64_t)CA_POOL_ZONE)

static struct cu_api api;
static int ready;

int ca_child_driver(void)
{
#define ROW(name, sym, args) { sym, offsetof(struct cu_api, name) },
	static const struct { const char *name; size_t at; } row[] = {
		CU_DRIVER(ROW)
	};
#undef ROW
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);

	if (!lib)
		return -1;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		void *p = dlsym(lib, row[i].name);

		if (!p)
			return -1;
		memcpy((char *)&api + row[i].at, &p, sizeof(p));
	}
	ready = 1;
	return 0;
}

int ca_child_import(int device, int fd, uint64_t bytes, uint64_t *ptr)
{
	struct cu_access a = { { CU_LOC_DEVICE, device }, CU_READ_WRITE };
	cu_handle h;
	int rc;

	if (!ready && ca_child_driver())
		return -1;
	rc = api.MemImport(&h, (void *)(intptr_t)fd, CU_HANDLE_FD);
	if (rc)
		return rc;
	rc = api.Reserve(ptr, bytes, 0, 0, 0);
	if (!rc)
		rc = api.Map(*ptr, bytes, 0, h, 0);
	if (!rc)
		rc = api.SetAccess(*ptr, bytes, &a, 1);
	api.MemRelease(h);
	return rc;
}

/* Any kernel does: it keeps what follows in its stream, copies included,
 * from running before the GPU has turned to this process. */
static const char nudge_ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry " CA_NUDGE "()\n{\nret;\n}\n";

int ca_child_nudge(uint64_t stream)
{
	static cu_fn fn;
	cu_mod mod;
	int rc;

	if (!ready && ca_child_driver())
		return -1;
	if (!fn) {
		rc = api.ModuleLoad(&mod, nudge_ptx);
		if (!rc)
			rc = api.Function(&fn, mod, CA_NUDGE);
		if (rc)
			return rc;
	}
	return api.Launch(fn, 1, 1, 1, 1, 1, 1, 0,
			  (cu_stream)(uintptr_t)stream, NULL, NULL);
}

/*
 * First fit over a table of blocks in the order of their addresses, with
 * neighbours joined when freed.  torch's caching allocator asks for few and
 * large segments, so the table is short.  Its books are kept here, because
 * the judge poisons the memory itself.  A block has zones of its own before and
 * behind what torch gets of it, for the judge to fill and to look at.
 */
struct block { uint64_t at, len; int used; };

static struct {
	pthread_mutex_t lock;
	uint64_t base, len;
	struct block block[BLOCKS];
	int n;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

void ca_pool_set(uint64_t base, uint64_t len)
{
	pthread_mutex_lock(&pool.lock);
	pool.base = base;
	pool.len = len;
	pool.n = 1;
	pool.block[0] = (struct block){ base, len, 0 };
	pthread_mutex_unlock(&pool.lock);
}

static uint64_t take(uint64_t len)
{
	for (int i = 0; i < pool.n; i++) {
		struct block *b = &pool.block[i];

		if (b->used || b->len < len)
			continue;
		if (b->len > len) {
			if (pool.n == BLOCKS)
				return 0;
			memmove(b + 2, b + 1,
				(size_t)(pool.n - i - 1) * sizeof(*b));
			b[1] = (struct block){ b->at + len, b->len - len, 0 };
			b->len = len;
			pool.n++;
		}
		b->used = 1;
		return b->at;
	}
	return 0;
}

static void drop(int i)
{
	memmove(&pool.block[i], &pool.block[i + 1],
		(size_t)(pool.n - i - 1) * sizeof(pool.block[0]));
	pool.n--;
}

static void give(uint64_t at)
{
	struct block *b = pool.block;

	for (int i = 0; i < pool.n; i++) {
		if (b[i].at != at)
			continue;
		b[i].used = 0;
		if (i + 1 < pool.n && !b[i + 1].used) {
			b[i].len += b[i + 1].len;
			drop(i + 1);
		}
		if (i > 0 && !b[i - 1].used) {
			b[i - 1].len += b[i].len;
			drop(i);
		}
		return;
	}
}

void *ca_pool_malloc(ssize_t size, int device, void *stream)
{
	uint64_t len, at = 0;

	(void)device;
	(void)stream;
	if (size <= 0)
		return NULL;
	len = ((uint64_t)size + ALIGN - 1) / ALIGN * ALIGN;
	pthread_mutex_lock(&pool.lock);
	at = take(len + 2 * ZONE);
	pthread_mutex_unlock(&pool.lock);
	if (at)
		at += ZONE;
	if (!at && (ready || !ca_child_driver()) && api.MemAlloc(&at, len))
		at = 0;
	return (void *)(uintptr_t)at;
}

void ca_pool_free(void *ptr, ssize_t size, int device, void *stream)
{
	uint64_t at = (uintptr_t)ptr;

	(void)size;
	(void)device;
	(void)stream;
	if (at >= pool.base && at < pool.base + pool.len) {
		pthread_mutex_lock(&pool.lock);
		give(at - ZONE);
		pthread_mutex_unlock(&pool.lock);
	} else if (at && ready) {
		api.MemFree(at);
	}
}

void ca_pool_block(uint64_t ptr, uint64_t at[2])
{
	at[0] = at[1] = 0;
	pthread_mutex_lock(&pool.lock);
	for (int i = 0; i < pool.n; i++) {
		const struct block *b = &pool.block[i];

		if (!b->used || ptr < b->at || ptr - b->at >= b->len)
			continue;
		at[0] = b->at + ZONE - pool.base;
		at[1] = b->at + b->len - ZONE - pool.base;
	}
	pthread_mutex_unlock(&pool.lock);
}
