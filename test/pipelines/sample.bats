#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# fixtures/tasks/sample.ndjson: what it promises, and that a few of its tasks,
# chosen by their hashes, still pass.

bats_require_minimum_version 1.5.0

root=$BATS_TEST_DIRNAME/../..
sample=$root/fixtures/tasks/sample.ndjson

setup() {
	command -v jq >/dev/null || skip 'no jq'
	bin=${CA_BIN:-$root/bin}
	cd "$BATS_TEST_TMPDIR" || return
}

@test "the sample's tasks are whole, kept, and each another one" {
	jq -se 'all(.kind == "task" and .v == 1 and .keep and .filter.status == "ok" and
		.filter.reason == null and (.ops | length) > 0 and
		(.code | contains("class Model")) and
		([.filter.checks[].ok] | all(. != false)))' "$sample"
	jq -se '[.[].filter.checks.trace.graph | strings] | length == (unique | length)' \
		"$sample"
	"$bin/ca-dedup-ast" --no-prov "$sample" >out
	[ "$(jq -c 'select(.keep | not)' out)" = '' ]
	cmp <(jq -r .id out) <(jq -r .id "$sample")
}

@test "a few of the sample's tasks pass ca-filter" {
	"$bin/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
	jq -cs 'sort_by(.id)[:3][]' "$sample" >few
	"$bin/ca-filter" --device cpu --checks contract,trace,eager,finite,random \
		few >out
	[ "$(jq -c 'select(.keep | not) | [.id, .filter.text]' out)" = '' ]
	# The same PyTorch dispatches the same operators.
	cmp <(jq -c --slurpfile o out '[.id, if $o[0].filter.torch == .filter.torch
		then .ops else "another PyTorch" end]' few) \
		<(jq -c --slurpfile f few '[.id, if $f[0].filter.torch == .filter.torch
		then .ops else "another PyTorch" end]' out)
}
