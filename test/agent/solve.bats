#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent on five tasks for the CPU, with a model that works as a strong one
# would and the real judge, graded in full (make test-agent).  The five are
# worked on side by side, before the first test.

load ../tools/agent.bash

setup_file() {
	export BATS_TEST_TIMEOUT=1200
	agent_setup
	export dir
	solve cpu diag-matmul matmul-sum softmax-temperature \
		cross-entropy resnet-basicblock
}

setup() {
	cd "$dir" || return
}

teardown_file() {
	agent_teardown
}

@test "solved: diag-matmul" {
	was_solved cpu diag-matmul
}

@test "solved: matmul-sum" {
	was_solved cpu matmul-sum
}

@test "solved: softmax-temperature" {
	was_solved cpu softmax-temperature
}

@test "solved: cross-entropy" {
	was_solved cpu cross-entropy
}

@test "solved: resnet-basicblock" {
	was_solved cpu resnet-basicblock
}

@test "under --eval the best of two is judged once more, in full" {
	local slow=$fix/slow-diag-matmul
	strong cpu diag-matmul
	# It thinks better of it: what it leaves is right, and slow.
	jq -c --rawfile c "$slow/kernels/matmul.c" --rawfile py "$slow/model_new.py" \
		--argjson verify "$(sh_turn ca-verify '{"timeout":600000}')" '
		def put(path; text): {name: "Write", args: {file_path: "/work/\(path)", content: text}};
		.[:-1] + [{calls: [put("kernels/matmul.c"; $c), put("model_new.py"; $py)]},
			$verify, .[-1]]' script >more
	mv more script
	work cpu --eval --grade full
	jq -c '[.evaluations[] | [.stage, .graded, .verified]], .outcome' out
	jq -e '[.evaluations[].graded | select(.)] == ["final", "best"]' out
	jq -e '.outcome | .final.status == "ok" and .best.rejudged.status == "ok" and
		.best.selected != .final.id' out
	jq -e '[.evaluations[-2:][].candidate.reward | .provisional // false | not] | all' out
	jq -e '(.evaluations[-2:] | any(.candidate.profile.contended)) or
		(.outcome | .final.reward == 1 and .best.rejudged.reward == 3 and .reward == 3)' out
}
