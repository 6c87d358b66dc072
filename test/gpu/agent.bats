#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent on five tasks for CUDA, with a model that works as a strong one
# would and the real judge, graded in full.  They are worked on side by side,
# before the first test.

load gpu
load ../tools/agent.bash

setup_file() {
	need_gpus 1
	agent_setup
	export dir
	solve cuda diag-matmul matmul-sum softmax-temperature \
		cross-entropy resnet-basicblock
}

setup() {
	cd "$dir" || return
}

teardown_file() {
	agent_teardown
}

@test "solved: diag-matmul" {
	was_solved cuda diag-matmul
}

@test "solved: matmul-sum" {
	was_solved cuda matmul-sum
}

@test "solved: softmax-temperature" {
	was_solved cuda softmax-temperature
}

@test "solved: cross-entropy" {
	was_solved cuda cross-entropy
}

@test "solved: resnet-basicblock" {
	was_solved cuda resnet-basicblock
}
