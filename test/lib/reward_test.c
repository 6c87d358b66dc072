/* SPDX-License-Identifier: Apache-2.0
 *
 * Records are signed here with a key of our own, as earlier stages would.
 */
#include "reward/reward.h"

#include "tests.h"

#include <math.h>
#include <stdio.h>

static const struct mac_key key = { { 1, 2, 3 }, 1 };
static const char *const uses_build[] = { "build", NULL };
static const char *const uses_verify[] = { "build", "verify", NULL };

#define BUILD "{\"status\":\"ok\",\"jail\":\"full\"}"
#define VERIFY_OPTS "\"rules\":\"paper\",\"jail\":\"full\"," \
	"\"options\":{\"literal\":false,\"allow_trivial\":false,\"seed\":null}"
#define VERIFY "{\"status\":\"ok\"," VERIFY_OPTS ",\"folded\":false," \
	"\"trivial_task\":false}"
#define PROFILE_OPTS "\"jail\":\"full\",\"options\":{\"seed\":null}," \
	"\"provisional\":false,\"contended\":false"
#define GAINS(el, ep, cl, cp) "\"speedup\":{" \
	"\"eager\":{\"point\":2,\"lower\":1.5,\"upper\":3,\"gain\":" \
	"{\"point\":" #ep ",\"lower\":" #el ",\"upper\":0.9}}," \
	"\"compile\":{\"point\":2,\"lower\":1.5,\"upper\":3,\"gain\":" \
	"{\"point\":" #cp ",\"lower\":" #cl ",\"upper\":0.9}}}"
#define PROFILE(gains) "{\"status\":\"ok\"," PROFILE_OPTS "," gains "}"
#define FAST PROFILE(GAINS(0.4, 0.5, 0.4, 0.5))

static void make(struct rec *r, const char *verify, const char *profile)
{
	static const char line[] = "{\"kind\":\"candidate\",\"v\":1,"
		"\"id\":\"x\",\"name\":\"n\",\"task\":{\"code\":\"t\"},"
		"\"files\":{\"a\":\"b\"},\"build\":" BUILD "}";
	struct err e = ERR_INIT;
	size_t at;

	rec_init(r);
	assert_int_equal(rec_parse(r, line, strlen(line), &at, &e), 0);
	if (verify)
		assert_int_equal(mac_set(&key, r, "verify", verify,
					 strlen(verify), uses_build, &e), 0);
	if (profile)
		assert_int_equal(mac_set(&key, r, "profile", profile,
					 strlen(profile), uses_verify, &e),
				 0);
}

static struct reward worth(const char *verify, const char *profile,
			   const struct reward_rules *rules)
{
	struct reward w;
	struct rec r;

	make(&r, verify, profile);
	reward_compute(&r, rules, &w);
	rec_release(&r);
	return w;
}

static const struct reward_rules plain;

static void expect(const char *profile, const struct reward_rules *rules,
		   double value)
{
	struct reward w = worth(VERIFY, profile, rules);

	if (!w.known || w.value != value)
		print_message("# %s\n# %s\n", profile, w.reason);
	assert_true(w.known);
	assert_true(w.value == value);
}

static void expect_null(const char *verify, const char *profile,
			const struct reward_rules *rules, const char *reason)
{
	struct reward w = worth(verify, profile, rules);

	assert_false(w.known);
	assert_string_equal(w.reason, reason);
}

static void milestones_by_lower_bounds(void **s)
{
	static const struct {
		const char *profile;
		double bound, point;
	} cases[] = {
		{ PROFILE(GAINS(0.4, 0.5, 0.4, 0.5)), 3, 3 },
		{ PROFILE(GAINS(0.4, 0.5, 0.04, 0.06)), 2, 3 },
		{ PROFILE(GAINS(0.4, 0.5, -0.2, -0.1)), 2, 2 },
		{ PROFILE(GAINS(0.04, 0.06, 0.4, 0.5)), 1, 3 },
		{ PROFILE(GAINS(0.04, 0.045, 0.4, 0.5)), 1, 1 },
		{ PROFILE(GAINS(0.05, 0.05, 0.05, 0.05)), 1, 1 },
		{ PROFILE(GAINS(0.0500001, 0.051, 0.05, 0.05)), 2, 2 },
		{ PROFILE(GAINS(-3, -2, -3, -2)), 1, 1 },
	};
	struct reward_rules point = { .point_estimate = 1 };

	(void)s;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		expect(cases[i].profile, &plain, cases[i].bound);
		expect(cases[i].profile, &point, cases[i].point);
	}
}

static void reason_of(const char *profile, const char *reason)
{
	struct reward w = worth(VERIFY, profile, &plain);

	assert_string_equal(w.reason, reason);
}

static void reasons_tell_what_is_not_proven(void **s)
{
	(void)s;
	reason_of(PROFILE(GAINS(-0.25, 0.6, 0.4, 0.5)),
		  "faster than torch.compile only");
	reason_of(PROFILE(GAINS(-0.25, 0.6, -0.25, 0.5)),
		  "right, and not proven to be more than 5 % faster than "
		  "eager: 2.50x measured, at least 0.80x");
	reason_of(PROFILE(GAINS(-0.25, 0.05, -0.25, 0.5)),
		  "right, and not more than 5 % faster than eager");
	reason_of(PROFILE(GAINS(0.4, 0.5, 0, 0.2)),
		  "more than 5 % faster than eager, not proven to be so over "
		  "torch.compile: 1.25x measured, at least 1.00x");
}

/* Without `gain` the speedups themselves say it: 1/0.95 is 5 %. */
static void speedups_alone_are_enough(void **s)
{
	(void)s;
	expect(PROFILE("\"speedup\":{\"eager\":{\"point\":1.2,\"lower\":1.06,"
		       "\"upper\":1.3},\"compile\":{\"point\":1.1,\"lower\":"
		       "1.05,\"upper\":1.2}}"), &plain, 2);
}

static void statuses(void **s)
{
	char verify[300], profile[700];
	struct reward w;

	(void)s;
	for (int i = 0; i < ST_COUNT; i++) {
		enum status st = (enum status)i;

		snprintf(verify, sizeof(verify), "{\"status\":\"%s\","
			 VERIFY_OPTS "}", status_name(st));
		if (st != ST_OK && st != ST_INCONCLUSIVE_TIME) {
			w = worth(verify, NULL, &plain);
			assert_int_equal(w.known, st != ST_INFRA_ERROR &&
					 st != ST_INVALID_REFERENCE);
			assert_true(!w.known || w.value == -1);
			assert_true(starts_with(w.reason, status_name(st)));
		}
		snprintf(profile, sizeof(profile), "{\"status\":\"%s\","
			 PROFILE_OPTS "," GAINS(0.4, 0.5, 0.01, 0.5) "}",
			 status_name(st));
		w = worth(VERIFY, profile, &plain);
		if (reward_worth(st) == WORTH_NOTHING)
			assert_false(w.known);
		else
			assert_true(w.value == (reward_worth(st) ==
						WORTH_FAILURE ? -1 : 2));
	}
	assert_int_equal(reward_worth(ST_NONE), WORTH_NOTHING);
}

/* A time that the clock cannot tell counts by its bound, medians or not. */
static void short_times_count_by_their_bound(void **s)
{
	struct reward_rules point = { .point_estimate = 1 };
	struct reward_rules raw = { .scheme = SCHEME_RAW };
	const char *p = "{\"status\":\"inconclusive_time\"," PROFILE_OPTS ","
		GAINS(0.4, 0.5, 0.01, 0.5) "}";

	(void)s;
	expect(p, &plain, 2);
	expect(p, &point, 2);
	expect(p, &raw, 1 / (1 - 0.01));
}

static void a_missing_compile_is_worth_two_at_most(void **s)
{
	const char *p = PROFILE("\"compile_reason\":\"it timed out\","
		"\"speedup\":{\"eager\":{\"point\":2,\"lower\":1.9,"
		"\"upper\":2.1},\"compile\":null}");
	struct reward_rules raw = { .scheme = SCHEME_RAW };
	struct reward_rules over = { .scheme = SCHEME_RAW,
				     .over = OVER_EAGER };
	struct reward w = worth(VERIFY, p, &plain);

	(void)s;
	assert_true(w.value == 2 && isnan(w.compile));
	assert_string_equal(w.reason, "more than 5 % faster than eager; no "
			    "torch.compile: it timed out");
	expect_null(VERIFY, p, &raw, "no torch.compile to compare with: "
		    "--scheme raw needs --over eager");
	expect(p, &over, 2);
}

static void raw_speedups(void **s)
{
	struct reward_rules raw = { .scheme = SCHEME_RAW };

	(void)s;
	expect(PROFILE(GAINS(0.7, 0.75, 0.4, 0.5)), &raw, 2);
	raw.over = OVER_EAGER;
	expect(PROFILE(GAINS(0.7, 0.75, 0.4, 0.5)), &raw, 4);
	assert_true(worth("{\"status\":\"oom\"," VERIFY_OPTS "}", NULL,
			  &raw).value == -1);
}

/* Two rounds have no bounds; what a try is worth is then a guess, and says
 * so. */
static void quick_profiles_are_provisional(void **s)
{
	const char *p = "{\"status\":\"ok\",\"jail\":\"full\","
		"\"provisional\":true,\"speedup\":{\"eager\":{\"point\":2,"
		"\"lower\":null,\"upper\":null,\"gain\":{\"point\":0.5,"
		"\"lower\":null,\"upper\":null}},\"compile\":null}}";
	const char *full = PROFILE("\"speedup\":{\"eager\":{\"point\":2,"
		"\"lower\":null,\"upper\":null},\"compile\":null}");
	struct reward w = worth(VERIFY, p, &plain);

	(void)s;
	assert_true(w.known && w.value == 2 && w.provisional);
	w = worth(VERIFY, full, &plain);
	assert_true(w.known && w.value == 1 && !w.provisional);
	/* Worth nothing, it is still no more than a try. */
	w = worth(VERIFY, "{\"status\":\"ok\",\"jail\":\"full\","
		  "\"provisional\":true,\"contended\":true}", &plain);
	assert_true(!w.known && w.provisional);
	w = worth(VERIFY, "{\"status\":\"ok\",\"jail\":\"full\","
		  "\"provisional\":false,\"contended\":true}", &plain);
	assert_true(!w.known && !w.provisional);
}

static void folding_can_be_capped(void **s)
{
	const char *folded = "{\"status\":\"ok\"," VERIFY_OPTS
		",\"folded\":true}";
	struct reward_rules cap = { .no_folding = 1 };

	(void)s;
	assert_true(worth(folded, FAST, &plain).value == 3);
	assert_true(worth(folded, FAST, &cap).value == 1);
	expect(FAST, &cap, 3);
}

static void what_is_not_paid(void **s)
{
	static const char verify_seed[] = "{\"status\":\"ok\",\"jail\":"
		"\"full\",\"options\":{\"seed\":\"7\"}}";
	static const char profile_seed[] = "{\"status\":\"ok\",\"jail\":"
		"\"full\",\"options\":{\"seed\":\"7\"},"
		GAINS(0.4, 0.5, 0.4, 0.5) "}";
	static const char shared[] = "{\"status\":\"ok\",\"jail\":\"full\","
		"\"contended\":true," GAINS(0.4, 0.5, 0.4, 0.5) "}";
	static const char wrong[] = "{\"status\":\"non_finite\",\"jail\":"
		"\"full\",\"contended\":true}";
	static const char replay[] = "a replay (--seed) is not paid";
	struct reward_rules lax = { .allow_replay = 1, .allow_shared = 1 };

	(void)s;
	expect_null(verify_seed, FAST, &plain, replay);
	expect_null(VERIFY, profile_seed, &plain, replay);
	assert_true(worth(verify_seed, FAST, &lax).value == 3);
	expect(profile_seed, &lax, 3);
	expect_null(VERIFY, shared, &plain,
		    "somebody else used the device while it was timed");
	expect(wrong, &plain, -1);
	expect(shared, &lax, 3);
	expect_null(VERIFY, NULL, &plain, "verified, but not profiled");
	expect_null(NULL, NULL, &plain, "not judged");
	expect_null("{\"status\":\"excellent\"}", FAST, &plain,
		    "its status is not known");
}

static void the_clock_of_the_paper(void **s)
{
	struct reward_rules sum = { .clock = CLOCK_DEVICE_SUM };
	struct reward_rules paper = { .clock = CLOCK_DEVICE_SUM,
				      .point_estimate = 1 };
	const char *p = PROFILE(GAINS(0.4, 0.5, 0.4, 0.5)
		",\"device_sum_us\":{\"candidate\":95,\"eager\":200,"
		"\"compile\":100}");
	const char *bounded = PROFILE(GAINS(0.4, 0.5, 0.4, 0.5)
		",\"device_sum_us\":{\"candidate\":95,\"eager\":200,"
		"\"compile\":110},\"device_speedup\":{\"eager\":{\"point\":"
		"2.1,\"lower\":2,\"upper\":2.2},\"compile\":{\"point\":1.15,"
		"\"lower\":1.02,\"upper\":1.2}}");

	(void)s;
	expect(p, &paper, 2);
	expect_null(VERIFY, p, &sum, "device times carry no bounds: "
		    "they need --point-estimate");
	expect_null(VERIFY, FAST, &paper, "the profile has no device times");
	expect(bounded, &sum, 2);
	expect(bounded, &paper, 3);
	assert_true(worth(VERIFY, bounded, &paper).provisional);
	assert_false(worth(VERIFY, FAST, &(struct reward_rules){ 0 })
		     .provisional);
}

static void baselines_in_the_same_math(void **s)
{
	struct reward_rules same = { .same_math = 1 };
	const char *equal = PROFILE(GAINS(0.4, 0.5, 0.4, 0.5)
		",\"math\":{\"candidate\":\"tf32\",\"eager\":\"tf32\","
		"\"compile\":\"tf32\"}");
	const char *loose = PROFILE(GAINS(0.4, 0.5, 0.4, 0.5)
		",\"math\":{\"candidate\":\"bf16\",\"eager\":\"fp32\","
		"\"compile\":\"fp32\"},\"same_math\":{\"eager\":{\"point\":"
		"1.2,\"lower\":1.1},\"compile\":{\"point\":0.9,\"lower\":"
		"0.8}}");
	const char *bare = PROFILE(GAINS(0.4, 0.5, 0.4, 0.5)
		",\"math\":{\"candidate\":\"bf16\",\"eager\":\"fp32\","
		"\"compile\":\"fp32\"}");

	(void)s;
	expect(equal, &same, 3);
	expect(loose, &same, 2);
	expect(loose, &plain, 3);
	expect_null(VERIFY, bare, &same, "the profile has no times of the "
		    "baselines in the candidate's math");
	expect_null(VERIFY, FAST, &same, "the profile does not say in which "
		    "math each competitor computed");
}

static int believed(const char *verify, const char *profile,
		    const struct reward_rules *rules, const struct mac_key *k)
{
	struct rec r;
	int yes;

	make(&r, verify, profile);
	yes = reward_believes(&r, rules, k);
	rec_release(&r);
	return yes;
}

static void whom_to_believe(void **s)
{
	static const struct mac_key other = { { 9 }, 1 };
	static const char literal[] = "{\"status\":\"ok\","
		"\"rules\":\"paper\",\"jail\":\"uid\","
		"\"options\":{\"literal\":true}}";
	static const char open_[] = "{\"status\":\"ok\","
		"\"rules\":\"paper\",\"jail\":\"none\"}";
	static const char failed[] = "{\"status\":\"oom\"," VERIFY_OPTS "}";
	struct reward_rules lax = { .allow_literal = 1, .allow_no_jail = 1 };
	struct reward_rules strict = { .rules = "strict" };

	(void)s;
	assert_false(believed(VERIFY, FAST, &strict, &key));
	assert_true(believed(VERIFY, FAST, &plain, &key));
	assert_true(believed(failed, NULL, &plain, &key));
	assert_false(believed(VERIFY, FAST, &plain, &other));
	assert_false(believed(VERIFY, NULL, &plain, &key));
	assert_false(believed(NULL, NULL, &plain, &key));
	assert_false(believed(literal, FAST, &plain, &key));
	assert_true(believed(literal, FAST, &lax, &key));
	assert_false(believed(open_, FAST, &plain, &key));
	assert_true(believed(open_, FAST, &lax, &key));
	assert_false(believed(VERIFY, "{\"status\":\"ok\"}", &plain, &key));
}

static void an_unconfined_build_is_not_believed(void **s)
{
	static const char build[] = "{\"status\":\"ok\",\"jail\":\"none\"}";
	struct reward_rules lax = { .allow_no_jail = 1 };
	struct err e = ERR_INIT;
	struct rec r;

	(void)s;
	make(&r, NULL, NULL);
	assert_int_equal(rec_set(&r, "build", build, strlen(build)), 0);
	assert_int_equal(mac_set(&key, &r, "verify", VERIFY, strlen(VERIFY),
				 uses_build, &e), 0);
	assert_int_equal(mac_set(&key, &r, "profile", FAST, strlen(FAST),
				 uses_verify, &e), 0);
	assert_false(reward_believes(&r, &plain, &key));
	assert_true(reward_believes(&r, &lax, &key));
	rec_release(&r);
}

/* Fields from another record, or changed after they were signed. */
static void transplants_are_not_believed(void **s)
{
	static const char slow[] = PROFILE(GAINS(-1, -1, -1, -1));
	struct rec r, easy;
	const char *text;
	size_t len, at;
	struct err e = ERR_INIT;
	static const char other[] = "{\"kind\":\"candidate\",\"v\":1,"
		"\"id\":\"y\",\"task\":{\"code\":\"easier\"},"
		"\"files\":{\"a\":\"b\"},\"build\":" BUILD "}";

	(void)s;
	make(&r, VERIFY, slow);
	rec_init(&easy);
	assert_int_equal(rec_parse(&easy, other, strlen(other), &at, &e), 0);
	assert_int_equal(mac_set(&key, &easy, "verify", VERIFY,
				 strlen(VERIFY), uses_build, &e), 0);
	assert_int_equal(mac_set(&key, &easy, "profile", FAST, strlen(FAST),
				 uses_verify, &e), 0);
	text = rec_text(&easy, "profile", &len);
	assert_true(reward_believes(&r, &plain, &key));
	assert_int_equal(rec_set(&r, "profile", text, len), 0);
	assert_false(reward_believes(&r, &plain, &key));
	rec_release(&easy);
	rec_release(&r);
	make(&r, VERIFY, FAST);
	assert_int_equal(rec_set(&r, "build", "{\"status\":\"ok\"}", 15), 0);
	assert_false(reward_believes(&r, &plain, &key));
	rec_release(&r);
}

static int judged;

static int fake_judge(void *ctx, struct rec *r, struct err *e)
{
	judged++;
	if (ctx)
		return err_set(e, CA_UNAVAILABLE, "no torch");
	if (mac_set(&key, r, "verify", VERIFY, strlen(VERIFY), uses_build, e))
		return -1;
	return mac_set(&key, r, "profile", FAST, strlen(FAST), uses_verify, e);
}

static void what_is_not_believed_is_judged_again(void **s)
{
	static const char *const uses[] = { "build", "verify", "profile",
					    NULL };
	struct err e = ERR_INIT;
	struct rec r;
	double v;
	char ctx;

	(void)s;
	judged = 0;
	make(&r, VERIFY, FAST);
	assert_int_equal(reward_record(&r, &plain, &key, fake_judge, NULL, 1,
				       &e), 0);
	assert_int_equal(judged, 0);
	assert_true(reward_value(&r, &v) && v == 3);
	assert_true(mac_check(&key, &r, "reward", uses));
	rec_release(&r);
	make(&r, NULL, NULL);
	assert_int_equal(reward_record(&r, &plain, &key, fake_judge, NULL, 1,
				       &e), 0);
	assert_int_equal(judged, 1);
	assert_true(reward_value(&r, &v) && v == 3);
	rec_release(&r);
	make(&r, NULL, NULL);
	assert_int_equal(reward_record(&r, &plain, &key, fake_judge, &ctx, 1,
				       &e), -1);
	assert_int_equal(e.code, CA_UNAVAILABLE);
	rec_release(&r);
	make(&r, NULL, FAST);
	assert_int_equal(reward_record(&r, &plain, &key, NULL, NULL, 1, &e),
			 0);
	assert_false(reward_value(&r, &v));
	rec_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(milestones_by_lower_bounds),
		cmocka_unit_test(reasons_tell_what_is_not_proven),
		cmocka_unit_test(speedups_alone_are_enough),
		cmocka_unit_test(statuses),
		cmocka_unit_test(short_times_count_by_their_bound),
		cmocka_unit_test(a_missing_compile_is_worth_two_at_most),
		cmocka_unit_test(raw_speedups),
		cmocka_unit_test(quick_profiles_are_provisional),
		cmocka_unit_test(folding_can_be_capped),
		cmocka_unit_test(what_is_not_paid),
		cmocka_unit_test(the_clock_of_the_paper),
		cmocka_unit_test(baselines_in_the_same_math),
		cmocka_unit_test(whom_to_believe),
		cmocka_unit_test(an_unconfined_build_is_not_believed),
		cmocka_unit_test(transplants_are_not_believed),
		cmocka_unit_test(what_is_not_believed_is_judged_again),
	};

	return RUN_TESTS(tests);
}
