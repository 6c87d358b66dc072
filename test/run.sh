#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh SUITE...: runs suites (lib: unit tests under prove; any other:
# test/SUITE/*.bats), shows their TAP as it comes and ends with one line,
# "N passed, M failed, K skipped", also kept in $B/test.count.  Time spent
# goes to stderr, a line for each suite.
set -u
cd "$(dirname "$0")/.." || exit 1
. test/tap.sh
# What tests make others have to read, jails' users among them.
umask 022
B=${B:-build}
export CA_BIN=$PWD/${BIN:-bin}
# Each test has hosts of its own, but for those that are about sharing.
export CA_TORCH_SHARED=0
export BATS_TEST_TIMEOUT=${BATS_TEST_TIMEOUT:-240}

run_lib() {
	if command -v prove >/dev/null; then
		prove -v -e test/unit.sh "$@"
		return
	fi
	echo '# no prove: unit tests run one by one'
	local test status=0
	for test; do
		test/unit.sh "$test" || status=1
	done
	return $status
}

run_bats() {
	if command -v bats >/dev/null; then
		bats --formatter tap --timing --print-output-on-failure "$@"
		return
	fi
	grep -h '^@test' "$@" | sed 's/.*/ok - & # skip no bats/'
}

tap_begin "$B/test.count"
for suite; do
	if [ "$suite" = lib ]; then
		run=run_lib pattern="$B/test/*_test"
	else
		run=run_bats pattern="test/$suite/*.bats"
	fi
	mapfile -t files < <(compgen -G "$pattern" | sort)
	[ ${#files[@]} -gt 0 ] || continue
	tap_suite "$suite" "$run" "${files[@]}"
done
tap_end
