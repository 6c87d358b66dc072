/* SPDX-License-Identifier: Apache-2.0
 *
 * torch's operators and transformers' modules, made into tasks.  What can be
 * known on the CPU is prepared there, side by side (ready.c).  One confined
 * process then grows it on the device, which that has to itself for a while:
 * processes that share a GPU wait for each other whenever one waits for a
 * result.  One that crashes or hangs costs what it worked on.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sig.h"
#include "build/limits.h"
#include "judge/ahead.h"
#include "judge/session.h"
#include "synth/harvest.h"
#include "synth/ready.h"
#include "synth/room.h"

#define SLICE_NS 1000000000	/* alone on the device, where others wait */
#define TASK_CUDA 10		/* seconds; it holds up everybody */
#define CLOSE_SECONDS 10
#define TOLD_S 0.1		/* on the device for nothing */
#define JOBS_MAX 16
#define OTHER_GRAPH "has another's graph"

struct maker {
	struct harvest *h;
	struct judge *j;
	struct oracle o;
	const char *role;	/* "crawl" or "hf" */
	const char *version;	/* of the source */
	struct seen graphs;
	int open;
	int held;		/* enum device_hold + 1; 0: nothing, no room */
	int room;		/* room_enter's */
	int64_t since, until;	/* of what is held; of the slice */
};

/* What a name came to; its records are written in order. */
struct outcome {
	struct json *told;
	char why[160];
	int done;
	double seconds;		/* on the device */
};

static int on_cuda(const struct maker *m)
{
	return judge_on_cuda(m->j);
}

/* Counts how long something was held or waited for. */
static void count(struct maker *m, enum crawl_time what)
{
	int64_t now = now_ns();

	m->h->seconds[what] += (double)(now - m->since) / 1e9;
	m->since = now;
}

static void count_held(struct maker *m)
{
	if (m->held)
		count(m, m->held - 1 == HOLD_ALONE ? TIME_ALONE : TIME_SHARED);
}

static void leave(struct maker *m)
{
	count_held(m);
	m->j->dev->ops->unlease(m->j->dev);
	room_leave(&m->room);
	m->held = 0;
}

static int hold(struct maker *m, enum device_hold how, struct err *e)
{
	struct device *d = m->j->dev;
	int rc;

	if (m->held == (int)how + 1)
		return 0;
	count_held(m);
	m->since = now_ns();
	rc = device_hold(d, how, m->h->o->lease_s, e);
	count(m, TIME_WAIT);
	m->held = rc ? 0 : (int)how + 1;
	m->until = m->since + SLICE_NS;
	return rc;
}

/* Begins a slice; alone: nobody else is in the room. */
static int enter(struct maker *m, int alone, struct err *e)
{
	struct fail f;

	if (m->held && !alone)
		return 0;
	leave(m);
	/* It says why not when it is asked for a process. */
	(void)host_ready(m->j, &f);
	return room_enter(m->j, alone, m->h->o->lease_s, &m->room, e) ? -1 :
	       hold(m, HOLD_SHARED, e);
}

static int maker_open(struct maker *m, struct err *e)
{
	if (m->open)
		return 0;
	if (harvest_process(m->j, &m->o, m->role, e))
		return -1;
	m->open = 1;
	return 0;
}

/* A context's end is work for the device, too. */
static void maker_close(struct maker *m)
{
	struct device *d = m->j->dev;
	int own;	/* a lease of our own */

	if (!m->open)
		return;
	own = on_cuda(m) && m->held <= HOLD_NONE + 1 &&
	      !device_hold(d, HOLD_SHARED, CLOSE_SECONDS, NULL);
	oracle_stop(m->j, &m->o);
	ahead_settle(m->j);
	if (own)
		d->ops->unlease(d);
	m->open = 0;
}

/* Lets others at the device; they may need memory there. */
static void rest(struct maker *m)
{
	struct str req = STR_INIT;
	struct json *told = NULL;
	struct fail f;

	if (m->open && on_cuda(m) && m->held) {
		str_adds(&req, "{\"op\":\"rest\"}");
		memset(&f, 0, sizeof(f));
		if (oracle_ask(m->j, &m->o, &req, &told, &f) && !f.phase)
			maker_close(m);
		json_free(told);
		str_release(&req);
	}
	leave(m);
}

static void write_request(const struct maker *m, struct str *req)
{
	struct jw w;

	jw_init(&w, req);
	jw_obj(&w);
	jw_kstr(&w, "op", "grow");
	jw_kint(&w, "draft", 0);
	jw_knum(&w, "ms", m->h->o->ms);
	jw_end_obj(&w);
}

/* One request, and as many more as the process wants leases in between: 1
 * when nobody answers, -1 without a lease. */
static int talk(struct maker *m, const struct str *draft, struct json **told,
		struct fail *f, struct err *e)
{
	struct str req = STR_INIT;
	int64_t how = HOLD_NONE;
	int rc;

	write_request(m, &req);
	rc = oracle_tell(m->j, &m->o, &req, draft->buf, draft->len, told, f);
	while (!rc) {
		how = json_get_int(*told, "hold", -1);
		if (how < HOLD_NONE || how > HOLD_ALONE)
			break;
		json_free(*told);
		*told = NULL;
		if (hold(m, (enum device_hold)how, e)) {
			str_release(&req);
			return -1;
		}
		str_reset(&req);
		str_adds(&req, "{\"op\":\"go\"}");
		rc = oracle_ask(m->j, &m->o, &req, told, f);
	}
	str_release(&req);
	return rc ? 1 : 0;
}

/* What the process makes of a draft.  One that ends may have been ended from
 * outside, and one without memory may have been one of too many: once more,
 * then, and alone; not one that takes too long.  0 (*told is what it says),
 * 1 (f), -1. */
static int grow(struct maker *m, const struct json *draft, struct json **told,
		struct fail *f, struct err *e)
{
	struct str text = STR_INIT;
	struct jw w;
	int rc = 0;

	jw_init(&w, &text);
	jw_node(&w, draft);
	for (int i = 0; i < 2 && !sig_caught(); i++) {
		json_free(*told);
		*told = NULL;
		memset(f, 0, sizeof(*f));
		rc = enter(m, i, e) || maker_open(m, e) ? -1 :
		     talk(m, &text, told, f, e);
		if (rc > 0 || json_get_bool(*told, "broken", 0))
			maker_close(m);
		if (!on_cuda(m) || now_ns() > m->until || i)
			rest(m);
		if (rc > 0 ? f->phase || !f->fault :
		    rc || !on_cuda(m) || !json_get_bool(*told, "oom", 0))
			break;
	}
	str_release(&text);
	return rc >= 0 && sig_caught() ?
		err_set(e, CA_TEMPFAIL, "interrupted") : rc;
}

/* Whether one that was written has the graph of this draft. */
static int has_other_graph(const struct maker *m, const struct json *draft)
{
	const char *hash = json_get_str(draft, "hash", NULL);

	return hash && seen_find(&m->graphs, hash, strlen(hash));
}

/* Tries the drafts of a name in turn. */
static int grow_first(struct maker *m, const struct json *drafts,
		      struct outcome *x, struct err *e)
{
	const char *first = json_get_str(drafts, "why", NULL);
	const struct json *d = json_first(json_get(drafts, "drafts"));
	int rc = 0;

	if (first)
		snprintf(x->why, sizeof(x->why), "%s", first);
	for (; d; d = json_next(d)) {
		struct json *told = NULL;
		struct fail f = { .status = ST_OK };
		const char *why;

		if (has_other_graph(m, d)) {
			snprintf(x->why, sizeof(x->why), "%s", OTHER_GRAPH);
			return 0;
		}
		rc = grow(m, d, &told, &f, e);
		if (rc < 0) {
			json_free(told);
			return -1;
		}
		if (!rc && json_get(told, "code")) {
			x->told = told;
			return 0;
		}
		why = rc ? harvest_short(f.text) :
		      json_get_str(told, "why", "nothing was made");
		if (!x->why[0])
			snprintf(x->why, sizeof(x->why), "%s", why);
		json_free(told);
	}
	return 0;
}

/* A module's task: no piece, but a graph that no other may have. */
static int keep_module(struct maker *m, const char *name,
		       const struct json *told, struct err *e)
{
	const char *code = json_get_str(told, "code", "");
	const char *hash = json_get_str(told, "hash", "");

	if (seen_find(&m->graphs, hash, strlen(hash))) {
		harvest_skip(m->h, name, OTHER_GRAPH);
		return 0;
	}
	if (seen_add(&m->graphs, hash, strlen(hash), name))
		return err_set(e, CA_SOFTWARE, "out of memory");
	return harvest_task(m->h, &(struct harvest_item){
		.code = code, .len = strlen(code), .name = "transformers",
		.ref = name, .version = m->version }, e);
}

static int keep_piece(struct maker *m, const struct json *told, struct err *e)
{
	const struct json *piece = json_get(told, "piece");
	const char *code = json_get_str(told, "code", "");
	const char *name = json_get_str(piece, "name", "?");
	struct str parts = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &parts);
	jw_arr(&w);
	jw_str(&w, name);
	jw_end_arr(&w);
	rc = parts.failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     harvest_task(m->h, &(struct harvest_item){
		.code = code, .len = strlen(code), .name = "torch",
		.ref = name, .version = m->version, .parts = parts.buf,
		.piece = piece }, e);
	str_release(&parts);
	return rc;
}

/* Every so manieth name, where a part is asked for. */
static size_t own_part(const struct crawl_opts *o, const char **list,
		       size_t n)
{
	size_t kept = 0;

	if (!o->parts)
		return n;
	for (size_t i = (size_t)o->part - 1; i < n; i += (size_t)o->parts)
		list[kept++] = list[i];
	return kept;
}

static int asked_for(const struct crawl_opts *o, const char *name)
{
	size_t i = 0;

	while (i < o->only.n && !strstr(name, o->only.item[i]))
		i++;
	return !o->only.n || i < o->only.n;
}

/* Names in the order in which they are tried. */
static const char **order(struct maker *m, const struct json *names,
			  size_t *n)
{
	const char **list = calloc(json_len(names) + 1, sizeof(*list));
	struct rng r;

	*n = 0;
	if (!list)
		return NULL;
	for (const struct json *i = json_first(names); i; i = json_next(i)) {
		const char *name = json_str(i, "");

		if (asked_for(m->h->o, name))
			list[(*n)++] = name;
	}
	rng_seeded(&r, m->h->o->seed);
	for (size_t i = *n; m->h->o->seeded && i > 1; i--) {
		size_t k = rng_below(&r, i);
		const char *t = list[k];

		list[k] = list[i - 1];
		list[i - 1] = t;
	}
	*n = own_part(m->h->o, list, *n);
	return list;
}

static int in_file(const struct output *o)
{
	struct stat st;

	return !fstat(o->fd, &st) && S_ISREG(st.st_mode);
}

static int write_one(struct maker *m, const char *name, struct outcome *o,
		     struct err *e)
{
	int rc = 0;

	/* Who reads it may want the device first. */
	if (o->told && !in_file(m->h->out))
		rest(m);
	if (!o->told)
		harvest_skip(m->h, name, o->why);
	else
		rc = json_get(o->told, "piece") ? keep_piece(m, o->told, e) :
		     keep_module(m, name, o->told, e);
	if (o->told && m->h->o->verbose)
		warn("made '%s': %.3g ms; it took %.2g s", name,
		     json_get_num(o->told, "ms", 0), o->seconds);
	else if (o->seconds >= TOLD_S && m->h->o->verbose)
		warn("'%s' was tried for %.2g s", name, o->seconds);
	json_free(o->told);
	o->told = NULL;
	o->done = 0;
	return rc;
}

/* The names, and what became of them. */
struct course {
	const char **name;
	size_t n;
	struct outcome *x;
	size_t at;		/* the first that is not written */
	uint64_t made;		/* tasks that are not written */
};

/* Whether a record may be written now: who reads it may want the device, which
 * is not handed over for each. */
static int may_write(const struct maker *m, const struct course *c)
{
	return !m->held || in_file(m->h->out) ||
	       (uint64_t)m->h->o->limit <= c->made;
}

/* Outcomes as far as there is none missing before them. */
static int write_done(struct maker *m, struct course *c, struct err *e)
{
	int rc = 0;

	for (; c->at < c->n && c->x[c->at].done && !rc && !harvest_full(m->h);
	     c->at++) {
		c->made -= c->x[c->at].told != NULL;
		rc = write_one(m, c->name[c->at], &c->x[c->at], e);
	}
	return rc;
}

/* What was done when something ended the rest, however that went. */
static void write_rest(struct maker *m, struct course *c)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->x[i].done && !harvest_full(m->h))
			(void)write_one(m, c->name[i], &c->x[i], NULL);
}

/* What is prepared; while nothing is, others have the device. */
static int next_drafts(struct maker *m, struct ready *r, struct course *c,
		       size_t *i, struct json **drafts, const char **why,
		       struct err *e)
{
	int rc = ready_next(r, 0, i, drafts, why, e);

	if (rc)
		return rc;
	rest(m);
	if (write_done(m, c, e))
		return -1;
	if (harvest_full(m->h))
		return 0;
	m->since = now_ns();
	rc = ready_next(r, 1, i, drafts, why, e);
	count(m, TIME_IDLE);
	return rc;
}

static int make_all(struct maker *m, struct ready *r, struct course *c,
		    struct err *e)
{
	struct json *drafts = NULL;
	const char *why;
	size_t i;
	int rc = ready_names(r, c->name, c->n, e);

	while (!rc && !harvest_full(m->h) &&
	       (rc = next_drafts(m, r, c, &i, &drafts, &why, e)) > 0) {
		struct outcome *x = &c->x[i];
		int64_t began = now_ns();

		rc = 0;
		if (drafts)
			rc = grow_first(m, drafts, x, e);
		else
			snprintf(x->why, sizeof(x->why), "%s", why);
		json_free(drafts);
		drafts = NULL;
		x->seconds = (double)(now_ns() - began) / 1e9;
		x->done = !rc;
		c->made += x->told != NULL;
		if (!rc && may_write(m, c))
			rc = write_done(m, c, e);
	}
	if (rc)
		write_rest(m, c);
	return rc;
}

static int make_names(struct maker *m, struct ready *r, const char **name,
		      size_t n, struct err *e)
{
	struct course c = { .name = name, .n = n };
	int rc;

	c.x = calloc(n + 1, sizeof(*c.x));
	if (!c.x)
		return err_set(e, CA_SOFTWARE, "out of memory");
	rc = make_all(m, r, &c, e);
	for (size_t i = 0; i < n; i++)
		json_free(c.x[i].told);
	free(c.x);
	return rc;
}

/* What the source leaves out itself is told once, not with each part. */
static void tell_left_out(struct maker *m, const struct json *list)
{
	const struct json *s = json_first(json_get(list, "skipped"));

	for (; s && !m->h->o->only.n && m->h->o->part < 2; s = json_next(s))
		harvest_skip(m->h, json_str(json_first(s), "?"),
			     json_str(json_next(json_first(s)), "?"));
}

/* Lists, while a process gets ready on the device. */
static int crawl(struct maker *m, struct ready *r, struct err *e)
{
	const struct json *list;
	const char **name;
	size_t n;
	int rc = enter(m, 0, e) || maker_open(m, e) ? -1 : 0;

	leave(m);
	list = rc ? NULL : ready_list(r, e);
	if (!list)
		return -1;
	m->version = json_get_str(list, "version", ready_version(r));
	tell_left_out(m, list);
	name = order(m, json_get(list, "names"), &n);
	if (!name)
		return err_set(e, CA_SOFTWARE, "out of memory");
	rc = make_names(m, r, name, n, e);
	rest(m);
	/* Before the names that it works on. */
	m->h->seconds[TIME_PREPARE] = ready_seconds(r);
	ready_stop(r);
	free(name);
	return rc;
}

/* How many prepare: on a GPU as many as there are cores, but for two that see
 * to it. */
static size_t hands(const struct maker *m)
{
	struct limits l;

	if (m->h->o->jobs)
		return (size_t)m->h->o->jobs;
	limits_read(&l);
	if (!on_cuda(m) || l.cores < 3)
		return 1;
	return l.cores - 2 < JOBS_MAX ? (size_t)l.cores - 2 : JOBS_MAX;
}

int crawl_torch(struct harvest *h, const char *role, struct err *e)
{
	struct maker m = { .h = h, .role = role, .room = -1 };
	struct judge_opts o;
	struct ready *r;
	int rc = -1;

	judge_defaults(&o);
	o.device = h->o->device;
	m.j = judge_open(&o, e);
	if (!m.j)
		return -1;
	m.j->o.task_s = on_cuda(&m) && h->o->task_s <= 0 ? TASK_CUDA :
			ready_timeout(h);
	h->timed = 1;
	m.since = now_ns();
	r = ready_open(h, role, hands(&m),
		       room_bytes(m.j, h->o->max_bytes), !on_cuda(&m), e);
	if (r)
		rc = crawl(&m, r, e);
	ready_close(r);
	leave(&m);
	maker_close(&m);
	seen_release(&m.graphs);
	judge_close(m.j);
	return rc;
}
