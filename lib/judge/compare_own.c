/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors against the result in double precision, in units of the reference's
 * own.  Of a tensor with n elements, reference norm N and reference error R
 * (2-norms):
 *
 *   norm   at most A: own*R, or the larger of R and 1e-2*N where that is less;
 *          and not below a floor, for a reference that is right by luck.
 *   cap    no element is off by more than twice `own` times the reference's
 *          worst, 16 times what A allows on the average, or the floor's share
 *          of the largest value.
 *   bias   errors cancel: their sum, signed away from 0, is at most own times
 *          the reference's, plus 6*A (six deviations of independent errors),
 *          plus a quarter of the floor's share of the sum of the values.
 *   slice  of up to 64 parts none has more than own times the error of the
 *          reference there, or what it has on the average.
 *
 * The floor is 2^-18 of the norm, or half a unit in the last place where that
 * is more; up to nine times as much where a handful of elements makes up the
 * norm, whose R says little.
 */
#include "judge/compare.h"

#include <math.h>

#include "judge/compare_elem.h"

#define FLOOR 0x1p-18
#define FEW 8
#define CAP_OWN 2
#define CAP_MEAN 16
#define DEVIATIONS 6

double cmp_half_ulp(enum ca_dtype t)
{
	switch (t) {
	case DT_F8E5M2:
		return 0x1p-3;
	case DT_F8E4M3:
		return 0x1p-4;
	case DT_BF16:
		return 0x1p-8;
	case DT_F16:
		return 0x1p-11;
	default:
		return 0x1p-24;
	}
}

double cmp_norm_value(const struct cmp_norm *s)
{
	return hypot(hypot(sqrt(s->big) * 1e160, sqrt(s->mid)),
		     sqrt(s->small) * 1e-160);
}

static double floor_of(enum ca_dtype t, double weight)
{
	return fmax(FLOOR, cmp_half_ulp(t)) *
		(1 + FEW / sqrt(fmax(weight, 1)));
}

static void exceeds(struct cmp_result *r, enum cmp_own what, double is,
		    double allowed)
{
	if (r->own != OWN_OK || is <= allowed)
		return;
	r->own = what;
	r->own_at = allowed > 0 ? is / allowed : INFINITY;
}

void cmp_own_measure(const struct cmp_rule *rule, enum ca_dtype t,
		     const struct cmp_acc *a, struct cmp_result *r)
{
	double n = (double)a->comparable, low, norm;

	r->have64 = 1;
	r->err64 = cmp_norm_value(&a->err64);
	r->ref64 = cmp_norm_value(&a->ref64);
	if (!(rule->own > 0) || !a->comparable)
		return;
	r->weight = r->ref_norm > 0 ? a->abs64 / r->ref_norm : 1;
	r->weight *= r->weight;
	low = floor_of(t, r->weight);
	norm = fmin(rule->own * r->ref64,
		    fmax(r->ref64, CMP_TOL * r->ref_norm));
	r->own_allowed = norm = fmax(norm, low * r->ref_norm);
	exceeds(r, OWN_NORM, r->err64, norm);
	exceeds(r, OWN_CAP, a->max64,
		fmax(fmax(CAP_OWN * rule->own * a->refmax64,
			  CAP_MEAN * norm / sqrt(n)), low * a->top64));
	exceeds(r, OWN_BIAS, fabs(a->bias64),
		rule->own * fabs(a->refbias64) + DEVIATIONS * norm +
		low / 4 * a->abs64);
}

double cmp_own_slice(const struct cmp_rule *rule, enum ca_dtype t,
		     const struct cmp_result *all, const struct cmp_result *r)
{
	double share = sqrt((double)r->comparable / (double)all->comparable);
	double low = floor_of(t, r->weight), norm;

	norm = rule->own * fmax(r->ref64, all->ref64 * share);
	norm = fmax(norm, low * fmax(r->ref_norm, all->ref_norm * share));
	return norm > 0 ? r->err64 / norm : 0;
}
