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

@test "every CUDA fixture is verified as its file says" {
	run test/fixtures.sh -v cuda
	echo "$output"
	[ "$status" -eq 0 ]
}

# One of each kind; all of them take ten minutes (test/fixtures.sh -q cuda).
@test "fast, slow, wrong and paper-form fixtures earn what their files say" {
	run test/fixtures.sh -q cuda axpby slow-axpby bad-value axpby-paper \
		diag-matmul
	echo "$output"
	[ "$status" -eq 0 ]
}
