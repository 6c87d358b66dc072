/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/cuda.h"
#include "gpu/device.h"

#define ALIGN ((size_t)256)

struct gpu *gpu_open(const char *device, enum gpu_type act, unsigned flags,
		     struct err *e)
{
	struct gpu *g = NULL;

	if (!strcmp(device, "cpu")) {
		if (act == GPU_F32)
			g = gpu_open_cpu(e);
		else
			err_set(e, CA_CONFIG, "the CPU has fp32 activations "
				"only");
	} else if (starts_with(device, "cuda")) {
		if (act != GPU_F16)
			g = gpu_open_cuda(device, act, e);
		else
			err_set(e, CA_CONFIG, "CUDA has fp32 and bf16 "
				"activations only");
	} else {
		err_set(e, CA_USAGE, "no such device: '%s'", device);
	}
	if (g) {
		g->act = act;
		g->flags = flags;
	}
	return g;
}

void gpu_close(struct gpu *g)
{
	if (g)
		g->ops->close(g);
}

enum gpu_type gpu_act(const struct gpu *g)
{
	return g->act;
}

int gpu_is_cpu(const struct gpu *g)
{
	return !g->ops->record;
}

const char *gpu_name(const struct gpu *g)
{
	return g->name;
}

size_t gpu_avail(struct gpu *g)
{
	return g->ops->avail(g);
}

const char *gpu_lease_name(const struct gpu *g)
{
	return g->lease;
}

double gpu_peak(const struct gpu *g)
{
	return g->peak;
}

void gpu_plan_add(struct gpu_plan *p, const char *name, void **where,
		  size_t n, size_t size)
{
	size_t bytes, room = p->alloc ? 2 * p->alloc : 64;
	struct gpu_row *row = p->row;

	*where = NULL;
	if (__builtin_mul_overflow(n, size, &bytes) ||
	    bytes > SIZE_MAX / 4 - p->total) {
		p->failed = 1;
		return;
	}
	if (p->n == p->alloc) {
		row = realloc(row, room * sizeof *row);
		if (!row) {
			p->failed = 1;
			return;
		}
		p->row = row;
		p->alloc = room;
	}
	row[p->n++] = (struct gpu_row){ name, where, bytes };
	p->total += (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

struct line {
	const char *name;
	size_t bytes;
};

static int larger(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return strcmp(x->name, y->name);
}

static double mib(size_t bytes)
{
	return (double)bytes / 1048576;
}

void gpu_plan_print(const struct gpu_plan *p, struct str *out)
{
	struct line *line = calloc(p->n + 1, sizeof *line);
	size_t n = 0, k;

	for (size_t i = 0; line && i < p->n; i++) {
		for (k = 0; k < n && strcmp(line[k].name, p->row[i].name); )
			k++;
		line[k].name = p->row[i].name;
		line[k].bytes += p->row[i].bytes;
		n += k == n;
	}
	if (line)
		qsort(line, n, sizeof *line, larger);
	for (k = 0; k < n; k++)
		str_addf(out, "%12.1f MiB  %s\n", mib(line[k].bytes),
			 line[k].name);
	str_addf(out, "%12.1f MiB  in all\n", mib(p->total));
	free(line);
}

int gpu_plan_commit(struct gpu *g, struct gpu_plan *p, struct err *e)
{
	size_t avail = g->ops->avail(g), at = 0;

	if (p->failed)
		return err_set(e, CA_SOFTWARE, "memory plan overflowed");
	if (avail && p->total > avail)
		return err_set(e, CA_UNAVAILABLE, "%.0f MiB are needed on "
			       "'%s', %.0f are free", mib(p->total), g->name,
			       mib(avail));
	p->base = g->ops->alloc(g, p->total, e);
	if (!p->base)
		return -1;
	for (size_t i = 0; i < p->n; i++) {
		*p->row[i].where = (char *)p->base + at;
		at += (p->row[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
	}
	return 0;
}

void gpu_plan_release(struct gpu *g, struct gpu_plan *p)
{
	if (p->base)
		g->ops->free(g, p->base);
	free(p->row);
	*p = (struct gpu_plan)GPU_PLAN_INIT;
}

size_t gpu_work_size(const struct gpu *g, size_t t, size_t width,
		     size_t matrix)
{
	return g->ops->work_size(t, width, matrix);
}

void gpu_set_work(struct gpu *g, void *work, size_t bytes)
{
	g->work = work;
	g->work_bytes = bytes;
}

void *gpu_host(struct gpu *g, size_t bytes, struct err *e)
{
	return g->ops->host(g, bytes, e);
}

void gpu_host_free(struct gpu *g, void *p)
{
	if (p)
		g->ops->host_free(g, p);
}

void gpu_upload(struct gpu *g, void *dst, const void *src, size_t bytes)
{
	if (!g->failed.code && bytes)
		g->ops->upload(g, dst, src, bytes);
}

int gpu_download(struct gpu *g, void *dst, const void *src, size_t bytes,
		 struct err *e)
{
	if (!g->failed.code && bytes)
		g->ops->download(g, dst, src, bytes);
	return gpu_sync(g, e);
}

void gpu_copy(struct gpu *g, void *dst, const void *src, size_t bytes)
{
	if (!g->failed.code && bytes && dst != src)
		g->ops->copy(g, dst, src, bytes);
}

void gpu_zero(struct gpu *g, void *dst, size_t bytes)
{
	if (!g->failed.code && bytes)
		g->ops->zero(g, dst, bytes);
}

int gpu_sync(struct gpu *g, struct err *e)
{
	int code;

	if (!g->failed.code)
		g->ops->sync(g);
	code = g->failed.code;
	if (code)
		err_set(e, code, "%s: %s", g->name, g->failed.msg);
	err_clear(&g->failed);
	return code ? -1 : 0;
}

int gpu_join(struct gpu *g, struct comm *c, struct err *e)
{
	if (comm_count(c) < 2)
		return 0;
	if (g->ops->join(g, c, e))
		return -1;
	g->comm = c;
	return 0;
}

void gpu_reduce_scatter(struct gpu *g, float *x, size_t part)
{
	if (g->comm && !g->failed.code && part)
		g->ops->reduce_scatter(g, x, part);
}

void gpu_all_gather(struct gpu *g, void *x, size_t bytes)
{
	if (g->comm && !g->failed.code && bytes)
		g->ops->all_gather(g, x, bytes);
}

void gpu_collected(struct gpu *g)
{
	if (g->comm && !g->failed.code)
		g->ops->collected(g);
}

void gpu_mark(struct gpu *g)
{
	if (g->comm && !g->failed.code &&
	    !comm_check(g->comm, COMM_GLANCE, &g->failed))
		g->ops->mark(g);
}

int gpu_do_token(struct gpu *g, const struct gpu_token *a)
{
	return g->ops->token && !g->failed.code && g->ops->token(g, a);
}

int gpu_record(struct gpu *g)
{
	return g->ops->record && !g->failed.code && g->ops->record(g);
}

struct gpu_tape *gpu_record_end(struct gpu *g)
{
	return g->ops->record_end(g);
}

void gpu_replay(struct gpu *g, const struct gpu_tape *t)
{
	if (!g->failed.code)
		g->ops->replay(g, t);
}

void gpu_tape_free(struct gpu *g, struct gpu_tape *t)
{
	if (t)
		g->ops->tape_free(g, t);
}

#define GPU_DEFINE(name, args) \
	void gpu_do_##name(struct gpu *g, const struct args *a) \
	{ \
		if (!g->failed.code) \
			g->ops->name(g, a); \
	}
GPU_OPS(GPU_DEFINE)
