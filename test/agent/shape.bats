#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# What ca-agent sends is of the shape that OpenAI's own client has types for,
# whatever the model said before.

load ../tools/agent.bash
# shellcheck source=test/setup/lib.sh
. "$BATS_TEST_DIRNAME/../setup/lib.sh"

setup() {
	py=$(models_python) && "$py" -c 'import openai' 2>/dev/null ||
		skip 'no openai: test/setup/venv.sh models installs it'
	agent_setup
}

teardown() {
	agent_teardown
}

# sent [OPTION...]: how many requests the script led to, and what is in them
# that OpenAI does not know; each was sent as it has to be
sent() {
	rm -f requests
	"$bin/ca-agent" --model-cmd "tee -a requests | python3 '$endpoint' --stdio script" \
		--skill skill -d cpu --judge ./judge "$@" tasks >out
	"$py" "$root/test/agent/shape.py" <requests
}

@test "requests are of OpenAI's shape, whatever the model said" {
	script "$(tool Read '{"file_path":"/work/model.py"}')" \
		"$(sh_turn 'printf "a\xffb\0\033\n"; head -c 100000 /dev/zero')" \
		'{"calls":[{"name":"Read","args":"{\"file_path\": \"/work/mod"}]}' \
		'{"calls":[{"name":"Read","args":"{\"file_path\": \"/work/a\tb\"} and more"}]}' \
		'{"calls":[{"name":"Nothing","args":{}},{"name":"Glob","args":{"pattern":"*"}},
			{"name":"Grep","args":"["}]}' \
		'{"message":{"role":"assistant"}}' \
		'{"content":"Look: <tool_call>{\"name\":\"Glob\",\"arguments\":{\"pattern\":\"*\"}}</tool_call>"}' \
		'{"message":{"role":"assistant","content":null}}' \
		'{"content":"","calls":[{"name":"TodoWrite","args":{"todos":[]}}]}' \
		'{"content":null,"calls":[{"name":"Glob","args":{"pattern":"*"}}],"finish":"length"}' "$done_turn"
	[ "$(sent)" = 11 ]
	stopped final
	jq -e '.schema_violations >= 4' out
}

@test "what options add is what their manual says" {
	script "$(tool Glob '{"pattern":"*"}')" "$(tool Glob '{"pattern":"*"}')" \
		"$(tool Glob '{"pattern":"*"}')" "$(tool Glob '{"pattern":"*"}')" \
		'{"message":{"role":"assistant","content":"Done.","reasoning_content":"hm"}}'
	[ "$(sent --eval --seed 1 --temperature 0.5 --top-p 0.9 --top-k 40 --token-ids \
		--body '{"stop": ["x"], "min_p": 0.1}')" = '5 min_p return_token_ids top_k' ]
	jq -e '.redundant_loop' out
	jq -ce '.model.sampling == {temperature: 0.5, top_p: 0.9, top_k: 40, max_tokens: 16384,
		stop: ["x"], min_p: 0.1}' out
	printf 'Nothing.\n' >skill/single-turn.md
	script "$done_turn"
	[ "$(sent --single-turn)" = 1 ]
}
