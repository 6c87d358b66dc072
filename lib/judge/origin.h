/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose kernels a candidate's time on the GPU went to: what CUPTI saw in its
 * process (cu/trace.h), held against the kernels of its built object.
 *
 * The process is the candidate's, and what it writes could be forged with
 * effort; so this can lower a verdict and never raises one, and what is
 * missing or contradicts itself lowers it too.
 */
#ifndef CA_JUDGE_ORIGIN_H
#define CA_JUDGE_ORIGIN_H

#include "cu/trace.h"
#include "rec/json.h"

struct origin_kernel {
	uint64_t name, code;	/* code_hash of each */
};

/* What the judge knows of the built object. */
struct origin_known {
	struct origin_kernel *k;	/* by name */
	size_t n;
	int may_blas;		/* it calls cuBLAS or cuDNN */
};

/* 0, or -1: no memory.  An object without kernels that can be read has n = 0.
 * origin_forget frees. */
int origin_learn(struct origin_known *o, const void *image, size_t len);
void origin_forget(struct origin_known *o);

enum origin_place {
	ORIGIN_OWN,	/* the object's, by its instructions or, where these are
			 * not known, by a name that no library uses */
	ORIGIN_BLAS,	/* cuBLAS's or cuDNN's, where the object calls them */
	ORIGIN_FOREIGN,	/* ATen's, Triton's, anything else */
	ORIGIN_MOVED,	/* copies and fills by the driver */
	ORIGIN_PLACES
};

struct origin {
	uint64_t calls;			/* that were seen */
	uint64_t expected;		/* that were made */
	uint64_t lost;
	int known;			/* the object has kernels, or calls a
					 * BLAS */
	double ns[ORIGIN_PLACES];
	double foreign_ns;		/* of the kernel that follows */
	char foreign[128];
};

enum origin_place origin_place(const struct origin_known *o,
			       const struct trace_row *r);
/* Adds what was seen of `expected` calls; t NULL: nothing was. */
void origin_add(struct origin *sum, const struct origin_known *o,
		const struct trace_table *t, uint64_t expected);

/*
 * 0: nothing speaks against the candidate's own kernels having done the work.
 * 1: something does (rules_fallback), as text says.  -1: the evidence is
 * missing or cut off.  `parts`: results of a call, each of which the shim may
 * have copied.
 */
int origin_judge(const struct origin *g, unsigned parts, char *text,
		 size_t len);

/* The object verify.attribution of CUDA; null without calls. */
void origin_write(const struct origin *g, int measured, struct jw *w);

#endif
