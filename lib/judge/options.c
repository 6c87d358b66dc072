/* SPDX-License-Identifier: Apache-2.0
 *
 * What the judging tools share.
 */
#include "judge/options.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build/cache.h"
#include "build/device.h"
#include "build/tasks.h"
#include "build/workdir.h"
#include "judge/ahead.h"
#include "judge/chain.h"

#define REST_MS 1000
#define YIELD_MS 100		/* a context takes 60 */

int judging_init(struct judging *g, struct judge_opts *o,
		 const struct common *c, struct err *e)
{
	g->o = o;
	g->j = NULL;
	g->host = NULL;
	g->tasks = NULL;
	g->crew = NULL;
	g->gpus.n = 0;
	o->seeded = c->seeded;
	o->seed = c->seed;
	o->no_prov = c->no_prov;
	if (o->no_jail)
		warn("--no-jail: candidates run with your rights; what they "
		     "report is not to be trusted");
	if ((o->device && device_check(o->device, e)) || cache_limit(NULL, e))
		return -1;
	if (o->tasks)
		g->tasks = tasks_read(o->tasks, e);
	return o->tasks && !g->tasks ? -1 : 0;
}

struct judge *judging_open(struct judging *g, struct err *e)
{
	if (g->j)
		return g->j;
	g->j = judge_open(g->o, e);
	if (g->j)
		judge_adopt(g->j, g->host);
	else
		torch_close(g->host);
	g->host = NULL;
	return g->j;
}

/* The driver makes contexts side by side, so that all are late: those who time
 * let those before them in a pipeline have theirs first. */
static void yield(const struct judging *g, struct pollfd *in)
{
	const char *d = g->o->device ? g->o->device : device_default();

	if (strcmp(d, "cpu") && ahead_wanted())
		(void)poll(in, 1, YIELD_MS);
}

void judging_warm(struct judging *g, const char *role, int times, int waits)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
	struct stat st;

	/* Failures show when host and device are needed. */
	if (fstat(STDIN_FILENO, &st) || !S_ISFIFO(st.st_mode) ||
	    poll(&p, 1, 0) != 0)
		return;
	g->host = torch_start(role, !g->o->no_jail, NULL);
	if (times)
		yield(g, &p);
	if (judging_open(g, NULL) && waits)
		judge_begin(g->j, STDIN_FILENO, times);
}

void judging_rest(struct judging *g, int fd, int times)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (g->crew || !g->j || judge_rest_until(g->j, fd))
		return;
	/* Not at once: who reads what was just judged may want the device. */
	if (ahead_parks(g->j) && poll(&p, 1, REST_MS) == 0)
		judge_begin(g->j, fd, times);
}

static int pass_on(void *ctx, struct rec *r, struct err *e)
{
	struct judging *g = ctx;

	return crew_record(g->crew, r, e);
}

void judging_written(void *ctx)
{
	struct judging *g = ctx;

	judge_rest(g->j);
}

static void leave(void *ctx)
{
	judging_close(ctx);
}

static void begin(void *ctx, size_t i)
{
	struct judging *g = ctx;

	g->o->device = spread_device(&g->gpus, i, g->o->device, g->gpu);
}

/* Whether one candidate is all that may come. */
static int is_one(const struct common *c, char *const *operands)
{
	struct stat st;

	return c->limit == 1 || (operands[0] && !operands[1] &&
				 !stat(operands[0], &st) &&
				 S_ISDIR(st.st_mode));
}

int judging_share(struct judging *g, struct stage_ops *ops, struct common *c,
		  char *const *operands, struct err *e)
{
	const struct crew_ops o = { .begin = begin, .record = ops->record,
				    .rest = judging_written, .leave = leave,
				    .ctx = g };
	int any = !g->o->device || !strcmp(g->o->device, "cuda");
	size_t n, share;

	if (c->jobs > 1 && c->seeded)
		return err_set(e, CA_USAGE, "-j and --seed exclude each "
			       "other: who judges what would decide");
	if (any && c->jobs != 1 && !c->seeded && !is_one(c, operands))
		spread_find(&g->gpus);
	n = spread_judges(&g->gpus, (size_t)c->jobs);
	if (n < 2)
		return 0;
	share = spread_share(&g->gpus, n);
	/* All of a device may time before the last one does. */
	g->o->lease_s *= (double)share;
	g->o->shares = share > 1;
	g->crew = crew_open(n, &o, e);
	if (!g->crew)
		return -1;
	c->jobs = (int64_t)n;
	ops->record = pass_on;
	ops->ctx = g;
	return 0;
}

void judging_close(struct judging *g)
{
	crew_close(g->crew);
	g->crew = NULL;
	judge_end(g->j);
	torch_close(g->host);
	g->j = NULL;
	g->host = NULL;
	tasks_free(g->tasks);
	g->tasks = NULL;
}

int judging_complete(struct judging *g, struct rec *r, struct err *e)
{
	return tasks_complete(g->tasks, r, e);
}

int judging_directory(void *ctx, const char *path, struct rec *r,
		      struct err *e)
{
	(void)ctx;
	return workdir_read(path, r, e);
}

int judging_wants(void *ctx, enum rec_kind k)
{
	(void)ctx;
	return k == REC_CANDIDATE;
}

/* A candidate's words: whatever lines they have, they stay below its name. */
static void add_words(struct str *out, const char *text)
{
	for (; *text; text++) {
		str_addc(out, *text);
		if (*text == '\n' && text[1])
			str_adds(out, "    ");
	}
}

static void explain_build(const struct json *b, struct str *out)
{
	const struct json *er = json_get(b, "error");
	const char *file = json_get_str(er, "file", NULL);
	const char *log = json_get_str(b, "log", NULL);

	if (file)
		str_addf(out, "  %s:%lld: ", file,
			 (long long)json_get_int(er, "line", 0));
	else
		str_adds(out, "  ");
	add_words(out, json_get_str(er, "message", "no message"));
	str_addc(out, '\n');
	if (log && *log) {
		str_adds(out, "    ");
		add_words(out, log);
		if (!ends_with(log, "\n"))
			str_addc(out, '\n');
	}
}

/* A number as records have it: also "nan", "inf", "-inf", [re, im]; null is
 * one that is not finite. */
static void add_number(struct str *out, const struct json *n, int digits)
{
	switch (json_type(n)) {
	case JSON_NUMBER:
		str_addf(out, "%.*g", digits, json_num(n, 0));
		break;
	case JSON_STRING:
		str_adds(out, json_str(n, ""));
		break;
	case JSON_ARRAY:
		str_addc(out, '(');
		for (n = json_first(n); n; n = json_next(n)) {
			add_number(out, n, digits);
			str_adds(out, json_next(n) ? ", " : ")");
		}
		break;
	default:
		str_adds(out, "not finite");
		break;
	}
}

/* Of a result with another shape nothing was compared. */
static int compared(const struct json *t)
{
	return json_get(t, "norm_error") ||
	       json_get_num(t, "max_abs", 1) != 0 ||
	       json_get_int(t, "misses", 0) > 0;
}

static int is_exact(const char *dtype)
{
	return starts_with(dtype, "int") || starts_with(dtype, "uint") ||
	       !strcmp(dtype, "bool");
}

/* How far off a result was: the worst of all rounds. */
static void explain_errors(const struct json *t, struct str *out)
{
	const struct json *own = json_get(t, "fp64_error");
	const char *dtype = json_get_str(t, "dtype", "?");

	str_addf(out, "  result %s (%s): errors up to ",
		 json_get_str(t, "path", "?"), dtype);
	add_number(out, json_get(t, "max_abs"), 3);
	str_adds(out, ", relative ");
	add_number(out, json_get(t, "max_rel"), 3);
	if (json_type(json_get(t, "norm_error")) == JSON_NUMBER)
		str_addf(out, ", of the norm %.3g",
			 json_get_num(t, "norm_error", 0));
	if (json_type(own) == JSON_NUMBER)
		str_addf(out, "; against double precision %.3g times the "
			 "reference's own", json_num(own, 0));
	if (is_exact(dtype))
		str_adds(out, "; it has to be equal\n");
	else
		str_addf(out, "; allowed %.3g + %.3g of the value\n",
			 json_get_num(t, "atol", 0),
			 json_get_num(t, "rtol", 0));
}

static void explain_tensor(const struct json *t, struct str *out)
{
	const struct json *m = json_get(t, "first_miss");

	explain_errors(t, out);
	if (json_get_int(t, "misses", 0) <= 0 || !m)
		return;
	str_addf(out, "    %lld elements missed; first at [",
		 (long long)json_get_int(t, "misses", 0));
	for (const struct json *i = json_first(json_get(m, "index")); i;
	     i = json_next(i))
		str_addf(out, "%lld%s", (long long)json_int(i, 0),
			 json_next(i) ? ", " : "");
	str_adds(out, "]: got ");
	add_number(out, json_get(m, "got"), 9);
	str_adds(out, ", wanted ");
	add_number(out, json_get(m, "want"), 9);
	str_adds(out, ", allowed +-");
	add_number(out, json_get(m, "allowed"), 3);
	str_addc(out, '\n');
}

static void explain(const struct rec *r, struct str *out)
{
	struct json *b = chain_field(r, "build");
	struct json *v = chain_field(r, "verify");
	const char *built = json_get_str(b, "status", "ok");
	const char *st = json_get_str(v, "status", built);
	const char *phase = json_get_str(v, "phase", "");
	const struct json *t;

	str_add_name(out, rec_name(r));
	if (v || strcmp(built, "ok"))
		str_addf(out, ": %s (%s)\n", st,
			 status_meaning(status_parse(st)));
	else
		str_adds(out, ": not judged\n");
	if (strcmp(built, "ok")) {
		explain_build(b, out);
	} else if (strcmp(st, "ok")) {
		str_addf(out, "  %s%s%s", *phase ? "in " : "", phase,
			 *phase ? ": " : "");
		add_words(out, json_get_str(v, "text", ""));
		str_addc(out, '\n');
	}
	t = json_first(json_get(v, "tensors"));
	for (; t; t = json_next(t))
		if (!strcmp(st, "ok") || compared(t))
			explain_tensor(t, out);
	json_free(b);
	json_free(v);
}

void judge_explain(const struct rec *r, struct str *out)
{
	struct str text = STR_INIT;

	explain(r, &text);
	if (text.failed)
		out->failed = 1;
	else
		str_add_safe(out, text.buf, text.len);
	str_release(&text);
}
