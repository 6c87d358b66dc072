#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The engine on CUDA: operations against their twins on the CPU, training
# steps against transformers, exactness.

load ../models/models
load gpu

setup() {
	need_gpus 1
	cd "$BATS_TEST_TMPDIR" || return
}

@test "operations on CUDA against their twins on the CPU" {
	run timeout 200 "$top/${B:-build}/test/gpu/ops_test"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output != *SKIP* ]]
}

@test "a token through a whole model at once against its operations" {
	run timeout 200 "$top/${B:-build}/test/gpu/token_test"
	echo "$output"
	[ "$status" -eq 0 ]
	# Where it is what decodes, every shape has to be taken.
	[[ $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0) != 9.* ]] ||
		[[ $output != *SKIP* ]]
}

@test "attention on Hopper's tensor cores against that on Ampere's" {
	[[ $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0) == 9.* ]] ||
		skip 'no Hopper'
	run timeout 200 "$top/${B:-build}/test/gpu/attn_bench" check
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "training steps of small models, fp32 and bf16, against transformers" {
	need_models
	"$py" "$here/../models/make.py" .
	"$py" "$here/../models/step.py" --once --device cuda --dtype fp32 "$nn" llama qwen3 value
	"$py" "$here/../models/step.py" --device cuda --dtype bf16 "$nn" llama qwen2 qwen3 value
}

@test "with --exact a prompt's log-probabilities are those of its generation" {
	python3 "$here/../tools/serve_model.py" model
	echo '{"kind":"prompt","v":1,"text":"the in","seed":"5","ignore_eos":true}' >in
	serve() {
		"$bin/ca-serve" --generate --model model --device cuda --dtype bf16 --exact \
			--no-prov "$@"
	}
	serve --max-tokens 200 --temperature 0.8 in >out
	jq -c '{kind:"prompt", v:1, temperature:0.8, max_tokens:0, prompt_logprobs:true,
		tokens:([260, 258, 32, 257] + .completion.tokens)}' out >again
	serve again >scored
	jq -c '.completion.logprobs' out >a
	jq -c '.completion.prompt_logprobs[4:]' scored >b
	cmp a b
}

@test "top_k cuts what is drawn, of many sequences too" {
	python3 "$here/../tools/serve_model.py" model
	for n in {1..150}; do
		echo "{\"kind\":\"prompt\",\"v\":1,\"text\":\"the in $n\",\"ignore_eos\":true}"
	done >in
	for flags in '--temperature 0' '--temperature 1 --top-k 1'; do
		# shellcheck disable=SC2086
		"$bin/ca-serve" --generate --model model --device cuda --dtype bf16 --exact \
			-j 150 --max-tokens 30 --no-prov $flags in |
			jq -c .completion.tokens >"${flags: -1}"
	done
	cmp 0 1
}

@test "with --exact a training step finds what ca-serve served, bit for bit" {
	need_models
	"$py" "$here/../models/make.py" .
	"$py" "$here/../tools/serve_model.py" sense
	for m in llama qwen2 qwen3; do
		cp sense/tokenizer.json $m
		rm -f url
		"$bin/ca-serve" -m $m --device cuda --dtype bf16 --exact -j 6 --ctx 400 \
			--cache 1000 --port 0 -q >url 3>&- &
		pid=$!
		until [ -s url ]; do kill -0 $pid && sleep 0.1; done
		"$py" "$here/../models/rescore.py" "$nn" $m "$(cat url)" cuda bf16
		# It lends the GPU, and goes on.
		root=$(sed 's,/v1$,,' url)
		curl -sS -m 60 -X POST "$root/sleep" | jq -e .asleep
		curl -sS -m 60 -X POST "$root/reload" | jq -e '.weight_version == 2'
		curl -sS -m 60 -X POST "$root/wake" | jq -e '.asleep | not'
		"$py" "$here/../models/rescore.py" "$nn" $m "$(cat url)" cuda bf16
		kill $pid
		wait $pid
		rm url
	done
}
