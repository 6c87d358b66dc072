/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on the CPU, fp32.  The files of this folder are compiled once
 * for each level of the instruction set (the Makefile sets CPU_LEVEL: 1
 * portable, 3 AVX2, 4 AVX-512); lib/gpu/cpu.c takes the highest that runs.
 * Every element is summed in an order that depends on its own row only.
 */
#ifndef CA_GPU_CPU_LEVEL_H
#define CA_GPU_CPU_LEVEL_H

#include "gpu/device.h"

#ifndef CPU_LEVEL
#define CPU_LEVEL 1
#endif
#define CPU_PASTE(level, name) cpu##level##_##name
#define CPU_EXPAND(level, name) CPU_PASTE(level, name)
#define CPU_OP(name) CPU_EXPAND(CPU_LEVEL, name)

#define CPU_DECLARE(name, args) \
	void CPU_OP(name)(struct gpu *g, const struct args *a);
GPU_OPS(CPU_DECLARE)
#undef CPU_DECLARE

/* Sets the operations of this level. */
void CPU_OP(fill)(struct gpu_ops *ops);

#endif
