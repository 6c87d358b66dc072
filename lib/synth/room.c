/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes, and who may be there beside whom.
 */
#include "synth/room.h"

#include <string.h>

#include "base/io.h"
#include "base/sig.h"

#define BYTES ((int64_t)512 << 20)
#define BYTES_CUDA ((int64_t)3500 << 20)

int64_t room_bytes(const struct judge *j, int64_t asked)
{
	return asked ? asked : judge_on_cuda(j) ? BYTES_CUDA : BYTES;
}

double room_total(const struct judge *j)
{
	return judge_on_cuda(j) ? device_cuda_total(j->dev) : 0;
}

void admission_init(struct admission *a)
{
	memset(a, 0, sizeof(*a));
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
}

void admission_release(struct admission *a)
{
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->changed);
}

/* Waits a little for a change.  Called with the lock. */
static int wait_more(struct admission *a, int64_t end, struct err *e)
{
	if (sig_caught())
		return err_set(e, CA_TEMPFAIL, "interrupted");
	if (now_ns() > end)
		return err_set(e, CA_UNAVAILABLE, "there was no room for the "
			       "task in the GPU's memory in time");
	sig_wait(&a->changed, &a->lock);
	return 0;
}

int admission_enter(struct admission *a, double bytes, double most,
		    double seconds, struct err *e)
{
	int64_t end = deadline_in(seconds);
	uint64_t mine;
	int rc = 0;

	pthread_mutex_lock(&a->lock);
	mine = a->next++;
	while (!rc && (a->turn != mine ||
		       (a->used > 0 && a->used + bytes > most)))
		rc = wait_more(a, end, e);
	/* Who gives up lets the next one by, in its turn. */
	while (a->turn != mine)
		pthread_cond_wait(&a->changed, &a->lock);
	a->turn++;
	if (!rc)
		a->used += bytes;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	return rc;
}

void admission_leave(struct admission *a, double bytes)
{
	pthread_mutex_lock(&a->lock);
	a->used -= bytes;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}
