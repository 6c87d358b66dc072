/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparison of captured results with expected ones, over host memory.
 * Pure functions; the element rules are in compare_elem.h, which the CUDA
 * comparator compiles too.
 */
#ifndef CA_JUDGE_COMPARE_H
#define CA_JUDGE_COMPARE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "rec/json.h"
#include "rec/status.h"
#include "torch/proto.h"

/* A dense, row-major tensor.  ndim 0 is a scalar.  No alignment needed. */
struct view {
	enum ca_dtype dtype;
	uint32_t ndim;
	int64_t shape[CA_NDIM];
	const void *data;
};

/* As published: what rules `paper` start from. */
#define CMP_TOL 1e-2
/* Error norm over reference norm that scaled rounds and rounds from other
 * distributions allow under `paper`. */
#define CMP_NORM 2e-2
/* Half a unit in the last place of a type, relative, at worst. */
double cmp_half_ulp(enum ca_dtype t);

/*
 * How a tensor passes.
 * By element (norm == 0): every element has |got - ref| <= atol + rtol*|ref|
 * (in double; complex: moduli), or is, with an fp64 view at hand, no farther
 * from fp64 than ref is.  By norm (norm > 0): 2-norm of got - ref is at most
 * norm * 2-norm of ref + atol/10^4 * sqrt(elements), or no larger than that
 * of ref - fp64 measured against fp64; the second term is for references
 * that cancel to nothing.  Both norms run over the elements whose reference
 * is finite.  Bools and integers are exact under either.
 *
 * Where the reference is finite the result must be.  Where it is not: by
 * element, the result must have the same class (NaN, +Inf, -Inf; each part
 * of a complex number for itself); by norm, nothing is asked there.
 *
 * Against the reference's own error (own > 0, and an fp64 view at hand): see
 * compare_own.c.  With `norm` as well, this alone decides where the reference
 * is finite.
 */
struct cmp_rule {
	double atol, rtol;	/* as shrunk by the guard */
	double norm;
	double own;
};

/* Which of the measures against fp64 a tensor exceeds. */
enum cmp_own { OWN_OK, OWN_NORM, OWN_CAP, OWN_BIAS, OWN_SLICE };

/* One tensor's comparison. */
struct cmp_result {
	uint64_t n;		/* elements */
	uint64_t comparable;	/* of which the reference is finite */
	uint64_t misses;	/* elements outside the element rule; 0 when
				 * the norm decides and is kept */
	uint64_t non_finite;	/* misses: result not finite, reference is */
	uint64_t relieved;	/* outside the tolerance, passed by fp64 */
	uint64_t first;		/* flat index of the first miss; UINT64_MAX:
				 * none (a norm can be exceeded without one) */
	int64_t index[CA_NDIM];	/* the same, by dimension */
	double got, want;	/* there; real part when complex */
	double got_im, want_im;
	double allowed;		/* |got - want| that would have passed */
	double max_abs, max_rel; /* over comparable elements; max_rel where the
				 * reference is not 0 */
	double err_norm, ref_norm;	/* 2-norms */
	double norm_allowed;	/* by norm: what err_norm may be; else 0 */
	int have64;		/* the next three are known */
	double err64, ref64;	/* 2-norms of got - fp64 and ref - fp64 */
	double weight;		/* how many equal elements would have both the
				 * norm and the sum */
	double own_allowed;	/* what err64 may be; 0: not measured */
	enum cmp_own own;
	double own_at;		/* what was exceeded, as a multiple of what is
				 * allowed; of OWN_SLICE the worst slice's */
	int passed;
};

/*
 * Compares two views of equal dtype and shape.  fp64 (may be NULL) is the
 * result in double precision, DT_F64, or DT_C128 for complex; it is needed
 * only when a first call has said `passed` 0 with float misses, so it can be
 * computed then (cmp_wants_fp64).  threads 0: as many as there are
 * processors.  The result does not depend on the number of threads.
 * Fails (CA_SOFTWARE) when the views do not fit each other.
 */
int compare(const struct cmp_rule *rule, const struct view *got,
	    const struct view *ref, const struct view *fp64, unsigned threads,
	    struct cmp_result *r, struct err *e);

/*
 * For comparators on other devices: turns merged accumulators (see
 * compare_elem.h; after all elements of `ref`) into the result.
 */
struct cmp_acc;
struct cmp_norm;
double cmp_norm_value(const struct cmp_norm *s);
struct cmp_elem_rule;
struct cmp_elem_rule cmp_elem(const struct cmp_rule *rule, int have64);
void cmp_finish(const struct cmp_rule *rule, const struct view *ref,
		int have64, const struct cmp_acc *a, struct cmp_result *r);

/* For cmp_finish: r's members from `have64` on, but `passed`. */
void cmp_own_measure(const struct cmp_rule *rule, enum ca_dtype t,
		     const struct cmp_acc *a, struct cmp_result *r);

/*
 * Slices: the part `r` of a tensor whose whole is `all` (both measured under
 * a rule with `own`) must not stand out.  How many times what is allowed its
 * error is.
 */
double cmp_own_slice(const struct cmp_rule *rule, enum ca_dtype t,
		     const struct cmp_result *all,
		     const struct cmp_result *r);

/* Whether an fp64 view could turn this failure into a pass. */
int cmp_wants_fp64(const struct cmp_rule *rule, const struct view *ref,
		   const struct cmp_result *r);

/* ST_OK, ST_NON_FINITE (some result is not finite where the reference is) or
 * ST_WRONG_VALUE. */
enum status cmp_status(const struct cmp_result *r);

/*
 * Adds one tensor's worst over several comparisons: maxima and norms ratio of
 * the worst, misses summed, first miss kept from the first that has one.
 * *sum starts zeroed with passed = 1 (cmp_result_init).
 */
void cmp_result_init(struct cmp_result *sum);
void cmp_result_merge(struct cmp_result *sum, const struct cmp_result *r);

/*
 * Whether two results have the same structure: container (digest), number of
 * leaves, kinds, shapes, element types.  Values are not looked at, except of
 * strings, whose digests must agree.  ST_OK, ST_WRONG_SHAPE (container, keys,
 * kinds, shapes), ST_WRONG_DTYPE or ST_WRONG_VALUE (a string).  *leaf is the
 * first that differs (nleaf of the shorter when only the number does); text
 * says how, for people, and never holds bytes of the worker's own choice.
 */
enum status cmp_leaves(const struct ca_msg *got, const struct ca_msg *ref,
		       uint32_t *leaf, char *text, size_t textlen);

/*
 * A view of one leaf: tensors at base + at (checked by the caller, see
 * leaves_check), numbers and bools inside the leaf itself, which must outlive
 * the view.  0, or -1 for leaves that have no value to compare (None,
 * strings).
 */
int cmp_leaf_view(const struct ca_leaf *l, const void *base, uint64_t at,
		  struct view *v);

/* Elements and bytes of a view; -1 when a dimension is negative or the
 * product overflows. */
int view_count(const struct view *v, uint64_t *n, uint64_t *bytes);

/* Byte-wise: 1 and *at the first difference, or 0.  For "unmodified". */
int bytes_differ(const void *a, const void *b, size_t n, unsigned threads,
		 size_t *at);

/*
 * One entry of verify.tensors: an object with path, dtype, shape, max_abs,
 * max_rel, norm_error, fp64_error (null: not computed), atol, rtol, tol_used
 * (`factor`), misses, and first_miss{index, got, want, allowed} when there is
 * one.  Values that are not finite are written as strings "nan", "inf",
 * "-inf"; complex ones as [re, im].
 */
void cmp_write(struct jw *w, const char *path, const struct view *ref,
	       const struct cmp_rule *rule, double factor,
	       const struct cmp_result *r);

/*
 * What a person reads of a failure, without LF: "3 of 4096 elements differ;
 * first at [0, 17]: got 0.5, wanted 0.25, allowed 0.0125".
 */
void cmp_describe(const struct view *ref, const struct cmp_result *r,
		  char *out, size_t outlen);

#endif
