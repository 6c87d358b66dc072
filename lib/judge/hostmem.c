/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build/limits.h"
#include "judge/hostmem.h"

#define PAGE ((size_t)4096)
#define SMALL ((size_t)64 << 20)	/* not worth a look */
#define SPARE 8			/* an eighth of what is free stays free */

int hostmem_room(size_t n, struct err *e)
{
	struct limits l;

	if (n <= SMALL)
		return 0;
	limits_read(&l);
	if (l.memory > 0 && n <= (size_t)(l.memory - l.memory / SPARE))
		return 0;
	return err_set(e, CA_UNAVAILABLE, "no memory for %zu bytes: %lld are "
		       "free", n, (long long)l.memory);
}

static int make(size_t bytes, int sparse, struct mem *m, struct err *e)
{
	size_t n = bytes ? (bytes + PAGE - 1) / PAGE * PAGE : PAGE;
	int fd, rc = -1;

	*m = (struct mem)MEM_NONE;
	if (hostmem_room(n, e))
		return -1;
	fd = memfd_create("cuda-agent", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return err_sys(e, CA_UNAVAILABLE, "cannot make shared memory");
	if (sparse)
		errno = ftruncate(fd, (off_t)n) ? errno : 0;
	else
		errno = posix_fallocate(fd, 0, (off_t)n);
	if (errno) {
		err_sys(e, CA_UNAVAILABLE, "no memory for %zu bytes", n);
		goto out;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
		  F_SEAL_SEAL)) {
		err_sys(e, CA_SOFTWARE, "cannot seal shared memory");
		goto out;
	}
	m->p = mmap(NULL, n, PROT_READ | PROT_WRITE,
		    MAP_SHARED | (sparse ? 0 : MAP_POPULATE), fd, 0);
	if (m->p == MAP_FAILED) {
		err_sys(e, CA_UNAVAILABLE, "cannot map %zu bytes", n);
		goto out;
	}
	m->bytes = n;
	m->fd = fd;
	m->host = 1;
	rc = 0;
out:
	if (rc) {
		close(fd);
		*m = (struct mem)MEM_NONE;
	}
	return rc;
}

int hostmem_new(size_t bytes, struct mem *m, struct err *e)
{
	return make(bytes, 0, m, e);
}

int hostmem_sparse(size_t bytes, struct mem *m, struct err *e)
{
	return make(bytes, 1, m, e);
}

int hostmem_adopt(int fd, size_t bytes, struct mem *m, struct err *e)
{
	struct stat st;

	*m = (struct mem)MEM_NONE;
	if (fstat(fd, &st) || (size_t)st.st_size != bytes)
		return err_set(e, CA_SOFTWARE, "shared memory is not of the "
			       "size that was made");
	m->p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->p == MAP_FAILED) {
		*m = (struct mem)MEM_NONE;
		return err_sys(e, CA_UNAVAILABLE, "cannot map %zu bytes",
			       bytes);
	}
	m->bytes = bytes;
	m->fd = fd;
	m->host = 1;
	return 0;
}

void hostmem_free(struct mem *m)
{
	if (m->p)
		munmap(m->p, m->bytes);
	if (m->fd >= 0)
		close(m->fd);
	*m = (struct mem)MEM_NONE;
}
