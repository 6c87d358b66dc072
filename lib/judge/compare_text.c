/* SPDX-License-Identifier: Apache-2.0
 *
 * What a comparison says: verdicts, sums over rounds, JSON, text.
 */
#include "judge/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "torch/torch.h"

int cmp_wants_fp64(const struct cmp_rule *rule, const struct view *ref,
		   const struct cmp_result *r)
{
	int real = dtype_is_float(ref->dtype) || dtype_is_complex(ref->dtype);

	return real && !r->non_finite &&
	       (rule->own > 0 ||
		(!r->passed && (rule->norm > 0 || r->misses)));
}

enum status cmp_status(const struct cmp_result *r)
{
	if (r->passed)
		return ST_OK;
	return r->non_finite ? ST_NON_FINITE : ST_WRONG_VALUE;
}

void cmp_result_init(struct cmp_result *sum)
{
	memset(sum, 0, sizeof(*sum));
	sum->first = UINT64_MAX;
	sum->passed = 1;
}

static void take_first(struct cmp_result *sum, const struct cmp_result *r)
{
	sum->first = r->first;
	memcpy(sum->index, r->index, sizeof(sum->index));
	sum->got = r->got;
	sum->got_im = r->got_im;
	sum->want = r->want;
	sum->want_im = r->want_im;
	sum->allowed = r->allowed;
}

void cmp_result_merge(struct cmp_result *sum, const struct cmp_result *r)
{
	if (sum->first == UINT64_MAX && r->first != UINT64_MAX)
		take_first(sum, r);
	if (r->err_norm * sum->ref_norm > sum->err_norm * r->ref_norm ||
	    (sum->ref_norm == 0 && r->ref_norm > 0)) {
		sum->err_norm = r->err_norm;
		sum->ref_norm = r->ref_norm;
		sum->norm_allowed = r->norm_allowed;
	}
	if (r->have64 && (!sum->have64 ||
			  r->err64 * sum->ref64 > sum->err64 * r->ref64)) {
		sum->have64 = 1;
		sum->err64 = r->err64;
		sum->ref64 = r->ref64;
		sum->own_allowed = r->own_allowed;
	}
	sum->n += r->n;
	sum->comparable += r->comparable;
	sum->misses += r->misses;
	sum->non_finite += r->non_finite;
	sum->relieved += r->relieved;
	sum->max_abs = fmax(sum->max_abs, r->max_abs);
	sum->max_rel = fmax(sum->max_rel, r->max_rel);
	sum->passed &= r->passed;
}

static void write_value(struct jw *w, double x)
{
	if (isfinite(x))
		jw_num(w, x);
	else
		jw_str(w, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

static void write_number(struct jw *w, const char *key, enum ca_dtype t,
			 double re, double im)
{
	jw_key(w, key);
	if (!dtype_is_complex(t)) {
		write_value(w, re);
		return;
	}
	jw_arr(w);
	write_value(w, re);
	write_value(w, im);
	jw_end_arr(w);
}

static void write_dims(struct jw *w, const char *key, const struct view *v,
		       const int64_t *dims)
{
	jw_key(w, key);
	jw_arr(w);
	for (uint32_t i = 0; i < v->ndim; i++)
		jw_int(w, dims[i]);
	jw_end_arr(w);
}

/* Error against fp64 in units of the reference's own. */
static void write_fp64(struct jw *w, const struct cmp_result *r)
{
	if (!r->have64)
		jw_null(w);
	else
		write_value(w, r->ref64 > 0 ? r->err64 / r->ref64 :
			    r->err64 > 0 ? INFINITY : 1);
}

void cmp_write(struct jw *w, const char *path, const struct view *ref,
	       const struct cmp_rule *rule, double factor,
	       const struct cmp_result *r)
{
	jw_obj(w);
	jw_kstr(w, "path", path);
	jw_kstr(w, "dtype", dtype_name(ref->dtype));
	write_dims(w, "shape", ref, ref->shape);
	jw_knum(w, "max_abs", r->max_abs);
	jw_knum(w, "max_rel", r->max_rel);
	if (r->ref_norm > 0)
		jw_knum(w, "norm_error", r->err_norm / r->ref_norm);
	jw_key(w, "fp64_error");
	write_fp64(w, r);
	jw_knum(w, "atol", rule->atol);
	jw_knum(w, "rtol", rule->rtol);
	jw_knum(w, "tol_used", factor);
	jw_kint(w, "misses", (int64_t)r->misses);
	if (r->first != UINT64_MAX) {
		jw_key(w, "first_miss");
		jw_obj(w);
		write_dims(w, "index", ref, r->index);
		write_number(w, "got", ref->dtype, r->got, r->got_im);
		write_number(w, "want", ref->dtype, r->want, r->want_im);
		jw_knum(w, "allowed", r->allowed);
		jw_end_obj(w);
	}
	jw_end_obj(w);
}

/* Appends like snprintf; what does not fit is cut. */
static void put(char *out, size_t outlen, const char *fmt, ...)
	CA_PRINTF(3, 4);
static void put(char *out, size_t outlen, const char *fmt, ...)
{
	size_t at = strlen(out);
	va_list ap;

	if (at + 1 >= outlen)
		return;
	va_start(ap, fmt);
	vsnprintf(out + at, outlen - at, fmt, ap);
	va_end(ap);
}

/* The sign of a NaN means nothing. */
static double unsigned_nan(double x)
{
	return isnan(x) ? fabs(x) : x;
}

static void put_number(char *out, size_t outlen, enum ca_dtype t, double re,
		       double im)
{
	re = unsigned_nan(re);
	im = unsigned_nan(im);
	if (dtype_is_complex(t))
		put(out, outlen, "%.7g%+.7gi", re, im);
	else if (dtype_is_float(t))
		put(out, outlen, "%.7g", re);
	else
		put(out, outlen, "%.17g", re);
}

/* Which measure against fp64 was exceeded. */
static void put_own(char *out, size_t outlen, const struct cmp_result *r)
{
	static const char *const what[] = {
		[OWN_NORM] = "the error", [OWN_CAP] = "the largest error",
		[OWN_BIAS] = "the errors' sum",
		[OWN_SLICE] = "the error of a slice",
	};

	put(out, outlen, "%s against double precision is %.3g times what the "
	    "reference's own allows; ", what[r->own], unsigned_nan(r->own_at));
}

void cmp_describe(const struct view *ref, const struct cmp_result *r,
		  char *out, size_t outlen)
{
	if (!outlen)
		return;
	out[0] = '\0';
	if (r->passed) {
		put(out, outlen, "largest error %.3g",
		    unsigned_nan(r->max_abs));
		return;
	}
	if (r->own != OWN_OK)
		put_own(out, outlen, r);
	else if (r->norm_allowed > 0)
		put(out, outlen, "error norm %.3g of allowed %.3g; ",
		    unsigned_nan(r->err_norm), r->norm_allowed);
	put(out, outlen, "%" PRIu64 " of %" PRIu64 " elements differ",
	    r->misses, r->n);
	if (r->non_finite)
		put(out, outlen, " (%" PRIu64 " not finite)", r->non_finite);
	if (r->first == UINT64_MAX)
		return;
	put(out, outlen, "; first at [");
	for (uint32_t i = 0; i < ref->ndim; i++)
		put(out, outlen, "%s%" PRId64, i ? ", " : "", r->index[i]);
	put(out, outlen, "]: got ");
	put_number(out, outlen, ref->dtype, r->got, r->got_im);
	put(out, outlen, ", wanted ");
	put_number(out, outlen, ref->dtype, r->want, r->want_im);
	if (r->allowed > 0)
		put(out, outlen, ", allowed %.3g", r->allowed);
}
