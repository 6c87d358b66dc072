#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Honest candidates of many styles are verified.

bats_require_minimum_version 1.5.0
load judge

@test "every control passes under the rules that it is for" {
	run "$BATS_TEST_DIRNAME/../controls/run.sh" cpu
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -ge 34 ]
}
