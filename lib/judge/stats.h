/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of timing rounds: medians, bootstrap bounds, when to stop.
 *
 * In each round every competitor runs once, in a fresh process; its time is
 * the median of its iterations less the correction.  What is compared is the
 * gain (t0 - t)/t0 within one round, so that drift between rounds cancels;
 * the estimate is the median gain over rounds, its bounds are percentiles of
 * the median's bootstrap distribution.
 *
 * Operating characteristics of the rule "paid if the lower bound exceeds 5 %
 * at a look", simulated in test/lib/stats_test.c (fixed seed) with normal
 * noise on each competitor's time, a level that drifts by 10 % between rounds
 * and by up to 1 % within one, order balanced; "wild" adds times up to 30 %
 * longer in one of ten:
 *
 *	true gain  noise		paid		mean rounds
 *	0 %	   1 %			0 of 10000	6.0
 *	0 %	   2 %			0 of 10000	6.4
 *	0 %	   2 %, wild		0 of 10000	9.8
 *	4.5 %	   1 %			0.9 %		20.6
 *	5 %	   1 %			5.9 %		22.6
 *	5 %	   2 %, wild		5.7 %		22.4
 *	8 %	   1 %			100 %		6.1
 *	8 %	   1 %, wild		99.95 %		9.3
 *	25 %	   5 %, wild		100 %		6.1
 *
 * When timing is cut short between looks, what counts is the last look.
 */
#ifndef CA_JUDGE_STATS_H
#define CA_JUDGE_STATS_H

#include <stddef.h>
#include <stdint.h>

#define STATS_ROUNDS 64		/* more are refused */
#define STATS_LOOKS 3		/* after 6, 12 and 24 rounds */
#define STATS_LAST 24
#define STATS_MISS (1.0 / 64)	/* error of one bound: 98.4 % */
#define STATS_GAIN 0.05		/* what counts as faster */
#define STATS_SHORT 3.0		/* resolutions below which a time is short */

/* The next number of rounds at which to look, more than n; 0: none. */
size_t stats_next_look(size_t n);

/* Median of n values, which are reordered; NaN when n is 0. */
double stats_median(double *v, size_t n);
/* Quantile 0 <= q <= 1 by linear interpolation; reorders v. */
double stats_quantile(double *v, size_t n, double q);

struct stats_bound {
	double point;		/* median */
	double lower, upper;	/* one-sided 98.4 % each */
	size_t n;
};

/* Median over rounds of v (gains, or times) with bounds; at most STATS_ROUNDS
 * finite values.  With fewer than 6 rounds no bound of that strength exists:
 * lower is -Inf and upper +Inf.  All NaN when n is 0 or a value is not
 * finite. */
void stats_bound(const double *v, size_t n, struct stats_bound *b);

/*
 * A competitor's time in one round.  Where bracket - C is not well above what
 * the clock can tell apart, only bounds are known: `low` and `high` differ
 * and `is_short` is set.
 */
struct stats_time {
	double ns;		/* bracket - C, not below 0 */
	double low, high;
	int is_short;
};
void stats_time(double bracket_ns, double c_ns, double resolution_ns,
		struct stats_time *t);

/* Gains of n rounds of a candidate over a baseline, against it where times
 * are short: (t0.low - t.high) / t0.low.  A round in which t0.low is 0 has
 * gain -1.  Returns how many of the rounds had a short time. */
size_t stats_gains(const struct stats_time *t, const struct stats_time *t0,
		   size_t n, double *gain);

/* Speedup t0/t of a gain: 1/(1 - g); g below 1. */
double stats_speedup(double gain);

enum stats_decision {
	STATS_MORE,		/* no look yet, or undecided */
	STATS_YES,		/* lower bound above the threshold */
	STATS_NO,		/* upper bound not above it */
	STATS_OUT		/* undecided after the last look: not paid */
};

/*
 * Decides on gains at the looks only.  Looking at other times gives
 * STATS_MORE whatever the numbers say, so that it does not pay.
 */
enum stats_decision stats_look(const double *gain, size_t n, double threshold,
			       struct stats_bound *b);

/*
 * Both baselines, compile's NULL when there is none: STATS_MORE while another
 * batch of rounds could change the milestone (eager is undecided, or it is
 * beaten and compile is undecided), else what eager's gains say.
 */
enum stats_decision stats_look_both(const double *eager,
				    const double *compile, size_t n,
				    double threshold);

#endif
