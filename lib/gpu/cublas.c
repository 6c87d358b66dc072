/* SPDX-License-Identifier: Apache-2.0
 *
 * What is used of cuBLASLt is declared here, as lib/cu/api.h does for the
 * driver; names and values are those of version 13's cublasLt.h.
 */
#include "gpu/cublas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define KNOWN 1024			/* shapes whose algorithm is kept */

enum {
	COMPUTE_F32 = 68,		/* CUBLAS_COMPUTE_32F */
	R_32F = 0, R_16BF = 14,		/* cudaDataType */
	DESC_TRANSA = 3, DESC_TRANSB = 4,
	PREF_WORK = 1, PREF_REDUCTION = 3, PREF_ALIGN = 5,	/* to 8 */
	/* Through work space; in place would add with atomics. */
	REDUCE_BY_WORK = 2 | 4,
};

struct algo { uint64_t data[8]; };
struct found {			/* cublasLtMatmulHeuristicResult_t */
	struct algo algo;
	size_t work;
	int state;
	float waves;
	int reserved[4];
};

#define FUNCTIONS(X) \
	X(Create, "cublasLtCreate", (void **)) \
	X(Destroy, "cublasLtDestroy", (void *)) \
	X(DescCreate, "cublasLtMatmulDescCreate", (void **, int, int)) \
	X(DescDestroy, "cublasLtMatmulDescDestroy", (void *)) \
	X(DescSet, "cublasLtMatmulDescSetAttribute", \
	  (void *, int, const void *, size_t)) \
	X(LayoutCreate, "cublasLtMatrixLayoutCreate", \
	  (void **, int, uint64_t, uint64_t, int64_t)) \
	X(LayoutDestroy, "cublasLtMatrixLayoutDestroy", (void *)) \
	X(PrefCreate, "cublasLtMatmulPreferenceCreate", (void **)) \
	X(PrefDestroy, "cublasLtMatmulPreferenceDestroy", (void *)) \
	X(PrefSet, "cublasLtMatmulPreferenceSetAttribute", \
	  (void *, int, const void *, size_t)) \
	X(Heuristic, "cublasLtMatmulAlgoGetHeuristic", \
	  (void *, void *, void *, void *, void *, void *, void *, int, \
	   struct found *, int *)) \
	X(Matmul, "cublasLtMatmul", \
	  (void *, void *, const void *, const void *, void *, const void *, \
	   void *, const void *, const void *, void *, void *, void *, \
	   const struct algo *, void *, size_t, cu_stream))

#define FIELD(name, sym, args) int (*name) args;
struct api { FUNCTIONS(FIELD) };
#undef FIELD

struct shape {			/* of a product, and how it is done */
	struct cublas_product key;	/* without pointers and beta */
	void *desc, *a, *b, *c;
	struct algo algo;
};

struct cublas {
	struct api api;
	void *lib, *handle, *pref;
	struct shape shape[KNOWN];
	size_t n;
};

/* Of the four matrices; by default it counts on 256 bytes, and rows of a
 * larger array begin anywhere. */
static int set_alignment(struct cublas *c)
{
	uint32_t bytes = 16;

	for (int i = 0; i < 4; i++)
		if (c->api.PrefSet(c->pref, PREF_ALIGN + i, &bytes,
				   sizeof bytes))
			return -1;
	return 0;
}

struct cublas *cublas_open(struct err *e)
{
#define ROW(name, sym, args) { sym, offsetof(struct api, name) },
	static const struct cu_symbol rows[] = { FUNCTIONS(ROW) };
#undef ROW
	struct cublas *c = calloc(1, sizeof *c);
	size_t work = CUBLAS_WORK;
	uint32_t reduction = REDUCE_BY_WORK;

	if (!c) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	c->lib = cu_open_lib("libcublasLt.so", NULL, e);
	if (!c->lib || cu_resolve(c->lib, rows, sizeof rows / sizeof *rows,
				  &c->api, e))
		goto out;
	if (c->api.Create(&c->handle) || c->api.PrefCreate(&c->pref) ||
	    c->api.PrefSet(c->pref, PREF_WORK, &work, sizeof work) ||
	    c->api.PrefSet(c->pref, PREF_REDUCTION, &reduction,
			   sizeof reduction) || set_alignment(c)) {
		err_set(e, CA_UNAVAILABLE, "cuBLASLt does not start");
		goto out;
	}
	return c;
out:
	cublas_close(c);
	return NULL;
}

static void free_shape(struct cublas *c, struct shape *s)
{
	if (s->desc)
		c->api.DescDestroy(s->desc);
	if (s->a)
		c->api.LayoutDestroy(s->a);
	if (s->b)
		c->api.LayoutDestroy(s->b);
	if (s->c)
		c->api.LayoutDestroy(s->c);
}

/* The library itself stays: it does not like to be closed. */
void cublas_close(struct cublas *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++)
		free_shape(c, &c->shape[i]);
	if (c->pref)
		c->api.PrefDestroy(c->pref);
	if (c->handle)
		c->api.Destroy(c->handle);
	free(c);
}

static int type_of(enum gpu_type t)
{
	return t == GPU_BF16 ? R_16BF : R_32F;
}

static int layout(struct cublas *c, void **out, enum gpu_type t, int rows,
		  int cols)
{
	return c->api.LayoutCreate(out, type_of(t), (uint64_t)rows,
				   (uint64_t)cols, rows);
}

static int describe(struct cublas *c, struct shape *s)
{
	const struct cublas_product *p = &s->key;
	int32_t ta = p->ta, tb = p->tb;
	struct found found;
	int n = 0;

	if (c->api.DescCreate(&s->desc, COMPUTE_F32, R_32F) ||
	    c->api.DescSet(s->desc, DESC_TRANSA, &ta, sizeof ta) ||
	    c->api.DescSet(s->desc, DESC_TRANSB, &tb, sizeof tb) ||
	    layout(c, &s->a, p->in, ta ? p->k : p->m, ta ? p->m : p->k) ||
	    layout(c, &s->b, p->in, tb ? p->n : p->k, tb ? p->k : p->n) ||
	    layout(c, &s->c, p->out, p->m, p->n) ||
	    c->api.Heuristic(c->handle, s->desc, s->a, s->b, s->c, s->c,
			     c->pref, 1, &found, &n) || n < 1 || found.state)
		return -1;
	s->algo = found.algo;
	return 0;
}

static struct shape *find(struct cublas *c, const struct cublas_product *p,
			  struct err *e)
{
	struct cublas_product key = *p;
	struct shape *s;

	key.a = key.b = key.add = key.c = NULL;
	key.beta = 0;
	for (size_t i = 0; i < c->n; i++) {
		const struct cublas_product *k = &c->shape[i].key;

		if (k->m == key.m && k->n == key.n && k->k == key.k &&
		    k->ta == key.ta && k->tb == key.tb && k->in == key.in &&
		    k->out == key.out)
			return &c->shape[i];
	}
	/* Shapes of prompts never end: begin again. */
	if (c->n == KNOWN)
		while (c->n)
			free_shape(c, &c->shape[--c->n]);
	s = &c->shape[c->n];
	memset(s, 0, sizeof *s);
	s->key = key;
	if (describe(c, s)) {
		free_shape(c, s);
		err_set(e, CA_SOFTWARE, "cuBLASLt knows no way for a product "
			"of %d x %d x %d", p->m, p->n, p->k);
		return NULL;
	}
	c->n++;
	return s;
}

int cublas_run(struct cublas *c, cu_stream stream, void *work,
	       const struct cublas_product *p, struct err *e)
{
	const struct shape *s = find(c, p, e);
	const float one = 1;
	int rc;

	if (!s)
		return -1;
	rc = c->api.Matmul(c->handle, s->desc, &one, p->a, s->a, p->b, s->b,
			   &p->beta, p->add, s->c, p->c, s->c, &s->algo, work,
			   CUBLAS_WORK, stream);
	return rc ? err_set(e, CA_SOFTWARE, "cublasLtMatmul failed (%d)", rc) :
		    0;
}
