#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The engine against transformers, on the CPU in fp32: a training step's
# log-probabilities and gradients, and what ca-serve draws.

load models

setup_file() {
	load models
	py=$(models_python) || return 0		# each test says that it skips
	export HF_HUB_OFFLINE=1
	"$py" "$here/make.py" "$BATS_FILE_TMPDIR" >/dev/null 2>&1
	# Its tokenizer serves all.
	"$py" "$here/../tools/serve_model.py" "$BATS_FILE_TMPDIR/sense"
}

setup() {
	load models
	need_models
	cd "$BATS_FILE_TMPDIR" || return
}

@test "log-probabilities and gradients of small models of each family" {
	"$py" "$here/step.py" "$nn" llama llama-odd qwen2 qwen2-linear qwen3 value
}

@test "greedy continuations of small models are what transformers would take" {
	for m in llama llama-odd qwen2 qwen2-linear qwen3; do
		for n in {1..4}; do
			jq -nc --argjson n "$n" '{kind:"prompt", v:1, ignore_eos:true,
				tokens:[range(3; 3 + 40 * $n; 1) | . * 7 % 290 + 1]}'
		done >in
		cp sense/tokenizer.json $m
		"$bin/ca-serve" --generate --device cpu --model $m --temperature 0 --max-tokens 256 -j3 \
			--no-prov in >$m.out
	done
	"$py" "$here/greedy.py" llama=llama.out llama-odd=llama-odd.out qwen2=qwen2.out \
		qwen2-linear=qwen2-linear.out qwen3=qwen3.out
}

@test "SmolLM2: log-probabilities, gradients and greedy continuations" {
	smol=$(cache_dir)/smol
	[ -f "$smol/model.safetensors" ] || skip "no SmolLM2 in $smol"
	"$py" "$here/step.py" --once "$nn" "$smol"
	for text in 'The capital of France is' 'int main(void)\n{\n\tint a'; do
		printf '{"kind":"prompt","v":1,"ignore_eos":true,"text":"%s"}\n' "$text"
	done >in
	"$bin/ca-serve" --generate --device cpu --model "$smol" --temperature 0 --max-tokens 64 --ctx 512 \
		--no-prov in >out
	"$py" "$here/greedy.py" "$smol=out"
}
