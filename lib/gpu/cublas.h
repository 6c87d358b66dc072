/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by cuBLASLt, which is opened when the first device is.
 */
#ifndef CA_GPU_CUBLAS_H
#define CA_GPU_CUBLAS_H

#include "base/err.h"
#include "cu/cu.h"
#include "gpu/type.h"

struct cublas;

/* CA_UNAVAILABLE when there is no libcublasLt.  The context is the calling
 * thread's. */
struct cublas *cublas_open(struct err *e);
void cublas_close(struct cublas *c);		/* NULL is fine */

#define CUBLAS_WORK ((size_t)64 << 20)	/* bytes of work space it may use */

/*
 * In its own, column-major terms: c (m, n) = a b + beta c, where a is (m, k),
 * or (k, m) when ta, b is (k, n), or (n, k) when tb; each with as many rows
 * between its columns as it has.  Sums are fp32; how they are split depends
 * on the shapes alone.
 */
struct cublas_product {
	void *c;			/* = a b + beta add */
	const void *a, *b, *add;
	int m, n, k, ta, tb;
	float beta;
	enum gpu_type in, out;
};
int cublas_run(struct cublas *h, cu_stream s, void *work,
	       const struct cublas_product *p, struct err *e);

#endif
