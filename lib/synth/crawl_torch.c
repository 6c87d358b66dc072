/* SPDX-License-Identifier: Apache-2.0
 *
 * torch's operators and transformers' modules, made into tasks by one confined
 * process after another: one that crashes or hangs costs what it worked on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sig.h"
#include "judge/session.h"
#include "synth/harvest.h"
#include "synth/room.h"

struct maker {
	struct harvest *h;
	struct judge *j;
	struct oracle o;
	const char *role;	/* "crawl" or "hf" */
	const char *version;	/* of the source */
	struct seen graphs;
	int open;
};

static int maker_open(struct maker *m, struct err *e)
{
	if (m->open)
		return 0;
	if (harvest_process(m->j, &m->o, m->role, e))
		return -1;
	m->open = 1;
	return 0;
}

static void maker_close(struct maker *m)
{
	if (m->open)
		oracle_stop(m->j, &m->o);
	m->open = 0;
}

static void write_request(const struct maker *m, const char *name,
			  struct str *req)
{
	const struct crawl_opts *o = m->h->o;
	struct jw w;

	jw_init(&w, req);
	jw_obj(&w);
	jw_kstr(&w, "op", "make");
	jw_kstr(&w, "name", name);
	jw_knum(&w, "ms", o->ms);
	jw_kint(&w, "bytes", room_bytes(m->j, o->max_bytes));
	jw_end_obj(&w);
}

/* A module's task: no piece, but a graph that no other may have. */
static int keep_module(struct maker *m, const char *name,
		       const struct json *told, struct err *e)
{
	const char *code = json_get_str(told, "code", "");
	const char *hash = json_get_str(told, "hash", "");

	if (seen_find(&m->graphs, hash, strlen(hash))) {
		harvest_skip(m->h, name, "has another's graph");
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

/* One request, and as many more as the process wants leases in between: 1
 * when it fails, -1 without a lease. */
static int talk(struct maker *m, struct str *req, struct json **told,
		struct fail *f, struct err *e)
{
	int64_t how;

	for (;;) {
		if (oracle_ask(m->j, &m->o, req, told, f))
			return 1;
		how = json_get_int(*told, "hold", -1);
		if (how < HOLD_NONE || how > HOLD_ALONE)
			return 0;
		json_free(*told);
		*told = NULL;
		if (device_hold(m->j->dev, (enum device_hold)how,
				m->h->o->lease_s, e))
			return -1;
		str_reset(req);
		str_adds(req, "{\"op\":\"go\"}");
	}
}

/* One try, with no lease but those that it asks for: as talk(). */
static int ask_once(struct maker *m, const char *name, struct json **told,
		    struct fail *f, struct err *e)
{
	struct device *d = m->j->dev;
	struct str req = STR_INIT;
	int rc = device_hold(d, HOLD_NONE, m->h->o->lease_s, e);

	if (!rc)
		rc = maker_open(m, e);
	if (!rc) {
		write_request(m, name, &req);
		rc = talk(m, &req, told, f, e);
	}
	d->ops->unlease(d);
	str_release(&req);
	return rc;
}

/* What the process tells of a name; NULL without a task.  A process that ends
 * may have been ended from outside, and one without memory may have been one
 * of too many: once more, then, and alone. */
static int ask_name(struct maker *m, const char *name, struct json **told,
		    struct err *e)
{
	struct fail f;
	int rc = 0, room = -1;

	for (int i = 0; i < 2 && !sig_caught(); i++) {
		memset(&f, 0, sizeof(f));
		rc = room_enter(m->j, i, m->h->o->lease_s, &room, e);
		if (!rc)
			rc = ask_once(m, name, told, &f, e);
		/* Without a phase nobody answered. */
		if (rc > 0 && (!f.phase || f.oom))
			maker_close(m);
		room_leave(&room);
		if (rc <= 0 || (f.phase && !f.oom))
			break;
	}
	if (rc > 0)
		harvest_skip(m->h, name, harvest_short(f.text));
	return rc < 0 ? -1 : 0;
}

static int make(struct maker *m, const char *name, struct err *e)
{
	struct json *told = NULL;
	int rc = ask_name(m, name, &told, e);

	if (!rc && told)
		rc = json_get(told, "piece") ? keep_piece(m, told, e) :
		     keep_module(m, name, told, e);
	json_free(told);
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

static int make_all(struct maker *m, const struct json *told, struct err *e)
{
	const struct json *s = json_first(json_get(told, "skipped"));
	const char **list;
	size_t n;
	int rc = 0;

	/* Told once, not with each part. */
	for (; s && !m->h->o->only.n && m->h->o->part < 2; s = json_next(s))
		harvest_skip(m->h, json_str(json_first(s), "?"),
			     json_str(json_next(json_first(s)), "?"));
	list = order(m, json_get(told, "names"), &n);
	if (!list)
		return err_set(e, CA_SOFTWARE, "out of memory");
	for (size_t i = 0; i < n && !rc && !harvest_full(m->h); i++)
		rc = sig_caught() ? err_set(e, CA_TEMPFAIL, "interrupted") :
		     make(m, list[i], e);
	free(list);
	return rc;
}

static int list(struct maker *m, struct json **told, struct err *e)
{
	struct fail f = { .status = ST_OK };
	struct str req = STR_INIT;
	int rc = maker_open(m, e);

	str_adds(&req, "{\"op\":\"list\"}");
	if (!rc && oracle_ask(m->j, &m->o, &req, told, &f)) {
		maker_close(m);
		rc = err_set(e, CA_UNAVAILABLE, "'%s' cannot be listed: "
			     "%.500s", m->h->source, f.text);
	}
	str_release(&req);
	return rc;
}

int crawl_torch(struct harvest *h, const char *role, struct err *e)
{
	struct maker m = { .h = h, .role = role };
	struct judge_opts o;
	struct json *told = NULL;
	int rc;

	judge_defaults(&o);
	o.device = h->o->device;
	o.task_s = h->o->task_s;
	m.j = judge_open(&o, e);
	if (!m.j)
		return -1;
	/* As with an operator: once more. */
	rc = list(&m, &told, e);
	if (rc && !m.open && !sig_caught())
		rc = list(&m, &told, e);
	if (!rc) {
		m.version = json_get_str(told, "version",
					 torch_version(m.j->host));
		rc = make_all(&m, told, e);
	}
	maker_close(&m);
	seen_release(&m.graphs);
	json_free(told);
	judge_close(m.j);
	return rc;
}
