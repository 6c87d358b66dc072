/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules.
 */
#include "reward/reward.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "judge/stats.h"
#include "reward/fields.h"

enum reward_worth reward_worth(enum status s)
{
	switch (s) {
	case ST_OK:
		return WORTH_MILESTONE;
	case ST_INCONCLUSIVE_TIME:
		return WORTH_BOUND;
	case ST_NONE:
	case ST_INFRA_ERROR:
	case ST_INVALID_REFERENCE:
		return WORTH_NOTHING;
	default:
		return WORTH_FAILURE;
	}
}

static void is_null(struct reward *w, const char *reason)
{
	w->known = 0;
	snprintf(w->reason, sizeof(w->reason), "%s", reason);
}

static void is_worth(struct reward *w, double value, const char *reason)
{
	w->known = 1;
	w->value = value;
	snprintf(w->reason, sizeof(w->reason), "%s", reason);
}

/* Failures and what is nobody's fault.  1 when that settles it. */
static int by_status(struct reward *w, enum status s)
{
	char text[200];

	if (s == ST_NONE)
		snprintf(text, sizeof(text), "its status is not known");
	else
		snprintf(text, sizeof(text), "%s: %s", status_name(s),
			 status_meaning(s));
	switch (reward_worth(s)) {
	case WORTH_FAILURE:
		is_worth(w, -1, text);
		return 1;
	case WORTH_NOTHING:
		is_null(w, text);
		return 1;
	default:
		return 0;
	}
}

/* How a candidate stands to one baseline. */
struct gain {
	int known;
	double point, lower;	/* (t0 - t)/t0; lower NaN: no bound */
};

/* From {point, lower, upper[, gain{point, lower, upper}]} of speedups. */
static void read_gain(const struct json *s, struct gain *g)
{
	const struct json *own = json_get(s, "gain");
	double point = json_get_num(s, "point", NAN);
	double lower = json_get_num(s, "lower", NAN);

	g->point = json_get_num(own, "point", 1 - 1 / point);
	g->lower = json_get_num(own, "lower", 1 - 1 / lower);
	g->known = isfinite(g->point);
}

static void gain_of_times(double t, double t0, struct gain *g)
{
	g->point = t > 0 ? (t0 - t) / t0 : NAN;
	g->lower = NAN;
	g->known = isfinite(g->point) && t0 > 0;
}

/* What `speedup` of the profile says, by the clock that was asked for. */
static const char *by_clock(const struct json *profile,
			    const struct reward_rules *rules,
			    struct gain *eager, struct gain *compile)
{
	const struct json *s = json_get(profile, "speedup");
	const struct json *sum = json_get(profile, "device_sum_us");
	double t;

	if (rules->clock == CLOCK_DEVICE_SUM)
		s = json_get(profile, "device_speedup");
	read_gain(json_get(s, "eager"), eager);
	read_gain(json_get(s, "compile"), compile);
	if (rules->clock != CLOCK_DEVICE_SUM)
		return eager->known ? NULL : "the profile has no speedups";
	t = json_get_num(sum, "candidate", NAN);
	if (!(t > 0))
		return "the profile has no device times";
	if (!s && !rules->point_estimate)
		return "device times carry no bounds: "
		       "they need --point-estimate";
	if (!s) {
		gain_of_times(t, json_get_num(sum, "eager", NAN), eager);
		gain_of_times(t, json_get_num(sum, "compile", NAN), compile);
	}
	return eager->known ? NULL : "the profile has no device times";
}

/* -1: not a mode that we know. */
static int looseness(const char *mode)
{
	static const char *const modes[] = { "fp32", "tf32", "fp16", "bf16" };
	static const int loose[] = { 0, 1, 2, 2 };

	for (size_t i = 0; mode && i < sizeof(modes) / sizeof(*modes); i++)
		if (!strcmp(mode, modes[i]))
			return loose[i];
	return -1;
}

/* Replaces a gain by that over the baseline in the candidate's own mode where
 * the candidate's is looser. */
static const char *one_same_math(const struct json *profile, const char *who,
				 struct gain *g)
{
	const struct json *m = json_get(profile, "math");
	const struct json *s = json_get(json_get(profile, "same_math"), who);
	int own = looseness(json_get_str(m, "candidate", NULL));
	int base = looseness(json_get_str(m, who, NULL));

	if (!g->known)
		return NULL;
	if (own < 0 || base < 0)
		return "the profile does not say in which math each "
		       "competitor computed";
	if (own <= base)
		return NULL;
	read_gain(s, g);
	return g->known ? NULL :
	       "the profile has no times of the baselines in the candidate's "
	       "math";
}

static const char *by_math(const struct json *profile,
			   const struct reward_rules *rules,
			   struct gain *eager, struct gain *compile)
{
	const char *why;

	if (!rules->same_math)
		return NULL;
	if (!strcmp(json_get_str(profile, "device", ""), "cpu"))
		return "--same-math is for CUDA: on the CPU nothing tells in "
		       "which math a kernel computed";
	if (rules->clock == CLOCK_DEVICE_SUM)
		return "same-mode baselines have no device times";
	why = one_same_math(profile, "eager", eager);
	return why ? why : one_same_math(profile, "compile", compile);
}

/* The number that counts: the bound, or the median where that was asked for
 * (times too short for the clock count by their bound all the same) or where
 * a quick profile has too few rounds for bounds. */
static double counting(const struct gain *g, const struct reward_rules *rules,
		       enum status timing, int provisional)
{
	if (!g->known)
		return NAN;
	if (isfinite(g->lower) &&
	    (!rules->point_estimate || timing == ST_INCONCLUSIVE_TIME))
		return g->lower;
	return rules->point_estimate || provisional ? g->point : NAN;
}

/* Of a gain that its bound does not clear; "" where the median is none
 * either. */
static const char *unproven(const struct gain *g, char *text, size_t len)
{
	double lower = stats_speedup(g->lower);

	*text = '\0';
	if (!g->known || !(g->point > STATS_GAIN))
		return text;
	if (isfinite(g->lower) && lower > 0)
		snprintf(text, len, "%.2fx measured, at least %.2fx",
			 stats_speedup(g->point), lower);
	else
		snprintf(text, len, "%.2fx measured, no bound",
			 stats_speedup(g->point));
	return text;
}

/* `e` and `c` are what counts of `eager` and `compile`. */
static void milestone(struct reward *w, const struct gain *eager, double e,
		      const struct gain *compile, double c,
		      const char *no_compile)
{
	char text[200], why[80];

	if (!(e > STATS_GAIN) && c > STATS_GAIN) {
		is_worth(w, 1, "faster than torch.compile only");
	} else if (!(e > STATS_GAIN)) {
		unproven(eager, why, sizeof(why));
		snprintf(text, sizeof(text), "right, and %s%s", *why ?
			 "not proven to be more than 5 % faster than eager: " :
			 "not more than 5 % faster than eager", why);
		is_worth(w, 1, text);
	} else if (c > STATS_GAIN) {
		is_worth(w, 3, "more than 5 % faster than eager and "
			 "torch.compile");
	} else if (no_compile) {
		snprintf(text, sizeof(text), "more than 5 %% faster than "
			 "eager; no torch.compile: %s", no_compile);
		is_worth(w, 2, text);
	} else {
		unproven(compile, why, sizeof(why));
		snprintf(text, sizeof(text), "more than 5 %% faster than "
			 "eager, not %s torch.compile%s%s", *why ?
			 "proven to be so over" : "than", *why ? ": " : "",
			 why);
		is_worth(w, 2, text);
	}
}

static void raw(struct reward *w, const struct reward_rules *rules)
{
	double value = rules->over == OVER_EAGER ? w->eager : w->compile;

	if (!isfinite(value))
		is_null(w, "no torch.compile to compare with: "
			"--scheme raw needs --over eager");
	else
		is_worth(w, value, rules->over == OVER_EAGER ?
			 "speedup over eager" : "speedup over torch.compile");
}

/* Continuous speedups: medians over rounds, except that a time too short for
 * the clock counts by its bound. */
static double speedup_of(const struct gain *g, enum status timing)
{
	if (!g->known)
		return NAN;
	if (timing == ST_INCONCLUSIVE_TIME && isfinite(g->lower))
		return stats_speedup(g->lower);
	return g->point < 1 ? stats_speedup(g->point) : NAN;
}

static void by_times(const struct json *verify, const struct json *profile,
		     const struct reward_rules *rules, enum status timing,
		     struct reward *w)
{
	const char *gone = json_get_str(profile, "compile_reason", "");
	struct gain eager, compile;
	const char *why = by_clock(profile, rules, &eager, &compile);

	if (!why)
		why = by_math(profile, rules, &eager, &compile);
	if (why) {
		is_null(w, why);
		return;
	}
	w->eager = speedup_of(&eager, timing);
	w->compile = speedup_of(&compile, timing);
	if (timing == ST_INCONCLUSIVE_TIME) {
		/* The bound is all that was measured. */
		eager.point = fmin(eager.point, eager.lower);
		compile.point = fmin(compile.point, compile.lower);
	}
	if (rules->scheme == SCHEME_RAW)
		raw(w, rules);
	else
		milestone(w, &eager,
			  counting(&eager, rules, timing, w->provisional),
			  &compile,
			  counting(&compile, rules, timing, w->provisional),
			  compile.known ? NULL : gone);
	if (rules->no_folding && w->known && w->value > 1 &&
	    json_get_bool(verify, "folded", 0))
		is_worth(w, 1, "parameters are folded: at most 1 under "
			 "--no-folding");
}

static int replayed(const struct json *field)
{
	const struct json *seed = json_path(field, "options.seed");

	return seed && json_type(seed) != JSON_NULL;
}

static void decide(const struct json *verify, const struct json *profile,
		   const struct reward_rules *rules, struct reward *w)
{
	enum status v = fields_status(verify), p = fields_status(profile);

	/* Sums of device times the worker tells: no ground for pay. */
	w->provisional = json_get_bool(profile, "provisional", 0) ||
			 (profile && rules->clock == CLOCK_DEVICE_SUM);
	if (!rules->allow_replay && (replayed(verify) || replayed(profile))) {
		is_null(w, "a replay (--seed) is not paid");
		return;
	}
	if (by_status(w, v))
		return;
	if (p == ST_NONE) {
		is_null(w, "verified, but not profiled");
		return;
	}
	/* What is wrong is wrong in company too. */
	if ((p == ST_OK || p == ST_INCONCLUSIVE_TIME || p == ST_BELOW_FLOOR) &&
	    !rules->allow_shared && json_get_bool(profile, "contended", 0)) {
		is_null(w, "somebody else used the device while it was timed");
		return;
	}
	if (!by_status(w, p))
		by_times(verify, profile, rules, p, w);
}

void reward_compute(const struct rec *r, const struct reward_rules *rules,
		    struct reward *out)
{
	struct json *verify = fields_get(r, "verify");
	struct json *profile = fields_get(r, "profile");

	memset(out, 0, sizeof(*out));
	out->eager = out->compile = NAN;
	out->trivial_task = json_get_bool(verify, "trivial_task", 0);
	if (!verify)
		is_null(out, "not judged");
	else
		decide(verify, profile, rules, out);
	/* What is wrong stays so, however it was timed. */
	out->provisional &= !out->known || out->value >= 0;
	json_free(verify);
	json_free(profile);
}
