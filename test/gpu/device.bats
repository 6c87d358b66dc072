#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The judge's CUDA device, without PyTorch.

load gpu

@test "the judge's device against another process on the GPU" {
	need_gpus 1
	run timeout 120 "${B:-build}/test/gpu/device_test"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output != *skipped* ]]
}
