/* SPDX-License-Identifier: Apache-2.0
 *
 * From a record to its `reward` field: whom to believe, when to judge again.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/opt.h"
#include "reward/fields.h"
#include "reward/reward.h"

static const char *const uses_build[] = { "build", NULL };
static const char *const uses_verify[] = { "build", "verify", NULL };
static const char *const uses_all[] = { "build", "verify", "profile", NULL };

struct json *fields_get(const struct rec *r, const char *name)
{
	size_t len;
	const char *text = rec_text(r, name, &len);

	return text ? json_parse(text, len, JSON_MAX_LINE, NULL, NULL) : NULL;
}

enum status fields_status(const struct json *field)
{
	return status_parse(json_get_str(field, "status", NULL));
}

/* Unconfined results can be anything. */
static int confined(const struct json *field, const struct reward_rules *rules)
{
	const char *jail = json_get_str(field, "jail", "none");

	return rules->allow_no_jail || !strcmp(jail, "full") ||
	       !strcmp(jail, "uid");
}

static int acceptable(const struct json *field,
		      const struct reward_rules *rules)
{
	const struct json *o = json_get(field, "options");

	return confined(field, rules) &&
	       (rules->allow_literal || !json_get_bool(o, "literal", 0)) &&
	       (rules->allow_trivial ||
		!json_get_bool(o, "allow_trivial", 0));
}

/* `verify` was made by the rules that count here. */
static int same_rules(const struct rec *r, const struct json *verify,
		      const struct reward_rules *rules)
{
	const char *want = rules->rules ? rules->rules :
		json_str(rec_get(r, "rules"), "paper");

	return !strcmp(json_get_str(verify, "rules", ""), want);
}

static int field_believed(const struct rec *r, const char *name,
			  const char *const *uses,
			  const struct reward_rules *rules,
			  const struct mac_key *key, enum status *s)
{
	struct json *f;
	int ok;

	*s = ST_NONE;
	if (!mac_check(key, r, name, uses))
		return 0;
	f = fields_get(r, name);
	*s = fields_status(f);
	ok = f && acceptable(f, rules) &&
	     (strcmp(name, "verify") || same_rules(r, f, rules));
	json_free(f);
	return ok;
}

/* The mac of `verify` covers `build`, so what that says can be read. */
static int build_confined(const struct rec *r,
			  const struct reward_rules *rules)
{
	struct json *b = fields_get(r, "build");
	int ok = !b || confined(b, rules);

	json_free(b);
	return ok;
}

int reward_believes(const struct rec *r, const struct reward_rules *rules,
		    const struct mac_key *key)
{
	enum status s;

	if (!build_confined(r, rules) ||
	    !field_believed(r, "verify", uses_build, rules, key, &s))
		return 0;
	if (s != ST_OK)
		return 1;
	return field_believed(r, "profile", uses_verify, rules, key, &s);
}

static void write_speedup(struct jw *w, const char *key, double x)
{
	jw_key(w, key);
	if (isfinite(x))
		jw_num(w, x);
	else
		jw_null(w);
}

static void write_options(struct jw *w, const struct reward_rules *rules)
{
	int milestone = rules->scheme == SCHEME_MILESTONE;
	int compile = rules->over == OVER_COMPILE;

	jw_kstr(w, "scheme", milestone ? "milestone" : "raw");
	jw_key(w, "options");
	jw_obj(w);
	if (!milestone)
		jw_kstr(w, "over", compile ? "compile" : "eager");
	jw_kstr(w, "clock", rules->clock == CLOCK_BRACKET ? "bracket" :
		"device-sum");
	jw_kbool(w, "point_estimate", rules->point_estimate);
	jw_kbool(w, "same_math", rules->same_math);
	jw_kbool(w, "no_folding", rules->no_folding);
	jw_kbool(w, "allow_replay", rules->allow_replay);
	jw_kbool(w, "allow_shared", rules->allow_shared);
	jw_kbool(w, "literal", rules->allow_literal);
	jw_kbool(w, "allow_trivial", rules->allow_trivial);
	jw_kbool(w, "no_jail", rules->allow_no_jail);
	jw_end_obj(w);
}

static void write_prov(struct jw *w)
{
	time_t now = time(NULL);
	char date[32] = "";
	struct tm tm;

	if (gmtime_r(&now, &tm))
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
	jw_key(w, "prov");
	jw_obj(w);
	jw_kstr(w, "date", date);
	jw_end_obj(w);
}

static void write_reward(struct jw *w, const struct reward *v,
			 const struct reward_rules *rules, int no_prov)
{
	jw_obj(w);
	jw_key(w, "value");
	if (v->known)
		jw_num(w, v->value);
	else
		jw_null(w);
	jw_kstr(w, "reason", v->reason);
	jw_kbool(w, "provisional", v->provisional);
	if (v->trivial_task)
		jw_kbool(w, "trivial_task", 1);
	jw_key(w, "speedup");
	jw_obj(w);
	write_speedup(w, "eager", v->eager);
	write_speedup(w, "compile", v->compile);
	jw_end_obj(w);
	write_options(w, rules);
	jw_kstr(w, "version", ca_version);
	if (!no_prov)
		write_prov(w);
	jw_end_obj(w);
}

static void unjudged(struct reward *v)
{
	memset(v, 0, sizeof(*v));
	v->eager = v->compile = NAN;
	strcpy(v->reason, "not judged by anybody with this key");
}

int reward_record(struct rec *r, const struct reward_rules *rules,
		  const struct mac_key *key, reward_judge *judge, void *ctx,
		  int no_prov, struct err *e)
{
	struct str out = STR_INIT;
	struct reward v;
	struct jw w;
	int believed = reward_believes(r, rules, key), rc;

	if (rec_true_ids(r))
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (!believed && judge) {
		if (judge(ctx, r, e))
			return -1;
		believed = 1;
	}
	if (believed)
		reward_compute(r, rules, &v);
	else
		unjudged(&v);
	jw_init(&w, &out);
	write_reward(&w, &v, rules, no_prov);
	rc = out.failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     mac_set(key, r, "reward", out.buf, out.len, uses_all, e);
	str_release(&out);
	return rc;
}

int reward_value(const struct rec *r, double *value)
{
	struct json *f = fields_get(r, "reward");
	double x = json_get_num(f, "value", NAN);

	json_free(f);
	if (isnan(x))
		return 0;
	*value = x;
	return 1;
}
