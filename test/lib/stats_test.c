/* SPDX-License-Identifier: Apache-2.0 */
#include "judge/stats.h"

#include "tests.h"

#include <math.h>
#include <stdio.h>

/* Noise of our own, so that the figures in stats.h can be made again. */
static uint64_t state;

static uint64_t next(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static double unit(void)
{
	return (double)(next() >> 11) * 0x1p-53;
}

static double normal(void)
{
	return sqrt(-2 * log(1 - unit())) * cos(6.283185307179586 * unit());
}

struct world {
	double gain, noise;	/* relative */
	double between, within;	/* drift between rounds and within one */
	double outliers;	/* share of times that take 1.0 to 1.3 times */
};

static double one_time(const struct world *w, double base, double level)
{
	double t = base * level * exp(w->noise * normal());

	return unit() < w->outliers ? t * (1 + 0.3 * unit()) : t;
}

/* Two competitors; the order turns round from one round to the next. */
static void round_times(const struct world *w, size_t i,
			struct stats_time *t, struct stats_time *t0)
{
	double level = exp(w->between * normal());
	double slope = w->within * (2 * unit() - 1);
	double first = level, second = level * (1 + slope);

	stats_time(1e6 + one_time(w, 2e5 * (1 - w->gain),
				  i % 2 ? second : first), 1e6, 100, t);
	stats_time(1e6 + one_time(w, 2e5, i % 2 ? first : second), 1e6, 100,
		   t0);
}

struct outcome {
	unsigned paid, runs;
	double rounds;
};

static void simulate(const struct world *w, unsigned runs, struct outcome *o)
{
	memset(o, 0, sizeof(*o));
	state = 42;
	for (; o->runs < runs; o->runs++) {
		struct stats_time t[STATS_LAST], t0[STATS_LAST];
		double gain[STATS_LAST];
		struct stats_bound b;
		enum stats_decision d = STATS_MORE;
		size_t n = 0;

		while (d == STATS_MORE) {
			round_times(w, n, &t[n], &t0[n]);
			n++;
			stats_gains(t, t0, n, gain);
			d = stats_look(gain, n, STATS_GAIN, &b);
		}
		o->paid += d == STATS_YES;
		o->rounds += (double)n / runs;
	}
	print_message("# gain %4.1f %% noise %.1f %% outliers %g: paid %u of "
		      "%u, %.1f rounds\n", 100 * w->gain, 100 * w->noise,
		      w->outliers, o->paid, o->runs, o->rounds);
}

static void baseline_against_itself_is_not_paid(void **s)
{
	static const struct world worlds[] = {
		{ 0, 0.01, 0.10, 0.01, 0 },
		{ 0, 0.02, 0.10, 0.01, 0 },
		{ 0, 0.02, 0.10, 0.02, 0.10 },
	};
	struct outcome o;

	(void)s;
	for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++) {
		simulate(&worlds[i], 10000, &o);
		assert_in_range(o.paid, 0, 2);	/* below 0.1 % */
	}
}

static void eight_percent_is_found(void **s)
{
	static const struct world clean = { 0.08, 0.01, 0.10, 0.01, 0 };
	static const struct world dirty = { 0.08, 0.01, 0.10, 0.01, 0.10 };
	static const struct world big = { 0.25, 0.05, 0.17, 0.02, 0.10 };
	struct outcome o;

	(void)s;
	simulate(&clean, 2000, &o);
	assert_in_range(o.paid, 1980, 2000);
	simulate(&dirty, 2000, &o);
	assert_in_range(o.paid, 1960, 2000);
	simulate(&big, 2000, &o);
	assert_in_range(o.paid, 1980, 2000);
}

static void looking_often_does_not_pay(void **s)
{
	static const struct world almost = { 0.045, 0.01, 0.10, 0.01, 0 };
	static const struct world edge = { 0.05, 0.01, 0.10, 0.01, 0 };
	static const struct world noisy = { 0.05, 0.02, 0.10, 0.01, 0.10 };
	struct outcome o;

	(void)s;
	simulate(&almost, 2000, &o);
	assert_in_range(o.paid, 0, 30);
	simulate(&edge, 2000, &o);
	assert_in_range(o.paid, 0, 140);
	simulate(&noisy, 2000, &o);
	assert_in_range(o.paid, 0, 140);
}

static void quantiles(void **s)
{
	double v[] = { 4, 1, 3, 2 };

	(void)s;
	assert_true(stats_median(v, 4) == 2.5);
	assert_true(stats_median(v, 3) == 2);
	assert_true(stats_median(v, 1) == 1);
	assert_true(stats_quantile(v, 4, 0) == 1);
	assert_true(stats_quantile(v, 4, 1) == 4);
	assert_true(stats_quantile(v, 4, 1.0 / 3) == 2);
	assert_true(isnan(stats_median(v, 0)));
}

static double clamp_index(double x, size_t n)
{
	return x < 0 ? 0 : x > (double)n - 1 ? (double)n - 1 : x;
}

/* The distribution that is written down against one that is drawn. */
static void bounds_equal_a_drawn_bootstrap(void **s)
{
	static const size_t sizes[] = { 6, 7, 12, 24, 64 };
	enum { DRAWS = 40000 };
	static double drawn[DRAWS];

	(void)s;
	state = 7;
	for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
		size_t n = sizes[k];
		double x[STATS_ROUNDS], y[STATS_ROUNDS];
		struct stats_bound b;

		for (size_t i = 0; i < n; i++)
			x[i] = normal();
		for (size_t d = 0; d < DRAWS; d++) {
			for (size_t i = 0; i < n; i++)
				y[i] = x[(size_t)clamp_index(
					unit() * (double)n, n)];
			drawn[d] = stats_median(y, n);
		}
		stats_bound(x, n, &b);
		/* Between quantiles that sampling error cannot reach. */
		assert_true(b.lower >= stats_quantile(drawn, DRAWS, 0.012));
		assert_true(b.lower <= stats_quantile(drawn, DRAWS, 0.020));
		assert_true(b.upper >= stats_quantile(drawn, DRAWS, 0.980));
		assert_true(b.upper <= stats_quantile(drawn, DRAWS, 0.988));
		assert_true(b.lower <= b.point && b.point <= b.upper);
	}
}

static void bounds_of_odd_cases(void **s)
{
	static const double same[] = { 3, 3, 3, 3, 3, 3 };
	double bad[] = { 1, 2, NAN, 4, 5, 6 };
	struct stats_bound b;

	(void)s;
	stats_bound(same, 6, &b);
	assert_true(b.point == 3 && b.lower == 3 && b.upper == 3);
	stats_bound(same, 5, &b);
	assert_true(b.point == 3 && isinf(b.lower) && isinf(b.upper));
	stats_bound(bad, 6, &b);
	assert_true(isnan(b.point) && isnan(b.lower) && isnan(b.upper));
	stats_bound(same, 0, &b);
	assert_true(isnan(b.point));
}

/* One wild round in twelve moves no bound out of the honest ones. */
static void an_outlier_does_not_decide(void **s)
{
	double g[12];
	struct stats_bound b;

	(void)s;
	for (size_t i = 0; i < 12; i++)
		g[i] = 0.30 + 0.001 * (double)i;
	g[5] = -4;
	stats_bound(g, 12, &b);
	assert_true(b.lower > 0.25);
	g[5] = 0.999;
	stats_bound(g, 12, &b);
	assert_true(b.upper < 0.32);
}

static void only_looks_decide(void **s)
{
	double g[STATS_LAST], slow[STATS_LAST], edge[STATS_LAST];
	struct stats_bound b;

	(void)s;
	for (size_t i = 0; i < STATS_LAST; i++) {
		g[i] = 0.5;
		slow[i] = -0.5;
		edge[i] = i % 2 ? 0.02 : 0.08;
	}
	for (size_t n = 1; n < STATS_LAST; n++) {
		enum stats_decision d = stats_look(g, n, STATS_GAIN, &b);

		assert_int_equal(d, n == 6 || n == 12 ? STATS_YES :
				 STATS_MORE);
	}
	assert_int_equal(stats_look(slow, 6, STATS_GAIN, &b), STATS_NO);
	assert_int_equal(stats_look(edge, 12, STATS_GAIN, &b), STATS_MORE);
	assert_int_equal(stats_look(edge, 24, STATS_GAIN, &b), STATS_OUT);
	assert_int_equal(stats_next_look(0), 6);
	assert_int_equal(stats_next_look(6), 12);
	assert_int_equal(stats_next_look(23), 24);
	assert_int_equal(stats_next_look(24), 0);
	/* What cannot change the milestone is not timed further. */
	assert_int_equal(stats_look_both(slow, edge, 6, STATS_GAIN), STATS_NO);
	assert_int_equal(stats_look_both(g, edge, 6, STATS_GAIN), STATS_MORE);
	assert_int_equal(stats_look_both(edge, slow, 6, STATS_GAIN),
			 STATS_MORE);
	assert_int_equal(stats_look_both(g, NULL, 6, STATS_GAIN), STATS_YES);
	assert_int_equal(stats_look_both(g, edge, 24, STATS_GAIN), STATS_YES);
}

static void exactly_the_threshold_is_not_paid(void **s)
{
	static const double g[] = { 0.05, 0.05, 0.05, 0.05, 0.05, 0.05 };
	struct stats_bound b;

	(void)s;
	assert_int_equal(stats_look(g, 6, STATS_GAIN, &b), STATS_NO);
}

static void short_times_count_against_the_candidate(void **s)
{
	struct stats_time t[1], t0[1];
	double g;

	(void)s;
	stats_time(1000, 1200, 50, t);
	assert_true(t->is_short && t->ns == 0 && t->low == 0 && t->high == 50);
	stats_time(1300, 1200, 50, t0);
	assert_true(t0->is_short && t0->low == 50 && t0->high == 150);
	assert_int_equal(stats_gains(t, t0, 1, &g), 1);
	assert_true(g == 0);
	assert_int_equal(stats_gains(t0, t, 1, &g), 1);
	assert_true(g == -1);
	stats_time(1200 + 150, 1200, 50, t);
	assert_false(t->is_short);
	assert_true(t->ns == 150 && t->low == 150 && t->high == 150);
	stats_time(1200 + 300, 1200, 50, t0);
	assert_int_equal(stats_gains(t, t0, 1, &g), 0);
	assert_true(g == 0.5 && stats_speedup(g) == 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(baseline_against_itself_is_not_paid),
		cmocka_unit_test(eight_percent_is_found),
		cmocka_unit_test(looking_often_does_not_pay),
		cmocka_unit_test(quantiles),
		cmocka_unit_test(bounds_equal_a_drawn_bootstrap),
		cmocka_unit_test(bounds_of_odd_cases),
		cmocka_unit_test(an_outlier_does_not_decide),
		cmocka_unit_test(only_looks_decide),
		cmocka_unit_test(exactly_the_threshold_is_not_paid),
		cmocka_unit_test(short_times_count_against_the_candidate),
	};

	return RUN_TESTS(tests);
}
