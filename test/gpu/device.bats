#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The judge's CUDA device, without PyTorch.

@test "the judge's device against another process on the GPU" {
	command -v nvidia-smi >/dev/null && nvidia-smi -L | grep -q GPU ||
		skip "no GPU"
	run timeout 120 "${B:-build}/test/gpu/device_test"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output != *skipped* ]]
}
