/* SPDX-License-Identifier: Apache-2.0 */
#include "judge/compare.h"

#include "base/rand.h"

#include "tests.h"

#include <math.h>

#include "judge/compare_elem.h"
#include "torch/torch.h"

static const struct cmp_rule published = { CMP_TOL, CMP_TOL, 0, 0 };
static const struct cmp_rule by_norm = { CMP_TOL, CMP_TOL, CMP_NORM, 0 };

static uint64_t state = 1;

static uint64_t next(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return state >> 33;
}

static double unit(void)
{
	return (double)next() / 2147483648.0;
}

static struct view vec(enum ca_dtype t, const void *p, int64_t n)
{
	struct view v = { t, 1, { n }, p };

	return v;
}

static struct cmp_result run(const struct cmp_rule *rule, enum ca_dtype t,
			     const void *got, const void *ref,
			     const void *fp64, int64_t n)
{
	struct view g = vec(t, got, n), r = vec(t, ref, n);
	struct view f = vec(dtype_is_complex(t) ? DT_C128 : DT_F64, fp64, n);
	struct cmp_result res;
	struct err e = ERR_INIT;

	assert_int_equal(compare(rule, &g, &r, fp64 ? &f : NULL, 1, &res, &e),
			 0);
	return res;
}

/* Sign, exponent and mantissa spelt out, as the formats define them. */
static double small_float(unsigned bits, int ebits, int mbits, int ieee)
{
	int bias = (1 << (ebits - 1)) - 1, top = (1 << ebits) - 1;
	int exponent = (int)(bits >> mbits) & top;
	int mantissa = (int)bits & ((1 << mbits) - 1);
	double sign = bits >> (ebits + mbits) & 1 ? -1 : 1;

	if (ieee && exponent == top)
		return mantissa ? NAN : sign * INFINITY;
	if (!ieee && exponent == top && mantissa == (1 << mbits) - 1)
		return NAN;
	if (!exponent)
		return sign * ldexp(mantissa, 1 - bias - mbits);
	return sign * ldexp((1 << mbits) + mantissa, exponent - bias - mbits);
}

static int same(double a, double b)
{
	return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void every_small_float_is_read_right(void **s)
{
	(void)s;
	for (unsigned h = 0; h < 65536; h++) {
		assert_true(same(cmp_of_f16(h), small_float(h, 5, 10, 1)));
		assert_true(same(cmp_of_bf16(h), small_float(h, 8, 7, 1)));
	}
	for (unsigned b = 0; b < 256; b++) {
		assert_true(same(cmp_of_f8e4m3(b), small_float(b, 4, 3, 0)));
		assert_true(same(cmp_of_f8e5m2(b), small_float(b, 5, 2, 1)));
	}
}

static void tolerance_is_the_published_one(void **s)
{
	static const float ref[] = { 1, -100, 0, -0.0f, 3e38f };
	static const float in[] = { 1.0199f, -101.0f, 0.00999f, 0.0f,
				    3.02e38f };
	static const float out[] = { 1.0201f, -98.9f, -0.0101f, 0.0101f,
				     3.04e38f };
	struct cmp_result r = run(&published, DT_F32, in, ref, NULL, 5);

	(void)s;
	assert_true(r.passed);
	assert_int_equal(r.misses, 0);
	assert_int_equal(r.comparable, 5);
	assert_true(r.first == UINT64_MAX);
	assert_int_equal(cmp_status(&r), ST_OK);
	r = run(&published, DT_F32, out, ref, NULL, 5);
	assert_false(r.passed);
	assert_int_equal(r.misses, 5);
	assert_int_equal(r.first, 0);
	assert_true(r.got == 1.0201f && r.want == 1);
	assert_true(fabs(r.allowed - 0.02) < 1e-12);
	assert_true(fabs(r.max_rel - (double)0.02f) < 0.001);
	assert_int_equal(cmp_status(&r), ST_WRONG_VALUE);
}

static void classes_must_agree_where_the_reference_is_not_finite(void **s)
{
	static const float ref[] = { NAN, INFINITY, -INFINITY, 1 };
	static const float good[] = { -NAN, INFINITY, -INFINITY, 1 };
	static const float bad[] = { INFINITY, -INFINITY, 3e38f, 1 };
	static const float worse[] = { NAN, INFINITY, -INFINITY, NAN };
	struct cmp_result r = run(&published, DT_F32, good, ref, NULL, 4);

	(void)s;
	assert_true(r.passed);
	assert_int_equal(r.comparable, 1);
	r = run(&published, DT_F32, bad, ref, NULL, 4);
	assert_int_equal(r.misses, 3);
	assert_int_equal(cmp_status(&r), ST_WRONG_VALUE);
	assert_false(isfinite(r.want));
	r = run(&published, DT_F32, worse, ref, NULL, 4);
	assert_int_equal(r.misses, 1);
	assert_int_equal(r.first, 3);
	assert_int_equal(cmp_status(&r), ST_NON_FINITE);
	/* By norm nothing is asked where eager overflows. */
	assert_true(run(&by_norm, DT_F32, bad, ref, NULL, 4).passed);
	r = run(&by_norm, DT_F32, worse, ref, NULL, 4);
	assert_int_equal(cmp_status(&r), ST_NON_FINITE);
}

static void integers_and_bools_are_exact(void **s)
{
	static const int64_t a[] = { 9007199254740993, -1 };
	static const int64_t b[] = { 9007199254740992, -1 };
	static const uint64_t c[] = { UINT64_MAX }, d[] = { UINT64_MAX - 1 };
	static const uint8_t yes[] = { 1, 255, 0 }, ref[] = { 1, 1, 0 };
	static const uint8_t no[] = { 1, 1, 1 };
	static const int8_t neg[] = { -1 }, pos[] = { 127 };
	struct cmp_result r = run(&published, DT_I64, a, b, NULL, 2);

	(void)s;
	assert_int_equal(r.misses, 1);
	assert_int_equal(r.first, 0);
	assert_true(r.allowed == 0);
	assert_false(run(&by_norm, DT_I64, a, b, NULL, 2).passed);
	assert_false(run(&published, DT_U64, c, d, NULL, 1).passed);
	assert_true(run(&published, DT_BOOL, yes, ref, NULL, 3).passed);
	assert_false(run(&published, DT_BOOL, no, ref, NULL, 3).passed);
	assert_false(run(&published, DT_U8, yes, ref, NULL, 3).passed);
	r = run(&published, DT_I8, neg, pos, NULL, 1);
	assert_true(r.got == -1 && r.want == 127 && r.max_abs == 128);
}

static void complex_numbers_by_modulus(void **s)
{
	static const float ref[] = { 3, 4, NAN, 1 };
	static const float in[] = { 3.03f, 4.04f, NAN, 1 };
	static const float out[] = { 3.05f, 4.05f, 1, NAN };
	static const double huge[] = { 3e200, 4e200 };
	struct cmp_result r = run(&published, DT_C64, in, ref, NULL, 2);

	(void)s;
	assert_true(r.passed);
	assert_int_equal(r.comparable, 1);
	r = run(&published, DT_C64, out, ref, NULL, 2);
	assert_int_equal(r.misses, 2);
	assert_true(r.got_im == 4.05f && r.want_im == 4);
	assert_true(fabs(r.allowed - 0.06) < 1e-9);
	r = run(&published, DT_C128, huge, huge, NULL, 1);
	assert_true(r.passed && fabs(r.ref_norm / 5e200 - 1) < 1e-12);
}

static void fp64_relieves_what_eager_got_more_wrong(void **s)
{
	static const float ref[] = { 1.0f, 2.0f, 3.0f };
	static const float got[] = { 1.1f, 2.1f, 3.0f };
	static const double fp64[] = { 1.2, 2.0, 3.0 };
	static const double useless[] = { NAN, INFINITY, 3.0 };
	struct view rv = vec(DT_F32, ref, 3);
	struct cmp_result r = run(&published, DT_F32, got, ref, NULL, 3);

	(void)s;
	assert_int_equal(r.misses, 2);
	assert_true(cmp_wants_fp64(&published, &rv, &r));
	r = run(&published, DT_F32, got, ref, fp64, 3);
	assert_int_equal(r.misses, 1);
	assert_int_equal(r.first, 1);
	assert_int_equal(r.relieved, 1);
	r = run(&published, DT_F32, got, ref, useless, 3);
	assert_int_equal(r.misses, 2);
}

static void fp64_is_not_asked_for_in_vain(void **s)
{
	static const float ref[] = { 1, 2 }, nan_[] = { NAN, 2 };
	static const int32_t i[] = { 1 }, j[] = { 2 };
	struct view fv = vec(DT_F32, ref, 2), iv = vec(DT_I32, i, 1);
	struct cmp_result r = run(&published, DT_F32, ref, ref, NULL, 2);

	(void)s;
	assert_false(cmp_wants_fp64(&published, &fv, &r));
	r = run(&published, DT_F32, nan_, ref, NULL, 2);
	assert_false(cmp_wants_fp64(&published, &fv, &r));
	r = run(&published, DT_I32, i, j, NULL, 1);
	assert_false(cmp_wants_fp64(&published, &iv, &r));
}

static void the_norm_decides_scaled_rounds(void **s)
{
	float ref[1000], got[1000], zeros[1000] = { 0 };
	double fp64[1000];
	struct cmp_result r;

	(void)s;
	for (int i = 0; i < 1000; i++) {
		ref[i] = (float)(100 * (unit() - 0.5));
		got[i] = ref[i] * (i % 2 ? 1.015f : 0.985f);
		fp64[i] = ref[i];
	}
	got[7] += 3;	/* outside the element rule, drowned in the norm */
	r = run(&by_norm, DT_F32, got, ref, NULL, 1000);
	assert_true(r.passed);
	assert_int_equal(r.misses, 0);
	assert_true(r.err_norm > 0.01 * r.ref_norm);
	assert_false(run(&published, DT_F32, got, ref, NULL, 1000).passed);
	for (int i = 0; i < 1000; i++)
		got[i] = ref[i] * 1.03f;
	r = run(&by_norm, DT_F32, got, ref, NULL, 1000);
	assert_false(r.passed);
	assert_true(r.misses > 0);
	assert_int_equal(cmp_status(&r), ST_WRONG_VALUE);
	assert_false(run(&by_norm, DT_F32, zeros, ref, NULL, 1000).passed);
	/* Eager far off in its turn, by fp64: no worse passes. */
	for (int i = 0; i < 1000; i++)
		fp64[i] = 1.02 * ref[i];
	assert_true(run(&by_norm, DT_F32, got, ref, fp64, 1000).passed);
	for (int i = 0; i < 1000; i++)
		fp64[i] = 1.01 * ref[i];
	assert_false(run(&by_norm, DT_F32, got, ref, fp64, 1000).passed);
}

/* x - x is 0 in eager; a fused kernel may leave a rounding error. */
static void a_reference_that_cancels_allows_rounding(void **s)
{
	float ref[64] = { 0 }, noise[64], wrong[64];

	(void)s;
	for (int i = 0; i < 64; i++) {
		noise[i] = 3e-7f;
		wrong[i] = 1e-4f;
	}
	assert_true(run(&by_norm, DT_F32, noise, ref, NULL, 64).passed);
	assert_false(run(&by_norm, DT_F32, wrong, ref, NULL, 64).passed);
}

static void norms_neither_overflow_nor_vanish(void **s)
{
	static const double ref[] = { 3e300, 4e300 }, got[] = { 3e300, 0 };
	static const double tiny[] = { 3e-300, 4e-300 }, none[] = { 0, 0 };
	struct cmp_rule rule = { 0, 0, CMP_NORM, 0 };
	struct cmp_result r = run(&rule, DT_F64, got, ref, NULL, 2);

	(void)s;
	assert_true(fabs(r.ref_norm / 5e300 - 1) < 1e-12);
	assert_true(fabs(r.err_norm / 4e300 - 1) < 1e-12);
	assert_false(r.passed);
	r = run(&rule, DT_F64, none, tiny, NULL, 2);
	assert_true(fabs(r.ref_norm / 5e-300 - 1) < 1e-12);
	assert_false(r.passed);
}

static void put_small(uint16_t *h, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h[i] = (uint16_t)(next() & 0xbfff);
}

/* What the loop without branches says is what the element rules say. */
static void quick_and_slow_agree(void **s)
{
	enum { N = 5000 };
	static uint16_t ref[N], got[N];
	struct cmp_elem_rule rule = { CMP_TOL, CMP_TOL, 0, 0, 0 };

	(void)s;
	for (int round = 0; round < 40; round++) {
		struct cmp_result r;
		struct cmp_acc a;
		int rate = round < 20 ? 5000 : 50;

		put_small(ref, N);
		memcpy(got, ref, sizeof(got));
		for (int i = 0; i < N; i++)
			if (next() % (uint64_t)rate == 0)
				got[i] = (uint16_t)next();
		if (round % 3 == 0)
			ref[next() % N] = 0x7c00;
		cmp_acc_init(&a);
		for (int i = 0; i < N; i++)
			cmp_real(&a, (cmp_u64)i, cmp_of_f16(got[i]),
				 cmp_of_f16(ref[i]), 0, &rule);
		r = run(&published, DT_F16, got, ref, NULL, N);
		assert_int_equal(r.misses, a.misses);
		assert_int_equal(r.non_finite, a.non_finite);
		assert_int_equal(r.comparable, a.comparable);
		assert_true(r.first == a.first);
		assert_true(r.max_abs == a.max_abs);
		assert_true(r.max_rel == a.max_rel);
		assert_true(fabs(r.ref_norm / sqrt(a.ref.mid) - 1) < 1e-12);
	}
}

static void threads_do_not_change_the_result(void **s)
{
	int64_t n = 3 * 262144 + 17;
	float *ref = malloc((size_t)n * 4), *got = malloc((size_t)n * 4);
	struct view r = { DT_F32, 2, { 17, 3 }, ref }, g;
	struct cmp_result one, many;
	struct err e = ERR_INIT;

	(void)s;
	for (int64_t i = 0; i < n; i++) {
		ref[i] = (float)(unit() - 0.5);
		got[i] = ref[i] + (float)(1e-3 * unit());
	}
	got[600001] = 7;
	got[700001] = NAN;
	r.ndim = 1;
	r.shape[0] = n;
	g = r;
	g.data = got;
	assert_int_equal(compare(&published, &g, &r, NULL, 1, &one, &e), 0);
	for (unsigned t = 2; t < 9; t += 3) {
		assert_int_equal(compare(&published, &g, &r, NULL, t, &many,
					 &e), 0);
		assert_memory_equal(&one, &many, sizeof(one));
	}
	assert_int_equal(one.misses, 2);
	assert_int_equal(one.index[0], 600001);
	free(ref);
	free(got);
}

static void shapes_of_all_kinds(void **s)
{
	static const unsigned char bytes[] = "\0\0\0\x80\x3f\0\0\0\x40";
	static const float ref[] = { 1, 5 };
	struct view odd = { DT_F32, 2, { 1, 2 }, bytes + 1 };
	struct view r = { DT_F32, 2, { 1, 2 }, ref };
	struct view scalar = { DT_F32, 0, { 0 }, ref };
	struct view empty = { DT_F32, 2, { 0, 4 }, NULL };
	struct cmp_result res;
	struct err e = ERR_INIT;

	(void)s;
	assert_int_equal(compare(&published, &odd, &r, NULL, 0, &res, &e), 0);
	assert_int_equal(res.misses, 1);
	assert_int_equal(res.index[0], 0);
	assert_int_equal(res.index[1], 1);
	assert_true(res.got == 2 && res.want == 5);
	assert_int_equal(compare(&published, &scalar, &scalar, NULL, 0, &res,
				 &e), 0);
	assert_true(res.passed && res.n == 1);
	assert_int_equal(compare(&published, &empty, &empty, NULL, 0, &res,
				 &e), 0);
	assert_true(res.passed && res.n == 0 && res.comparable == 0);
}

static void views_that_do_not_fit_are_refused(void **s)
{
	static const float x[4];
	struct view a = vec(DT_F32, x, 4), b = vec(DT_F32, x, 3);
	struct view c = vec(DT_I32, x, 4), d = vec(DT_F32, x, 4);
	struct view none = vec(DT_F32, NULL, 4), neg = vec(DT_F32, x, -1);
	struct cmp_result r;
	struct err e = ERR_INIT;
	uint64_t n, bytes;
	struct view wide = { DT_F32, 2, { INT64_MAX, INT64_MAX }, x };

	(void)s;
	assert_int_equal(compare(&published, &a, &b, NULL, 1, &r, &e), -1);
	assert_int_equal(compare(&published, &a, &c, NULL, 1, &r, &e), -1);
	assert_int_equal(compare(&published, &a, &a, &d, 1, &r, &e), -1);
	assert_int_equal(compare(&published, &none, &a, NULL, 1, &r, &e), -1);
	assert_int_equal(compare(&published, &neg, &neg, NULL, 1, &r, &e), -1);
	assert_int_equal(e.code, CA_SOFTWARE);
	assert_int_equal(view_count(&wide, &n, &bytes), -1);
	wide.shape[1] = 0;
	assert_int_equal(view_count(&wide, &n, &bytes), 0);
	assert_int_equal(n, 0);
}

static void sums_over_rounds(void **s)
{
	static const float ref[] = { 1, 2 }, near_[] = { 1, 2.01f };
	static const float far_[] = { 1, 9 };
	struct cmp_result sum, a, b;

	(void)s;
	a = run(&published, DT_F32, near_, ref, NULL, 2);
	b = run(&published, DT_F32, far_, ref, NULL, 2);
	cmp_result_init(&sum);
	cmp_result_merge(&sum, &a);
	assert_true(sum.passed && sum.first == UINT64_MAX);
	cmp_result_merge(&sum, &b);
	cmp_result_merge(&sum, &a);
	assert_false(sum.passed);
	assert_int_equal(sum.misses, 1);
	assert_int_equal(sum.n, 6);
	assert_int_equal(sum.first, 1);
	assert_true(sum.max_abs == 7 && sum.got == 9);
	assert_true(sum.err_norm == b.err_norm);
}

static void what_people_read(void **s)
{
	static const float ref[] = { 1, 2 }, got[] = { 1, 9 };
	struct view v = { DT_F32, 2, { 1, 2 }, ref };
	struct cmp_result r = run(&published, DT_F32, got, ref, NULL, 2);
	char text[200], cut[12];

	(void)s;
	r.index[0] = 0;
	r.index[1] = 1;
	cmp_describe(&v, &r, text, sizeof(text));
	assert_string_equal(text, "1 of 2 elements differ; first at [0, 1]: "
			    "got 9, wanted 2, allowed 0.03");
	cmp_describe(&v, &r, cut, sizeof(cut));
	assert_string_equal(cut, "1 of 2 elem");
}

/* Errors in units of the reference's own, each measure by itself. */
static void against_the_reference_s_own_error(void **s)
{
	static const struct cmp_rule strict = { CMP_TOL, CMP_TOL, 0, 3 };
	enum { N = 4096 };
	static float ref[N], got[N];
	static double wide[N];
	struct rng rng;

	(void)s;
	rng_seeded(&rng, 3);
	for (int i = 0; i < N; i++) {
		wide[i] = 1 + rng_unit(&rng);
		ref[i] = (float)(wide[i] + (rng_unit(&rng) - 0.5) * 1e-4);
		got[i] = (float)(wide[i] + (rng_unit(&rng) - 0.5) * 2e-4);
	}
	assert_true(run(&strict, DT_F32, got, ref, wide, N).passed);
	assert_int_equal(run(&strict, DT_F32, got, ref, NULL, N).own, OWN_OK);
	got[7] = (float)wide[7] + 2e-3f;
	assert_int_equal(run(&strict, DT_F32, got, ref, wide, N).own, OWN_CAP);
	for (int i = 0; i < N; i++)
		got[i] = (float)(wide[i] + 8e-5);
	assert_int_equal(run(&strict, DT_F32, got, ref, wide, N).own,
			 OWN_BIAS);
	for (int i = 0; i < N; i++)
		got[i] = (float)(wide[i] + (rng_unit(&rng) - 0.5) * 4e-4);
	assert_int_equal(run(&strict, DT_F32, got, ref, wide, N).own,
			 OWN_NORM);
	/* Right by luck: the floor counts. */
	for (int i = 0; i < N; i++) {
		wide[i] = ref[i];
		got[i] = ref[i] * (i % 2 ? 1 + 0x1p-22f : 1 - 0x1p-22f);
	}
	assert_true(run(&strict, DT_F32, got, ref, wide, N).passed);
}

static void a_record_entry(void **s)
{
	static const float ref[] = { 1, 2 }, got[] = { NAN, 2 };
	struct view v = vec(DT_F32, ref, 2);
	struct cmp_result r = run(&published, DT_F32, got, ref, NULL, 2);
	struct str out = STR_INIT;
	struct jw w;

	(void)s;
	jw_init(&w, &out);
	cmp_write(&w, "out", &v, &published, 0.5, &r);
	assert_string_equal(out.buf,
		"{\"path\":\"out\",\"dtype\":\"float32\",\"shape\":[2],"
		"\"max_abs\":0,\"max_rel\":0,\"norm_error\":0,"
		"\"fp64_error\":null,\"atol\":0.01,"
		"\"rtol\":0.01,\"tol_used\":0.5,\"misses\":1,\"first_miss\":"
		"{\"index\":[0],\"got\":\"nan\",\"want\":1,"
		"\"allowed\":0.02}}");
	str_release(&out);
}

static struct ca_leaf tensor(enum ca_dtype t, int64_t a, int64_t b)
{
	struct ca_leaf l = {
		.kind = LEAF_TENSOR, .dtype = (uint32_t)t, .ndim = 2,
		.shape = { a, b },
	};

	return l;
}

static enum status leaves(const struct ca_msg *g, const struct ca_msg *r,
			  uint32_t leaf, const char *text)
{
	char said[300] = "";
	uint32_t at = 99;
	enum status s = cmp_leaves(g, r, &at, said, sizeof(said));

	assert_string_equal(said, text);
	assert_int_equal(at, leaf);
	return s;
}

static void structures(void **s)
{
	static struct ca_msg r, g;

	(void)s;
	memset(&r, 0, sizeof(r));
	r.nleaf = 2;
	r.leaf[0] = tensor(DT_F32, 2, 3);
	r.leaf[1].kind = LEAF_INT;
	g = r;
	assert_int_equal(leaves(&g, &r, 0, ""), ST_OK);
	g.leaf[0].shape[5] = 77;	/* beyond ndim: not looked at */
	assert_int_equal(leaves(&g, &r, 0, ""), ST_OK);
	g.leaf[0].dtype = DT_F16;
	assert_int_equal(leaves(&g, &r, 0,
		"result 0 is float16, not float32"), ST_WRONG_DTYPE);
	g.leaf[0] = tensor(DT_F16, 3, 2);
	assert_int_equal(leaves(&g, &r, 0,
		"result 0 has shape (3, 2), not (2, 3)"), ST_WRONG_SHAPE);
	g.leaf[0].ndim = 4000000000u;
	assert_int_equal(leaves(&g, &r, 0, "result 0 has shape (3, 2, 0, 0, 0,"
		" 0, 0, 0, 0, 0, 0, 0, ...), not (2, 3)"), ST_WRONG_SHAPE);
	g = r;
	g.leaf[1].kind = LEAF_FLOAT;
	assert_int_equal(leaves(&g, &r, 1,
		"result 1 is a float, not an integer"), ST_WRONG_DTYPE);
	g.leaf[1].kind = 0xffffffff;
	assert_int_equal(leaves(&g, &r, 1,
		"result 1 is nothing known, not an integer"), ST_WRONG_SHAPE);
	g = r;
	g.nleaf = 4000000000u;
	assert_int_equal(leaves(&g, &r, 2, "4000000000 results, not 2"),
			 ST_WRONG_SHAPE);
	g = r;
	g.structure[31] = 1;
	assert_int_equal(leaves(&g, &r, 0,
		"the container of the results differs "
		"(list, tuple or dict, or its keys)"), ST_WRONG_SHAPE);
	r.leaf[1].kind = LEAF_STR;
	g = r;
	g.leaf[1].bits = 1;
	assert_int_equal(leaves(&g, &r, 1, "result 1 is another string"),
			 ST_WRONG_VALUE);
}

static void numbers_among_the_results(void **s)
{
	struct ca_leaf l = { 0 };
	struct view v;
	double pi = 3.14159;

	(void)s;
	l.kind = LEAF_FLOAT;
	memcpy(&l.bits, &pi, sizeof(pi));
	assert_int_equal(cmp_leaf_view(&l, NULL, 0, &v), 0);
	assert_int_equal(v.dtype, DT_F64);
	assert_true(run(&published, DT_F64, v.data, &pi, NULL, 1).passed);
	l.kind = LEAF_BOOL;
	assert_int_equal(cmp_leaf_view(&l, NULL, 0, &v), 0);
	assert_int_equal(v.dtype, DT_BOOL);
	l = tensor(DT_BF16, 4, 5);
	assert_int_equal(cmp_leaf_view(&l, "0123456789", 4, &v), 0);
	assert_true(v.ndim == 2 && v.shape[1] == 5 &&
		    *(const char *)v.data == '4');
	l.kind = LEAF_NONE;
	assert_int_equal(cmp_leaf_view(&l, NULL, 0, &v), -1);
}

static void bytes(void **s)
{
	size_t n = ((size_t)8 << 20) + 3, at = 0;
	unsigned char *a = calloc(n, 1), *b = calloc(n, 1);

	(void)s;
	assert_int_equal(bytes_differ(a, b, n, 0, &at), 0);
	assert_int_equal(bytes_differ(a, b, (size_t)8 << 20, 0, &at), 0);
	assert_int_equal(bytes_differ(NULL, NULL, 0, 0, &at), 0);
	b[n - 1] = 1;
	assert_int_equal(bytes_differ(a, b, n, 2, &at), 1);
	assert_int_equal(at, n - 1);
	b[5000000] = b[12] = 1;
	assert_int_equal(bytes_differ(a, b, n, 3, &at), 1);
	assert_int_equal(at, 12);
	free(a);
	free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_small_float_is_read_right),
		cmocka_unit_test(tolerance_is_the_published_one),
		cmocka_unit_test(
			classes_must_agree_where_the_reference_is_not_finite),
		cmocka_unit_test(integers_and_bools_are_exact),
		cmocka_unit_test(complex_numbers_by_modulus),
		cmocka_unit_test(fp64_relieves_what_eager_got_more_wrong),
		cmocka_unit_test(fp64_is_not_asked_for_in_vain),
		cmocka_unit_test(the_norm_decides_scaled_rounds),
		cmocka_unit_test(a_reference_that_cancels_allows_rounding),
		cmocka_unit_test(norms_neither_overflow_nor_vanish),
		cmocka_unit_test(quick_and_slow_agree),
		cmocka_unit_test(threads_do_not_change_the_result),
		cmocka_unit_test(shapes_of_all_kinds),
		cmocka_unit_test(views_that_do_not_fit_are_refused),
		cmocka_unit_test(sums_over_rounds),
		cmocka_unit_test(what_people_read),
		cmocka_unit_test(against_the_reference_s_own_error),
		cmocka_unit_test(a_record_entry),
		cmocka_unit_test(structures),
		cmocka_unit_test(numbers_among_the_results),
		cmocka_unit_test(bytes),
	};

	return RUN_TESTS(tests);
}
