/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/admin.h"

#include <string.h>

#include "base/io.h"
#include "rec/json.h"
#include "serve/fault.h"

#define JSON "application/json"
#define TEXT "text/plain; version=0.0.4; charset=utf-8"

static void write_model(const struct core *c, struct jw *w)
{
	jw_obj(w);
	jw_kstr(w, "id", c->o.name);
	jw_kstr(w, "object", "model");
	jw_kint(w, "created", c->started);
	jw_kstr(w, "owned_by", "cuda-agent");
	jw_kint(w, "max_model_len", gen_ctx(c->gen[0]));
	jw_end_obj(w);
}

static void write_models(const struct core *c, struct str *out)
{
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w);
	jw_kstr(&w, "object", "list");
	jw_key(&w, "data");
	jw_arr(&w);
	write_model(c, &w);
	jw_end_arr(&w);
	jw_end_obj(&w);
}

/* Asleep is healthy: what comes waits. */
static int write_health(struct core *c, struct str *out)
{
	struct gen_stats s;
	struct jw w;
	int draining;

	core_stats(c, &s);
	pthread_mutex_lock(&c->lock);
	draining = c->draining;
	pthread_mutex_unlock(&c->lock);
	jw_init(&w, out);
	jw_obj(&w);
	jw_kstr(&w, "status", draining ? "draining" : s.asleep ? "asleep" :
		"ok");
	jw_kint(&w, "weight_version", (int64_t)s.weights.version);
	jw_end_obj(&w);
	return draining ? 503 : 200;
}

static void metric(struct str *out, const char *name, const char *type,
		   const char *help, double value)
{
	str_addf(out, "# HELP ca_serve_%s %s\n# TYPE ca_serve_%s %s\n"
		 "ca_serve_%s %.17g\n", name, help, name, type, name, value);
}

/* How the work is shared. */
static void write_replicas(struct core *c, struct str *out)
{
	struct gen_stats s;

	str_adds(out, "# HELP ca_serve_replica_tokens_total tokens drawn by "
		 "each replica\n"
		 "# TYPE ca_serve_replica_tokens_total counter\n");
	for (int i = 0; i < c->ngens; i++) {
		gen_get_stats(c->gen[i], &s);
		str_addf(out, "ca_serve_replica_tokens_total{replica=\"%d\"} "
			 "%llu\n", i, (unsigned long long)s.new_tokens);
	}
}

static void write_metrics(struct core *c, struct str *out)
{
	struct gen_stats s;
	uint64_t answered[6];
	double prepare_s;

	core_stats(c, &s);
	pthread_mutex_lock(&c->lock);
	prepare_s = c->prepare_s;
	memcpy(answered, c->answered, sizeof answered);
	pthread_mutex_unlock(&c->lock);
	str_adds(out, "# HELP ca_serve_answers_total answers by status\n"
		 "# TYPE ca_serve_answers_total counter\n");
	for (int i = 2; i < 6; i++)
		str_addf(out, "ca_serve_answers_total{status=\"%dxx\"} %llu\n",
			 i, (unsigned long long)answered[i]);
#define COUNTER(name, help, value) \
	metric(out, name, "counter", help, (double)(value))
#define GAUGE(name, help, value) \
	metric(out, name, "gauge", help, (double)(value))
	COUNTER("completions_total", "completions that ended", s.requests);
	COUNTER("cancelled_total", "of them, cut short by their clients or a "
		"stop text", s.cancelled);
	COUNTER("failed_total", "of them, failed in the engine", s.failed);
	COUNTER("prompt_tokens_total", "tokens of prompts", s.prompt_tokens);
	COUNTER("cached_tokens_total", "of them, found in the cache",
		s.shared_tokens);
	COUNTER("new_tokens_total", "tokens drawn", s.new_tokens);
	COUNTER("steps_total", "steps of the engine", s.steps);
	COUNTER("busy_seconds_total", "seconds in steps", s.busy_s);
	COUNTER("prepare_seconds_total", "seconds from a whole body until its "
		"prompts are tokens", prepare_s);
	COUNTER("preemptions_total", "sequences put off for want of pages",
		s.put_off);
	GAUGE("requests", "requests that are not answered yet", core_live(c));
	GAUGE("replicas", "of the model, each on a device", c->ngens);
	GAUGE("running", "sequences being computed", s.running);
	GAUGE("waiting", "sequences that wait", s.waiting);
	GAUGE("pages", "pages of the cache of keys and values", s.pages);
	GAUGE("pages_free", "of them, held by no sequence", s.free_pages);
	GAUGE("asleep", "1 between /sleep and /wake", s.asleep);
	GAUGE("weight_version", "version of the weights", s.weights.version);
	GAUGE("reload_seconds", "pause of the last /reload", s.reload_s);
#undef COUNTER
#undef GAUGE
	if (c->ngens > 1)
		write_replicas(c, out);
}

static int is_our_model(const struct core *c, const char *path)
{
	static const char one[] = "/v1/models/";

	return starts_with(path, one) &&
	       !strcmp(path + strlen(one), c->o.name);
}

int admin_is_page(const struct core *c, const char *path)
{
	return !strcmp(path, "/v1/models") || !strcmp(path, "/health") ||
	       !strcmp(path, "/metrics") || is_our_model(c, path);
}

int admin_get(struct core *c, const char *path, struct str *out,
	      const char **type)
{
	struct jw w;

	*type = JSON;
	if (!strcmp(path, "/health"))
		return write_health(c, out);
	if (!strcmp(path, "/metrics")) {
		*type = TEXT;
		write_metrics(c, out);
	} else if (is_our_model(c, path)) {
		jw_init(&w, out);
		write_model(c, &w);
	} else {
		write_models(c, out);
	}
	return 200;
}

enum order { RELOAD, SLEEP, WAKE, ORDERS };

static enum order order_of(const char *path)
{
	static const char *const paths[ORDERS] = { "/reload", "/sleep",
		"/wake" };
	int i = 0;

	while (i < ORDERS && strcmp(path, paths[i]))
		i++;
	return (enum order)i;
}

int admin_is_order(const char *path)
{
	return order_of(path) != ORDERS;
}

/* The members that an order may have: /reload's model. */
static int read_order(const struct json *root, int reload,
		      const char **model, struct fault *f)
{
	*model = NULL;
	if (root && json_type(root) != JSON_OBJECT)
		return fault_set(f, 400, "invalid_json", NULL, "the body is "
				 "no JSON object");
	for (const struct json *j = json_first(root); j; j = json_next(j)) {
		if (!reload || strcmp(json_key(j), "model"))
			return fault_set(f, 400, "unknown_parameter",
					 json_key(j), "unknown parameter: "
					 "'%s'", json_key(j));
		*model = json_str(j, "");
		if (!**model)
			return fault_set(f, 400, "invalid_type", "model",
					 "'model' has to be a folder's name");
	}
	return 0;
}

static int obey(struct core *c, enum order what, const char *model,
		struct fault *f)
{
	struct err e = ERR_INIT;
	int rc = 0;

	if (what == RELOAD)
		rc = gen_reload(c->gen, c->ngens, model, &e);
	else if (what == WAKE)
		rc = gen_wake(c->gen, c->ngens, &e);
	/* All of them, whatever one says. */
	for (int i = 0; what == SLEEP && i < c->ngens; i++)
		rc |= gen_sleep(c->gen[i], rc ? NULL : &e);
	return rc ? fault_of(f, &e, what == RELOAD ? "model" : NULL) : 0;
}

int admin_order(struct core *c, const char *path, const char *body,
		size_t len, struct str *out)
{
	enum order what = order_of(path);
	struct json *root = NULL;
	struct err e = ERR_INIT;
	struct fault f = { 0 };
	struct gen_stats s;
	const char *model;
	struct jw w;

	if (len && !(root = json_parse(body, len, JSON_MAX_LINE, NULL, &e)))
		fault_set(&f, 400, "invalid_json", NULL, "the body is no "
			  "JSON: %s", e.msg);
	if (f.status || read_order(root, what == RELOAD, &model, &f) ||
	    obey(c, what, model, &f)) {
		fault_write(&f, out);
		json_free(root);
		return f.status;
	}
	json_free(root);
	core_stats(c, &s);
	jw_init(&w, out);
	jw_obj(&w);
	jw_kbool(&w, "asleep", s.asleep);
	jw_kint(&w, "weight_version", (int64_t)s.weights.version);
	if (what == RELOAD)
		jw_knum(&w, "pause_s", s.reload_s);
	jw_end_obj(&w);
	return 200;
}

void admin_status(struct core *c, struct str *out)
{
	struct gen_stats s;
	double rate = 0;
	int64_t now = now_ns();

	core_stats(c, &s);
	if (c->shown_at)
		rate = (double)(s.new_tokens - c->shown_tokens) * 1e9 /
		       (double)(now - c->shown_at);
	c->shown_at = now;
	c->shown_tokens = s.new_tokens;
	str_addf(out, "%s%d running, %d waiting, %.1f tokens/s, cache %d %%, "
		 "weights %llu, %llu completions", s.asleep ? "asleep, " : "",
		 s.running, s.waiting, rate, s.pages ? 100 *
		 (s.pages - s.free_pages) / s.pages : 0,
		 (unsigned long long)s.weights.version,
		 (unsigned long long)s.requests);
}
