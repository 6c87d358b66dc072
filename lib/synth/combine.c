/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawing stacks.
 */
#include "synth/combine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sig.h"
#include "synth/compose.h"
#include "synth/room.h"
#include "synth/task.h"

#define TRIES 100		/* draws in a row that may make no task */
static const double paper_mix[MIX_STACK + 1] = { 3.40, 83.77, 7.62, 2.80,
						 1.23, 1.18 };

void combine_defaults(struct combine_opts *o)
{
	memset(o, 0, sizeof(*o));
	memcpy(o->mix, paper_mix, sizeof(o->mix));
	o->count = 100;
	o->task_s = 60;
	o->lease_s = 600;
	o->llm.temperature = -1;
	o->llm.max_tokens = 4096;
	o->llm.retries = 7;
	o->llm.jobs = 1;
	o->llm.answer_s = 600;
}

int combine_mix(struct combine_opts *o, const char *text, struct err *e)
{
	double sum = 0;

	memset(o->mix, 0, sizeof(o->mix));
	while (*text) {
		size_t name = strcspn(text, "=");
		int which = name == 2 && text[0] == 'x' ? text[1] - '1' :
			!strncmp(text, "transformers", name) && name == 12 ?
			MIX_OTHER : -1;
		char *end;
		double v;

		if (which < 0 || which > MIX_OTHER || !text[name] ||
		    (which == MIX_OTHER && name == 2))
			return err_set(e, CA_USAGE, "a mix is a list of "
				       "x1=SHARE to x5=SHARE and "
				       "transformers=SHARE");
		v = strtod(text + name + 1, &end);
		if (end == text + name + 1 || !(v >= 0 && v < 1e9) ||
		    (*end && *end != ','))
			return err_set(e, CA_USAGE, "'%.40s' is no share",
				       text);
		o->mix[which] = v;
		sum += v;
		text = end + (*end == ',');
	}
	return sum > 0 ? 0 : err_set(e, CA_USAGE, "a mix of nothing");
}

struct combine *combine_open(const struct combine_opts *o, struct err *e)
{
	struct combine *c = calloc(1, sizeof(*c));

	if (!c) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	c->o = *o;
	rng_seeded(&c->rng, o->seed);
	c->limits.limit = -1;
	c->limits.summary = o->summary;
	c->limits.verbose = o->verbose;
	c->h.o = &c->limits;
	c->h.source = "stacks";
	if (!harvest_can_tell(&c->h, e) &&
	    (!o->llm.url || !compose_open(c, e)))
		return c;
	combine_close(c);
	return NULL;
}

void combine_leave(struct combine *c)
{
	if (c->open)
		oracle_stop(c->j, &c->oracle);
	c->open = 0;
}

void combine_close(struct combine *c)
{
	if (!c)
		return;
	compose_close(c);
	if (c->j) {
		combine_leave(c);
		judge_close(c->j);
	}
	for (size_t i = 0; i < c->n; i++) {
		free(c->part[i].name);
		free(c->part[i].piece);
		free(c->part[i].line);
		free(c->part[i].code);
	}
	free(c->part);
	free(c->pool[0]);
	free(c->pool[1]);
	seen_release(&c->h.codes);
	free(c);
}

static char *text_of(const struct json *node)
{
	struct str s = STR_INIT;
	struct jw w;

	jw_init(&w, &s);
	jw_node(&w, node);
	return str_detach(&s);
}

int combine_take(struct combine *c, const struct rec *r, struct err *e)
{
	const struct json *piece = json_first(rec_get(r, "pieces"));
	const char *from = json_get_str(rec_get(r, "source"), "name", "");
	size_t n = c->alloc ? c->alloc * 2 : 256;
	struct part *p;

	if (!task_kept(r))
		return 0;
	if (!piece && strcmp(from, "transformers")) {
		c->foreign++;
		return 0;
	}
	if (c->n == c->alloc) {
		p = realloc(c->part, n * sizeof(*p));
		if (!p)
			return err_set(e, CA_SOFTWARE, "out of memory");
		c->part = p;
		c->alloc = n;
	}
	p = &c->part[c->n++];
	p->name = strdup(json_str(json_first(rec_get(r, "parts")), from));
	p->piece = piece ? text_of(piece) : NULL;
	p->line = strndup(r->line, r->len);
	p->code = strdup(json_str(rec_get(r, "code"), ""));
	if (!p->name || !p->line || !p->code || (piece && !p->piece))
		return err_set(e, CA_SOFTWARE, "out of memory");
	return 0;
}

/* Which parts are operators and which are not. */
static int sort_parts(struct combine *c)
{
	for (int i = 0; i < 2; i++) {
		c->pool[i] = calloc(c->n + 1, sizeof(size_t));
		if (!c->pool[i])
			return -1;
	}
	for (size_t i = 0; i < c->n; i++) {
		int other = !c->part[i].piece;

		c->pool[other][c->npool[other]++] = i;
	}
	return 0;
}

/* How many of each kind: largest remainders; what cannot be had goes to the
 * others. */
static void quotas(const struct combine *c, int64_t quota[MIX_STACK + 1])
{
	double sum = 0, share[MIX_STACK + 1], rest[MIX_STACK + 1];
	int64_t left = c->o.count;

	for (int i = 0; i <= MIX_OTHER; i++) {
		share[i] = c->npool[i == MIX_OTHER] ? c->o.mix[i] : 0;
		sum += share[i];
	}
	for (int i = 0; i <= MIX_OTHER; i++) {
		double want = sum > 0 ? share[i] / sum * (double)left : 0;

		quota[i] = (int64_t)floor(want + 1e-9);
		rest[i] = want - (double)quota[i];
	}
	for (int i = 0; i <= MIX_OTHER; i++)
		left -= quota[i];
	while (sum > 0 && left-- > 0) {
		int most = 0;

		for (int i = 1; i <= MIX_OTHER; i++)
			if (rest[i] > rest[most])
				most = i;
		quota[most]++;
		rest[most] = -1;
	}
}

int combine_ready(struct combine *c, struct err *e)
{
	struct judge_opts o;

	if (!c->j) {
		judge_defaults(&o);
		o.device = c->o.device;
		o.task_s = c->o.task_s;
		c->j = judge_open(&o, e);
		if (!c->j)
			return -1;
	}
	if (c->open)
		return 0;
	if (harvest_process(c->j, &c->oracle, "combine", e))
		return -1;
	c->open = 1;
	return 0;
}

/* One try: as combine_ask. */
static int ask_once(struct combine *c, int alone, const struct str *req,
		    struct json **told, struct fail *f, struct err *e)
{
	struct str copy = STR_INIT;
	int rc = -1, room = -1;

	if (combine_ready(c, e) ||
	    room_enter(c->j, alone, c->o.lease_s, &room, e))
		return -1;
	/* Shared: nobody's clock may run beside this. */
	if (str_add(&copy, req->buf, req->len))
		err_set(e, CA_SOFTWARE, "out of memory");
	else if (!c->j->dev->ops->lease(c->j->dev, 0, c->o.lease_s, e))
		rc = oracle_ask(c->j, &c->oracle, &copy, told, f) ? 1 : 0;
	c->j->dev->ops->unlease(c->j->dev);
	room_leave(&room);
	str_release(&copy);
	return rc;
}

int combine_ask(struct combine *c, struct str *req, const char *name,
		struct json **told, struct err *e)
{
	struct fail f = { .status = ST_OK };
	int rc;

	*told = NULL;
	rc = ask_once(c, 0, req, told, &f, e);
	if (rc > 0 && f.oom && judge_on_cuda(c->j))
		rc = ask_once(c, 1, req, told, &f, e);
	if (rc <= 0)
		return rc;
	if (name)
		harvest_skip(&c->h, name, f.phase ? harvest_short(f.text) :
			     "it ends the process, or takes too long");
	if (!f.phase)
		combine_leave(c);
	return 1;
}

static int ask_stack(struct combine *c, const struct part **p, size_t n,
		     struct json **told, struct err *e)
{
	struct str req = STR_INIT;
	struct jw w;
	int rc;

	if (combine_ready(c, e))
		return -1;
	jw_init(&w, &req);
	jw_obj(&w);
	jw_kstr(&w, "op", "stack");
	jw_ku64(&w, "seed", rng_u64(&c->rng) >> 1);
	jw_kint(&w, "bytes", room_bytes(c->j, c->o.max_bytes));
	jw_key(&w, "pieces");
	jw_arr(&w);
	for (size_t i = 0; i < n; i++)
		jw_raw(&w, p[i]->piece, strlen(p[i]->piece));
	jw_end_arr(&w);
	jw_end_obj(&w);
	rc = combine_ask(c, &req, p[0]->name, told, e);
	str_release(&req);
	return rc;
}

static int write_stack(struct combine *c, const char *code,
		       const struct part **p, size_t n, struct err *e)
{
	struct str names = STR_INIT, parts = STR_INIT;
	uint64_t made = c->h.made;
	char kind[24];
	struct jw w;
	int rc;

	jw_init(&w, &parts);
	jw_arr(&w);
	for (size_t i = 0; i < n; i++) {
		str_addf(&names, "%s%s", i ? " | " : "", p[i]->name);
		jw_str(&w, p[i]->name);
	}
	jw_end_arr(&w);
	snprintf(kind, sizeof(kind), "x%zu", n);
	rc = names.failed || parts.failed ?
		err_set(e, CA_SOFTWARE, "out of memory") :
		harvest_task(&c->h, &(struct harvest_item){
			.code = code, .len = strlen(code), .name = kind,
			.ref = names.buf, .parts = parts.buf,
			.version = torch_version(c->j->host) }, e);
	str_release(&names);
	str_release(&parts);
	return rc ? -1 : c->h.made > made;
}

int combine_draw(struct combine *c, const struct part **p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = &c->part[c->pool[0][rng_below(&c->rng, c->npool[0])]];
	for (size_t i = 1; i < n; i++)
		if (p[i] == p[i - 1])
			return 1;
	return 0;
}

/* One draw of n operators: 1 made, 0 not, -1. */
static int draw_stack(struct combine *c, size_t n, struct err *e)
{
	const struct part *p[MIX_STACK];
	struct json *told;
	int rc;

	if (combine_draw(c, p, n))
		return 0;
	rc = ask_stack(c, p, n, &told, e);
	if (rc)
		return rc < 0 ? -1 : 0;
	rc = write_stack(c, json_get_str(told, "code", ""), p, n, e);
	json_free(told);
	return rc;
}

/* One of the tasks as it came. */
static int draw_task(struct combine *c, int other, struct err *e)
{
	const struct part *p = &c->part[c->pool[other][rng_below(&c->rng,
		c->npool[other])]];

	if (seen_find(&c->h.codes, p->code, strlen(p->code)))
		return 0;
	if (seen_add(&c->h.codes, p->code, strlen(p->code), p->name))
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (output_write(c->h.out, p->line, strlen(p->line), e) ||
	    output_write(c->h.out, "\n", 1, e))
		return -1;
	c->h.made++;
	return 1;
}

/* The codes that are there already. */
static int know(struct combine *c, struct err *e)
{
	struct str text = STR_INIT;
	char *line, *save = NULL;

	if (!c->o.not_in)
		return 0;
	if (read_file(c->o.not_in, (size_t)1 << 30, &text, e))
		return -1;
	line = text.buf ? strtok_r(text.buf, "\n", &save) : NULL;
	for (; line; line = strtok_r(NULL, "\n", &save)) {
		struct json *j = json_parse(line, strlen(line), JSON_MAX_LINE,
					    NULL, NULL);
		const char *code = json_get_str(j, "code", NULL);

		if (code)
			seen_add(&c->h.codes, code, strlen(code), "known");
		json_free(j);
	}
	str_release(&text);
	return 0;
}

static int say(const struct combine *c, struct err *e)
{
	char head[256];

	snprintf(head, sizeof(head), "%llu tasks of %zu operators; %llu "
		 "records without pieces; %llu %s without a task",
		 (unsigned long long)c->h.made, c->npool[0],
		 (unsigned long long)c->foreign,
		 (unsigned long long)c->h.skipped,
		 c->llm ? "answers" : "draws");
	return harvest_tell(&c->h, head, e);
}

static int64_t missing(const int64_t quota[MIX_STACK + 1])
{
	int64_t left = 0;

	for (int i = 0; i <= MIX_OTHER; i++)
		left += quota[i];
	return left;
}

/* Until all is drawn, or nothing more comes. */
static int draw_all(struct combine *c, int64_t quota[MIX_STACK + 1],
		    struct err *e)
{
	int tries = 0;
	int64_t left;

	while ((left = missing(quota)) && tries < TRIES) {
		int64_t at = (int64_t)rng_below(&c->rng, (uint64_t)left);
		int kind = 0, rc;

		if (sig_caught())
			return err_set(e, CA_TEMPFAIL, "interrupted");
		while (at >= quota[kind])
			at -= quota[kind++];
		rc = kind == MIX_OTHER ? draw_task(c, 1, e) :
		     !kind ? draw_task(c, 0, e) :
		     draw_stack(c, (size_t)kind + 1, e);
		if (rc < 0)
			return -1;
		quota[kind] -= rc;
		tries = rc ? 0 : tries + 1;
	}
	return 0;
}

/* With a model, what it has not written is not drawn. */
static int make_all(struct combine *c, int64_t quota[MIX_STACK + 1],
		    struct err *e)
{
	int64_t rest[MIX_STACK + 1];
	int rc;

	if (!c->llm)
		return draw_all(c, quota, e);
	memcpy(rest, quota, sizeof(rest));
	for (int i = 1; i < MIX_STACK; i++)
		rest[i] = 0;
	rc = draw_all(c, rest, e);
	quota[0] = rest[0];
	quota[MIX_OTHER] = rest[MIX_OTHER];
	return rc ? -1 : compose_all(c, quota, e);
}

int combine_run(struct combine *c, struct output *out, struct err *e)
{
	int64_t quota[MIX_STACK + 1], left;
	int rc;

	c->h.out = out;
	if (sort_parts(c))
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (know(c, e))
		return -1;
	quotas(c, quota);
	if (missing(quota) < c->o.count)
		return err_set(e, CA_DATAERR, "no task of the input can be "
			       "used for this mix");
	rc = make_all(c, quota, e);
	if ((rc && !c->llm) || say(c, rc ? NULL : e) || rc)
		return -1;
	left = missing(quota);
	if (left && c->llm)
		return err_set(e, CA_DATAERR, "the answers are used up; %lld "
			       "tasks are missing", (long long)left);
	return left ? err_set(e, CA_DATAERR, "%d draws in a row made no task; "
			      "%lld are missing", TRIES, (long long)left) : 0;
}
