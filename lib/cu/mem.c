/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory through the virtual memory interface, so that it can be
 * handed to another process as a descriptor; copies.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "cu/cu.h"

#define CHECK(d, call, what, e) cu_check((d)->api, call, what, e)
#define COPY_SECONDS 120

static struct cu_prop properties(const struct cu_dev *d, int shared)
{
	struct cu_prop p;

	memset(&p, 0, sizeof(p));
	p.type = CU_PINNED;
	p.handle_types = shared ? CU_HANDLE_FD : 0;
	p.where.type = CU_LOC_DEVICE;
	p.where.id = d->ord;
	return p;
}

static int round_up(struct cu_dev *d, size_t bytes, size_t *size,
		    struct err *e)
{
	struct cu_prop p = properties(d, 1);
	size_t g;

	if (!d->granularity &&
	    CHECK(d, d->api->Granularity(&d->granularity, &p, 0),
		  "cuMemGetAllocationGranularity", e))
		return -1;
	g = d->granularity;
	if (bytes > SIZE_MAX - g)
		return err_set(e, CA_UNAVAILABLE, "device memory: too large");
	*size = bytes ? (bytes + g - 1) / g * g : g;
	return 0;
}

/* Reserves addresses for m->size bytes and maps the handle there. */
static int map(struct cu_dev *d, cu_handle h, struct cu_mem *m,
	       struct err *e)
{
	struct cu_access a = { { CU_LOC_DEVICE, d->ord }, CU_READ_WRITE };

	if (CHECK(d, d->api->Reserve(&m->ptr, m->size, 0, 0, 0),
		  "cuMemAddressReserve", e)) {
		m->ptr = 0;
		return -1;
	}
	if (!CHECK(d, d->api->Map(m->ptr, m->size, 0, h, 0), "cuMemMap", e)) {
		if (!CHECK(d, d->api->SetAccess(m->ptr, m->size, &a, 1),
			   "cuMemSetAccess", e))
			return 0;
		d->api->Unmap(m->ptr, m->size);
	}
	d->api->Unreserve(m->ptr, m->size);
	m->ptr = 0;
	return -1;
}

int cu_mem_new(struct cu_dev *d, size_t bytes, int shared, struct cu_mem *m,
	       struct err *e)
{
	struct cu_prop p = properties(d, shared);
	cu_handle h;
	int rc;

	*m = (struct cu_mem)CU_MEM_INIT;
	m->bytes = bytes;
	if (round_up(d, bytes, &m->size, e))
		return -1;
	if (CHECK(d, d->api->MemCreate(&h, m->size, &p, 0), "cuMemCreate", e))
		return err_wrap(e, "%zu bytes", m->size);
	rc = map(d, h, m, e);
	if (!rc && shared)
		rc = CHECK(d, d->api->MemExport(&m->fd, h, CU_HANDLE_FD, 0),
			   "cuMemExportToShareableHandle", e);
	if (!rc && shared)
		fcntl(m->fd, F_SETFD, FD_CLOEXEC);
	/* The mapping keeps the memory. */
	d->api->MemRelease(h);
	if (rc) {
		m->fd = -1;
		cu_mem_free(d, m);
	}
	return rc;
}

int cu_mem_import(struct cu_dev *d, int fd, size_t bytes, struct cu_mem *m,
		  struct err *e)
{
	cu_handle h;
	int rc;

	*m = (struct cu_mem)CU_MEM_INIT;
	m->bytes = bytes;
	if (round_up(d, bytes, &m->size, e) ||
	    CHECK(d, d->api->MemImport(&h, (void *)(intptr_t)fd,
				       CU_HANDLE_FD),
		  "cuMemImportFromShareableHandle", e))
		return -1;
	rc = map(d, h, m, e);
	d->api->MemRelease(h);
	return rc;
}

void cu_mem_free(struct cu_dev *d, struct cu_mem *m)
{
	if (m->ptr) {
		d->api->Unmap(m->ptr, m->size);
		d->api->Unreserve(m->ptr, m->size);
	}
	if (m->fd >= 0)
		close(m->fd);
	*m = (struct cu_mem)CU_MEM_INIT;
}

void *cu_host_new(struct cu_dev *d, size_t bytes, struct err *e)
{
	void *p = NULL;

	if (CHECK(d, d->api->HostAlloc(&p, bytes, 0), "cuMemHostAlloc", e))
		return NULL;
	return p;
}

void cu_host_free(struct cu_dev *d, void *p)
{
	if (p)
		d->api->HostFree(p);
}

static int copied(struct cu_dev *d, struct err *e)
{
	int rc = cu_wait(d, deadline_in(COPY_SECONDS), e);

	if (rc > 0)
		return err_set(e, CA_SOFTWARE, "copy took more than %d s",
			       COPY_SECONDS);
	return rc;
}

int cu_upload(struct cu_dev *d, cu_ptr to, const void *from, size_t n,
	      struct err *e)
{
	if (!n)
		return 0;
	if (CHECK(d, d->api->ToDevice(to, from, n, d->stream),
		  "cuMemcpyHtoDAsync", e))
		return -1;
	return copied(d, e);
}

int cu_download(struct cu_dev *d, void *to, cu_ptr from, size_t n,
		struct err *e)
{
	if (!n)
		return 0;
	if (CHECK(d, d->api->ToHost(to, from, n, d->stream),
		  "cuMemcpyDtoHAsync", e))
		return -1;
	return copied(d, e);
}

int cu_zero(struct cu_dev *d, cu_ptr to, size_t n, struct err *e)
{
	if (!n)
		return 0;
	if (CHECK(d, d->api->Memset(to, 0, n, d->stream), "cuMemsetD8Async",
		  e))
		return -1;
	return copied(d, e);
}
