/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes before and after their work.
 */
#include "judge/ahead.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "cu/trace.h"

#define SLEEP_SECONDS 30	/* for a jail to be made */
#define GREET_MS 60000		/* for a host to start */
#define DISMISS_SECONDS 10	/* for somebody's clock to stop */

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

int ahead_early(const struct judge *j)
{
	const char *v = getenv("CA_EARLY_CUDA");

	return judge_on_cuda(j) && v && *v && strcmp(v, "0") != 0;
}

/* Whether CUPTI is to look: it serves one of a process, torch's profiler or
 * ours. */
static int traced(const struct judge *j, const struct purpose *u)
{
	return judge_on_cuda(j) && strcmp(u->role, "oracle") != 0 &&
	       strcmp(u->role, "task") != 0 && !(u->p && u->p->table);
}

/* Has the jail made; early, its context too, which takes most of a start. */
static int start(struct judge *j, const struct purpose *u, struct mem *seen,
		 struct torch_child *c, struct err *e)
{
	static const char *const name[] = { "trace" };
	struct mem *const mem[] = { seen };
	struct str req = STR_INIT;
	int fd, n = traced(j, u), rc;

	if (n && j->dev->ops->shared(j->dev, TRACE_BYTES, 1, seen, e))
		return -1;
	n = n && ahead_early(j);
	if (ahead_early(j))
		region_request(&req, "begin", name, mem, (size_t)n, &fd);
	else
		str_adds(&req, "{\"op\":\"jail\"}");
	rc = req.failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     torch_send(c, req.buf, req.len, &fd, (size_t)n, e);
	str_release(&req);
	return rc;
}

static int spawn(struct judge *j, const struct purpose *u, const char *cache,
		 struct mem *seen, struct torch_child *c, struct err *e)
{
	struct torch_spawn s = { .role = u->role, .device = j->dev->name,
				 .node = j->dev->node, .jail = j->jail,
				 .may_exec = u->may_exec,
				 .cache = cache[0] ? cache : NULL };

	*seen = (struct mem)MEM_NONE;
	if (torch_spawn_ahead(j->host, &s, c, e))
		return -1;
	if (!start(j, u, seen, c, e))
		return 0;
	j->dev->ops->release(j->dev, seen);
	torch_kill(j->host, c, NULL);
	return -1;
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
	    !torch_pump(j->host, NULL) && serves(j, a, u, cache)) {
		torch_move(j->host, c, &a->c);
		*seen = a->seen;
		a->role = NULL;
		return 0;
	}
	if (a)
		drop(j, a);
	if (spawn(j, u, cache, seen, c, e))
		return -1;
	if (!torch_spawned(j->host, c, e))
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
}

/* Whether the host says hello before there is something to read. */
static int greeted_before(struct judge *j, int fd)
{
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN },
			       { .fd = torch_fd(j->host), .events = POLLIN } };
	struct fail f;

	return poll(p, 2, GREET_MS) > 0 && !p[0].revents &&
	       !host_ready(j, &f);
}

void judge_begin(struct judge *j, int fd, int times)
{
	static const char *const role[] = { "oracle", "worker", "eager",
					    "calib" };
	/* Idle calls are measured on the CPU only; a quick profile on CUDA
	 * mostly knows what the bracket costs. */
	int calib = !judge_on_cuda(j) ||
		    (times && !(j->o.quick && ahead_early(j)));

	/* Neither the forks nor new contexts may disturb somebody's clock. */
	if (!j->host || !greeted_before(j, fd) ||
	    ((!judge_on_cuda(j) || ahead_early(j)) &&
	     j->dev->ops->lease(j->dev, 0, 0, NULL)))
		return;
	for (size_t i = 0; i < 4; i++)
		if (i < 2 || (i == 2 ? times : calib))
			ahead_want(j, &(struct purpose){ role[i], 0, NULL });
	runner_ahead(j);
	ahead_settle(j);
	j->dev->ops->unlease(j->dev);
}

static void hang_up(struct torch_child *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

void ahead_dismiss(struct judge *j)
{
	if (!j->dev || !j->host || !ahead_early(j))
		return;
	for (size_t i = 0; i < AHEAD_MAX; i++) {
		if (!j->ahead[i].role)
			continue;
		/* Held on to for the next one. */
		(void)j->dev->ops->lease(j->dev, 0, DISMISS_SECONDS, NULL);
		drop(j, &j->ahead[i]);
	}
	j->dev->ops->unlease(j->dev);
}

void ahead_leave(struct judge *j)
{
	for (size_t i = 0; i < AHEAD_MAX; i++)
		if (j->ahead[i].role) {
			hang_up(&j->ahead[i].c);
			j->dev->ops->release(j->dev, &j->ahead[i].seen);
		}
	while (j->nending)
		hang_up(&j->ending[--j->nending]);
	memset(j->ahead, 0, sizeof(j->ahead));
	torch_close(j->host);
	j->host = NULL;
}
