#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Honest candidates on CUDA, under all the rules that each is for.

load gpu

setup_file() {
	export BATS_TEST_TIMEOUT=600
}

setup() {
	need_gpus 1
}

@test "every control for CUDA is verified" {
	run test/controls/run.sh -a cuda
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -ge 20 ]
}
