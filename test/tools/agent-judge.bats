#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent with the real judge, and a model that works as a strong one would.

load agent.bash

setup() {
	agent_setup
}

teardown() {
	agent_teardown
}

# solve TASK: reads, profiles the reference, writes, fails to compile, mends,
# verifies, and is done
solve() {
	local from=$fix/$1 source file turns
	jq -cn --rawfile c "$from/model.py" '{kind: "task", v: 1, code: $c}' >tasks
	source=$(basename "$from"/kernels/*)
	turns=("$(tool Read '{"file_path":"/work/model.py"}')"
		"$(sh_turn 'cat SKILL.md | head -3; ls examples')"
		"$(jq -cn --arg p "/work/kernels/$source" --rawfile c "$from/kernels/$source" \
			'{calls: [{name: "Write", args: {file_path: $p, content: ($c + "\n!")}}]}')"
		"$(jq -cn --rawfile c "$from/model_new.py" \
			'{calls: [{name: "Write", args: {file_path: "/work/model_new.py", content: $c}}]}')"
		"$(sh_turn 'utils/compile.sh')"
		"$(jq -cn --arg p "/work/kernels/$source" \
			'{calls: [{name: "Edit", args: {file_path: $p, old_string: "\n!", new_string: ""}}]}')"
		"$(sh_turn 'ca-compile && sudo python3 -m utils.verification' '{"timeout":600000}')")
	script "${turns[@]}" "$done_turn"
	"$bin/ca-agent" --model-cmd "python3 '$endpoint' --stdio script" \
		-d cpu --grade quick tasks >out
}

@test "a strong model's rollout on the CPU, judged for real" {
	solve diag-matmul
	stopped final
	[[ $(result 1) = *diag-matmul* ]]
	[[ $(result 4) = *compile_error*"kernels/"*'[exit code 1]' ]]
	[[ $(result 6) = *'built: light form'*'ok (all is as it should be)'* ]]
	jq -e '.outcome | .reward >= 1 and .final.status == "ok"' out
	jq -e '[.evaluations[] | [.stage, .graded]] == [["compile", null],
		["compile", null], ["verify", null], ["reward", "final"]]' out
	# Its candidates are records that the other programs believe.
	jq -c '.evaluations[-1].candidate' out >candidate
	"$bin/ca-verify" --device cpu candidate >again
	cmp candidate again
}

@test "what lies in the tree when it is graded counts, whatever was verified" {
	solve diag-matmul
	jq -cn '[inputs]' <<<"$(jq -c '.[:-1][]' script)
$(sh_turn 'echo "class ModelNew: pass" >model_new.py; (sleep 5; echo x >model_new.py) &')
$done_turn" >more
	mv more script
	"$bin/ca-agent" --model-cmd "python3 '$endpoint' --stdio script" \
		-d cpu --grade quick tasks >out
	jq -e '.outcome.reward == -1 and .evaluations[2].verified' out
}
