/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks are widened to doubles first.  One whose elements are all finite and
 * within the tolerance, which is nearly every one, takes a loop without
 * branches; any other goes element by element.
 */
#include "judge/compare_block.h"

#include "torch/torch.h"

#define BLOCK 1024

/* Twice as fast where the processor has it (chosen when the program starts,
 * so one binary serves all). */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

#define WIDEN(name, type, expr)						\
WIDE static void widen_##name(double *out, const unsigned char *p,	\
			      uint64_t n)				\
{									\
	for (uint64_t i = 0; i < n; i++) {				\
		type x;							\
									\
		memcpy(&x, p + i * sizeof(x), sizeof(x));		\
		out[i] = (double)(expr);				\
	}								\
}

WIDEN(bool, uint8_t, x != 0)
WIDEN(u8, uint8_t, x)
WIDEN(i8, int8_t, x)
WIDEN(u16, uint16_t, x)
WIDEN(i16, int16_t, x)
WIDEN(u32, uint32_t, x)
WIDEN(i32, int32_t, x)
WIDEN(u64, uint64_t, x)
WIDEN(i64, int64_t, x)
WIDEN(f16, uint16_t, cmp_of_f16(x))
WIDEN(bf16, uint16_t, cmp_of_bf16(x))
WIDEN(f8e4m3, uint8_t, cmp_of_f8e4m3(x))
WIDEN(f8e5m2, uint8_t, cmp_of_f8e5m2(x))
WIDEN(f32, float, x)
WIDEN(f64, double, x)

/* Complex elements are two reals each. */
static void widen(double *out, enum ca_dtype t, const void *p, uint64_t n)
{
	static void (*const by_type[DT_COUNT])(double *, const unsigned char *,
					       uint64_t) = {
		[DT_BOOL] = widen_bool, [DT_U8] = widen_u8,
		[DT_I8] = widen_i8, [DT_U16] = widen_u16,
		[DT_I16] = widen_i16, [DT_U32] = widen_u32,
		[DT_I32] = widen_i32, [DT_U64] = widen_u64,
		[DT_I64] = widen_i64, [DT_F16] = widen_f16,
		[DT_BF16] = widen_bf16, [DT_F8E4M3] = widen_f8e4m3,
		[DT_F8E5M2] = widen_f8e5m2, [DT_F32] = widen_f32,
		[DT_F64] = widen_f64, [DT_C64] = widen_f32,
		[DT_C128] = widen_f64,
	};

	by_type[t](out, p, dtype_is_complex(t) ? 2 * n : n);
}

static const unsigned char *element(const struct view *v, uint64_t i)
{
	return (const unsigned char *)v->data + i * dtype_size(v->dtype);
}

void view_doubles(const struct view *v, uint64_t at, uint64_t n, double *out)
{
	widen(out, v->dtype, element(v, at), n);
}

/* Sums of a block without surprises. */
struct quick {
	uint64_t bad;		/* not finite, or outside the tolerance */
	double max_abs, max_rel, err2, ref2;
};

/* Squares of what was a float or less fit a double (cmp_norm's `mid`). */
WIDE static void run_quick(const double *g, const double *r, uint64_t n,
			   const struct cmp_elem_rule *rule, struct quick *q)
{
	const double atol = rule->atol, rtol = rule->rtol;
	double max_abs = 0, max_rel = 0, err2 = 0, ref2 = 0;
	uint64_t bad = 0;

	/* clang will not, and says so: maxima of what may be NaN. */
#ifndef __clang__
#pragma omp simd reduction(+ : bad, err2, ref2) \
	reduction(max : max_abs, max_rel)
#endif
	for (uint64_t i = 0; i < n; i++) {
		double d = fabs(g[i] - r[i]), ra = fabs(r[i]);
		double rel = d / (ra > 0 ? ra : INFINITY);

		bad += !(cmp_within(d, ra, atol, rtol) & (d <= CMP_MAX) &
			 (ra <= CMP_MAX));
		max_abs = d > max_abs ? d : max_abs;
		max_rel = rel > max_rel ? rel : max_rel;
		err2 += d * d;
		ref2 += ra * ra;
	}
	q->bad = bad;
	q->max_abs = max_abs;
	q->max_rel = max_rel;
	q->err2 = err2;
	q->ref2 = ref2;
}

static int try_quick(const double *g, const double *r, uint64_t n,
		     const struct cmp_elem_rule *rule, struct cmp_acc *a)
{
	struct quick q;

	run_quick(g, r, n, rule, &q);
	if (q.bad)
		return 0;
	a->n += n;
	a->comparable += n;
	a->max_abs = fmax(a->max_abs, q.max_abs);
	a->max_rel = fmax(a->max_rel, q.max_rel);
	a->err.mid += q.err2;
	a->ref.mid += q.ref2;
	return 1;
}

struct block {
	double g[2 * BLOCK], r[2 * BLOCK], f[2 * BLOCK];
};

static void run_float(struct block *b, const struct view *ref, uint64_t at,
		      uint64_t n, const struct cmp_elem_rule *rule,
		      struct cmp_acc *a)
{
	int norm64 = rule->have64 && (rule->by_norm || rule->all64);

	if (ref->dtype != DT_F64 && !norm64 &&
	    try_quick(b->g, b->r, n, rule, a))
		return;
	for (uint64_t i = 0; i < n; i++)
		cmp_real(a, at + i, b->g[i], b->r[i], b->f[i], rule);
}

static void run_complex(struct block *b, uint64_t at, uint64_t n,
			const struct cmp_elem_rule *rule, struct cmp_acc *a)
{
	for (uint64_t i = 0; i < n; i++)
		cmp_complex(a, at + i, b->g + 2 * i, b->r + 2 * i,
			    b->f + 2 * i, rule);
}

/* Equality is that of the bytes, for doubles cannot hold every int64; any
 * byte but 0 is true, as torch reads it. */
static void run_exact(struct block *b, const struct view *got,
		      const struct view *ref, uint64_t at, uint64_t n,
		      struct cmp_acc *a)
{
	size_t size = dtype_size(ref->dtype);

	for (uint64_t i = 0; i < n; i++) {
		int same = ref->dtype == DT_BOOL ? b->g[i] == b->r[i] :
			!memcmp(element(got, at + i), element(ref, at + i),
				size);

		cmp_exact(a, at + i, same, b->g[i], b->r[i]);
	}
}

void compare_run(const struct view *got, const struct view *ref,
		 const struct view *fp64, uint64_t at, uint64_t n,
		 const struct cmp_elem_rule *rule, struct cmp_acc *a)
{
	struct block b;

	for (uint64_t end = at + n, k; at < end; at += k) {
		k = end - at < BLOCK ? end - at : BLOCK;
		view_doubles(got, at, k, b.g);
		view_doubles(ref, at, k, b.r);
		view_doubles(fp64 ? fp64 : ref, at, k, b.f);
		if (dtype_is_float(ref->dtype))
			run_float(&b, ref, at, k, rule, a);
		else if (dtype_is_complex(ref->dtype))
			run_complex(&b, at, k, rule, a);
		else
			run_exact(&b, got, ref, at, k, a);
	}
}
