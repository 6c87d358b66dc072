#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent on five tasks for CUDA, with a model that works as a strong one
# would and the real judge, graded in full.

load ../tools/agent.bash

setup_file() {
	export BATS_TEST_TIMEOUT=1200
}

setup() {
	command -v nvidia-smi >/dev/null && nvidia-smi -L | grep -q GPU ||
		skip 'no GPU'
	agent_setup
}

teardown() {
	agent_teardown
}

solve() {
	strong cuda "$1"
	work cuda --grade full
	solved cuda "$1"
	jq -e '.evaluations[-1].candidate | .reward.provisional // false | not' out
}

@test "solved: diag-matmul" {
	solve diag-matmul
}

@test "solved: matmul-sum" {
	solve matmul-sum
}

@test "solved: softmax-temperature" {
	solve softmax-temperature
}

@test "solved: cross-entropy" {
	solve cross-entropy
}

@test "solved: resnet-basicblock" {
	solve resnet-basicblock
}
