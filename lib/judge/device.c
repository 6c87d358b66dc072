/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing a device, and checking what an untrusted process says about its
 * results.
 */
#include "judge/device.h"

#include <stdlib.h>
#include <string.h>

#include "build/device.h"

struct device *device_open(const char *name, struct err *e)
{
	if (!name)
		name = device_cuda_count() > 0 ? "cuda" : "cpu";
	if (!strcmp(name, "cpu"))
		return device_cpu_open(e);
	if (!strcmp(name, "cuda"))
		return device_cuda_open(-1, e);
	return device_check(name, e) ? NULL :
	       device_cuda_open(atoi(name + 5), e);
}

void device_close(struct device *d)
{
	if (d)
		d->ops->close(d);
}

void device_leave(struct device *d)
{
	if (d && d->ops->leave)
		d->ops->leave(d);
	else
		device_close(d);
}

static int leaf_check(const struct ca_leaf *l, size_t bytes,
		      struct extent *ext)
{
	uint64_t n = l->dtype < DT_COUNT ? dtype_size(l->dtype) : 0;

	ext->offset = 0;
	ext->bytes = 0;
	if (l->kind < LEAF_TENSOR || l->kind > LEAF_STR)
		return -1;
	if (l->kind != LEAF_TENSOR)
		return 0;
	if (!n || l->ndim > CA_NDIM)
		return -1;
	for (uint32_t i = 0; i < l->ndim; i++) {
		if (l->shape[i] < 0)
			return -1;
		if (__builtin_mul_overflow(n, (uint64_t)l->shape[i], &n))
			return -1;
	}
	if (n > bytes || l->offset > bytes - n ||
	    ((l->from || l->to) &&
	     (l->from >= l->to || l->to > bytes)))
		return -1;
	ext->offset = l->offset;
	ext->bytes = n;
	return 0;
}

int leaves_check(const struct ca_msg *m, size_t bytes,
		 struct extent ext[CA_LEAVES])
{
	if (m->nleaf > CA_LEAVES)
		return -1;
	for (uint32_t i = 0; i < m->nleaf; i++)
		if (leaf_check(&m->leaf[i], bytes, &ext[i]))
			return -1;
	return 0;
}

void runner_last(struct runner *r, const struct ca_leaf *l,
		 const struct extent *ext)
{
	r->last[r->nlast] = *ext;
	r->block[r->nlast].offset = l->from;
	r->block[r->nlast].bytes = l->to - l->from;
	r->nlast++;
}

int runner_note(struct runner *r, const struct ca_msg *m)
{
	struct extent ext[CA_LEAVES];

	if (leaves_check(m, r->pool.bytes, ext))
		return -1;
	r->nlast = 0;
	for (uint32_t i = 0; i < m->nleaf; i++)
		if (ext[i].bytes)
			runner_last(r, &m->leaf[i], &ext[i]);
	return 0;
}

int device_lease(struct device *d, int exclusive, double seconds,
		 double patience, struct err *e)
{
	struct err first = ERR_INIT;

	if (seconds <= patience)
		return d->ops->lease(d, exclusive, seconds, e);
	if (!d->ops->lease(d, exclusive, patience, &first))
		return 0;
	if (first.code != CA_UNAVAILABLE)
		return err_set(e, first.code, "%s", first.msg);
	/* Once: others may come and go between all records. */
	if (!d->waited)
		warn("waiting for the device '%s': somebody else is %s",
		     d->name, exclusive ? "using it" : "timing on it");
	d->waited = 1;
	return d->ops->lease(d, exclusive, seconds - patience, e);
}

int device_hold(struct device *d, enum device_hold how, double seconds,
		struct err *e)
{
	if (how == HOLD_NONE && strcmp(d->ops->name, "cpu")) {
		d->ops->unlease(d);
		return 0;
	}
	return d->ops->lease(d, how == HOLD_ALONE, seconds, e);
}

void device_hosted(struct device *d, pid_t host)
{
	if (d->host == host)
		return;
	if (d->ops->hosted)
		d->ops->hosted(d, host);
	d->host = host;
}
