/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.h's comparison by a kernel over device memory.  The element rules
 * are the same text on both sides (compare_elem.h); blocks take consecutive
 * runs of elements and are merged in order here.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "judge/compare.h"
#include "judge/compare_elem.h"
#include "judge/cuda.h"
#include "judge/cuda_cmp.h"

#define SMALL ((uint64_t)4096)	/* elements: compared on the host */
#define SECONDS 60

_Static_assert((int)LOAD_BOOL == DT_BOOL && (int)LOAD_I64 == DT_I64 &&
	       (int)LOAD_F16 == DT_F16 && (int)LOAD_C128 == DT_C128 &&
	       (int)LOAD_U16 == DT_U16 && (int)LOAD_F8E5M2 == DT_F8E5M2,
	       "the kernel reads elements by these numbers");
_Static_assert(sizeof(struct cmp_acc) % 8 == 0, "merged word by word");

static int on_device(struct cuda *c, const void *p)
{
	unsigned type = 0;

	return !c->cu->api->PointerAttr(&type, CU_POINTER_TYPE,
					(cu_ptr)(uintptr_t)p) &&
		type == CU_TYPE_DEVICE;
}

/* A view over host memory, and that memory (malloc'd) when it was copied. */
static int to_host(struct cuda *c, const struct view *v, struct view *out,
		   void **copy, struct err *e)
{
	uint64_t n, bytes;

	*copy = NULL;
	if (!v)
		return 0;
	*out = *v;
	if (view_count(v, &n, &bytes))
		return err_set(e, CA_SOFTWARE, "view without a size");
	if (!bytes || !on_device(c, v->data))
		return 0;
	*copy = malloc(bytes);
	if (!*copy)
		return err_set(e, CA_SOFTWARE, "out of memory");
	out->data = *copy;
	return cu_download(c->cu, *copy, (cu_ptr)(uintptr_t)v->data, bytes,
			   e);
}

/* Scalars, and whatever is too small for a launch to pay. */
static int on_host(struct cuda *c, const struct cmp_rule *rule,
		   const struct view *got, const struct view *ref,
		   const struct view *fp64, struct cmp_result *r,
		   struct err *e)
{
	struct view v[3];
	void *copy[3] = { NULL, NULL, NULL };
	int rc = -1;

	if (to_host(c, got, &v[0], &copy[0], e) ||
	    to_host(c, ref, &v[1], &copy[1], e) ||
	    to_host(c, fp64, &v[2], &copy[2], e))
		goto out;
	rc = compare(rule, &v[0], &v[1], fp64 ? &v[2] : NULL, 1, r, e);
out:
	for (int i = 0; i < 3; i++)
		free(copy[i]);
	return rc;
}

static int same_shape(const struct view *a, const struct view *b)
{
	return a->ndim == b->ndim &&
		!memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0]));
}

static int fits(const struct view *got, const struct view *ref,
		const struct view *fp64, struct err *e)
{
	enum ca_dtype wide = dtype_is_complex(ref->dtype) ? DT_C128 : DT_F64;

	if (got->dtype != ref->dtype || !same_shape(got, ref))
		return err_set(e, CA_SOFTWARE, "views differ in type or "
			       "shape");
	if (fp64 && (fp64->dtype != wide || !same_shape(fp64, ref)))
		return err_set(e, CA_SOFTWARE, "the view in double precision "
			       "does not fit");
	return 0;
}

static int launch(struct cuda *c, const struct cmp_args *t, unsigned blocks,
		  struct cmp_acc *sum, struct err *e)
{
	size_t bytes = blocks * sizeof(struct cmp_acc);
	struct cmp_acc *part = malloc(bytes);
	void *args[] = { (void *)t };
	int rc = -1;

	if (!part)
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (cu_launch(c->cu, c->compare, blocks, CMP_THREADS, args, e) ||
	    cuda_sync(c, SECONDS, e) ||
	    cu_download(c->cu, part, t->out, bytes, e))
		goto out;
	cmp_acc_init(sum);
	for (unsigned i = 0; i < blocks; i++)
		cmp_acc_merge(sum, &part[i]);
	rc = 0;
out:
	free(part);
	return rc;
}

int cuda_compare(struct device *d, const struct cmp_rule *rule,
		 const struct view *got, const struct view *ref,
		 const struct view *fp64, struct cmp_result *r,
		 struct err *e)
{
	struct cuda *c = cuda_of(d);
	unsigned blocks = (unsigned)c->cu->info.sms * 2;
	uint64_t n, bytes;
	struct cmp_acc sum;
	struct cmp_args t;

	if (fits(got, ref, fp64, e))
		return -1;
	if (view_count(ref, &n, &bytes))
		return err_set(e, CA_SOFTWARE, "view without a size");
	if (n <= SMALL || !on_device(c, ref->data) ||
	    !on_device(c, got->data) || (fp64 && !on_device(c, fp64->data)))
		return on_host(c, rule, got, ref, fp64, r, e);
	memset(&t, 0, sizeof(t));
	t.got = (uintptr_t)got->data;
	t.ref = (uintptr_t)ref->data;
	t.fp64 = fp64 ? (uintptr_t)fp64->data : 0;
	t.n = n;
	t.out = c->scratch.ptr;
	t.load = ref->dtype;
	t.size = (int)dtype_size(ref->dtype);
	t.rule = cmp_elem(rule, fp64 != NULL);
	if (launch(c, &t, blocks, &sum, e))
		return -1;
	cmp_finish(rule, ref, fp64 != NULL, &sum, r);
	return 0;
}
