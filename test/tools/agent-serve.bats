#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent and ca-serve together: a model that always makes the same call.

load agent.bash

setup() {
	agent_setup
	# shellcheck disable=SC2016 # for the shell in the jail
	python3 "$BATS_TEST_DIRNAME/serve_model.py" model 'I look. ' \
		$'<tool_call>\n{"name": "Bash", "arguments": ' '{"command": "echo $((6 * 7))"' \
		$'}}\n</tool_call>'
	"$bin/ca-serve" -m model --device cpu --port 0 >url 2>err 3>&- &
	echo $! >>servers
	for _ in $(seq 600); do
		[ -s url ] && break
		sleep 0.1
	done
}

teardown() {
	agent_teardown
}

@test "rollouts on ca-serve have ids and log-probabilities of every turn" {
	"$bin/ca-agent" --endpoint "$(cat url)" --model model --token-ids --temperature 1 \
		--skill skill -d cpu --judge ./judge -j 2 -k 2 --turns 3 --ctx 30000 \
		tasks >out
	[ "$(wc -l <out)" = 2 ]
	jq -e '.outcome.stop_reason == "max_turns"' out
	[ "$(jq -r '.messages[] | select(.role == "tool") | .content' out | grep -cx 42)" = 6 ]
	jq -e '[.turns[]] | length == 3 and all(.[];
		(.tokens | has("missing") | not) and .tokens.n == 5 and .usage.completion == 5)' out
	jq -e '[.. | .weight_version? // empty] | length == 1 and
		all(test("^weights-[0-9a-f]{16}$"))' out
	jq -e '.model.sampling.logprobs == "temperature"' out
	# Each prompt goes on where the last answer ended, token by token.
	jq -e '[.turns[].tokens.segment] == [0, 0, 0]
		and all(.turns[1:][]; .tokens.prompt_new < 40)' out
	# What was drawn was certain, nearly.
	jq -r '.turns[].tokens.logprobs' out | while read -r line; do
		base64 -d <<<"$line" | od -An -tf4 -v -w4 | awk '$1 > 0 || $1 < -1 { exit 1 }'
	done
	# The second rollout and the later turns found beginnings in the cache.
	shared=$(curl -sS "$(sed 's,/v1$,,' url)/metrics" |
		sed -n 's/^ca_serve_cached_tokens_total //p')
	[ "$shared" -gt "$(jq -s '[.[].turns[0].tokens.prompt_new] | max * 3' out)" ]
}
