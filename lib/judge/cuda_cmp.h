/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of the kernel `compare`.  Read by the C compiler and by NVRTC.
 */
#ifndef CA_JUDGE_CUDA_CMP_H
#define CA_JUDGE_CUDA_CMP_H

#include "compare_elem.h"

#define CMP_THREADS 256

/* How an element is read; the numbers are those of enum ca_dtype. */
enum cmp_load {
	LOAD_BOOL = 1, LOAD_U8, LOAD_I8, LOAD_I16, LOAD_I32, LOAD_I64,
	LOAD_F16, LOAD_BF16, LOAD_F32, LOAD_F64, LOAD_C64, LOAD_C128,
	LOAD_U16, LOAD_U32, LOAD_U64, LOAD_F8E4M3, LOAD_F8E5M2
};

struct cmp_args {
	cmp_u64 got, ref, fp64;		/* addresses; fp64 0: none */
	cmp_u64 n;			/* elements */
	cmp_u64 out;			/* struct cmp_acc per block */
	int load;			/* enum cmp_load */
	int size;			/* bytes of an element */
	struct cmp_elem_rule rule;
};

#endif
