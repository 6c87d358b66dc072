/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "gpu/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/proc.h"

#define WINDOW	  ((size_t)1 << 20)	/* bytes of a rank shared at once */
#define PATIENCE  20
#define WAIT_S	  600			/* for one that reads or saves */
#define LOOK_S	  2			/* without a sign, then time counts */
#define SEEK_S	  5			/* for the end of a GPU's process */
#define SECOND	  1000000000LL

struct slot {				/* of one rank */
	_Atomic pid_t pid;
	_Atomic int64_t beat;		/* now_ns */
	_Atomic int doing;
	_Atomic uint64_t meeting;
};

struct blame {
	int rank, code;
	char why[sizeof ((struct err *)NULL)->msg];
};

struct shared {
	_Atomic int here;		/* ranks that wait */
	_Atomic unsigned round;
	struct slot slot[COMM_MAX];
	_Atomic int blamer;		/* 1 + whose blame was the first */
	struct blame blame[COMM_MAX];
	char said[COMM_MAX][COMM_SAID];
};

struct look {				/* at another rank's time */
	int64_t ticks, at;
};

struct comm {
	int n, mine, strict;
	int64_t patience;		/* ns */
	uint64_t met;
	struct shared *s;
	char *window;			/* n + 1 of them; the last: sums */
	size_t bytes;			/* of all that is shared */
	struct look look[COMM_MAX];
};

static size_t shared_size(void)
{
	return (sizeof(struct shared) + 63) / 64 * 64;
}

static int64_t patience(void)
{
	const char *text = getenv("CA_RANK_PATIENCE");
	double s = text ? strtod(text, NULL) : 0;

	return (int64_t)((s > 0 && s < 1e6 ? s : PATIENCE) * 1e9);
}

struct comm *comm_new(int n, struct err *e)
{
	struct comm *c = calloc(1, sizeof *c);
	void *p;

	if (!c) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	c->n = n;
	c->patience = patience();
	c->bytes = shared_size() + ((size_t)n + 1) * WINDOW;
	p = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		free(c);
		err_sys(e, CA_UNAVAILABLE, "cannot share memory");
		return NULL;
	}
	c->s = p;
	c->window = (char *)p + shared_size();
	comm_born(c, 0, getpid());
	return c;
}

void comm_free(struct comm *c)
{
	if (!c)
		return;
	munmap(c->s, c->bytes);
	free(c);
}

void comm_born(struct comm *c, int rank, pid_t pid)
{
	atomic_store(&c->s->slot[rank].beat, now_ns());
	atomic_store(&c->s->slot[rank].pid, pid);
}

void comm_become(struct comm *c, int rank)
{
	c->mine = rank;
	comm_born(c, rank, getpid());
}

int comm_mine(const struct comm *c)
{
	return c ? c->mine : 0;
}

int comm_count(const struct comm *c)
{
	return c ? c->n : 1;
}

void comm_does(struct comm *c, enum comm_doing d)
{
	if (!c)
		return;
	atomic_store(&c->s->slot[c->mine].doing, (int)d);
	comm_beat(c);
}

void comm_beat(struct comm *c)
{
	if (c)
		atomic_store(&c->s->slot[c->mine].beat, now_ns());
}

uint64_t comm_meet(struct comm *c)
{
	return ++c->met;
}

void comm_meeting(struct comm *c, uint64_t n)
{
	int early = 0;

	atomic_store(&c->s->slot[c->mine].meeting, n);
	for (int i = 0; i < c->n; i++)
		early |= atomic_load(&c->s->slot[i].meeting) < n;
	if (early)
		comm_beat(c);
}

void comm_strict(struct comm *c)
{
	c->strict = 1;
}

/* The first reason stays.  Nothing here is locked: whoever holds a lock may be
 * the one that is stopped. */
static void blame(struct comm *c, int rank, int code, const char *why)
{
	struct blame *b = &c->s->blame[c->mine];
	int none = 0;

	if (atomic_load(&c->s->blamer))
		return;
	b->rank = rank;
	b->code = code;
	snprintf(b->why, sizeof b->why, "%s", why);
	atomic_compare_exchange_strong(&c->s->blamer, &none, c->mine + 1);
}

static const struct blame *blamed(const struct comm *c)
{
	int who = c ? atomic_load(&c->s->blamer) : 0;

	return who ? &c->s->blame[who - 1] : NULL;
}

void comm_fail(struct comm *c, const struct err *e)
{
	if (c)
		blame(c, c->mine, e->code, e->msg);
}

int comm_failed(const struct comm *c)
{
	const struct blame *b = blamed(c);

	return b ? b->rank : -1;
}

/* Rank 0: what has become of its children. */
static void reap(struct comm *c)
{
	char why[80];
	int status;

	for (int i = 1; i < c->n && !c->mine; i++) {
		pid_t pid = atomic_load(&c->s->slot[i].pid);

		if (pid <= 0 || waitpid(pid, &status, WNOHANG) != pid)
			continue;
		atomic_store(&c->s->slot[i].pid, 0);
		snprintf(why, sizeof why, "it ended %s %d",
			 WIFSIGNALED(status) ? "by signal" : "with status",
			 WIFSIGNALED(status) ? WTERMSIG(status) :
			 WEXITSTATUS(status));
		blame(c, i, CA_UNAVAILABLE, why);
	}
}

/* Time that a process has spent on processors, in the kernel's ticks. */
static int64_t ticks_of(pid_t pid)
{
	char text[1024];
	const char *p = proc_stat(text, sizeof text, "/proc/%d/stat", (int)pid);
	unsigned long user = 0, sys = 0;

	if (!p || sscanf(p, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u "
			 "%*u %lu %lu", &user, &sys) != 2)
		return -1;
	return (int64_t)(user + sys);
}

/* When it was last seen to get on. */
static int64_t last_sign(struct comm *c, int rank)
{
	const struct slot *s = &c->s->slot[rank];
	struct look *k = &c->look[rank];
	int64_t beat = atomic_load(&s->beat), ticks;

	if (c->strict)
		return beat;
	ticks = ticks_of(atomic_load(&s->pid));
	if (ticks != k->ticks) {
		k->ticks = ticks;
		k->at = now_ns();
	}
	return k->at > beat ? k->at : beat;
}

static void look_for_hung(struct comm *c, enum comm_look how)
{
	char why[80];

	for (int i = 0; i < c->n; i++) {
		const struct slot *s = &c->s->slot[i];
		int doing = atomic_load(&s->doing);
		int64_t most = doing == COMM_COMPUTES ||
			       (doing == COMM_READS && how == COMM_FED) ?
			       c->patience : WAIT_S * SECOND;
		int64_t now = now_ns();

		if (i == c->mine ||
		    now - atomic_load(&s->beat) < LOOK_S * SECOND ||
		    now - last_sign(c, i) < most)
			continue;
		snprintf(why, sizeof why, "it hangs: no progress for %lld s",
			 (long long)(most / SECOND));
		blame(c, i, CA_UNAVAILABLE, why);
	}
}

int comm_check(struct comm *c, enum comm_look how, struct err *e)
{
	const struct blame *b;

	if (!c)
		return 0;
	if (!blamed(c))
		reap(c);
	if (how != COMM_GLANCE && !blamed(c))
		look_for_hung(c, how);
	b = blamed(c);
	return b ? err_set(e, b->code, "rank %d: %s", b->rank, b->why) : 0;
}

int comm_seek(struct comm *c, struct err *e)
{
	const struct timespec pause = { 0, 10000000 };
	int64_t end = deadline_in(SEEK_S);

	do {
		if (comm_check(c, COMM_GLANCE, e))
			return -1;
		comm_beat(c);
		nanosleep(&pause, NULL);
	} while (now_ns() < end);
	return 0;
}

static void futex(_Atomic unsigned *word, int what, unsigned value,
		  const struct timespec *most)
{
	syscall(SYS_futex, word, what, value, most, NULL, 0);
}

/* Waits until all ranks are here. */
static int barrier(struct comm *c, struct err *e)
{
	const struct timespec second = { 1, 0 };
	struct shared *s = c->s;
	unsigned round = atomic_load(&s->round);
	int rc = comm_check(c, COMM_GLANCE, e);

	if (rc)
		return rc;
	if (atomic_fetch_add(&s->here, 1) + 1 == c->n) {
		atomic_store(&s->here, 0);
		atomic_fetch_add(&s->round, 1);
		futex(&s->round, FUTEX_WAKE, INT_MAX, NULL);
	}
	while (!rc && atomic_load(&s->round) == round) {
		comm_beat(c);
		futex(&s->round, FUTEX_WAIT, round, &second);
		if (atomic_load(&s->round) == round)
			rc = comm_check(c, COMM_WAITING, e);
	}
	comm_beat(c);
	return rc;
}

static char *window_of(const struct comm *c, int rank)
{
	return c->window + (size_t)rank * WINDOW;
}

/* What lies in all windows at `from` to `to`, added up in the order of the
 * ranks. */
static void add_up(const struct comm *c, float *sum, size_t from, size_t to)
{
	const float *x = (const float *)(const void *)window_of(c, 0);

	memcpy(sum + from, x + from, (to - from) * sizeof *sum);
	for (int k = 1; k < c->n; k++) {
		x = (const float *)(const void *)window_of(c, k);
		for (size_t i = from; i < to; i++)
			sum[i] += x[i];
	}
}

/* Each rank adds up its part of the window. */
int comm_sum(struct comm *c, float *x, size_t n, struct err *e)
{
	const size_t most = WINDOW / sizeof *x;

	for (size_t at = 0; c && at < n; at += most) {
		size_t k = n - at < most ? n - at : most;
		float *sum = (float *)(void *)window_of(c, c->n);

		memcpy(window_of(c, c->mine), x + at, k * sizeof *x);
		if (barrier(c, e))
			return -1;
		add_up(c, sum, k * (size_t)c->mine / (size_t)c->n,
		       k * ((size_t)c->mine + 1) / (size_t)c->n);
		if (barrier(c, e))
			return -1;
		memcpy(x + at, sum, k * sizeof *x);
	}
	return 0;
}

int comm_any(struct comm *c, int *flag, struct err *e)
{
	float x = *flag != 0;

	if (comm_sum(c, &x, 1, e))
		return -1;
	*flag = x > 0;
	return 0;
}

int comm_gather(struct comm *c, const void *said, size_t bytes, void *all,
		struct err *e)
{
	if (!c) {
		memcpy(all, said, bytes);
		return 0;
	}
	memcpy(c->s->said[c->mine], said, bytes);
	if (barrier(c, e))
		return -1;
	for (int i = 0; i < c->n; i++)
		memcpy((char *)all + (size_t)i * bytes, c->s->said[i], bytes);
	return barrier(c, e);
}

/* A window holds the same piece of every rank's part, and there each adds up
 * what is its own. */
int comm_reduce_scatter(struct comm *c, float *x, size_t part, struct err *e)
{
	const size_t most = WINDOW / sizeof *x / (size_t)c->n;
	float *mine = x + (size_t)c->mine * part;

	for (size_t at = 0; at < part; at += most) {
		size_t k = part - at < most ? part - at : most;
		size_t from = (size_t)c->mine * k;

		for (int r = 0; r < c->n; r++)
			memcpy(window_of(c, c->mine) + (size_t)r * k *
			       sizeof *x, x + (size_t)r * part + at,
			       k * sizeof *x);
		if (barrier(c, e))
			return -1;
		add_up(c, mine + at - from, from, from + k);
		if (barrier(c, e))
			return -1;
	}
	return 0;
}

int comm_all_gather(struct comm *c, void *x, size_t bytes, struct err *e)
{
	char *p = x;

	for (size_t at = 0; at < bytes; at += WINDOW) {
		size_t k = bytes - at < WINDOW ? bytes - at : WINDOW;

		memcpy(window_of(c, c->mine), p + (size_t)c->mine * bytes +
		       at, k);
		if (barrier(c, e))
			return -1;
		for (int r = 0; r < c->n; r++)
			if (r != c->mine)
				memcpy(p + (size_t)r * bytes + at,
				       window_of(c, r), k);
		if (barrier(c, e))
			return -1;
	}
	return 0;
}
