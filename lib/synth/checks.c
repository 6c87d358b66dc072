/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks of a task.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "judge/families.h"
#include "judge/trial.h"
#include "synth/examine.h"

#define SEED_A 0x7a5c0001u
#define SEED_B 0x7a5c0002u
#define SEED_C 0x7a5c1000u
#define SEED_FORWARD 0x7a5cf000u
#define SEED_WEIGHTS 0x7a5c5000u
#define AXES 4
#define INPUTS 4
#define TIMES 64
#define FEW_BYTES 1024		/* of results, of which there are more draws */
#define DRAWS 4
#define COPIES 11		/* that a task takes of its inputs' size, if its
				 * result is as large: images, answers and what
				 * they are made from */
#define FREE 0.93		/* part of the GPU's memory that is to be had */
#define SMALL 0.01		/* and that nobody is asked for */

static const char *const names[FILTER_CHECKS] = {
	"contract", "trace", "eager", "time", "memory", "mutation", "finite",
	"random", "compile", "ties", "trivial", "guard",
};

const char *check_name(enum filter_check c)
{
	return names[c];
}

int check_wanted(const struct examine *x, enum filter_check c)
{
	return x->wanted >> c & 1;
}

/* Begins the member of a check; numbers may follow, then close_check. */
static void open_check(struct examine *x, enum filter_check c, int ok)
{
	jw_key(&x->w, names[c]);
	jw_obj(&x->w);
	jw_kbool(&x->w, "ok", ok);
}

static void close_check(struct examine *x, const char *text)
{
	if (text && *text)
		jw_kstr(&x->w, "text", text);
	jw_end_obj(&x->w);
}

static int reject(struct examine *x, enum filter_check c, const char *text)
{
	if (!x->reason) {
		x->reason = names[c];
		snprintf(x->text, sizeof(x->text), "%s", text);
	}
	return REJECT;
}

/* What a request that failed means for a check. */
static int failed(struct examine *x, enum filter_check c)
{
	struct fail *f = &x->fail;

	x->oom |= f->oom;
	if (f->fault && !host_alive(x->j)) {
		x->broken = 1;
		return BROKEN;
	}
	if (f->status == ST_INFRA_ERROR && !f->fault) {
		x->broken = 1;
		return BROKEN;
	}
	open_check(x, c, 0);
	if (f->phase)
		jw_kstr(&x->w, "phase", phase_name(f->phase));
	close_check(x, f->text);
	reject(x, c, f->text);
	/* Answered in words: it lives. */
	return f->phase ? REJECT : BROKEN;
}

static int ask(struct examine *x, struct json **told, const char *fmt, ...)
	CA_PRINTF(3, 4);

static int ask(struct examine *x, struct json **told, const char *fmt, ...)
{
	struct str req = STR_INIT;
	char text[256];
	va_list ap;
	int rc;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	str_adds(&req, text);
	json_free(*told);
	*told = NULL;
	rc = oracle_ask(x->j, &x->oracle, &req, told, &x->fail);
	str_release(&req);
	return rc;
}

/* A task that is loaded waits until it has room beside those that this process
 * works on.  Meanwhile it takes little, and whoever is to make room may be
 * alone. */
static int admit(struct examine *x)
{
	double most = room_total(x->j) * FREE;
	double bytes = (double)oracle_loaded(&x->oracle) * COPIES;
	struct json *told = NULL;
	struct err e = ERR_INIT;
	int64_t began;
	int rc;

	if (bytes <= most * SMALL)
		return 0;
	rc = ask(x, &told, "{\"op\":\"rest\"}");
	json_free(told);
	if (rc || examine_hold(x, HOLD_NONE))
		return -1;
	bytes = bytes < most ? bytes : most;
	began = now_ns();
	rc = admission_enter(x->rooms, bytes, most, x->o->lease_s, &e);
	examine_count(&x->waited[WAIT_ROOM], began);
	if (rc)
		return fail_set(&x->fail, ST_INFRA_ERROR, 0, "%s", e.msg);
	x->admitted = bytes;
	return examine_hold(x, HOLD_SHARED);
}

int check_contract(struct examine *x)
{
	struct fail *f = &x->fail;

	/* On a GPU the process begins with a context there; a host that has
	 * to start first is not waited for with the lease. */
	if (host_ready(x->j, f) || examine_hold(x, HOLD_SHARED) ||
	    oracle_open(x->j, &x->oracle, "task",
			check_wanted(x, CHECK_COMPILE), f)) {
		x->broken = 1;
		return BROKEN;
	}
	if (oracle_load(x->j, &x->oracle, x->t.code, x->t.len, f)) {
		failed(x, CHECK_CONTRACT);
		return BROKEN;
	}
	if (judge_on_cuda(x->j) && admit(x)) {
		x->broken = 1;
		return BROKEN;
	}
	if (check_wanted(x, CHECK_CONTRACT)) {
		open_check(x, CHECK_CONTRACT, 1);
		jw_kint(&x->w, "state", (int64_t)json_len(json_get(
			x->oracle.spec, "state")));
		jw_kint(&x->w, "inputs", (int64_t)json_len(json_path(
			x->oracle.spec, "inputs.args")));
		close_check(x, NULL);
	}
	return PASS;
}

int check_trace(struct examine *x)
{
	if (!check_wanted(x, CHECK_TRACE))
		return PASS;
	if (ask(x, &x->graph, "{\"op\":\"graph\"}")) {
		if (!x->fail.phase)
			return failed(x, CHECK_TRACE);
		/* Not every good task can be traced. */
		jw_key(&x->w, names[CHECK_TRACE]);
		jw_obj(&x->w);
		jw_key(&x->w, "ok");
		jw_null(&x->w);
		jw_kstr(&x->w, "graph", NULL);
		close_check(x, x->fail.text);
		return PASS;
	}
	open_check(x, CHECK_TRACE, 1);
	jw_kstr(&x->w, "graph", json_get_str(x->graph, "hash", ""));
	jw_kint(&x->w, "nodes", json_get_int(x->graph, "nodes", 0));
	jw_key(&x->w, "ops");
	jw_node(&x->w, json_get(x->graph, "ops"));
	close_check(x, NULL);
	return PASS;
}

static int number_order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The median of an array of numbers; NaN without any. */
static double median(const struct json *list, double *least)
{
	double v[TIMES];
	size_t n = 0;

	for (const struct json *i = json_first(list); i && n < TIMES;
	     i = json_next(i))
		v[n++] = json_num(i, NAN);
	if (!n)
		return NAN;
	qsort(v, n, sizeof(*v), number_order);
	*least = v[0];
	return n & 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static int check_time(struct examine *x)
{
	double least = NAN;
	const struct json *us = json_get(x->timed, "us");
	double ms = median(us, &least) / 1e3;
	/* On the CPU others disturb most calls. */
	double what = judge_on_cuda(x->j) ? ms : least / 1e3;
	int ok = what >= x->o->min_ms && what <= x->o->max_ms;
	char text[128];

	if (!check_wanted(x, CHECK_TIME))
		return PASS;
	snprintf(text, sizeof(text), "%.3g ms is not within %g to %g ms",
		 what, x->o->min_ms, x->o->max_ms);
	open_check(x, CHECK_TIME, ok);
	jw_knum(&x->w, "ms", ms);
	jw_knum(&x->w, "min_ms", least / 1e3);
	jw_kint(&x->w, "calls", (int64_t)json_len(us));
	close_check(x, ok ? NULL : text);
	return ok ? PASS : reject(x, CHECK_TIME, text);
}

static int check_memory(struct examine *x)
{
	double bytes = json_get_num(x->timed, "peak", NAN);
	int ok = bytes <= (double)x->o->max_mem;
	char text[128];

	if (!check_wanted(x, CHECK_MEMORY))
		return PASS;
	snprintf(text, sizeof(text), "%.0f MiB is more than %.0f MiB",
		 bytes / 1048576, (double)x->o->max_mem / 1048576);
	open_check(x, CHECK_MEMORY, ok);
	jw_kint(&x->w, "bytes", (int64_t)bytes);
	close_check(x, ok ? NULL : text);
	return ok ? PASS : reject(x, CHECK_MEMORY, text);
}

static int check_mutation(struct examine *x)
{
	int ok = !json_get_int(x->eager, "modified", 0);
	const char *text = "forward modifies its inputs";

	if (!check_wanted(x, CHECK_MUTATION))
		return PASS;
	open_check(x, CHECK_MUTATION, ok);
	close_check(x, ok ? NULL : text);
	return ok ? PASS : reject(x, CHECK_MUTATION, text);
}

int check_eager(struct examine *x)
{
	/* A GPU's calls are alike; on the CPU the quickest is looked for. */
	double most = judge_on_cuda(x->j) ? 0.05 : 0.3;
	double budget = x->o->max_ms * 10 / 1e3;
	int rc = PASS;

	budget = budget < 0.1 ? 0.1 : budget;
	budget = budget > most ? most : budget;
	if (ask(x, &x->eager, "{\"op\":\"eager\",\"seed\":\"%u\"}", SEED_A))
		return failed(x, CHECK_EAGER);
	/* Nobody else works while the clock runs, and it runs for little of
	 * what a task takes. */
	if (examine_hold(x, HOLD_ALONE)) {
		x->broken = 1;
		return BROKEN;
	}
	rc = ask(x, &x->timed, "{\"op\":\"clock\",\"budget\":%.3f}", budget);
	if (rc)
		rc = failed(x, CHECK_EAGER);
	if (examine_hold(x, HOLD_SHARED)) {
		x->broken = 1;
		return BROKEN;
	}
	if (rc)
		return rc;
	if (check_wanted(x, CHECK_EAGER)) {
		open_check(x, CHECK_EAGER, 1);
		jw_kint(&x->w, "ops", (int64_t)json_len(json_get(x->eager,
								 "ops")));
		close_check(x, NULL);
	}
	rc = check_time(x);
	if (rc == PASS || x->o->exhaustive)
		rc |= check_memory(x);
	if (rc == PASS || x->o->exhaustive)
		rc |= check_mutation(x);
	return rc;
}

/* Answers for seeds and precisions; a missing one is 1 as in shot_take. */
static int take(struct examine *x, uint64_t forward, const char *precision,
		struct shot *s)
{
	int rc = shot_take(x->j, &x->oracle, SEED_FORWARD + forward,
			   precision, s, &x->fail);

	x->oom |= rc > 0 && s->m.end == END_OOM;
	return rc;
}

static int inputs(struct examine *x, uint64_t seed, const char *family)
{
	return oracle_inputs(x->j, &x->oracle, seed, family, 1, &x->fail);
}

static int compare_shots(struct examine *x, const struct shot *got,
			 const struct shot *want, const struct shot *fp64,
			 struct shot_cmp *c)
{
	return shot_compare(x->j, got, want, fp64, c, &x->fail);
}

static int check_finite(struct examine *x, const struct shot_cmp *c)
{
	const char *text = "a result is empty or holds nothing finite";

	if (!check_wanted(x, CHECK_FINITE))
		return PASS;
	open_check(x, CHECK_FINITE, c->finite);
	close_check(x, c->finite ? NULL : text);
	return c->finite ? PASS : reject(x, CHECK_FINITE, text);
}

static int check_random(struct examine *x, const struct shot_cmp *c)
{
	/* Two values in one place: a GPU keeps now this one, now that. */
	int twice = json_get_int(x->eager, "writes", 0) > 1;
	int ok = c->same && !twice;
	const char *text = twice ?
		"several values are written to one place, in no order" :
		"two calls on the same inputs differ";

	if (!check_wanted(x, CHECK_RANDOM))
		return PASS;
	open_check(x, CHECK_RANDOM, ok);
	jw_knum(&x->w, "difference", c->worst);
	close_check(x, ok ? NULL : text);
	return ok ? PASS : reject(x, CHECK_RANDOM, text);
}

int check_run(struct examine *x)
{
	struct shot_cmp c;
	int rc;

	if (oracle_run(x->j, &x->oracle, &x->fail) ||
	    inputs(x, SEED_B, "plain") || take(x, 1, "native", &x->want[1]) ||
	    inputs(x, SEED_A, "plain") || take(x, 1, "native", &x->want[0]))
		return failed(x, CHECK_FINITE);
	rc = take(x, 2, "native", &x->got);
	if (!rc)
		rc = compare_shots(x, &x->got, &x->want[0], NULL, &c);
	if (rc)
		return failed(x, CHECK_FINITE);
	rc = check_finite(x, &c);
	if (rc == PASS || x->o->exhaustive)
		rc |= check_random(x, &c);
	return rc;
}

/* Whether eager and torch.compile agree; where they do not, whether fp64
 * takes compile's side. */
static int agree(struct examine *x, struct shot *s, struct shot_cmp *c)
{
	struct shot wide = SHOT_INIT;
	int rc = compare_shots(x, s, &x->want[0], NULL, c);

	if (!rc && !c->accepted && !take(x, 1, "fp64", &wide))
		rc = compare_shots(x, s, &x->want[0], &wide, c);
	shot_release(x->j, &wide);
	return rc;
}

static int judge_compile(struct examine *x, int rc, const struct shot *s,
			 const struct shot_cmp *c)
{
	const char *text = rc ? s->m.text : c->text;
	struct json *told = NULL;
	double least;
	int ok = !rc && c->accepted;

	if (ok && ask(x, &told, "{\"op\":\"compiled\",\"budget\":%g}",
		      judge_on_cuda(x->j) ? 0.03 : 0.1))
		return failed(x, CHECK_COMPILE);
	open_check(x, CHECK_COMPILE, ok);
	if (ok) {
		jw_knum(&x->w, "ms", median(json_get(told, "us"), &least) /
			1e3);
		jw_knum(&x->w, "difference", c->worst);
	}
	close_check(x, ok ? NULL : text);
	json_free(told);
	return ok ? PASS : reject(x, CHECK_COMPILE, text);
}

/* Compiles, which is no work for the device: 1 when it does not (x->fail says
 * why), -1. */
static int compile(struct examine *x)
{
	struct json *told = NULL;
	int rc;

	if (examine_hold(x, HOLD_NONE))
		return -1;
	x->j->o.task_s = x->o->compile_s;
	rc = ask(x, &told, "{\"op\":\"compile\"}");
	x->j->o.task_s = x->o->task_s;
	json_free(told);
	if (rc)
		return x->fail.phase && !x->fail.fault ? 1 : -1;
	return examine_hold(x, HOLD_SHARED) ? -1 : 0;
}

static int refuse_compile(struct examine *x)
{
	x->oom |= x->fail.oom;
	open_check(x, CHECK_COMPILE, 0);
	close_check(x, x->fail.text);
	reject(x, CHECK_COMPILE, x->fail.text);
	/* What follows, if anything does, works on the device. */
	return examine_hold(x, HOLD_SHARED) ? BROKEN : REJECT;
}

int check_compile(struct examine *x)
{
	struct shot *s = &x->got;
	struct shot_cmp c = { 0 };
	int rc;

	if (!check_wanted(x, CHECK_COMPILE))
		return PASS;
	rc = compile(x);
	if (rc > 0)
		return refuse_compile(x);
	if (!rc)
		rc = take(x, 1, "compiled", s);
	s->m.text[sizeof(s->m.text) - 1] = '\0';
	if (rc < 0 || (!rc && agree(x, s, &c)))
		return failed(x, CHECK_COMPILE);
	return judge_compile(x, rc, s, &c);
}

static int has_index(const struct shot *s)
{
	for (uint32_t i = 0; i < s->m.nleaf; i++) {
		enum ca_dtype t = s->m.leaf[i].dtype;

		if (s->m.leaf[i].kind == LEAF_TENSOR && t != DT_BOOL &&
		    !dtype_is_float(t) && !dtype_is_complex(t))
			return 1;
	}
	return 0;
}

/* Indices among equal values: torch.compile need not choose as eager does. */
int check_ties(struct examine *x)
{
	struct shot eager = SHOT_INIT, other = SHOT_INIT;
	struct shot_cmp c = { .accepted = 1 };
	const char *text = "which index it gives hangs on the order of equal "
		"values";
	int rc = 0;

	if (!check_wanted(x, CHECK_TIES) || !check_wanted(x, CHECK_COMPILE))
		return PASS;
	if (has_index(&x->want[0])) {
		rc = inputs(x, SEED_A, "tied");
		if (!rc)
			rc = take(x, 1, "native", &eager);
		if (!rc)
			rc = take(x, 1, "compiled", &other);
		if (!rc)
			rc = compare_shots(x, &other, &eager, NULL, &c);
	}
	shot_release(x->j, &eager);
	shot_release(x->j, &other);
	/* A reference may refuse such inputs. */
	if (rc < 0 && !x->fail.phase)
		return failed(x, CHECK_TIES);
	open_check(x, CHECK_TIES, c.accepted);
	close_check(x, c.accepted ? NULL : text);
	return c.accepted ? PASS : reject(x, CHECK_TIES, text);
}

/* The triviality family. */
struct trivial {
	char precision[16];
	int other;		/* made from the other inputs' result */
	int invariance;		/* right when it is the same result */
	int out;		/* told apart, or there is no such answer */
};

#define ANSWERS (4 + AXES + 2 * INPUTS)

static void list_answers(struct trivial *t)
{
	static const struct trivial plain[] = {
		{ "zeros", 0, 0, 0 }, { "swapped", 0, 1, 0 },
		{ "scaled", 0, 1, 0 }, { "mean", 1, 0, 0 },
	};

	memcpy(t, plain, sizeof(plain));
	t += sizeof(plain) / sizeof(*plain);
	for (int k = 0; k < AXES + 2 * INPUTS; k++, t++) {
		const char *name = k < AXES ? "slice" :
			k < AXES + INPUTS ? "copy" : "multiple";

		*t = (struct trivial){ .other = k < AXES };
		snprintf(t->precision, sizeof(t->precision), "%s:%d", name,
			 k < AXES ? k : (k - AXES) % INPUTS);
	}
}

/* Tries one answer against the result for inputs i; those it is made from
 * are at hand. */
static int try_answer(struct examine *x, struct trivial *t, int i)
{
	struct shot_cmp c;
	int rc = take(x, 1, t->precision, &x->got);

	if (!rc)
		rc = compare_shots(x, &x->got, &x->want[i], NULL, &c);
	if (rc < 0)
		memset(&c, 0, sizeof(c));
	t->out = rc || !c.accepted || (t->invariance && c.same);
	return rc < 0 ? -1 : 0;
}

/* Those that are not out yet and are made from these inputs. */
static int is_next(const struct trivial *t, int other)
{
	return !t->out && t->other == other;
}

/* The task's process, which makes the answers, sees at a glance that most of
 * them are none: no need to have all of them here. */
static int rule_out(struct examine *x, struct trivial *t, int other,
		    uint64_t want)
{
	struct str req = STR_INIT;
	struct json *told = NULL;
	struct jw w;
	int rc;

	jw_init(&w, &req);
	jw_obj(&w);
	jw_kstr(&w, "op", "answers");
	jw_ku64(&w, "want", want);
	jw_ku64(&w, "forward_seed", SEED_FORWARD + 1);
	jw_key(&w, "names");
	jw_arr(&w);
	for (int k = 0; k < ANSWERS; k++)
		if (is_next(&t[k], other))
			jw_str(&w, t[k].precision);
	jw_end_arr(&w);
	jw_end_obj(&w);
	rc = oracle_ask(x->j, &x->oracle, &req, &told, &x->fail);
	for (const struct json *n = json_first(json_get(told, "out")); n;
	     n = json_next(n))
		for (int k = 0; k < ANSWERS; k++)
			t[k].out |= is_next(&t[k], other) &&
				!strcmp(t[k].precision, json_str(n, ""));
	json_free(told);
	str_release(&req);
	return rc;
}

/* For both inputs in turn: each is in hand once for the answers that are made
 * from it. */
static int try_case(struct examine *x, struct trivial *t, int i)
{
	static const uint64_t seed[2] = { SEED_A, SEED_B };

	for (int other = 0; other < 2; other++) {
		int left = 0;

		for (int k = 0; k < ANSWERS; k++)
			left |= is_next(&t[k], other);
		if (left && (inputs(x, seed[i ^ other], "plain") ||
			     rule_out(x, t, other, seed[i])))
			return -1;
		for (int k = 0; k < ANSWERS; k++)
			if (is_next(&t[k], other) && try_answer(x, &t[k], i))
				return -1;
	}
	return 0;
}

/* Another model's weights: the same inputs, other state. */
static int accepts_weights(struct examine *x)
{
	struct shot_cmp c;
	int rc, yes = 0;

	if (!x->oracle.param_bytes)
		return 0;
	rc = oracle_state(x->j, &x->oracle, SEED_WEIGHTS, 1, &x->fail);
	if (!rc)
		rc = inputs(x, SEED_A, "plain");
	if (!rc)
		rc = take(x, 1, "native", &x->got);
	if (!rc) {
		rc = compare_shots(x, &x->got, &x->want[0], NULL, &c);
		yes = !rc && c.accepted;
	}
	if (!rc)
		rc = oracle_state(x->j, &x->oracle, 0, 0, &x->fail);
	return rc < 0 ? -1 : yes;
}

/* Whether further inputs' results pass for one of the two in hand: of a few
 * numbers, two draws may differ by chance. */
static int accepts_others(struct examine *x)
{
	struct shot_cmp c;
	int yes = 0;

	if (x->oracle.expect_bytes > FEW_BYTES)
		return 0;
	for (uint64_t k = 0; k < DRAWS && !yes; k++) {
		if (inputs(x, SEED_C + k, "plain") ||
		    take(x, 1, "native", &x->got))
			return -1;
		for (int i = 0; i < 2; i++) {
			if (compare_shots(x, &x->got, &x->want[i], NULL, &c))
				return -1;
			yes |= c.accepted;
		}
	}
	return yes;
}

static void note(struct str *accepted, const char *name)
{
	str_addf(accepted, "%s%s", accepted->len ? " " : "", name);
}

static int try_answers(struct examine *x, struct str *accepted)
{
	struct trivial t[ANSWERS];
	struct shot_cmp c;
	int rc;

	list_answers(t);
	if (try_case(x, t, 0) || try_case(x, t, 1) ||
	    compare_shots(x, &x->want[1], &x->want[0], NULL, &c))
		return -1;
	for (int k = 0; k < ANSWERS; k++)
		if (!t[k].out)
			note(accepted, t[k].precision);
	rc = c.accepted ? 1 : accepts_others(x);
	if (rc < 0)
		return -1;
	if (rc)
		note(accepted, "other_input");
	rc = accepts_weights(x);
	if (rc > 0)
		note(accepted, "other_weights");
	return rc < 0 ? -1 : 0;
}

int check_trivial(struct examine *x)
{
	struct str accepted = STR_INIT;
	char text[CA_TEXT];
	int ok;

	if (!check_wanted(x, CHECK_TRIVIAL))
		return PASS;
	if (try_answers(x, &accepted)) {
		str_release(&accepted);
		return failed(x, CHECK_TRIVIAL);
	}
	/* An answer that found no memory is none that was told apart. */
	if (x->oom)
		note(&accepted, "unknown");
	ok = !accepted.len;
	snprintf(text, sizeof(text), "passes at 1e-2%s: %s",
		 x->oom ? ", or is too large to be tried" : "",
		 ok ? "" : accepted.buf);
	open_check(x, CHECK_TRIVIAL, ok);
	jw_kstr(&x->w, "accepted", ok ? NULL : accepted.buf);
	close_check(x, ok ? NULL : text);
	str_release(&accepted);
	return ok ? PASS : reject(x, CHECK_TRIVIAL, text);
}

int check_guard(struct examine *x)
{
	struct guard_result g;
	double least = 1;
	int ok;

	if (!check_wanted(x, CHECK_GUARD))
		return PASS;
	shot_release(x->j, &x->got);	/* it may need much memory */
	if (guard_look(x->j, &x->oracle, x->t.id, &g, &x->fail))
		return failed(x, CHECK_GUARD);
	ok = !g.invalid && !g.no_finite;
	for (size_t i = 0; i < g.nleaf; i++)
		if (g.leaf[i].factor < least)
			least = g.leaf[i].factor;
	open_check(x, CHECK_GUARD, ok);
	jw_knum(&x->w, "factor", least);
	close_check(x, ok ? NULL : g.text);
	return ok ? PASS : reject(x, CHECK_GUARD, g.text);
}
