/* SPDX-License-Identifier: Apache-2.0
 *
 * libca-child.so, evidence: CUPTI's activity records go into a region of the
 * judge's.  Kind CONCURRENT_KERNEL, because KERNEL would serialise.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "cu/child/child.h"
#include "cu/code.h"
#include "cu/trace.h"

/* From cupti_activity.h and cupti_callbacks.h of CUDA 13.0; later versions
 * only add members at the end. */
enum { KIND_COPY = 1, KIND_FILL = 2, KIND_KERNEL = 10 };
enum { DOMAIN_RESOURCE = 3, CBID_MODULE_LOADED = 6 };
enum { FLUSH_FORCED = 1 };

struct act_kernel {			/* CUpti_ActivityKernel10 */
	uint32_t kind;
	uint8_t cache, smem_config;
	uint16_t regs;
	uint32_t part[2];
	uint64_t start, end, completed;
	uint32_t device, context, stream;
	int32_t grid[3], block[3];
	int32_t smem_static, smem_dynamic;
	uint32_t local_thread, local_total, correlation;
	int64_t grid_id;
	const char *name;
};
_Static_assert(offsetof(struct act_kernel, name) == 104, "CUPTI's layout");

struct act_move {	/* CUpti_ActivityMemcpy6 and CUpti_ActivityMemset4 */
	uint32_t kind, what;
	uint64_t bytes, start, end;
};

struct res_data { void *context, *handle; const void *what; };
struct res_module { uint32_t id; size_t len; const unsigned char *cubin; };

typedef void request_fn(uint8_t **buf, size_t *size, size_t *max);
typedef void complete_fn(void *ctx, uint32_t stream, uint8_t *buf,
			 size_t size, size_t valid);
typedef void callback_fn(void *user, int domain, uint32_t id,
			 const void *data);

#define CUPTI(X) \
	X(Subscribe, "cuptiSubscribe", (void **, callback_fn *, void *)) \
	X(Callback, "cuptiEnableCallback", (uint32_t, void *, int, uint32_t)) \
	X(Buffers, "cuptiActivityRegisterCallbacks", \
	  (request_fn *, complete_fn *)) \
	X(Enable, "cuptiActivityEnable", (int)) \
	X(Next, "cuptiActivityGetNextRecord", (uint8_t *, size_t, void **)) \
	X(Dropped, "cuptiActivityGetNumDroppedRecords", \
	  (void *, uint32_t, size_t *)) \
	X(Flush, "cuptiActivityFlushAll", (uint32_t)) \
	X(Now, "cuptiGetTimestamp", (uint64_t *))

#define FIELD(name, sym, args) int (*name) args;
struct cupti {
	CUPTI(FIELD)
};
#undef FIELD
static struct cupti cupti;

#define BUFFER ((size_t)4 << 20)
#define SLOTS ((size_t)1 << 16)		/* kernels of loaded modules */

struct loaded { uint64_t name, code; };
struct seen { const char *name; uint32_t at; };

static struct {
	struct trace_head *head;
	char *names;
	struct trace_rec *rec;
	size_t room;
	pthread_mutex_t lock;
	struct loaded kernel[SLOTS];
	struct seen seen[SLOTS];
} tr = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The slot of a kernel's name, or the free one where it belongs. */
static size_t kernel_slot(uint64_t name)
{
	size_t i = name % SLOTS;

	for (size_t n = 0; n < SLOTS; n++, i = (i + 1) % SLOTS)
		if (!tr.kernel[i].name || tr.kernel[i].name == name)
			break;
	return i;
}

/* Two kernels of one name: which of them runs cannot be told. */
static void note_kernel(void *ctx, const char *name, size_t len, uint64_t hash)
{
	uint64_t key = code_hash(name, len);
	size_t slot = kernel_slot(key);

	(void)ctx;
	if (!tr.kernel[slot].name)
		tr.kernel[slot] = (struct loaded){ key, hash };
	else if (tr.kernel[slot].code != hash)
		tr.kernel[slot].code = TRACE_TWO;
}

static void on_callback(void *user, int domain, uint32_t id, const void *data)
{
	const struct res_data *r = data;
	const struct res_module *m;

	(void)user;
	if (domain != DOMAIN_RESOURCE || id != CBID_MODULE_LOADED)
		return;
	m = r->what;
	pthread_mutex_lock(&tr.lock);
	tr.head->modules++;
	if (m && m->cubin)
		code_cubin(m->cubin, m->len, note_kernel, NULL);
	pthread_mutex_unlock(&tr.lock);
}

static void on_request(uint8_t **buf, size_t *size, size_t *max)
{
	void *p = NULL;

	if (posix_memalign(&p, 8, BUFFER))
		p = NULL;
	*buf = p;
	*size = p ? BUFFER : 0;
	*max = 0;
}

/* Where a kernel's name lies among the names; the same pointer stands for
 * the same kernel in all of CUPTI's records. */
static uint32_t name_at(const char *name)
{
	size_t i = ((uintptr_t)name >> 3) % SLOTS, len = strlen(name) + 1;

	for (size_t n = 0; n < SLOTS; n++, i = (i + 1) % SLOTS) {
		if (tr.seen[i].name == name)
			return tr.seen[i].at;
		if (!tr.seen[i].name)
			break;
	}
	if (tr.seen[i].name || len > TRACE_NAMES - tr.head->names)
		return 0;	/* the empty name */
	tr.seen[i].name = name;
	tr.seen[i].at = (uint32_t)tr.head->names;
	memcpy(tr.names + tr.head->names, name, len);
	tr.head->names += len;
	return tr.seen[i].at;
}

static struct trace_rec *next_rec(void)
{
	static struct trace_rec nowhere;
	uint64_t n = tr.head->records++;

	return n < tr.room ? &tr.rec[n] : &nowhere;
}

static void put_kernel(const struct act_kernel *k)
{
	const char *name = k->name ? k->name : "";
	size_t slot = kernel_slot(code_hash(name, strlen(name)));
	struct trace_rec *r = next_rec();

	r->kind = TRACE_KERNEL;
	r->start = k->start;
	r->end = k->end;
	r->bytes = 0;
	r->name = name_at(name);
	r->code = tr.kernel[slot].code;
	memcpy(r->grid, k->grid, sizeof(r->grid));
	memcpy(r->block, k->block, sizeof(r->block));
	r->regs = k->regs;
	r->smem = (uint32_t)(k->smem_static + k->smem_dynamic);
}

static void put_move(const struct act_move *m)
{
	struct trace_rec *r = next_rec();

	memset(r, 0, sizeof(*r));
	r->kind = m->kind == KIND_COPY ? TRACE_COPY : TRACE_FILL;
	r->start = m->start;
	r->end = m->end;
	r->bytes = m->bytes;
}

static void on_complete(void *ctx, uint32_t stream, uint8_t *buf, size_t size,
			size_t valid)
{
	size_t lost = 0;
	void *rec = NULL;

	(void)size;
	pthread_mutex_lock(&tr.lock);
	while (valid && !cupti.Next(buf, valid, &rec)) {
		uint32_t kind = *(const uint32_t *)rec;

		if (kind == KIND_KERNEL)
			put_kernel(rec);
		else if (kind == KIND_COPY || kind == KIND_FILL)
			put_move(rec);
	}
	if (!cupti.Dropped(ctx, stream, &lost))
		tr.head->lost += lost;
	pthread_mutex_unlock(&tr.lock);
	free(buf);
}

static int open_cupti(void)
{
#define ROW(name, sym, args) \
	{ sym, (char *)&cupti.name - (char *)&cupti },
	const struct { const char *name; ptrdiff_t at; } row[] = {
		CUPTI(ROW)
	};
#undef ROW
	static const char *const name[] = { "libcupti.so.13",
					    "libcupti.so.12" };
	const char *path = getenv("CA_CUPTI");
	void *lib = NULL;

	for (int i = 0; !lib && i < 2; i++)	/* torch's own, if loaded */
		lib = dlopen(name[i], RTLD_NOW | RTLD_NOLOAD);
	if (!lib && path)
		lib = dlopen(path, RTLD_NOW);
	for (int i = 0; !lib && i < 2; i++)
		lib = dlopen(name[i], RTLD_NOW);
	if (!lib)
		return -1;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		void *p = dlsym(lib, row[i].name);

		if (!p)
			return -1;
		memcpy((char *)&cupti + row[i].at, &p, sizeof(p));
	}
	return 0;
}

static int map_region(int fd)
{
	struct stat st;
	size_t head = sizeof(struct trace_head) + TRACE_NAMES;
	void *p;

	if (fstat(fd, &st) || (size_t)st.st_size < head)
		return -1;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		 fd, 0);
	if (p == MAP_FAILED)
		return -1;
	tr.head = p;
	tr.names = (char *)p + sizeof(struct trace_head);
	tr.rec = (struct trace_rec *)((char *)p + head);
	tr.room = ((size_t)st.st_size - head) / sizeof(struct trace_rec);
	tr.head->names = 1;	/* offset 0 is the empty name */
	return 0;
}

int ca_trace_start(int fd)
{
	void *subscriber = NULL;

	if (tr.head || open_cupti() || map_region(fd))
		return -1;
	if (cupti.Subscribe(&subscriber, on_callback, NULL) ||
	    cupti.Callback(1, subscriber, DOMAIN_RESOURCE,
			   CBID_MODULE_LOADED) ||
	    cupti.Buffers(on_request, on_complete) ||
	    cupti.Enable(KIND_KERNEL) || cupti.Enable(KIND_COPY) ||
	    cupti.Enable(KIND_FILL))
		return -1;
	tr.head->magic = TRACE_MAGIC;
	return 0;
}

void ca_trace_mark(uint64_t seq)
{
	struct trace_rec *r;
	uint64_t now = 0;

	if (!tr.head || tr.head->magic != TRACE_MAGIC)
		return;
	cupti.Now(&now);
	pthread_mutex_lock(&tr.lock);
	r = next_rec();
	memset(r, 0, sizeof(*r));
	r->kind = TRACE_MARK;
	r->start = now;
	r->bytes = seq;
	pthread_mutex_unlock(&tr.lock);
}

void ca_trace_flush(void)
{
	if (tr.head && tr.head->magic == TRACE_MAGIC)
		cupti.Flush(FLUSH_FORCED);
}
