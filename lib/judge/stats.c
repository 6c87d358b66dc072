/* SPDX-License-Identifier: Apache-2.0
 *
 * With at most 64 rounds the bootstrap distribution of the median is written
 * down, not drawn: which two values of the sample are the middle ones of a
 * resample has a closed probability.  So bounds need no seed.
 */
#include "judge/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t looks[STATS_LOOKS] = { 6, 12, STATS_LAST };

size_t stats_next_look(size_t n)
{
	for (size_t i = 0; i < STATS_LOOKS; i++)
		if (looks[i] > n)
			return looks[i];
	return 0;
}

static int is_look(size_t n)
{
	for (size_t i = 0; i < STATS_LOOKS; i++)
		if (looks[i] == n)
			return 1;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double stats_quantile(double *v, size_t n, double q)
{
	double at, below;
	size_t i;

	if (!n)
		return NAN;
	qsort(v, n, sizeof(*v), by_value);
	at = q * (double)(n - 1);
	below = floor(at);
	i = (size_t)below;
	if (i + 1 >= n)
		return v[n - 1];
	if (at == below)
		return v[i];
	return v[i] + (at - below) * (v[i + 1] - v[i]);
}

double stats_median(double *v, size_t n)
{
	return stats_quantile(v, n, 0.5);
}

/* P(at least m of n draws fall among the first i of n values). */
static double at_least(size_t n, size_t i, size_t m)
{
	double p = (double)i / (double)n, sum = 0, ln = lgamma((double)n + 1);

	if (i == n)
		return 1;
	if (!i)
		return 0;
	for (size_t k = m; k <= n; k++)
		sum += exp(ln - lgamma((double)k + 1) -
			   lgamma((double)(n - k) + 1) + (double)k * log(p) +
			   (double)(n - k) * log1p(-p));
	return sum;
}

/* A value the median of a resample can take, and how often it does. */
struct atom {
	double value, weight;
};

static int by_atom(const void *a, const void *b)
{
	return by_value(&((const struct atom *)a)->value,
			&((const struct atom *)b)->value);
}

/* Odd n: the middle value itself. */
static size_t atoms_odd(const double *x, size_t n, struct atom *out)
{
	size_t m = n / 2 + 1;

	for (size_t i = 1; i <= n; i++) {
		out[i - 1].value = x[i - 1];
		out[i - 1].weight = at_least(n, i, m) - at_least(n, i - 1, m);
	}
	return n;
}

static double power_step(size_t n, size_t i, double m)
{
	return pow((double)i / (double)n, m) -
	       pow((double)(i - 1) / (double)n, m);
}

/*
 * Even n: the mean of the m-th and the next, m = n/2.  These are x_i and x_j,
 * i < j, when m draws have i for their largest and the others have j for
 * their smallest; what is left of P(m-th is x_i) has both at x_i.
 */
static size_t atoms_even(const double *x, size_t n, struct atom *out)
{
	size_t m = n / 2, count = 0;
	double ways = exp(lgamma((double)n + 1) -
			  2 * lgamma((double)m + 1));

	for (size_t i = 1; i <= n; i++) {
		double lo = power_step(n, i, (double)m);
		double rest = at_least(n, i, m) - at_least(n, i - 1, m);

		for (size_t j = i + 1; j <= n; j++) {
			double w = ways * lo *
				power_step(n, n - j + 1, (double)m);

			out[count].value = (x[i - 1] + x[j - 1]) / 2;
			out[count++].weight = w;
			rest -= w;
		}
		out[count].value = x[i - 1];
		out[count++].weight = rest;
	}
	return count;
}

static int all_finite(const double *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isfinite(v[i]))
			return 0;
	return 1;
}

static void set_bounds(const double *x, size_t n, struct stats_bound *b)
{
	struct atom a[STATS_ROUNDS * (STATS_ROUNDS + 1) / 2];
	size_t count = n % 2 ? atoms_odd(x, n, a) : atoms_even(x, n, a);
	double sum = 0;
	int have_lower = 0;

	qsort(a, count, sizeof(*a), by_atom);
	b->upper = a[count - 1].value;
	for (size_t i = 0; i < count; i++) {
		sum += a[i].weight;
		if (!have_lower && sum >= STATS_MISS) {
			b->lower = a[i].value;
			have_lower = 1;
		}
		if (sum >= 1 - STATS_MISS) {
			b->upper = a[i].value;
			break;
		}
	}
}

void stats_bound(const double *v, size_t n, struct stats_bound *b)
{
	double x[STATS_ROUNDS];

	b->n = n;
	b->point = b->lower = b->upper = NAN;
	if (!n || n > STATS_ROUNDS || !all_finite(v, n))
		return;
	memcpy(x, v, n * sizeof(*x));
	b->point = stats_median(x, n);
	b->lower = -INFINITY;
	b->upper = INFINITY;
	if (n >= looks[0])
		set_bounds(x, n, b);
}

void stats_time(double bracket_ns, double c_ns, double resolution_ns,
		struct stats_time *t)
{
	double ns = bracket_ns - c_ns;

	t->ns = ns > 0 ? ns : 0;
	t->low = t->high = t->ns;
	t->is_short = ns < STATS_SHORT * resolution_ns;
	if (!t->is_short)
		return;
	t->high = t->ns + resolution_ns;
	t->low = t->ns > resolution_ns ? t->ns - resolution_ns : 0;
}

size_t stats_gains(const struct stats_time *t, const struct stats_time *t0,
		   size_t n, double *gain)
{
	size_t shorts = 0;

	for (size_t i = 0; i < n; i++) {
		gain[i] = t0[i].low > 0 ?
			(t0[i].low - t[i].high) / t0[i].low : -1;
		shorts += t[i].is_short || t0[i].is_short;
	}
	return shorts;
}

double stats_speedup(double gain)
{
	return 1 / (1 - gain);
}

enum stats_decision stats_look(const double *gain, size_t n, double threshold,
			       struct stats_bound *b)
{
	stats_bound(gain, n, b);
	if (!is_look(n))
		return n < STATS_LAST ? STATS_MORE : STATS_OUT;
	if (b->lower > threshold)
		return STATS_YES;
	if (b->upper <= threshold)
		return STATS_NO;
	return n < STATS_LAST ? STATS_MORE : STATS_OUT;
}

enum stats_decision stats_look_both(const double *eager,
				    const double *compile, size_t n,
				    double threshold)
{
	struct stats_bound b;
	enum stats_decision d = stats_look(eager, n, threshold, &b);

	if (d == STATS_YES && compile &&
	    stats_look(compile, n, threshold, &b) == STATS_MORE)
		return STATS_MORE;
	return d;
}
