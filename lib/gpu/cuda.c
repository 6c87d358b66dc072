/* SPDX-License-Identifier: Apache-2.0
 *
 * The device: memory, copies, the kernels' module, recorded runs.
 */
#include "gpu/cuda.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

struct gpu_tape {
	cu_graph graph;
	cu_graph_exec exec;
};

static struct cuda *of(struct gpu *g)
{
	return (struct cuda *)g;
}

static cu_ptr ptr(const void *p)
{
	return (cu_ptr)(uintptr_t)p;
}

/* Remembers a failure of the driver. */
static int check(struct cuda *c, cu_rc rc, const char *what)
{
	if (c->g.failed.code)
		return -1;
	return cu_check(c->dev->api, rc, what, &c->g.failed);
}

static void close_cuda(struct gpu *g)
{
	struct cuda *c = of(g);

	if (cuda_comm_lost(c))
		return;
	cuda_part(g);
	cublas_close(c->blas);
	if (c->module)
		cu_module_free(c->dev, c->module);
	if (c->dev)
		cu_dev_close(c->dev);
	free(c);
}

static void *alloc_cuda(struct gpu *g, size_t bytes, struct err *e)
{
	struct cuda *c = of(g);
	cu_ptr p = 0;

	if (cu_bind(c->dev, e) ||
	    cu_check(c->dev->api, c->dev->api->MemAlloc(&p, bytes),
		     "cuMemAlloc", e) || cu_zero(c->dev, p, bytes, e))
		return NULL;
	return (void *)(uintptr_t)p;
}

static void free_cuda(struct gpu *g, void *p)
{
	if (cuda_comm_lost(of(g)))
		return;
	cu_bind(of(g)->dev, NULL);
	of(g)->dev->api->MemFree(ptr(p));
}

static void *host_cuda(struct gpu *g, size_t bytes, struct err *e)
{
	void *p = cu_bind(of(g)->dev, e) ? NULL :
		  cu_host_new(of(g)->dev, bytes, e);

	if (p)
		memset(p, 0, bytes);
	return p;
}

static void host_free_cuda(struct gpu *g, void *p)
{
	if (cuda_comm_lost(of(g)))
		return;
	cu_bind(of(g)->dev, NULL);
	cu_host_free(of(g)->dev, p);
}

static size_t avail_cuda(struct gpu *g)
{
	size_t avail = 0, total = 0;

	if (cu_bind(of(g)->dev, NULL) ||
	    cu_mem_info(of(g)->dev, &avail, &total, NULL))
		return 0;
	/* The driver keeps some of it for itself. */
	return avail > (size_t)64 << 20 ? avail - ((size_t)64 << 20) : 1;
}

static size_t work_size_cuda(size_t t, size_t width, size_t matrix)
{
	(void)matrix;
	return CUBLAS_WORK + (t + 64 * width) * sizeof(float) +
	       ((size_t)17 << 20);
}

static void upload_cuda(struct gpu *g, void *dst, const void *src, size_t n)
{
	struct cuda *c = of(g);

	if (!cu_bind(c->dev, &g->failed))
		check(c, c->dev->api->ToDevice(ptr(dst), src, n,
					       c->dev->stream), "upload");
}

static void download_cuda(struct gpu *g, void *dst, const void *src, size_t n)
{
	struct cuda *c = of(g);

	if (!cuda_comm_wait(c) && !cu_bind(c->dev, &g->failed))
		check(c, c->dev->api->ToHost(dst, ptr(src), n,
					     c->dev->stream), "download");
}

static void copy_cuda(struct gpu *g, void *dst, const void *src, size_t n)
{
	struct cuda *c = of(g);

	check(c, c->dev->api->CopyDevice(ptr(dst), ptr(src), n,
					 c->dev->stream), "copy");
}

static void zero_cuda(struct gpu *g, void *dst, size_t n)
{
	struct cuda *c = of(g);

	if (!cu_bind(c->dev, &g->failed))
		check(c, c->dev->api->Memset(ptr(dst), 0, n, c->dev->stream),
		      "zero");
}

static void sync_cuda(struct gpu *g)
{
	struct cuda *c = of(g);

	if (!cuda_comm_wait(c))
		check(c, c->dev->api->StreamSync(c->dev->stream), "kernels");
}

static int record_cuda(struct gpu *g)
{
	struct cuda *c = of(g);

	return !c->dev->api->CaptureBegin(c->dev->stream, CU_CAPTURE_THREAD);
}

static struct gpu_tape *record_end_cuda(struct gpu *g)
{
	struct cuda *c = of(g);
	const struct cu_api *api = c->dev->api;
	struct gpu_tape *t = calloc(1, sizeof *t);
	cu_graph graph = NULL;

	if (check(c, api->CaptureEnd(c->dev->stream, &graph), "recording") ||
	    !t || check(c, api->GraphMake(&t->exec, graph, 0), "recording")) {
		if (graph)
			api->GraphFree(graph);
		free(t);
		return NULL;
	}
	t->graph = graph;
	return t;
}

static void replay_cuda(struct gpu *g, const struct gpu_tape *t)
{
	struct cuda *c = of(g);

	check(c, c->dev->api->GraphLaunch(t->exec, c->dev->stream), "replay");
}

static void tape_free_cuda(struct gpu *g, struct gpu_tape *t)
{
	of(g)->dev->api->GraphExecFree(t->exec);
	of(g)->dev->api->GraphFree(t->graph);
	free(t);
}

static const struct gpu_ops ops = {
	.close = close_cuda, .alloc = alloc_cuda, .free = free_cuda,
	.host = host_cuda, .host_free = host_free_cuda,
	.work_size = work_size_cuda, .avail = avail_cuda,
	.upload = upload_cuda, .download = download_cuda, .copy = copy_cuda,
	.zero = zero_cuda, .sync = sync_cuda, .join = cuda_join,
	.mark = cuda_mark, .reduce_scatter = cuda_reduce_scatter,
	.all_gather = cuda_all_gather, .collected = cuda_collected,
	.record = record_cuda,
	.record_end = record_end_cuda, .replay = replay_cuda,
	.tape_free = tape_free_cuda, .token = cuda_token,
#define ROW(name, args) .name = cuda_##name,
	GPU_OPS(ROW)
#undef ROW
};

void cuda_launch(struct cuda *c, cu_fn fn, struct cuda_grid grid,
		 unsigned threads, unsigned shared, void **args)
{
	if (!grid.x || !grid.y || !grid.z)
		return;
	check(c, c->dev->api->Launch(fn, grid.x, grid.y, grid.z, threads, 1,
				     1, shared, c->dev->stream, args, NULL),
	      "launch");
}

/* With one attribute that is to be so. */
static void launch_with(struct cuda *c, int id, cu_fn fn,
			struct cuda_grid grid, unsigned threads,
			unsigned shared, void **args)
{
	struct cu_launch_attr attr = { .id = id, .value.allowed = 1 };
	const struct cu_launch l = {
		.grid = { grid.x, grid.y, grid.z }, .block = { threads, 1, 1 },
		.shared = shared, .stream = c->dev->stream, .attr = &attr,
		.nattr = 1
	};

	if (grid.x && grid.y && grid.z)
		check(c, c->dev->api->LaunchEx(&l, fn, args, NULL), "launch");
}

void cuda_launch_together(struct cuda *c, cu_fn fn, unsigned blocks,
			  unsigned threads, unsigned shared, void **args)
{
	launch_with(c, CU_LAUNCH_TOGETHER, fn,
		    (struct cuda_grid){ blocks, 1, 1 }, threads, shared,
		    args);
}

void cuda_launch_early(struct cuda *c, cu_fn fn, struct cuda_grid grid,
		       unsigned threads, unsigned shared, void **args)
{
	if (c->dev->info.major < 9)
		cuda_launch(c, fn, grid, threads, shared, args);
	else
		launch_with(c, CU_LAUNCH_EARLY, fn, grid, threads, shared,
			    args);
}

unsigned cuda_tile_bytes(int tiles, int dim)
{
	return (unsigned)(tiles * 64 * (dim + 8) * 2 + 512);
}

unsigned cuda_row_bytes(const struct cuda *c, int slots)
{
	int major = c->dev->info.major;

	/* 227 KiB for a block and 228 for all of them; elsewhere 99. */
	if (major == 9 || major == 10)
		return slots == 3 ? 114000 : 227000;
	return 99000;
}

unsigned cuda_hopper_bytes(int dim, int rows)
{
	return (unsigned)(rows * dim * 2 + 1024 + 3 * 2 * 64 * 4);
}

void *cuda_work(const struct cuda *c)
{
	return (char *)c->g.work + CUBLAS_WORK;
}

static int find_kernels(struct cuda *c, struct err *e)
{
#define FIND(name) \
	if (cu_function(c->dev, c->module, "k_" #name, &c->name, e)) \
		return -1;
	CUDA_KERNELS(FIND)
	if (c->g.act == GPU_BF16) {
		CUDA_KERNELS_BF16(FIND)
	}
	if (c->g.act == GPU_BF16 && c->dev->info.major == 9) {
		CUDA_KERNELS_HOPPER(FIND)
		c->hopper = 2;
	}
#undef FIND
	return 0;
}

/* Tiles need more shared memory than is theirs by default. */
static int allow_tiles(struct cuda *c, struct err *e)
{
	const struct { cu_fn fn; unsigned bytes; } row[] = {
		{ c->step, CUDA_STEP_BYTES },
		{ c->gemv_row_2, cuda_row_bytes(c, 2) },
		{ c->gemv_row_3, cuda_row_bytes(c, 3) },
		{ c->flash_64, cuda_tile_bytes(5, 64) },
		{ c->flash_128, cuda_tile_bytes(5, 128) },
		{ c->flash_dq_64, cuda_tile_bytes(4, 64) },
		{ c->flash_dq_128, cuda_tile_bytes(4, 128) },
		{ c->flash_dkdv_64, cuda_tile_bytes(4, 64) },
		{ c->flash_dkdv_128, cuda_tile_bytes(4, 128) },
		{ c->wg_64_1, cuda_hopper_bytes(64, 64 + 4 * 128) },
		{ c->wg_64_3, cuda_hopper_bytes(64, 192 + 4 * 128) },
		{ c->wg_128_1, cuda_hopper_bytes(128, 64 + 4 * 128) },
		{ c->wg_128_2, cuda_hopper_bytes(128, 128 + 4 * 128) },
		{ c->stream_64, cuda_hopper_bytes(64, HOPPER_STREAM_64) },
		{ c->stream_128, cuda_hopper_bytes(128, HOPPER_STREAM_128) },
		{ c->wg_dq_64, cuda_hopper_bytes(64, HOPPER_DQ_64) },
		{ c->wg_dq_128, cuda_hopper_bytes(128, HOPPER_DQ_128) },
		{ c->wg_dkdv_64, cuda_hopper_bytes(64, HOPPER_DKDV) },
		{ c->wg_dkdv_128, cuda_hopper_bytes(128, HOPPER_DKDV) },
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (row[i].fn && cu_check(c->dev->api,
					  c->dev->api->FunctionSet(row[i].fn,
						CU_FN_SHARED,
						(int)row[i].bytes),
					  "shared memory", e))
			return -1;
	return 0;
}

static double peak_of(const char *name)
{
	static const struct { const char *name; double tflops; } row[] = {
		{ "B200", 2250 }, { "H200", 989 }, { "H100 PCIe", 756 },
		{ "H100", 989 }, { "A100", 312 },
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (strstr(name, row[i].name))
			return row[i].tflops * 1e12;
	return 0;
}

static int start(struct cuda *c, int ordinal, struct err *e)
{
	struct str cubin = STR_INIT;
	int rc = -1;

	c->dev = cu_dev_open(ordinal, e);
	if (!c->dev)
		return -1;
	snprintf(c->g.name, sizeof c->g.name, "%s", c->dev->info.name);
	snprintf(c->g.lease, sizeof c->g.lease, "%s", c->dev->info.uuid);
	c->g.peak = peak_of(c->g.name);
	if (c->dev->info.major < 8)
		err_set(e, CA_UNAVAILABLE, "'%s' has no bf16 tensor cores",
			c->g.name);
	else if (!cuda_text_compile(c->dev->info.major, c->dev->info.minor,
				    c->g.act, &cubin, e) &&
		 !cu_module(c->dev, cubin.buf, &c->module, e) &&
		 !find_kernels(c, e) && !allow_tiles(c, e))
		rc = 0;
	str_release(&cubin);
	if (!rc)
		c->blas = cublas_open(e);
	return c->blas ? 0 : -1;
}

struct gpu *gpu_open_cuda(const char *device, enum gpu_type act,
			  struct err *e)
{
	int ordinal = cu_find(device, e);
	struct cuda *c;

	if (ordinal < 0)
		return NULL;
	c = calloc(1, sizeof *c);
	if (!c) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	c->g.ops = &ops;
	c->g.act = act;
	if (start(c, ordinal, e)) {
		close_cuda(&c->g);
		return NULL;
	}
	return &c->g;
}
