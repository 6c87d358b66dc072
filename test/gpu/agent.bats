#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent on five tasks for CUDA, with a model that works as a strong one
# would and the real judge, graded in full.

load gpu
load ../tools/agent.bash

setup_file() {
	export BATS_TEST_TIMEOUT=1200
}

setup() {
	need_gpus 1
	agent_setup
}

teardown() {
	agent_teardown
}

@test "solved: diag-matmul" {
	solve cuda diag-matmul
}

@test "solved: matmul-sum" {
	solve cuda matmul-sum
}

@test "solved: softmax-temperature" {
	solve cuda softmax-temperature
}

@test "solved: cross-entropy" {
	solve cuda cross-entropy
}

@test "solved: resnet-basicblock" {
	solve cuda resnet-basicblock
}
