#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The attacks for CUDA, each with the verdict that its file states.

load gpu

setup_file() {
	export BATS_TEST_TIMEOUT=600
}

@test "attacks on CUDA get the status that they state" {
	need_gpus 1
	run test/attacks/run.sh cuda
	echo "$output"
	[ "$status" -eq 0 ]
}
