// SPDX-License-Identifier: Apache-2.0
//
// Operations of lib/gpu on CUDA, compiled by NVRTC for the device and the
// type of its activations (ACT_BF16 0 or 1).

#include "common.cuh"
#include "mma.cuh"
#include "wide.cuh"
#include "rows.cuh"
#include "head.cuh"
#include "gemm.cuh"
#include "row.cuh"
#include "attn.cuh"
#include "flash.cuh"
#include "step.cuh"
#include "wgmma.cuh"
#include "hopper.cuh"
#include "stream.cuh"
