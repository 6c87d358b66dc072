/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pieces.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define THREADS_MAX 64

struct pieces {
	void (*part)(void *ctx, uint64_t i);
	void *ctx;
	uint64_t n;
	atomic_uint_least64_t next;
};

static void *worker(void *arg)
{
	struct pieces *p = arg;
	uint64_t i;

	while ((i = atomic_fetch_add(&p->next, 1)) < p->n)
		p->part(p->ctx, i);
	return NULL;
}

static unsigned processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return (unsigned)CPU_COUNT(&set);
}

/* The caller works too, so that too few threads only mean more time. */
void pieces_run(void (*part)(void *ctx, uint64_t i), void *ctx, uint64_t n,
		unsigned threads)
{
	struct pieces p = { .part = part, .ctx = ctx, .n = n };
	pthread_t id[THREADS_MAX];
	unsigned made = 0;

	if (!threads)
		threads = processors();
	if (threads > THREADS_MAX)
		threads = THREADS_MAX;
	if (threads > n)
		threads = (unsigned)n;
	atomic_init(&p.next, 0);
	while (made + 1 < threads &&
	       !pthread_create(&id[made], NULL, worker, &p))
		made++;
	worker(&p);
	while (made)
		pthread_join(id[--made], NULL);
}
