/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cpu/level.h"

void CPU_OP(fill)(struct gpu_ops *ops)
{
#define ROW(name, args) ops->name = CPU_OP(name);
	GPU_OPS(ROW)
#undef ROW
}
