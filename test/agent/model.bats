#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent against a real server and a real model (make test-agent): SmolLM2
# in the cache's folder `smol`, or the Hugging Face folder CA_AGENT_MODEL,
# behind `transformers serve` and behind ca-serve; or any server,
# CA_AGENT_ENDPOINT, with the model of that name.  Small models solve nothing: what is shown is the loop.

load ../tools/agent.bash
# shellcheck disable=SC2154,SC2031 # of agent.bash
# shellcheck source=test/setup/lib.sh
. "$root/test/setup/lib.sh"

setup_file() {
	export BATS_TEST_TIMEOUT=3600
}

setup() {
	agent_setup
	# Short, since these models read slowly here.
	printf -- '---\nname: n\ndescription: d\n---\n\n%s\n' \
		'Each answer is one tool call, until model_new.py is right.' >skill/SKILL.md
	five
}

teardown() {
	agent_teardown
}

five() {
	local name
	for name in diag-matmul matmul-sum softmax-temperature cross-entropy huber-loss; do
		jq -cn --rawfile c "$fix/$name/model.py" '{kind: "task", v: 1, code: $c}'
	done >tasks
}

need_model() {
	model=${CA_AGENT_MODEL:-$(cache_dir)/smol}
	[ -f "$model/config.json" ] || skip "no model in $model (CA_AGENT_MODEL names another)"
	# Its tokens are its own; how it is told of tools, and that it has to choose
	# among several answers, is ours.
	mkdir model
	ln -s "$(realpath "$model")"/* model
	rm -f model/chat_template.jinja model/generation_config.json
	cp "$root/test/agent/tools.jinja" model/chat_template.jinja
	echo '{"do_sample": true}' >more
	jq -s 'add' "$model"/generation_config.jso[n] more >model/generation_config.json
}

# The first Python that can serve.
serving_python() {
	local py
	for py in ${CA_SERVE_PYTHON-} "$(models_python)"; do
		"$py" -c 'import fastapi, psutil, transformers, uvicorn' 2>/dev/null &&
			echo "$py" && return
	done
	return 1
}

# listens PORT: the server answers, within four minutes
listens() {
	local _
	for _ in $(seq 240); do
		(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
		sleep 1
	done
	cat server.log
	return 1
}

free_port() {
	python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

# drive URL NAME [OPTION...]: five tasks, up to twenty turns each
drive() {
	local status=0
	"$bin/ca-agent" --endpoint "$1" --model "$2" --skill skill -d cpu --judge ./judge -j 5 \
		--turns 20 --max-tokens 128 --temperature 0.8 --ctx 8192 --wall 40m "${@:3}" tasks >out ||
		status=$?
	jq -r '"\(.outcome.stop_reason): \(.cost.turns) turns, \(.cost.completion_tokens) tokens, " +
		"\([.turns[].calls[]] | length) calls, \(.schema_violations) with violations; \(.outcome.why // "")"' out
	[ "$status" = 0 ] || { cat server.log; return 1; }
}

# What holds of any trajectory, whatever the model said.
proper() {
	[ "$(wc -l <out)" = 5 ]
	jq -e '.kind == "trajectory" and .cost.turns == (.turns | length) and .cost.turns <= 20 and
		(.outcome.stop_reason | IN("final", "max_turns", "context", "wall", "format"))' out
	# Each call is answered, in order, before anything else is said.
	jq -e '[foreach .messages[] as $m ({due: [], good: true};
		if $m.role == "tool" then {due: .due[1:], good: (.due[0] == $m.tool_call_id)}
		else {good: (.due == []), due: [$m.tool_calls[]?.id]} end; .good)] | all' out
	jq -e 'all(.turns[]; .usage.prompt > 0 and .usage.completion > 0 and .prov.attempts == 1)' out
}

@test "transformers serve: five tasks, every trajectory ends properly" {
	[ -z "${CA_AGENT_ENDPOINT-}" ] || skip 'CA_AGENT_ENDPOINT names another server'
	need_model
	py=$(serving_python) ||
		skip 'no Python with transformers[serving] (CA_SERVE_PYTHON names one)'
	port=$(free_port)
	HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_WAIT_POLICY=passive "$py" -c \
		'from transformers.cli.transformers import main; main()' serve "$PWD/model" \
		--host 127.0.0.1 --port "$port" --device cpu >server.log 2>&1 3>&- &
	echo $! >>"$dir/servers"
	listens "$port"
	drive "http://127.0.0.1:$port/v1" "$PWD/model"
	proper
	# No request was found fault with.
	grep -c '"POST /v1/chat/completions HTTP/1.1" 200' server.log
	[ "$(grep -c '"POST /v1/chat/completions HTTP/1.1" [345]' server.log)" = 0 ]
}

@test "ca-serve: five tasks, token ids and log-probabilities of every turn" {
	[ -z "${CA_AGENT_ENDPOINT-}" ] || skip 'CA_AGENT_ENDPOINT names another server'
	need_model
	"$bin/ca-serve" -m "$PWD/model" --port 0 -j 5 --ctx 8192 --name smol >url 2>server.log 3>&- &
	echo $! >>"$dir/servers"
	for _ in $(seq 240); do
		[ -s url ] && break
		sleep 1
	done
	drive "$(cat url)" smol --token-ids
	proper
	cat server.log
	jq -c '[.segments[] | [.first_turn, .why]]' out
	# As many ids as tokens, and a mask over what the model said.
	jq -e 'all(.turns[]; .tokens.missing == null and
		.tokens.mask[0][1] - .tokens.mask[0][0] == .usage.completion)' out
	jq -r '.turns[-1].tokens.logprobs' out | base64 -d | od -An -t f4 -v | tr -s ' ' '\n' |
		awk 'NF { n++; if ($1 > 0) exit 1 } END { exit !n }'
	jq -e '.model.weight_version | type == "string"' out
}

@test "a server that is there already: five tasks" {
	[ -n "${CA_AGENT_ENDPOINT-}" ] || skip 'CA_AGENT_ENDPOINT names no server'
	drive "$CA_AGENT_ENDPOINT" "${CA_AGENT_MODEL:?its name}"
	proper
}
