#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The CUDA fixtures through the whole chain, each with the verdict and one of
# the rewards that its file states.

setup_file() {
	export BATS_TEST_TIMEOUT=600
}

setup() {
	command -v nvidia-smi >/dev/null && nvidia-smi -L | grep -q GPU ||
		skip "no GPU"
}

@test "every CUDA fixture gets the verdict and reward that its file says" {
	run test/fixtures.sh -q cuda
	echo "$output"
	[ "$status" -eq 0 ]
}
