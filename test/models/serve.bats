#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-serve as others see it: OpenAI's client, and the training step that has
# to find the log-probabilities it served.

load models

setup_file() {
	load models
	py=$(models_python) || return 0		# each test says that it skips
	export HF_HUB_OFFLINE=1
	"$py" "$here/make.py" "$BATS_FILE_TMPDIR" >/dev/null 2>&1
	"$py" "$here/../tools/serve_model.py" "$BATS_FILE_TMPDIR/sense"
	"$py" "$here/../tools/serve_model.py" "$BATS_FILE_TMPDIR/says" 'Let me see. ' \
		$'<tool_call>\n{"name": "weather",' ' "arguments": {"city": "Paris"}}' \
		$'\n</tool_call>'
	for m in llama llama-odd qwen2 qwen3; do
		cp "$BATS_FILE_TMPDIR/sense/tokenizer.json" "$BATS_FILE_TMPDIR/$m"
	done
}

setup() {
	load models
	need_models
	cd "$BATS_FILE_TMPDIR" || return
	pids=
}

teardown() {
	# shellcheck disable=SC2086
	[ -z "${pids-}" ] || kill -KILL $pids 2>/dev/null || true
}

# Starts a server for a folder; $url.
serve() {
	local out=$BATS_TEST_TMPDIR/url.${1##*/}
	"$bin/ca-serve" -m "$1" --device cpu --port 0 "${@:2}" >"$out" 2>/dev/null 3>&- &
	pids="$pids $!"
	until [ -s "$out" ]; do
		kill -0 $! || return
		sleep 0.05
	done
	url=$(cat "$out")
}

@test "OpenAI's own client" {
	"$py" -c 'import openai' 2>/dev/null ||
		skip 'no openai: test/setup/venv.sh models installs it'
	echo sesame >key
	serve says
	says=$url
	serve sense --key-file key
	"$py" "$here/client.py" "$url" "$says"
}

# Chunks of prompts, shared beginnings, sequences that were put off: the cache
# is too small for all.
@test "a training step finds the log-probabilities that were served, bit for bit" {
	for m in llama llama-odd qwen2 qwen3; do
		serve $m --exact -j 6 --ctx 400 --cache 448
		"$py" "$here/rescore.py" "$nn" $m "$url"
		[ "$(curl -sS "${url%/v1}/metrics" |
			sed -n 's/^ca_serve_preemptions_total //p')" -gt 0 ]
	done
}

@test "SmolLM2: a training step finds what was served" {
	smol=$(cache_dir)/smol
	[ -f "$smol/model.safetensors" ] || skip "no SmolLM2 in $smol"
	serve "$smol" --exact -j 8 --ctx 512 --cache 2000 --dtype fp32
	"$py" "$here/rescore.py" "$nn" "$smol" "$url"
}
