/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of the judge's kernels, part of the library.
 */
#ifndef CA_JUDGE_CUDA_SOURCE_H
#define CA_JUDGE_CUDA_SOURCE_H

#include "base/str.h"

/* Appends the cubin for a device of this compute capability. */
int cuda_source_compile(int major, int minor, struct str *cubin,
			struct err *e);

#endif
