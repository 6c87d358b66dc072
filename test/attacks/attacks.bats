#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The attacks that are quick to judge; `make test-attacks` has the rest.

bats_require_minimum_version 1.5.0
load ../tools/judge

setup() {
	judge_setup
	cd "$BATS_TEST_DIRNAME/../.." || return
}

teardown() {
	judge_teardown
}

@test "attacks that are quick to judge get the status that they state" {
	run test/attacks/run.sh -q cpu
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -ge 15 ]
}

@test "the honest candidate of each task for the CPU is right" {
	local t
	for t in test/attacks/tasks/[!c]*.new; do
		t=$(basename "$t" .new)
		printf 'task: %s\n' "$t" >"$BATS_TEST_TMPDIR/$t.attack"
		awk -v tasks=test/attacks/tasks -v out="$TMPDIR/w/$t" \
			-f test/attacks/expand.awk "$BATS_TEST_TMPDIR/$t.attack"
	done
	"$bin/ca-verify" --device cpu "$TMPDIR"/w/* >"$BATS_TEST_TMPDIR/out"
	rm -r "$TMPDIR/w"
	statuses verify "$BATS_TEST_TMPDIR/out"
	[ "$(statuses verify "$BATS_TEST_TMPDIR/out" | grep -c $'\tok$')" = \
		"$(wc -l <"$BATS_TEST_TMPDIR/out")" ]
	[ "$(wc -l <"$BATS_TEST_TMPDIR/out")" -ge 8 ]
}

@test "every attack says what it tries, what it gets and who pays it" {
	local f key
	for f in test/attacks/c*/*.attack; do
		for key in why task paper paid-by; do
			grep -q "^$key: ." "$f" || { echo "$f: no $key"; false; }
		done
	done
	[ "$(find test/attacks/cpu -name '*.attack' | wc -l)" -ge 60 ]
}

@test "no installed program can switch a defence off" {
	run ! grep -l CA_WEAKEN "$bin"/ca-* "$bin"/*.so
}
