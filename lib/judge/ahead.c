/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes before and after their work.
 */
#define _GNU_SOURCE
#include "judge/ahead.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "build/toolchain.h"
#include "cu/trace.h"
#include "judge/hostmem.h"

#define SLEEP_SECONDS 30	/* for a jail to be made */
#define GREET_MS 60000		/* for a host to start */
#define DISMISS_SECONDS 10	/* for somebody's clock to stop */
#define FIRST_ROLES 4

/* Under which name the host keeps compiled code of this program. */
static void cache_name(const struct program *p, char out[HASH_HEX])
{
	struct hash *h = p ? hash_new() : NULL;
	uint8_t sum[HASH_LEN];

	out[0] = '\0';
	if (!h)
		return;
	hash_part(h, p->code, p->codelen);
	hash_part(h, p->mode, p->mode ? strlen(p->mode) : 0);
	hash_end(h, sum);
	hex(sum, HASH_LEN, out);
}

int ahead_wanted(void)
{
	const char *v = getenv("CA_PARK_CUDA");

	return v && *v && strcmp(v, "0") != 0;
}

int ahead_parks(const struct judge *j)
{
	return judge_on_cuda(j) && ahead_wanted();
}

/* Whether CUPTI is to look, at what is judged: it serves one of a process,
 * torch's profiler or ours. */
static int traced(const struct judge *j, const struct purpose *u)
{
	static const char *const role[] = { "worker", "eager", "compile",
					    "calib" };
	size_t i = 0;

	while (i < sizeof(role) / sizeof(*role) && strcmp(u->role, role[i]))
		i++;
	return judge_on_cuda(j) && i < sizeof(role) / sizeof(*role) &&
	       !(u->p && u->p->table);
}

/*
 * The first request: has the jail made, on CUDA its context too, which takes
 * most of a start.  -1 without memory, else how many descriptors go with it.
 */
static int first_request(struct judge *j, const struct purpose *u,
			 struct mem *seen, struct str *req, int *fd,
			 struct err *e)
{
	static const char *const name[] = { "trace" };
	struct mem *const mem[] = { seen };
	int n = traced(j, u);

	/* What is parked has its pages only once it is used. */
	if (n && (ahead_parks(j) ? hostmem_sparse(TRACE_BYTES, seen, e) :
		  hostmem_new(TRACE_BYTES, seen, e)))
		return -1;
	if (judge_on_cuda(j))
		region_request(req, "warm", name, mem, (size_t)n, fd);
	else
		str_adds(req, "{\"op\":\"jail\"}");
	return req->failed ? err_set(e, CA_SOFTWARE, "out of memory") : n;
}

static struct torch_spawn wish(const struct judge *j, const struct purpose *u,
			       const char *cache)
{
	return (struct torch_spawn){
		.role = u->role, .device = j->dev->name,
		.node = j->dev->node, .gpu = j->dev->gpu,
		.jail = j->jail,
		.may_exec = u->may_exec,
		.parked = ahead_parks(j) && !u->may_exec &&
			  !(u->p && u->p->table),
		.cache = cache && cache[0] ? cache : NULL,
		/* What it runs is never timed. */
		.queues = ahead_parks(j) && !strcmp(u->role, "oracle"),
	};
}

static int spawn(struct judge *j, const struct purpose *u, const char *cache,
		 struct mem *seen, struct torch_child *c, struct err *e)
{
	struct torch_spawn s = wish(j, u, cache);
	struct str req = STR_INIT;
	int fd, n, rc = -1;

	*seen = (struct mem)MEM_NONE;
	n = first_request(j, u, seen, &req, &fd, e);
	s.first = &req;
	s.fds = &fd;
	s.nfds = n > 0 ? (size_t)n : 0;
	if (n >= 0)
		rc = torch_spawn_ahead(j->host, &s, c, e);
	if (rc)
		j->dev->ops->release(j->dev, seen);
	str_release(&req);
	return rc;
}

/* A parked process writes to the memory that was parked with it. */
static int settle_seen(struct judge *j, struct torch_child *c,
		       struct mem *seen, struct err *e)
{
	if (c->kept < 0)
		return 0;
	j->dev->ops->release(j->dev, seen);
	if (hostmem_adopt(c->kept, TRACE_BYTES, seen, e))
		return -1;
	c->kept = -1;
	return 0;
}

static struct ahead *find(struct judge *j, const char *role)
{
	for (size_t i = 0; i < AHEAD_MAX; i++)
		if (j->ahead[i].role && !strcmp(j->ahead[i].role, role))
			return &j->ahead[i];
	return NULL;
}

/* Whether one that waits can still serve that purpose. */
static int serves(const struct judge *j, const struct ahead *a,
		  const struct purpose *u, const char *cache)
{
	return !a->c.ended && !a->c.refused[0] &&
	       a->may_exec == u->may_exec && !strcmp(a->cache, cache) &&
	       traced(j, u) == !!a->seen.p;
}

static void drop(struct judge *j, struct ahead *a)
{
	a->role = NULL;
	j->dev->ops->release(j->dev, &a->seen);
	if (torch_kill(j->host, &a->c, NULL))
		j->undead = 1;
}

void ahead_want(struct judge *j, const struct purpose *u)
{
	struct ahead *a = find(j, u->role);
	char cache[HASH_HEX];

	cache_name(u->may_exec ? u->p : NULL, cache);
	if (a && serves(j, a, u, cache))
		return;
	if (a)
		drop(j, a);
	for (size_t i = 0; !a && i < AHEAD_MAX; i++)
		if (!j->ahead[i].role)
			a = &j->ahead[i];
	if (!a || spawn(j, u, cache, &a->seen, &a->c, NULL))
		return;
	a->role = u->role;
	a->may_exec = u->may_exec;
	memcpy(a->cache, cache, sizeof(cache));
}

int ahead_take(struct judge *j, const struct purpose *u,
	       struct torch_child *c, struct mem *seen, struct err *e)
{
	struct ahead *a = find(j, u->role);
	char cache[HASH_HEX];

	cache_name(u->may_exec ? u->p : NULL, cache);
	if (a && !torch_spawned(j->host, &a->c, NULL) &&
	    !torch_pump(j->host, NULL) && serves(j, a, u, cache) &&
	    !settle_seen(j, &a->c, &a->seen, NULL)) {
		torch_move(j->host, c, &a->c);
		*seen = a->seen;
		a->role = NULL;
		return 0;
	}
	if (a)
		drop(j, a);
	if (spawn(j, u, cache, seen, c, e))
		return -1;
	if (!torch_spawned(j->host, c, e) && !settle_seen(j, c, seen, e))
		return 0;
	j->dev->ops->release(j->dev, seen);
	torch_kill(j->host, c, NULL);
	return -1;
}

void ahead_end(struct judge *j, struct torch_child *c)
{
	if (j->nending == AHEAD_MAX)
		ahead_settle(j);
	torch_hit(j->host, c);
	torch_move(j->host, &j->ending[j->nending++], c);
}

void ahead_keep(struct judge *j, struct torch_child *c)
{
	if (j->keeps && j->nkept < KEPT_MAX && device_cuda_roomy(j->dev))
		torch_move(j->host, &j->kept[j->nkept++], c);
	else
		ahead_end(j, c);
}

void ahead_let_go(struct judge *j)
{
	while (j->nkept)
		ahead_end(j, &j->kept[--j->nkept]);
}

void ahead_settle(struct judge *j)
{
	for (size_t i = 0; i < AHEAD_MAX; i++) {
		struct ahead *a = &j->ahead[i];

		if (a->role && !torch_spawned(j->host, &a->c, NULL))
			wait_readable(a->c.fd, deadline_in(SLEEP_SECONDS),
				      NULL);
	}
	while (j->nending)
		if (torch_kill(j->host, &j->ending[--j->nending], NULL))
			j->undead = 1;
	j->leaving = 0;
	judge_free_all(j);
}

/* Whether the host says hello before there is something to read. */
static int greeted_before(struct judge *j, int fd)
{
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN },
			       { .fd = torch_fd(j->host), .events = POLLIN } };
	struct fail f;

	if (torch_version(j->host))
		return host_alive(j);
	return poll(p, 2, GREET_MS) > 0 && !p[0].revents &&
	       !host_ready(j, &f);
}

/* The i-th of those that are wanted at first; NULL where that one is not. */
static const char *first_role(const struct judge *j, size_t i)
{
	static const char *const role[FIRST_ROLES] = { "oracle", "worker",
						       "eager", "calib" };
	/* Idle calls are measured on the CPU only; a quick profile on CUDA
	 * mostly knows what the bracket costs. */
	int calib = !judge_on_cuda(j) ||
		    (j->times && !j->o.quick);

	return i < 2 || (i == 2 ? j->times : calib) ? role[i] : NULL;
}

/* What builds go by is found out once per process: now, while there is
 * nothing to read. */
static void know_compilers(const struct judge *j, int fd)
{
	static const unsigned part[] = { TOOLCHAIN_HOST, TOOLCHAIN_CUDA,
					 TOOLCHAIN_NVRTC, TOOLCHAIN_TORCH };
	size_t n = judge_on_cuda(j) ? sizeof(part) / sizeof(part[0]) : 1;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct toolchain t;

	for (size_t i = 0; i < n && !poll(&p, 1, 0); i++)
		(void)toolchain_find(part[i], &t, NULL);
}

/* Neither forks nor new contexts may disturb somebody's clock. */
static void begin_leased(struct judge *j, int fd)
{
	if (j->dev->ops->lease(j->dev, 0, 0, NULL))
		return;
	for (size_t i = 0; i < FIRST_ROLES; i++)
		if (first_role(j, i))
			ahead_want(j, &(struct purpose){ first_role(j, i), 0,
							 NULL });
	if (!judge_on_cuda(j))
		know_compilers(j, fd);
	runner_ahead(j);
	ahead_settle(j);
	j->dev->ops->unlease(j->dev);
}

void judge_begin(struct judge *j, int fd, int times)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	j->times = times;
	if (!j->host || !greeted_before(j, fd))
		return;
	begin_leased(j, fd);
	if (!judge_on_cuda(j))
		return;
	/* Nothing of this disturbs a GPU's clock, and whoever is before us in a
	 * pipeline waits for the lease. */
	know_compilers(j, fd);
	if (poll(&p, 1, 0) == 0)	/* so that nobody waits for NVML */
		(void)j->dev->ops->foreign(j->dev, NULL);
}

static void hang_up(struct torch_child *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

/*
 * One more for the host to keep.  It waits until this tool has gone, whose end
 * it would slow down, then for its turn and for the lease, which it gives back
 * when its context is there.
 */
static int park(struct judge *j, const char *role, int gate)
{
	const struct purpose u = { role, 0, NULL };
	struct torch_spawn s = wish(j, &u, NULL);
	int fds[2 + DEVICE_TURN], reg = device_cuda_registration(j->dev);
	struct mem seen = MEM_NONE;
	struct str req = STR_INIT;
	int n, rc = -1;

	n = first_request(j, &u, &seen, &req, fds, NULL);
	if (reg >= 0 && n >= 0 && !req.failed &&
	    !device_cuda_turn(j->dev, fds + n + 1)) {
		fds[n] = gate;
		req.len--;		/* the closing brace */
		str_addf(&req, ",\"after\":%d}", n);
		s.first = &req;
		s.fds = fds;
		s.nfds = (size_t)n + 1 + DEVICE_TURN;
		rc = torch_park(j->host, &s, reg, seen.p ? seen.fd : -1, NULL);
		for (int i = 1; i <= DEVICE_TURN; i++)
			close(fds[n + i]);
	}
	if (reg >= 0)
		close(reg);
	j->dev->ops->release(j->dev, &seen);
	str_release(&req);
	return rc;
}

void ahead_provide(struct judge *j)
{
	int gate[2], rc = 0;

	if (!j->times || !j->host || !torch_is_shared(j->host) ||
	    !ahead_parks(j) || !device_cuda_roomy(j->dev))
		return;
	/* Its other end closes with this process. */
	if (pipe2(gate, O_CLOEXEC))
		return;
	/* Those who verify need the first two as well. */
	for (size_t i = 0; i < FIRST_ROLES + 2 && !rc; i++)
		if (first_role(j, i % FIRST_ROLES))
			rc = park(j, first_role(j, i % FIRST_ROLES), gate[0]);
	close(gate[0]);
}

int ahead_unpark(struct judge *j)
{
	return j->host && torch_is_shared(j->host) && ahead_parks(j) &&
	       torch_unpark(j->host, NULL) > 0;
}

static int is_any_ready(const struct judge *j)
{
	for (size_t i = 0; i < AHEAD_MAX; i++)
		if (j->ahead[i].role)
			return 1;
	return 0;
}

void ahead_dismiss(struct judge *j)
{
	if (!j->dev || !j->host || !judge_on_cuda(j))
		return;
	/* Their contexts end beside nobody's clock, if one may hope for it. */
	if (is_any_ready(j))
		(void)j->dev->ops->lease(j->dev, 0, DISMISS_SECONDS, NULL);
	for (size_t i = 0; i < AHEAD_MAX; i++)
		if (j->ahead[i].role)
			drop(j, &j->ahead[i]);
	j->dev->ops->unlease(j->dev);
}

int ahead_ended(struct judge *j)
{
	if (!j->host || torch_pump(j->host, NULL))
		return 1;
	for (size_t i = 0; i < j->nending; i++)
		if (!j->ending[i].ended)
			return 0;
	return 1;
}

int ahead_bequeath(struct judge *j)
{
	int fd[DEVICE_HELD];

	if (!j->host || !torch_is_shared(j->host) || !ahead_parks(j))
		return -1;
	/* As in ahead_dismiss; for our own context alone nobody waits. */
	if (!j->rests)
		(void)j->dev->ops->lease(j->dev, 0, is_any_ready(j) ?
					 DISMISS_SECONDS : 0, NULL);
	return torch_hold(j->host, fd, device_cuda_held(j->dev, fd), NULL);
}

void ahead_leave(struct judge *j)
{
	for (size_t i = 0; i < AHEAD_MAX; i++)
		if (j->ahead[i].role) {
			hang_up(&j->ahead[i].c);
			j->dev->ops->release(j->dev, &j->ahead[i].seen);
		}
	while (j->nkept)
		hang_up(&j->kept[--j->nkept]);
	while (j->nending)
		hang_up(&j->ending[--j->nending]);
	memset(j->ahead, 0, sizeof(j->ahead));
	torch_close(j->host);
	j->host = NULL;
}
