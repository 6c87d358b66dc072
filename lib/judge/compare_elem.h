/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules for one element, in the common subset of C and CUDA C++, so that
 * the judge's host code and its kernels (NVRTC) compile the same text.  No
 * includes under NVRTC.  compare.h says what the rules are.
 *
 * A comparator walks the elements with cmp_real, cmp_complex or cmp_exact,
 * each thread (or block of elements) into a struct cmp_acc of its own, then
 * merges these in the order of the elements and hands the sum to cmp_finish.
 */
#ifndef CA_JUDGE_COMPARE_ELEM_H
#define CA_JUDGE_COMPARE_ELEM_H

#ifdef __CUDACC__
#define CMP_FN static __device__ __forceinline__
#else
#include <math.h>
#include <string.h>
#define CMP_FN static inline __attribute__((always_inline, unused))
#endif

typedef unsigned long long cmp_u64;

#define CMP_NO_INDEX (~(cmp_u64)0)
#define CMP_MAX 1.7976931348623157e308	/* DBL_MAX */

/* Sum of squares that neither overflows nor underflows (three ranges, after
 * J. L. Blue, 1978); only `mid` is used where squares fit a double. */
struct cmp_norm {
	double big, mid, small;
};

/* What is known after some of the elements; all members are 8 bytes. */
struct cmp_acc {
	cmp_u64 n, comparable, misses, non_finite, relieved;
	cmp_u64 first;			/* CMP_NO_INDEX: none */
	double got, got_im, want, want_im;	/* of `first` */
	double max_abs, max_rel;
	struct cmp_norm err, ref;	/* got - ref, ref */
	struct cmp_norm err64, ref64;	/* got - fp64, ref - fp64 */
	double max64, refmax64;		/* largest of these */
	double bias64, refbias64;	/* their sums, signed away from 0 */
	double abs64, top64;		/* of fp64: sum and largest */
};

struct cmp_elem_rule {
	double atol, rtol;
	int by_norm;		/* non-finite references ask nothing */
	int have64;
	int all64;		/* every element enters cmp_lean */
};

CMP_FN void cmp_acc_init(struct cmp_acc *a)
{
	struct cmp_norm zero = { 0.0, 0.0, 0.0 };

	a->n = a->comparable = a->misses = 0;
	a->non_finite = a->relieved = 0;
	a->first = CMP_NO_INDEX;
	a->got = a->got_im = a->want = a->want_im = 0.0;
	a->max_abs = a->max_rel = 0.0;
	a->err = a->ref = a->err64 = a->ref64 = zero;
	a->max64 = a->refmax64 = a->bias64 = a->refbias64 = 0.0;
	a->abs64 = a->top64 = 0.0;
}

CMP_FN float cmp_float_of(unsigned int bits)
{
#ifdef __CUDACC__
	return __uint_as_float(bits);
#else
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
#endif
}

/* IEEE binary16.  The product is exact, subnormals included. */
CMP_FN float cmp_of_f16(unsigned int h)
{
	unsigned int mag = (h & 0x7fffu) << 13, sign = (h & 0x8000u) << 16;
	float f = cmp_float_of(mag) * 5.192296858534828e33f;	/* 2^112 */
	float s = cmp_float_of(sign | 0x3f800000u);
	float odd = cmp_float_of(mag | 0x7f800000u);

	return s * (mag >= 0x0f800000u ? odd : f);
}

CMP_FN float cmp_of_bf16(unsigned int h)
{
	return cmp_float_of((h & 0xffffu) << 16);
}

/* float8_e4m3fn: no infinities, NaN is all ones. */
CMP_FN float cmp_of_f8e4m3(unsigned int b)
{
	unsigned int mag = (b & 0x7fu) << 20, sign = (b & 0x80u) << 24;
	float f = cmp_float_of(mag) * 1.329227995784916e36f;	/* 2^120 */
	float s = cmp_float_of(sign | 0x3f800000u);

	return s * ((b & 0x7fu) == 0x7fu ? cmp_float_of(0x7fc00000u) : f);
}

/* float8_e5m2: the upper byte of a binary16. */
CMP_FN float cmp_of_f8e5m2(unsigned int b)
{
	return cmp_of_f16((b & 0xffu) << 8);
}

CMP_FN int cmp_is_finite(double x)
{
	return fabs(x) <= CMP_MAX;
}

/* Both finite, both NaN, or both infinite with the same sign. */
CMP_FN int cmp_same_class(double a, double b)
{
	int fa = cmp_is_finite(a), fb = cmp_is_finite(b);

	return (fa & fb) | (!fa & !fb & ((a == b) | ((a != a) & (b != b))));
}

/* The published rule; false when d or ref is NaN. */
CMP_FN int cmp_within(double d, double ref_abs, double atol, double rtol)
{
	return d <= atol + rtol * ref_abs;
}

CMP_FN void cmp_norm_add(struct cmp_norm *s, double x)
{
	double a = fabs(x);

	if (a > 1e140)
		s->big += (a * 1e-160) * (a * 1e-160);
	else if (a < 1e-140)
		s->small += (a * 1e160) * (a * 1e160);
	else
		s->mid += a * a;
}

CMP_FN void cmp_norm_merge(struct cmp_norm *to, const struct cmp_norm *from)
{
	to->big += from->big;
	to->mid += from->mid;
	to->small += from->small;
}

/* Elements of `from` come after those of `to`. */
CMP_FN void cmp_acc_merge(struct cmp_acc *to, const struct cmp_acc *from)
{
	to->n += from->n;
	to->comparable += from->comparable;
	to->misses += from->misses;
	to->non_finite += from->non_finite;
	to->relieved += from->relieved;
	if (from->first < to->first) {
		to->first = from->first;
		to->got = from->got;
		to->got_im = from->got_im;
		to->want = from->want;
		to->want_im = from->want_im;
	}
	to->max_abs = fmax(to->max_abs, from->max_abs);
	to->max_rel = fmax(to->max_rel, from->max_rel);
	cmp_norm_merge(&to->err, &from->err);
	cmp_norm_merge(&to->ref, &from->ref);
	cmp_norm_merge(&to->err64, &from->err64);
	cmp_norm_merge(&to->ref64, &from->ref64);
	to->max64 = fmax(to->max64, from->max64);
	to->refmax64 = fmax(to->refmax64, from->refmax64);
	to->bias64 += from->bias64;
	to->refbias64 += from->refbias64;
	to->abs64 += from->abs64;
	to->top64 = fmax(to->top64, from->top64);
}

CMP_FN void cmp_miss(struct cmp_acc *a, cmp_u64 i, double got, double got_im,
		     double want, double want_im)
{
	a->misses++;
	if (i < a->first) {
		a->first = i;
		a->got = got;
		a->got_im = got_im;
		a->want = want;
		a->want_im = want_im;
	}
}

/* Distances of a comparable pair enter maxima and norms. */
CMP_FN void cmp_measure(struct cmp_acc *a, double d, double ref_abs)
{
	a->max_abs = fmax(a->max_abs, d);
	if (ref_abs > 0.0)
		a->max_rel = fmax(a->max_rel, d / ref_abs);
	cmp_norm_add(&a->err, d);
	cmp_norm_add(&a->ref, ref_abs);
}

/*
 * A comparable pair at distance d, with distances d64 of got and r64 of ref
 * from fp64 (used when have64; NaN or Inf there gives no relief).  Returns
 * whether it misses.
 */
CMP_FN int cmp_judge(struct cmp_acc *a, double d, double ref_abs, double d64,
		     double r64, const struct cmp_elem_rule *rule)
{
	cmp_measure(a, d, ref_abs);
	if (rule->have64 && cmp_is_finite(d64) && cmp_is_finite(r64)) {
		cmp_norm_add(&a->err64, d64);
		cmp_norm_add(&a->ref64, r64);
	}
	if (cmp_within(d, ref_abs, rule->atol, rule->rtol))
		return 0;
	if (!rule->have64 || !(d64 <= r64) || !cmp_is_finite(r64))
		return 1;
	a->relieved++;
	return 0;
}

/* Errors of a part against fp64; complex numbers have two parts. */
CMP_FN void cmp_lean(struct cmp_acc *a, double got, double ref, double fp64)
{
	double sign = fp64 < 0.0 ? -1.0 : 1.0;

	if (!cmp_is_finite(fp64) || !cmp_is_finite(got - fp64) ||
	    !cmp_is_finite(ref - fp64))
		return;
	a->max64 = fmax(a->max64, fabs(got - fp64));
	a->refmax64 = fmax(a->refmax64, fabs(ref - fp64));
	a->bias64 += (got - fp64) * sign;
	a->refbias64 += (ref - fp64) * sign;
	a->abs64 += fabs(fp64);
	a->top64 = fmax(a->top64, fabs(fp64));
}

/* One element of a floating type. */
CMP_FN void cmp_real(struct cmp_acc *a, cmp_u64 i, double got, double ref,
		     double fp64, const struct cmp_elem_rule *rule)
{
	a->n++;
	if (!cmp_is_finite(ref)) {
		if (!rule->by_norm && !cmp_same_class(got, ref))
			cmp_miss(a, i, got, 0.0, ref, 0.0);
		return;
	}
	a->comparable++;
	if (!cmp_is_finite(got)) {
		a->non_finite++;
		cmp_miss(a, i, got, 0.0, ref, 0.0);
		return;
	}
	if (rule->all64)
		cmp_lean(a, got, ref, fp64);
	if (cmp_judge(a, fabs(got - ref), fabs(ref), fabs(got - fp64),
		      fabs(ref - fp64), rule))
		cmp_miss(a, i, got, 0.0, ref, 0.0);
}

/* One element of a complex type; each array is {real, imaginary}. */
CMP_FN void cmp_complex(struct cmp_acc *a, cmp_u64 i, const double got[2],
			const double ref[2], const double fp64[2],
			const struct cmp_elem_rule *rule)
{
	a->n++;
	if (!cmp_is_finite(ref[0]) || !cmp_is_finite(ref[1])) {
		if (!rule->by_norm && !(cmp_same_class(got[0], ref[0]) &&
					cmp_same_class(got[1], ref[1])))
			cmp_miss(a, i, got[0], got[1], ref[0], ref[1]);
		return;
	}
	a->comparable++;
	if (!cmp_is_finite(got[0]) || !cmp_is_finite(got[1])) {
		a->non_finite++;
		cmp_miss(a, i, got[0], got[1], ref[0], ref[1]);
		return;
	}
	for (int k = 0; rule->all64 && k < 2; k++)
		cmp_lean(a, got[k], ref[k], fp64[k]);
	if (cmp_judge(a, hypot(got[0] - ref[0], got[1] - ref[1]),
		      hypot(ref[0], ref[1]),
		      hypot(got[0] - fp64[0], got[1] - fp64[1]),
		      hypot(ref[0] - fp64[0], ref[1] - fp64[1]), rule))
		cmp_miss(a, i, got[0], got[1], ref[0], ref[1]);
}

/* One element of an integer type or a bool (given as 0 or 1): equal or not;
 * the doubles are for the report. */
CMP_FN void cmp_exact(struct cmp_acc *a, cmp_u64 i, int equal, double got,
		      double ref)
{
	a->n++;
	a->comparable++;
	cmp_measure(a, fabs(got - ref), fabs(ref));
	if (!equal)
		cmp_miss(a, i, got, 0.0, ref, 0.0);
}

#endif
