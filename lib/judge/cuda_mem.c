/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the CUDA device: VMM allocations, sealed memfds for what the host
 * side of a runner reads, and the kernels that move, poison and compare bytes.
 */
#define _GNU_SOURCE
#include <string.h>

#include "base/io.h"
#include "judge/cuda.h"
#include "judge/hostmem.h"

#define SYNC_SECONDS 60

int cuda_inside(const struct mem *m, size_t off, size_t n, struct err *e)
{
	if (off <= m->bytes && n <= m->bytes - off)
		return 0;
	return err_set(e, CA_SOFTWARE, "access outside of memory "
		       "(%zu + %zu of %zu)", off, n, m->bytes);
}

int cuda_sync(struct cuda *c, double seconds, struct err *e)
{
	int rc = cu_wait(c->cu, deadline_in(seconds), e);

	if (rc > 0)
		return err_set(e, CA_SOFTWARE, "the GPU did not answer within "
			       "%.0f s", seconds);
	return rc;
}

static int device_mem(struct device *d, size_t bytes, int shared,
		      struct mem *m, struct err *e)
{
	struct cu_mem cm;

	*m = (struct mem)MEM_NONE;
	if (cu_mem_new(cuda_of(d)->cu, bytes, shared, &cm, e))
		return -1;
	m->p = (void *)(uintptr_t)cm.ptr;
	m->bytes = cm.size;
	m->fd = cm.fd;
	return 0;
}

int cuda_shared(struct device *d, size_t bytes, int host, struct mem *m,
		struct err *e)
{
	if (host)
		return hostmem_new(bytes, m, e);
	if (device_mem(d, bytes, 1, m, e))
		return -1;
	if (cu_zero(cuda_of(d)->cu, cuda_at(m, 0), m->bytes, e)) {
		cuda_release(d, m);
		return -1;
	}
	return 0;
}

int cuda_private(struct device *d, size_t bytes, struct mem *m,
		 struct err *e)
{
	return device_mem(d, bytes, 0, m, e);
}

void cuda_release(struct device *d, struct mem *m)
{
	struct cu_mem cm = {
		.ptr = cuda_at(m, 0), .bytes = m->bytes, .size = m->bytes,
		.fd = m->fd,
	};

	if (m->host)
		hostmem_free(m);
	else if (m->p)
		cu_mem_free(cuda_of(d)->cu, &cm);
	*m = (struct mem)MEM_NONE;
}

int cuda_download(struct device *d, void *dst, const struct mem *src,
		  size_t off, size_t n, struct err *e)
{
	if (cuda_inside(src, off, n, e))
		return -1;
	if (src->host) {
		memcpy(dst, (const char *)src->p + off, n);
		return 0;
	}
	return cu_download(cuda_of(d)->cu, dst, cuda_at(src, off), n, e);
}

int cuda_upload(struct device *d, struct mem *dst, size_t off,
		const void *src, size_t n, struct err *e)
{
	if (cuda_inside(dst, off, n, e))
		return -1;
	if (dst->host) {
		memcpy((char *)dst->p + off, src, n);
		return 0;
	}
	return cu_upload(cuda_of(d)->cu, cuda_at(dst, off), src, n, e);
}

void cuda_moves_init(struct cuda_moves *m, struct cuda *c, uint64_t seed)
{
	m->c = c;
	m->t.seed = seed;
	m->t.n = 0;
	m->t.chunks = 0;
}

static int launch_moves(struct cuda_moves *m, struct err *e)
{
	struct cuda *c = m->c;
	uint64_t most = (uint64_t)c->cu->info.sms * 8;
	void *args[] = { &m->t };
	unsigned blocks;

	if (!m->t.n)
		return 0;
	blocks = (unsigned)(m->t.chunks < most ? m->t.chunks : most);
	if (cu_launch(c->cu, c->move, blocks, MOVE_THREADS, args, e))
		return -1;
	/* The next table's poison must not repeat this one's. */
	m->t.seed += MOVE_MAX;
	m->t.n = 0;
	m->t.chunks = 0;
	return 0;
}

int cuda_move(struct cuda_moves *m, cu_ptr dst, cu_ptr src, size_t bytes,
	      struct err *e)
{
	struct move *v;

	if (!bytes)
		return 0;
	if (m->t.n == MOVE_MAX && launch_moves(m, e))
		return -1;
	v = &m->t.m[m->t.n++];
	v->dst = dst;
	v->src = src;
	v->bytes = bytes;
	v->first = m->t.chunks;
	m->t.chunks += (bytes + MOVE_CHUNK - 1) / MOVE_CHUNK;
	return 0;
}

int cuda_moves_end(struct cuda_moves *m, struct err *e)
{
	return launch_moves(m, e);
}

int cuda_copy(struct device *d, struct mem *dst, size_t doff,
	      const struct mem *src, size_t soff, size_t n, struct err *e)
{
	struct cuda_moves m;

	if (cuda_inside(dst, doff, n, e) || cuda_inside(src, soff, n, e))
		return -1;
	if (src->host)
		return cuda_upload(d, dst, doff, (const char *)src->p + soff,
				   n, e);
	if (dst->host)
		return cuda_download(d, (char *)dst->p + doff, src, soff, n,
				     e);
	cuda_moves_init(&m, cuda_of(d), 0);
	if (cuda_move(&m, cuda_at(dst, doff), cuda_at(src, soff), n, e) ||
	    cuda_moves_end(&m, e))
		return -1;
	return cuda_sync(cuda_of(d), SYNC_SECONDS, e);
}

int cuda_poison(struct device *d, struct mem *m, size_t off, size_t n,
		uint64_t seed, struct err *e)
{
	struct cuda_moves t;

	if (cuda_inside(m, off, n, e))
		return -1;
	cuda_moves_init(&t, cuda_of(d), seed);
	if (cuda_move(&t, cuda_at(m, off), 0, n, e) || cuda_moves_end(&t, e))
		return -1;
	return cuda_sync(cuda_of(d), SYNC_SECONDS, e);
}

int cuda_differs(struct device *d, const struct mem *a, size_t aoff,
		 const struct mem *b, size_t boff, size_t n, struct err *e)
{
	struct cuda *c = cuda_of(d);
	cu_ptr pa = cuda_at(a, aoff), pb = cuda_at(b, boff);
	cu_ptr count = c->scratch.ptr;
	uint64_t len = n;
	void *args[] = { &pa, &pb, &len, &count };
	uint32_t found = 0;

	if (!n)
		return 0;
	if (cuda_inside(a, aoff, n, e) || cuda_inside(b, boff, n, e))
		return -1;
	if (a->host && b->host)
		return memcmp((const char *)a->p + aoff,
			      (const char *)b->p + boff, n) != 0;
	if (a->host || b->host)
		return err_set(e, CA_SOFTWARE, "cannot compare memory of the "
			       "host with the device's");
	if (cu_zero(c->cu, count, sizeof(found), e) ||
	    cu_launch(c->cu, c->differs, (unsigned)c->cu->info.sms * 8, 256,
		      args, e) ||
	    cuda_sync(c, SYNC_SECONDS, e) ||
	    cu_download(c->cu, &found, count, sizeof(found), e))
		return -1;
	return found != 0;
}
