#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent with the real judge, and a model that works as a strong one would.
# More tasks, graded in full: test/agent/solve.bats.

load agent.bash
load host

setup() {
	use_host
	agent_setup
}

teardown() {
	agent_teardown
}

@test "a strong model's rollout on the CPU, judged for real" {
	strong cpu diag-matmul
	work cpu --grade quick
	solved cpu diag-matmul
	# Its candidates are records that the other programs believe.
	jq -c '.evaluations[-1].candidate' out >candidate
	"$bin/ca-verify" --device cpu candidate >again
	cmp candidate again
}

@test "rewards go by the rule that was asked for" {
	jq -nc --rawfile code "$fix/diag-matmul/model.py" '{kind: "candidate", v: 1, task: {code: $code},
		files: {"model_new.py": "class ModelNew: pass", "kernels/k.c": "no C"}}' >candidate
	"$bin/ca-agent" --serve-judge -d cpu --point-estimate --clock device-sum <candidate >out
	jq -e '.reward | .value == -1 and .options.point_estimate and
		.options.clock == "device-sum"' out
	"$bin/ca-agent" --serve-judge -d cpu <candidate >out
	jq -e '.reward.options | .point_estimate == false and .clock == "bracket"' out
}

@test "a verdict that was given before is remembered, one that was forged is not" {
	mkdir -p dir/kernels
	cp "$fix/diag-matmul/model.py" dir
	echo 'class ModelNew: pass' >dir/model_new.py
	echo 'no C' >dir/kernels/k.c
	"$bin/ca-compile" --device cpu dir | jq -c 'del(.build)' >candidate
	judged() {
		"$bin/ca-agent" --serve-judge -d cpu --grade quick --remember kept <candidate >"$1"
		jq -e '.verify.status == "compile_error" and .reward.value == -1' "$1"
	}
	judged one
	judged two
	cmp <(jq -c '.build, .verify' one) <(jq -c '.build, .verify' two)
	file=$(echo kept/*.quick)
	jq -c '.verify.status = "ok"' "$file" >forged
	cp forged "$file"
	judged three
	jq -e '.verify.status == "compile_error"' "$file"
	echo '{"kind":' >"$file"
	judged four
	# One that calls itself by its id is not it.
	jq -c '.files["kernels/k.c"] = "no C either"' candidate >other
	mv other candidate
	judged five
	[ "$(ls kept | wc -l)" = 2 ]
	"$bin/ca-agent" --serve-judge -d cpu --remember kept <candidate >full
	[ "$(ls kept | wc -l)" = 3 ]
	# Nor is one that was made as the judge would not, whoever signed it.
	"$bin/ca-verify" -d cpu --seed 7 candidate >seeded
	jq -e '.verify.options.seed == "7"' seeded
	cp seeded "$(echo kept/*.full)"
	"$bin/ca-agent" --serve-judge -d cpu --remember kept <candidate >anew
	jq -e '.verify | .status == "compile_error" and .options.seed == null' anew
	cmp <(jq -c .verify anew) <(jq -c .verify kept/*.full)
	# A model's own try is no grade.
	jq -c '.ask = {stage: "profile"}' candidate |
		"$bin/ca-agent" --serve-judge -d cpu --grade quick --remember kept >tried
	[ "$(ls kept/*.try | wc -l)" = 1 ]
}

@test "a quick grade takes over whether it is right from a try, and times it anew" {
	"$bin/ca-compile" --device cpu "$fix/diag-matmul" | jq -c 'del(.build)' >candidate
	jq -c '.ask = {stage: "verify"}' candidate |
		"$bin/ca-agent" --serve-judge -d cpu --remember kept >tried
	[ "$(ls kept/*.try | wc -l)" = 1 ]
	graded() { # file, options
		"$bin/ca-agent" --serve-judge -d cpu --remember kept "${@:2}" <candidate >"$1"
		jq -e '.verify.status == "ok" and (.profile.candidate.median_us > 0)' "$1"
	}
	graded quick --grade quick
	cmp <(jq -c .verify tried) <(jq -c .verify quick)
	# What a try timed is not asked.
	jq -c --slurpfile q quick '.profile = $q[0].profile' kept/*.try >timed
	mv timed "$(echo kept/*.try)"
	rm -f kept/*.quick
	graded anew --grade quick
	cmp <(jq -c .verify tried) <(jq -c .verify anew)
	[ "$(jq .profile.mac quick)" != "$(jq .profile.mac anew)" ]
	# A full one begins from nothing, and a forged try is no verdict.
	graded full
	[ "$(jq .verify.mac full)" != "$(jq .verify.mac tried)" ]
	rm -f kept/*.quick
	jq -c '.verify.tensors = []' kept/*.try >forged
	mv forged "$(echo kept/*.try)"
	graded again --grade quick
	jq -e '.verify.tensors | length > 0' again
}

@test "what lies in the tree when it is graded counts, whatever was verified" {
	strong cpu diag-matmul
	# Without the two profiles, and with one more turn.
	jq -c '.[:2] + .[3:-2] + [$more, .[-1]]' --argjson more "$(sh_turn \
		'echo "class ModelNew: pass" >model_new.py; (sleep 5; echo x >model_new.py) &')" \
		script >more
	mv more script
	work cpu --grade quick
	jq -e '.outcome.reward == -1 and .evaluations[2].verified' out
}

@test "worked examples of the skills build, and on the CPU are right" {
	local skills=$root/skills
	"$bin/ca-compile" --device cpu "$skills"/cpu-kernels/examples/* >built
	"$bin/ca-verify" --device cpu built >out
	[ "$(jq -r .verify.status out | sort | uniq -c | tr -s ' ')" = ' 3 ok' ]
	if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
		"$bin/ca-compile" --device cuda "$skills"/cuda-kernels/examples/* >out
		jq -c '.build | {status, log}' out
		[ "$(jq -r .build.status out | sort | uniq -c | tr -s ' ')" = ' 3 ok' ]
	fi
	for d in "$skills"/*/examples/*; do
		grep -q '^| speedup' "$d/README.md"
	done
}
