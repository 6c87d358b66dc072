#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The CUDA fixtures through the whole chain, each with the verdict and one of
# the rewards that its file states.

load gpu

setup_file() {
	export BATS_TEST_TIMEOUT=600
}

setup() {
	need_gpus 1
}

@test "every CUDA fixture gets the verdict and reward that its file says" {
	run test/fixtures.sh -q -j 4 cuda
	echo "$output"
	[ "$status" -eq 0 ]
}
