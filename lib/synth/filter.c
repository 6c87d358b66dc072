/* SPDX-License-Identifier: Apache-2.0
 *
 * Filtering tasks: which checks are made, threads and their judges, and the
 * field.
 */
#include "synth/filter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "jail/jail.h"
#include "judge/ahead.h"
#include "rec/stage.h"
#include "synth/examine.h"
#include "synth/room.h"

#define FILTER_VERSION "1"
#define OPS_MAX 512
#define TURN_NS 30000000	/* for which a shared lease is kept at least */

/* A judge belongs to the thread that opened it. */
struct own_judge {
	struct judge *j;
	struct own_judge *next;
};

struct filter {
	struct filter_opts o;
	struct judge_opts judge;
	unsigned wanted;
	pthread_key_t key;
	pthread_mutex_t lock;	/* for what follows */
	struct own_judge *all;
	double spent[FILTER_CHECKS], waited[FILTER_WAITS], asked;
	struct admission rooms;
	struct clocks clocks[CLOCKS_GPUS];
};

void filter_defaults(struct filter_opts *o)
{
	memset(o, 0, sizeof(*o));
	o->min_ms = 1;
	o->max_ms = 100;
	o->max_mem = (int64_t)8 << 30;
	o->task_s = 60;
	o->compile_s = 120;
	o->lease_s = 600;
}

static int parse_checks(struct filter *f, const char *text, struct err *e)
{
	for (const char *end = ","; *end; text = end + 1) {
		size_t n = strcspn(text, ",");
		int c = 0;

		while (c < FILTER_CHECKS &&
		       (strncmp(check_name((enum filter_check)c), text, n) ||
			check_name((enum filter_check)c)[n]))
			c++;
		if (c == FILTER_CHECKS)
			return err_set(e, CA_USAGE, "unknown check '%.*s'",
				       (int)n, text);
		f->wanted |= 1u << c;
		end = text + n;
	}
	return 0;
}

struct filter *filter_open(const struct filter_opts *o, struct err *e)
{
	struct filter *f = calloc(1, sizeof(*f));

	if (!f || pthread_key_create(&f->key, NULL)) {
		free(f);
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	pthread_mutex_init(&f->lock, NULL);
	admission_init(&f->rooms);
	for (size_t i = 0; i < CLOCKS_GPUS; i++)
		clocks_init(&f->clocks[i]);
	f->o = *o;
	judge_defaults(&f->judge);
	f->judge.device = o->device;
	f->judge.no_jail = o->no_jail;
	f->judge.no_prov = o->no_prov;
	f->judge.task_s = o->task_s;
	f->judge.lease_s = o->lease_s;
	f->judge.seeded = o->seeded;
	f->judge.seed = o->seed;
	if (o->min_ms > o->max_ms) {
		err_set(e, CA_USAGE, "no time is between %g and %g ms",
			o->min_ms, o->max_ms);
		filter_close(f);
		return NULL;
	}
	if (!o->checks)
		f->wanted = (1u << FILTER_CHECKS) - 1;
	else if (parse_checks(f, o->checks, e)) {
		filter_close(f);
		return NULL;
	}
	return f;
}

void filter_close(struct filter *f)
{
	if (!f)
		return;
	while (f->all) {
		struct own_judge *own = f->all;

		f->all = own->next;
		judge_close(own->j);
		free(own);
	}
	pthread_key_delete(f->key);
	pthread_mutex_destroy(&f->lock);
	admission_release(&f->rooms);
	for (size_t i = 0; i < CLOCKS_GPUS; i++)
		clocks_release(&f->clocks[i]);
	free(f);
}

static struct judge *own_judge(struct filter *f, struct err *e)
{
	struct own_judge *own = pthread_getspecific(f->key);

	if (own)
		return own->j;
	own = calloc(1, sizeof(*own));
	if (!own) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	own->j = judge_open(&f->judge, e);
	if (!own->j || pthread_setspecific(f->key, own)) {
		judge_close(own->j);
		free(own);
		return NULL;
	}
	pthread_mutex_lock(&f->lock);
	own->next = f->all;
	f->all = own;
	pthread_mutex_unlock(&f->lock);
	return own->j;
}

void examine_count(double *to, int64_t began)
{
	*to += (double)(now_ns() - began) / 1e9;
}

int examine_hold(struct examine *x, enum device_hold how)
{
	struct err e = ERR_INIT;
	int64_t began = now_ns();
	int rc;

	if (x->held == HOLD_ALONE)
		clocks_leave(x->clocks, x->leads);
	rc = how == HOLD_ALONE ?
		clocks_enter(x->clocks, x->j->dev, x->o->lease_s, &x->leads,
			     &e) :
		device_hold(x->j->dev, how, x->o->lease_s, &e);
	examine_count(&x->waited[how == HOLD_ALONE ? WAIT_ALONE :
				 WAIT_SHARED], began);
	x->held = rc ? HOLD_NONE : how;
	x->since = now_ns();
	if (!rc)
		return 0;
	return fail_set(&x->fail, ST_INFRA_ERROR, 0, "%s", e.msg);
}

/* Lets those at the device who wait to be alone there: between two requests,
 * and where the judge works on its own. */
static int turn(void *ctx, enum turn at, struct fail *f)
{
	struct examine *x = ctx;
	int rc = 0;

	/* On the CPU what runs beside a clock is no matter of turns: every
	 * request takes long there. */
	if (!judge_on_cuda(x->j))
		return 0;
	if (at == TURN_REST)
		rc = examine_hold(x, HOLD_NONE);
	else if (at == TURN_BACK || (x->held == HOLD_SHARED &&
				     now_ns() - x->since >= TURN_NS))
		rc = examine_hold(x, HOLD_SHARED);
	if (rc)
		*f = x->fail;
	return rc;
}

/* All checks, until one fails. */
static void run_checks(struct examine *x)
{
	static const struct {
		int (*check)(struct examine *);
		enum filter_check first;
	} all[] = {
		{ check_contract, CHECK_CONTRACT },
		{ check_trace, CHECK_TRACE }, { check_eager, CHECK_EAGER },
		{ check_run, CHECK_FINITE }, { check_compile, CHECK_COMPILE },
		{ check_ties, CHECK_TIES }, { check_trivial, CHECK_TRIVIAL },
		{ check_guard, CHECK_GUARD },
	};
	size_t n = sizeof(all) / sizeof(*all);

	for (size_t i = 0; i < n && !stage_interrupted(); i++) {
		int64_t began = now_ns();
		int rc = all[i].check(x);

		examine_count(&x->spent[all[i].first], began);
		if (rc >= BROKEN || (rc && !x->o->exhaustive))
			break;
		memset(&x->fail, 0, sizeof(x->fail));
	}
}

static void shots_release(struct examine *x)
{
	shot_release(x->j, &x->want[0]);
	shot_release(x->j, &x->want[1]);
	shot_release(x->j, &x->got);
}

static void examine_clear(struct examine *x)
{
	json_free(x->graph);
	json_free(x->eager);
	json_free(x->timed);
	str_release(&x->checks);
	x->graph = x->eager = x->timed = NULL;
	x->reason = NULL;
	x->broken = x->oom = 0;
}

static void attempt(struct examine *x, int alone)
{
	int64_t asked = x->j->spent[SPENT_ORACLE];
	struct err e = ERR_INIT;
	int room;

	x->attempts++;
	clocks_task(x->clocks, 1);
	x->held = HOLD_NONE;
	x->want[0] = x->want[1] = x->got = (struct shot)SHOT_INIT;
	memset(&x->fail, 0, sizeof(x->fail));
	jw_init(&x->w, &x->checks);
	jw_obj(&x->w);
	if (room_enter(x->j, alone, x->o->lease_s, &room, &e)) {
		fail_set(&x->fail, ST_INFRA_ERROR, 0, "%s", e.msg);
		x->broken = 1;
	} else {
		run_checks(x);
	}
	jw_end_obj(&x->w);
	if (x->held == HOLD_ALONE)
		(void)examine_hold(x, HOLD_NONE);
	clocks_task(x->clocks, -1);
	x->asked += (double)(x->j->spent[SPENT_ORACLE] - asked) / 1e9;
	oracle_stop(x->j, &x->oracle);
	shots_release(x);
	/* Whose memory somebody waits for ends before that. */
	if (x->admitted || x->oom || alone)
		ahead_settle(x->j);
	x->j->dev->ops->unlease(x->j->dev);
	admission_leave(x->rooms, x->admitted);
	x->admitted = 0;
	room_leave(&room);
}

/* Once more, and alone, where the host was lost, the device gave up, or
 * memory was short on a device that others use. */
static void examine_task(struct examine *x)
{
	struct judge *j = x->j;

	attempt(x, 0);
	if ((!x->broken && !(x->oom && judge_on_cuda(j))) || j->no_torch ||
	    stage_interrupted())
		return;
	if (!host_alive(j))
		ahead_leave(j);
	if (j->dev->ops->recover(j->dev, NULL))
		return;
	examine_clear(x);
	attempt(x, 1);
}

static const char *const wait_names[FILTER_WAITS] = {
	"shared", "alone", "room",
};

static void write_options(const struct examine *x, struct jw *w)
{
	jw_key(w, "options");
	jw_obj(w);
	jw_knum(w, "min_ms", x->o->min_ms);
	jw_knum(w, "max_ms", x->o->max_ms);
	jw_kint(w, "max_mem", x->o->max_mem);
	jw_kbool(w, "exhaustive", x->o->exhaustive);
	jw_key(w, "checks");
	jw_arr(w);
	for (int c = 0; c < FILTER_CHECKS; c++)
		if (check_wanted(x, (enum filter_check)c))
			jw_str(w, check_name((enum filter_check)c));
	jw_end_arr(w);
	jw_end_obj(w);
}

static void write_where(const struct examine *x, struct jw *w)
{
	const struct judge *j = x->j;

	jw_kstr(w, "device", j->dev->ops->name);
	jw_kstr(w, "model", j->dev->model);
	jw_kstr(w, "torch", j->host ? torch_version(j->host) : NULL);
	jw_kstr(w, "jail", j->jail);
}

static const char *status_of(const struct examine *x)
{
	if (!x->t.code)
		return "bad_record";
	if (x->broken)
		return "infra_error";
	return x->reason ? "rejected" : "ok";
}

static double whole_ms(double seconds)
{
	return (double)(int64_t)(seconds * 1e3) / 1e3;
}

static void write_prov(const struct examine *x, int64_t began, struct jw *w)
{
	rec_begin_prov(w, began);
	jw_kint(w, "attempts", x->attempts);
	jw_key(w, "waited");
	jw_obj(w);
	for (int i = 0; i < FILTER_WAITS; i++)
		jw_knum(w, wait_names[i], whole_ms(x->waited[i]));
	jw_end_obj(w);
	jw_knum(w, "asked", whole_ms(x->asked));
	jw_key(w, "spent");
	jw_obj(w);
	for (int c = 0; c < FILTER_CHECKS; c++)
		if (x->spent[c] > 0)
			jw_knum(w, check_name((enum filter_check)c),
				whole_ms(x->spent[c]));
	jw_end_obj(w);
	jw_end_obj(w);
}

static void add_up(struct filter *f, const struct examine *x)
{
	pthread_mutex_lock(&f->lock);
	for (int i = 0; i < FILTER_CHECKS; i++)
		f->spent[i] += x->spent[i];
	for (int i = 0; i < FILTER_WAITS; i++)
		f->waited[i] += x->waited[i];
	f->asked += x->asked;
	pthread_mutex_unlock(&f->lock);
}

void filter_tell(const struct filter *f)
{
	struct str s = STR_INIT;

	for (int c = 0; c < FILTER_CHECKS; c++)
		if (f->spent[c] > 0)
			str_addf(&s, "%s %.1f, ",
				 check_name((enum filter_check)c),
				 f->spent[c]);
	str_addf(&s, "of it in the tasks' processes %.1f, waiting",
		 f->asked);
	for (int i = 0; i < FILTER_WAITS; i++)
		str_addf(&s, "%s %s %.1f", i ? "," : "", wait_names[i],
			 f->waited[i]);
	if (!s.failed)
		warn("seconds of all tasks: %s", s.buf);
	str_release(&s);
}

static void write_field(struct examine *x, int64_t began, struct jw *w)
{
	jw_obj(w);
	jw_kstr(w, "status", status_of(x));
	jw_kstr(w, "reason", x->broken ? NULL : x->reason);
	if (x->broken)
		jw_kstr(w, "text", x->fail.text);
	else if (x->reason)
		jw_kstr(w, "text", x->text);
	if (x->j) {
		jw_key(w, "checks");
		jw_raw(w, x->checks.buf, x->checks.len);
		write_where(x, w);
	}
	write_options(x, w);
	jw_kstr(w, "version", FILTER_VERSION);
	if (!x->o->no_prov)
		write_prov(x, began, w);
	jw_end_obj(w);
}

/* The operators that a call dispatched; else those of the trace. */
static int set_ops(struct examine *x, struct rec *r)
{
	const struct json *ops = json_get(x->eager ? x->eager : x->graph,
					  "ops");
	struct str s = STR_INIT;
	struct jw w;
	size_t n = 0;
	int rc;

	if (!ops)
		return 0;
	jw_init(&w, &s);
	jw_arr(&w);
	for (ops = json_first(ops); ops && n++ < OPS_MAX;
	     ops = json_next(ops))
		jw_node(&w, ops);
	jw_end_arr(&w);
	rc = s.failed ? -1 : rec_set(r, "ops", s.buf, s.len);
	str_release(&s);
	return rc;
}

static int set_fields(struct examine *x, struct rec *r, int64_t began,
		      struct err *e)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc = -1;

	jw_init(&w, &s);
	write_field(x, began, &w);
	if (!s.failed && !rec_set(r, "filter", s.buf, s.len) &&
	    !set_ops(x, r) && !task_keep(r, !strcmp(status_of(x), "ok")))
		rc = 0;
	str_release(&s);
	return rc ? err_set(e, CA_SOFTWARE, "out of memory") : 0;
}

int filter_record(struct filter *f, struct rec *r, struct err *e)
{
	struct examine *x = calloc(1, sizeof(*x));
	int64_t began = now_ns();
	int rc = 0;

	if (!x)
		return err_set(e, CA_SOFTWARE, "out of memory");
	x->rooms = &f->rooms;
	x->o = &f->o;
	x->wanted = f->wanted;
	task_read(r, &x->t);
	if (!x->t.code) {
		x->reason = check_name(CHECK_CONTRACT);
		strcpy(x->text, "the record has no code");
	} else {
		x->j = own_judge(f, e);
		if (!x->j) {
			free(x);
			return -1;
		}
		x->clocks = clocks_of(f->clocks, x->j->dev);
		x->j->turn = turn;
		x->j->turns = x;
		examine_task(x);
		x->j->turn = NULL;
		add_up(f, x);
		if (x->broken && x->j->no_torch)
			rc = err_set(e, x->j->no_torch, "%s", x->fail.text);
	}
	if (!rc)
		rc = set_fields(x, r, began, e);
	if (x->j)
		examine_clear(x);
	free(x);
	return rc;
}

const char *filter_word(const struct rec *r)
{
	struct json *f;
	const char *word = NULL, *reason;
	size_t len;
	const char *text = rec_text(r, "filter", &len);

	f = text ? json_parse(text, len, JSON_MAX_LINE, NULL, NULL) : NULL;
	reason = json_get_str(f, "reason", NULL);
	if (reason)
		for (int c = 0; c < FILTER_CHECKS; c++)
			if (!strcmp(reason, check_name((enum filter_check)c)))
				word = check_name((enum filter_check)c);
	if (f && !word)
		word = strcmp(json_get_str(f, "status", ""), "ok") ?
			"infra_error" : "kept";
	json_free(f);
	return word;
}
