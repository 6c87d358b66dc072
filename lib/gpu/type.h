/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types of weights and activations, and their conversion on the
 * host.
 */
#ifndef CA_GPU_TYPE_H
#define CA_GPU_TYPE_H

#include <stddef.h>
#include <stdint.h>

enum gpu_type { GPU_F32, GPU_BF16, GPU_F16 };

/* Bytes of one element. */
size_t gpu_type_size(enum gpu_type t);

/* "fp32", "bf16", "fp16". */
const char *gpu_type_name(enum gpu_type t);

/* Widens n elements of type `t`; exact.  `src` need not be aligned. */
void gpu_widen(float *dst, const void *src, enum gpu_type t, size_t n);

/* Rounds n elements to nearest, ties to even; fp16 overflows to infinity. */
void gpu_narrow(void *dst, const float *src, enum gpu_type t, size_t n);

/* Converts between any two types. */
void gpu_convert(void *dst, enum gpu_type to, const void *src,
		 enum gpu_type from, size_t n);

#endif
