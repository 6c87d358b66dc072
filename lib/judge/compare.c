/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole tensors: chunks handed to threads, sums in the order of the elements
 * so that the result is the same for any number of threads.
 */
#include "judge/compare.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/pieces.h"
#include "judge/compare_block.h"
#include "torch/torch.h"

#define CHUNK ((uint64_t)1 << 18)	/* elements */
#define BYTE_CHUNK ((size_t)4 << 20)

static int any_dim(const struct view *v, int64_t below)
{
	for (uint32_t i = 0; i < v->ndim; i++)
		if (v->shape[i] < below)
			return 1;
	return 0;
}

int view_count(const struct view *v, uint64_t *n, uint64_t *bytes)
{
	uint64_t size = dtype_size(v->dtype);

	if (!size || v->ndim > CA_NDIM || any_dim(v, 0))
		return -1;
	*n = any_dim(v, 1) ? 0 : 1;
	for (uint32_t i = 0; *n && i < v->ndim; i++)
		if (__builtin_mul_overflow(*n, (uint64_t)v->shape[i], n))
			return -1;
	if (__builtin_mul_overflow(*n, size, bytes) || *bytes > INT64_MAX)
		return -1;
	return 0;
}

struct cmp_elem_rule cmp_elem(const struct cmp_rule *rule, int have64)
{
	return (struct cmp_elem_rule){ rule->atol, rule->rtol, rule->norm > 0,
				       have64, have64 && rule->own > 0 };
}

struct job {
	const struct view *got, *ref, *fp64;
	struct cmp_elem_rule rule;
	uint64_t n;
	struct cmp_acc *acc;	/* one per chunk */
};

static void compare_chunk(void *ctx, uint64_t i)
{
	struct job *j = ctx;
	uint64_t at = i * CHUNK;
	uint64_t n = j->n - at < CHUNK ? j->n - at : CHUNK;
	struct cmp_acc a;

	cmp_acc_init(&a);
	compare_run(j->got, j->ref, j->fp64, at, n, &j->rule, &a);
	j->acc[i] = a;
}

static int same_shape(const struct view *a, const struct view *b)
{
	if (a->ndim != b->ndim)
		return 0;
	for (uint32_t i = 0; i < a->ndim && i < CA_NDIM; i++)
		if (a->shape[i] != b->shape[i])
			return 0;
	return 1;
}

static int check_views(const struct view *got, const struct view *ref,
		       const struct view *fp64, uint64_t *n, struct err *e)
{
	enum ca_dtype want64 = dtype_is_complex(ref->dtype) ? DT_C128 : DT_F64;
	uint64_t bytes;

	if (view_count(ref, n, &bytes) || got->dtype != ref->dtype ||
	    !same_shape(got, ref))
		return err_set(e, CA_SOFTWARE,
			       "cannot compare views of unequal kind");
	if (fp64 && (fp64->dtype != want64 || !same_shape(fp64, ref)))
		return err_set(e, CA_SOFTWARE, "fp64 view does not fit");
	if (*n && (!got->data || !ref->data || (fp64 && !fp64->data)))
		return err_set(e, CA_SOFTWARE, "view without data");
	return 0;
}

int compare(const struct cmp_rule *rule, const struct view *got,
	    const struct view *ref, const struct view *fp64, unsigned threads,
	    struct cmp_result *r, struct err *e)
{
	struct job j = { got, ref, fp64, cmp_elem(rule, fp64 != NULL), 0,
			 NULL };
	struct cmp_acc sum;
	uint64_t chunks;

	if (check_views(got, ref, fp64, &j.n, e))
		return -1;
	chunks = (j.n + CHUNK - 1) / CHUNK;
	j.acc = calloc(chunks ? chunks : 1, sizeof(*j.acc));
	if (!j.acc)
		return err_set(e, CA_SOFTWARE, "out of memory");
	pieces_run(compare_chunk, &j, chunks, threads);
	cmp_acc_init(&sum);
	for (uint64_t i = 0; i < chunks; i++)
		cmp_acc_merge(&sum, &j.acc[i]);
	free(j.acc);
	cmp_finish(rule, ref, fp64 != NULL, &sum, r);
	return 0;
}

static void unravel(const struct view *v, uint64_t flat,
		    int64_t index[CA_NDIM])
{
	for (uint32_t i = v->ndim; i-- > 0;) {
		index[i] = (int64_t)(flat % (uint64_t)v->shape[i]);
		flat /= (uint64_t)v->shape[i];
	}
}

static int is_exact(enum ca_dtype t)
{
	return !dtype_is_float(t) && !dtype_is_complex(t);
}

/* By norm: elements outside the tolerance do not matter by themselves. */
static void finish_norm(const struct cmp_rule *rule, int have64,
			const struct cmp_acc *a, struct cmp_result *r)
{
	r->norm_allowed = rule->norm * r->ref_norm +
		1e-4 * rule->atol * sqrt((double)a->comparable);
	r->passed = !a->non_finite &&
		((have64 && rule->own > 0) ||
		 r->err_norm <= r->norm_allowed ||
		 (have64 && r->err64 <= r->ref64));
	if (r->passed) {
		r->misses = 0;
		r->first = CMP_NO_INDEX;
	}
}

void cmp_finish(const struct cmp_rule *rule, const struct view *ref,
		int have64, const struct cmp_acc *a, struct cmp_result *r)
{
	int exact = is_exact(ref->dtype);

	memset(r, 0, sizeof(*r));
	r->n = a->n;
	r->comparable = a->comparable;
	r->misses = a->misses;
	r->non_finite = a->non_finite;
	r->relieved = a->relieved;
	r->first = a->first;
	r->max_abs = a->max_abs;
	r->max_rel = a->max_rel;
	r->err_norm = cmp_norm_value(&a->err);
	r->ref_norm = cmp_norm_value(&a->ref);
	r->passed = !a->misses;
	if (have64 && !exact)
		cmp_own_measure(rule, ref->dtype, a, r);
	if (rule->norm > 0 && !exact)
		finish_norm(rule, have64, a, r);
	r->passed &= r->own == OWN_OK;
	if (r->first == CMP_NO_INDEX)
		return;
	unravel(ref, r->first, r->index);
	r->got = a->got;
	r->got_im = a->got_im;
	r->want = a->want;
	r->want_im = a->want_im;
	if (!exact)
		r->allowed = rule->atol +
			rule->rtol * hypot(a->want, a->want_im);
}

struct bytes_job {
	const unsigned char *a, *b;
	size_t n;
	atomic_uint_least64_t first;
};

static void bytes_chunk(void *ctx, uint64_t i)
{
	struct bytes_job *j = ctx;
	size_t at = i * BYTE_CHUNK;
	size_t n = j->n - at < BYTE_CHUNK ? j->n - at : BYTE_CHUNK;
	uint64_t seen = atomic_load(&j->first);
	size_t k = 0;

	if (at >= seen || !memcmp(j->a + at, j->b + at, n))
		return;
	while (j->a[at + k] == j->b[at + k])
		k++;
	while (at + k < seen &&
	       !atomic_compare_exchange_weak(&j->first, &seen, at + k))
		;
}

int bytes_differ(const void *a, const void *b, size_t n, unsigned threads,
		 size_t *at)
{
	struct bytes_job j = { a, b, n, UINT64_MAX };

	if (!n)
		return 0;
	pieces_run(bytes_chunk, &j, (n + BYTE_CHUNK - 1) / BYTE_CHUNK, threads);
	if (atomic_load(&j.first) == UINT64_MAX)
		return 0;
	if (at)
		*at = atomic_load(&j.first);
	return 1;
}
