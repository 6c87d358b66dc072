/* SPDX-License-Identifier: Apache-2.0
 *
 * One event and one ring for each CPU, inherited by new threads.
 */
#define _GNU_SOURCE
#include "judge/sampler.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

/* With its first page half of what perf_event_mlock_kb (516) gives everybody:
 * threads' own rings come out of the rest. */
#define RING_BYTES ((size_t)256 << 10)
#define CPUS_MAX 1024
#define SPOT_BYTES ((size_t)4 << 10)
#define SPOT_THREADS 640	/* each takes a descriptor; more than a jail
				 * lets one have (seal.c) */
#define PASSES_MAX 2000
#define SOON_NS 10000		/* the kernel knows nothing shorter */
#define LATE_NS 200000

struct ring {
	int fd;
	size_t bytes;
	/* The data lies a page behind. */
	struct perf_event_mmap_page *head;
};

/* An event of one thread that gives a sample when it is told to. */
struct spot {
	struct ring ring;
	pid_t tid;
	int64_t when;		/* of the order */
	unsigned pass;		/* to which that belongs */
	int due;		/* it was not carried out yet */
	unsigned seen;		/* by which list of threads */
};

struct sampler {
	struct ring *ring;
	size_t n;
	pid_t pid;
	uint64_t period_ns;	/* of its first thread */
	int no_kernel;
	unsigned turn;
	struct spot *spot;
	size_t nspot;
	unsigned orders;
	struct sampled seen;
};

/* Records as our attributes lay them out. */
struct rec_sample {
	struct perf_event_header h;
	uint64_t ip;
	uint32_t pid, tid;
	uint64_t time;
	uint64_t period;
	uint64_t stack_bytes;
	uint64_t stack[SAMPLE_WORDS];
	uint64_t used;
};

struct rec_lost {
	struct perf_event_header h;
	uint64_t id, lost;
};

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static struct perf_event_attr attr_of(uint64_t period_ns, int no_kernel)
{
	struct perf_event_attr a;

	memset(&a, 0, sizeof(a));
	a.size = sizeof(a);
	a.type = PERF_TYPE_SOFTWARE;
	a.config = PERF_COUNT_SW_CPU_CLOCK;
	a.sample_period = period_ns;
	a.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
			PERF_SAMPLE_PERIOD | PERF_SAMPLE_STACK_USER;
	a.sample_stack_user = SAMPLE_WORDS * sizeof(uint64_t);
	a.sample_id_all = 1;
	a.use_clockid = 1;
	a.clockid = CLOCK_MONOTONIC;
	a.watermark = 1;
	a.wakeup_watermark = 1u << 30;	/* we come by ourselves */
	a.exclude_kernel = !!no_kernel;
	a.exclude_hv = 1;
	return a;
}

static int event_open(struct perf_event_attr *a, pid_t pid, int cpu)
{
	return (int)syscall(SYS_perf_event_open, a, pid, cpu, -1,
			    PERF_FLAG_FD_CLOEXEC);
}

static int ring_map(struct ring *r, size_t bytes)
{
	r->bytes = bytes;
	r->head = mmap(NULL, page_size() + bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED, r->fd, 0);
	if (r->head != MAP_FAILED)
		return 0;
	close(r->fd);
	return -1;
}

static void ring_close(struct ring *r)
{
	munmap(r->head, page_size() + r->bytes);
	close(r->fd);
}

/* perf_event_paranoid may allow the one and not the other. */
static int ring_open(struct sampler *s, struct ring *r, pid_t pid, int cpu)
{
	struct perf_event_attr a = attr_of(s->period_ns, s->no_kernel);

	a.inherit = 1;
	a.mmap = 1;		/* of executable memory */
	r->fd = event_open(&a, pid, cpu);
	if (r->fd < 0 && !s->no_kernel) {
		s->no_kernel = a.exclude_kernel = 1;
		r->fd = event_open(&a, pid, cpu);
	}
	return r->fd < 0 ? -1 : ring_map(r, RING_BYTES);
}

static struct spot *spot_find(struct sampler *s, pid_t tid)
{
	for (size_t i = 0; i < s->nspot; i++)
		if (s->spot[i].tid == tid)
			return &s->spot[i];
	return NULL;
}

/* NULL: it cannot be looked at, with *gone because it has ended. */
static struct spot *spot_of(struct sampler *s, pid_t tid, int *gone)
{
	struct perf_event_attr a = attr_of(SOON_NS, s->no_kernel);
	struct spot *p = spot_find(s, tid);

	*gone = 0;
	if (p || s->nspot == SPOT_THREADS)
		return p;
	a.disabled = 1;
	p = &s->spot[s->nspot];
	memset(p, 0, sizeof(*p));
	p->tid = tid;
	p->ring.fd = event_open(&a, tid, -1);
	*gone = p->ring.fd < 0 && errno == ESRCH;
	if (p->ring.fd < 0 || ring_map(&p->ring, SPOT_BYTES))
		return NULL;
	s->nspot++;
	return p;
}

struct sampler *sampler_manual(struct err *e)
{
	struct sampler *s = calloc(1, sizeof(*s));

	if (s) {
		s->seen.at = malloc(SAMPLES_MAX * sizeof(*s->seen.at));
		s->seen.spot = malloc(SPOTS_MAX * sizeof(*s->seen.spot));
		s->spot = malloc(SPOT_THREADS * sizeof(*s->spot));
	}
	if (s && s->seen.at && s->seen.spot && s->spot) {
		s->no_kernel = 1;
		sampler_reset(s, 0);
		return s;
	}
	sampler_close(s);
	err_set(e, CA_SOFTWARE, "out of memory");
	return NULL;
}

struct sampler *sampler_open(pid_t pid, uint64_t period_ns, struct err *e)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	struct sampler *s = sampler_manual(e);
	int gone;

	if (!s)
		return NULL;
	s->no_kernel = 0;
	s->pid = pid;
	s->period_ns = period_ns;
	if (cpus > 0 && cpus <= CPUS_MAX)
		s->ring = calloc((size_t)cpus, sizeof(*s->ring));
	for (int cpu = 0; s->ring && cpu < cpus; cpu++) {
		if (!ring_open(s, &s->ring[s->n], pid, cpu))
			s->n++;
		else if (cpu < sysconf(_SC_NPROCESSORS_ONLN))
			break;
		if (cpu + 1 == cpus && s->n && spot_of(s, pid, &gone)) {
			sampler_reset(s, 0);
			return s;
		}
	}
	err_sys(e, CA_UNAVAILABLE, "cannot sample process %d", (int)pid);
	sampler_close(s);
	return NULL;
}

void sampler_close(struct sampler *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		ring_close(&s->ring[i]);
	for (size_t i = 0; i < s->nspot; i++)
		ring_close(&s->spot[i].ring);
	free(s->ring);
	free(s->spot);
	free(s->seen.at);
	free(s->seen.spot);
	free(s);
}

int64_t sampler_patience(const struct sampler *s)
{
	/* The time in which half a ring fills. */
	return (int64_t)(RING_BYTES / sizeof(struct rec_sample) / 2 *
			 s->period_ns);
}

void sampler_reset(struct sampler *s, uint64_t period_ns)
{
	int failed = !period_ns;

	sampler_drain(s, INT64_MAX);
	for (size_t i = 0; i < s->n && !failed; i++)
		failed = ioctl(s->ring[i].fd, PERF_EVENT_IOC_PERIOD,
			       &period_ns);
	if (!failed)
		s->period_ns = period_ns;
	s->seen.thin = s->seen.rare = 1;
	s->turn = s->seen.passes = 0;
	s->seen.n = s->seen.nspot = 0;
	s->seen.lost_ns = 0;
	s->seen.mapped = 0;
}

/* Every other one makes room. */
static void halve(struct sampler *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->seen.n; i += 2)
		s->seen.at[n++] = s->seen.at[i];
	s->seen.n = n;
	s->seen.thin *= 2;
}

void sampler_put(struct sampler *s, const struct sample_at *at)
{
	if (s->turn++ % s->seen.thin)
		return;
	if (s->seen.n == SAMPLES_MAX)
		halve(s);
	s->seen.at[s->seen.n++] = *at;
}

static struct sample_at sample_of(const struct rec_sample *r, int64_t stands)
{
	struct sample_at at = {
		.ip = r->ip, .when = (int64_t)r->time, .stands = stands
	};

	at.kernel = (r->h.misc & PERF_RECORD_MISC_CPUMODE_MASK) !=
		    PERF_RECORD_MISC_USER;
	/* Less where the stack could not be read. */
	if (r->stack_bytes == sizeof(at.stack) && r->used <= sizeof(at.stack)) {
		at.n = (int)(r->used / sizeof(uint64_t));
		memcpy(at.stack, r->stack, sizeof(at.stack));
	}
	return at;
}

static void on_sample(struct sampler *s, const struct rec_sample *r,
		      int64_t from)
{
	/* The kernel does not tell of a period that was changed. */
	struct sample_at at = sample_of(r, (int64_t)
		(r->tid == (uint32_t)s->pid ? s->period_ns : r->period));

	if (at.when >= from)
		sampler_put(s, &at);
}

/* A record, copied out of the ring; time is the last word of all but samples
 * (sample_id_all). */
static void on_record(struct sampler *s, const char *rec, size_t len,
		      int64_t from)
{
	const struct perf_event_header *h = (const void *)rec;
	int64_t time = 0;

	if (h->type == PERF_RECORD_SAMPLE) {
		struct rec_sample r;

		memset(&r, 0, sizeof(r));
		memcpy(&r, rec, len < sizeof(r) ? len : sizeof(r));
		on_sample(s, &r, from);
		return;
	}
	if (len >= sizeof(*h) + sizeof(time))
		memcpy(&time, rec + len - sizeof(time), sizeof(time));
	if (time < from)
		return;
	if (h->type == PERF_RECORD_LOST && len >= sizeof(struct rec_lost))
		s->seen.lost_ns += (double)s->period_ns * (double)
			((const struct rec_lost *)(const void *)rec)->lost;
	else if (h->type == PERF_RECORD_MMAP)
		s->seen.mapped++;
}

static void from_ring(void *out, const struct ring *r, uint64_t at, size_t n)
{
	const char *data = (const char *)r->head + page_size();
	size_t off = at % r->bytes, first = r->bytes - off;

	if (first > n)
		first = n;
	memcpy(out, data + off, first);
	memcpy((char *)out + first, data, n - first);
}

#define REC_MAX 1024

/* The next record, cut to REC_MAX bytes, of h->size.  0: there is none. */
static int next_record(struct ring *r, struct perf_event_header *h, char *rec)
{
	uint64_t head = __atomic_load_n(&r->head->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = r->head->data_tail;

	if (tail >= head)
		return 0;
	from_ring(h, r, tail, sizeof(*h));
	if (h->size < sizeof(*h)) {	/* cannot be */
		__atomic_store_n(&r->head->data_tail, head, __ATOMIC_RELEASE);
		return 0;
	}
	from_ring(rec, r, tail, h->size < REC_MAX ? h->size : REC_MAX);
	__atomic_store_n(&r->head->data_tail, tail + h->size,
			 __ATOMIC_RELEASE);
	return 1;
}

static void drain_ring(struct sampler *s, struct ring *r, int64_t from)
{
	_Alignas(8) char rec[REC_MAX];
	struct perf_event_header h;

	if (from == INT64_MAX) {
		uint64_t head = __atomic_load_n(&r->head->data_head,
						__ATOMIC_ACQUIRE);

		__atomic_store_n(&r->head->data_tail, head, __ATOMIC_RELEASE);
		return;
	}
	while (next_record(r, &h, rec)) {
		if (h.size <= REC_MAX)
			on_record(s, rec, h.size, from);
		else if (h.type == PERF_RECORD_MMAP)
			s->seen.mapped++;	/* a name without end */
	}
}

static void drain_spot(struct sampler *s, struct spot *p, int64_t from)
{
	_Alignas(8) char rec[REC_MAX];
	struct perf_event_header h;

	while (next_record(&p->ring, &h, rec)) {
		struct rec_sample r;

		if (h.type != PERF_RECORD_SAMPLE)
			continue;
		p->due = 0;
		memset(&r, 0, sizeof(r));
		memcpy(&r, rec, h.size < sizeof(r) ? h.size : sizeof(r));
		/* A thread that slept is seen as it wakes, which says nothing
		 * of the time before. */
		if (p->when < from || (int64_t)r.time >= p->when + LATE_NS ||
		    s->seen.nspot == SPOTS_MAX)
			continue;
		s->seen.spot[s->seen.nspot] = sample_of(&r, 0);
		s->seen.spot[s->seen.nspot++].pass = p->pass;
	}
}

void sampler_drain(struct sampler *s, int64_t from)
{
	for (size_t i = 0; i < s->n; i++)
		drain_ring(s, &s->ring[i], from);
	for (size_t i = 0; i < s->nspot; i++)
		drain_spot(s, &s->spot[i], from);
}

/* Those of threads that have gone. */
static void forget_spots(struct sampler *s)
{
	for (size_t i = s->nspot; i-- > 0; )
		if (s->spot[i].seen != s->orders) {
			ring_close(&s->spot[i].ring);
			s->spot[i] = s->spot[--s->nspot];
		}
}

static void order(struct sampler *s, struct spot *p)
{
	const int64_t now = now_ns();

	if (p->due) {
		/* It waits for its thread, or was switched off while it was
		 * told to go on. */
		ioctl(p->ring.fd, PERF_EVENT_IOC_ENABLE, 0);
	} else if (!ioctl(p->ring.fd, PERF_EVENT_IOC_REFRESH, 1)) {
		p->due = 1;
		p->when = now;
		p->pass = s->seen.passes;
	}
}

/* Every other pass makes room, so that what is kept of a call is as dense at
 * its end as at its begin. */
static void thin_passes(struct sampler *s)
{
	struct sampled *v = &s->seen;
	size_t n = 0;

	for (size_t i = 0; i < v->nspot; i++)
		if (!(v->spot[i].pass & 1)) {
			v->spot[n] = v->spot[i];
			v->spot[n++].pass /= 2;
		}
	v->nspot = n;
	for (size_t i = 0; i < s->nspot; i++) {
		if (s->spot[i].pass & 1)
			s->spot[i].when = INT64_MIN;
		s->spot[i].pass /= 2;
	}
	v->passes = (v->passes + 1) / 2;
	v->rare *= 2;
}

/* Threads there are now, at most n of them. */
static size_t list_threads(const struct sampler *s, pid_t *tid, size_t max,
			   int *more)
{
	char path[64];
	struct dirent *d;
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)s->pid);
	dir = opendir(path);
	*more = 0;
	while (dir && !*more && (d = readdir(dir))) {
		if (*d->d_name == '.')
			continue;
		*more = n == max;
		if (!*more)
			tid[n++] = atoi(d->d_name);
	}
	if (dir)
		closedir(dir);
	return n;
}

void sampler_order(struct sampler *s, int64_t from)
{
	pid_t tid[SPOT_THREADS];
	size_t n;
	int blind, gone;

	if (!s->n)
		return;
	for (size_t i = 0; i < s->nspot; i++)
		drain_spot(s, &s->spot[i], from);
	while (s->seen.passes >= PASSES_MAX ||
	       (s->seen.passes > 1 &&
		s->seen.nspot + SPOT_THREADS >= SPOTS_MAX))
		thin_passes(s);
	n = list_threads(s, tid, SPOT_THREADS, &blind);
	s->orders++;
	for (size_t i = 0; i < n; i++) {
		struct spot *p = spot_find(s, tid[i]);

		if (p)
			p->seen = s->orders;
	}
	forget_spots(s);
	for (size_t i = 0; i < n; i++) {
		struct spot *p = spot_of(s, tid[i], &gone);

		if (p) {
			p->seen = s->orders;
			order(s, p);
		} else if (!gone) {
			blind = 1;
		}
	}
	if (blind && s->seen.nspot < SPOTS_MAX)
		s->seen.spot[s->seen.nspot++] = (struct sample_at){
			.pass = s->seen.passes
		};
	s->seen.passes++;
}

static int by_pass(const void *a, const void *b)
{
	unsigned x = ((const struct sample_at *)a)->pass;
	unsigned y = ((const struct sample_at *)b)->pass;

	return (x > y) - (x < y);
}

static int by_time(const void *a, const void *b)
{
	int64_t x = ((const struct sample_at *)a)->when;
	int64_t y = ((const struct sample_at *)b)->when;

	return (x > y) - (x < y);
}

void sampler_sort(struct sampler *s)
{
	qsort(s->seen.at, s->seen.n, sizeof(*s->seen.at), by_time);
	qsort(s->seen.spot, s->seen.nspot, sizeof(*s->seen.spot), by_pass);
}

const struct sampled *sampler_seen(const struct sampler *s)
{
	return &s->seen;
}

int64_t sampler_cpu_ns(const struct sampler *s)
{
	uint64_t sum = 0, v;

	if (s->no_kernel)
		return -1;
	for (size_t i = 0; i < s->n; i++) {
		if (read(s->ring[i].fd, &v, sizeof(v)) != sizeof(v))
			return -1;
		sum += v;
	}
	return (int64_t)sum;
}
