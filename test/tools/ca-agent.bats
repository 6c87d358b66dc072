#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent: the loop, budgets, what models and servers do wrong.  The judge is
# a jq that believes everything; test/tools/agent-judge.bats has the real one.

load agent.bash

setup() {
	agent_setup
}

teardown() {
	agent_teardown
}

http() {
	serve
	"$bin/ca-agent" --endpoint "$url" --model m --skill skill -d cpu \
		--judge ./judge "$@" tasks >out
}

@test "a rollout becomes a trajectory" {
	script "$(tool Read '{"file_path":"/work/model.py"}')" \
		"$(tool Write '{"file_path":"/work/model_new.py","content":"x"}')" \
		"$done_turn"
	agent
	[ "$(wc -l <out)" = 1 ]
	stopped final
	jq -e '.kind == "trajectory" and .v == 1 and .cost.turns == 3 and
		(.turns | length) == 3 and .redundant_loop == false and
		.outcome.reward == 1 and .outcome.trainable and
		.outcome.final.status == "ok"' out
	[ "$(jq -r '[.messages[].role] | join(" ")' out)" = \
		"system user assistant tool assistant tool assistant" ]
	[ "$(jq -r '.evaluations[0].candidate.files["model_new.py"]' out)" = x ]
	jq -e '.evaluations[0].candidate | .task.code | length > 100' out
	[[ $(result 0) = *"class Model"* ]]
}

@test "weights that change between turns are told" {
	local first by
	first=$(tool Read '{"file_path":"/work/model.py"}' |
		jq -c '. + {extra: {system_fingerprint: "w1"}}')
	for by in w1 w2; do
		script "$first" "$(jq -c --arg w $by '. + {extra: {system_fingerprint: $w}}' \
			<<<"$done_turn")"
		agent
		jq -r .model.weight_version out
	done >versions
	[ "$(paste -s versions)" = 'w1	mixed' ]
}

@test "without a candidate the reward is -1 and no judge is asked" {
	script "$done_turn"
	agent
	jq -e '.outcome.reward == -1 and .evaluations == []' out
	jq -e '.outcome.why == "there is no model_new.py"' out
	"$bin/ca-agent" --show out | grep 'final: there is no model_new.py; reward -1'
}

@test "files that are no candidate are told of" {
	script "$(sh_turn 'echo x >model_new.py; mkdir -p kernels/a; chmod 000 kernels/a')" "$done_turn"
	agent
	jq -e '.outcome | .reward == -1 and .trainable and (.why | test("/work/kernels/a"))' out
	script "$(sh_turn 'echo x >model_new.py; head -c 2M /dev/zero | tr "\\0" x >kernels/k.c')" "$done_turn"
	agent
	jq -e '.outcome | .reward == -1 and (.why | test("/work/kernels/.*k.c.* is longer"))' out
	script "$(sh_turn 'printf "a\\0" >model_new.py')" "$done_turn"
	agent
	jq -e '.outcome | .reward == -1 and (.why | test("model_new.py"))' out
}

# judge_with FILTER: a judge that answers so, where $n says how often it was asked
judge_with() {
	echo "$1" >filter
	cat >judge <<-'END'
		#!/bin/bash
		while read -r line; do
			echo >>asked
			jq -c --argjson n "$(wc -l <asked)" -f filter <<<"$line"
		done
	END
}

@test "what a judge says is a verdict on what it was sent, or none" {
	for filter in . '.reward = 5' '.verify = {status: "ok"} | .reward = {value: "abc"}' \
		'.verify = {status: "ok"} | .files = {} | .reward = {value: 3}' \
		'.verify = {status: "wrong_value"} | .reward = {value: 3}' \
		'.verify = {status: "infra_error"} | .reward = {value: null, reason: "alas"}'; do
		judge_with "$filter"
		script "$(put x)" "$done_turn"
		rm -rf run
		run agent --dir run
		[ "$status" = 75 ]
		stopped infra_error
		jq -e '.evaluations == [] and (.outcome | .reward == null and (.trainable | not) and
			(.why | test("^the judge (gave no verdict|failed): ")))' out
	done
	# Another one is asked for a verdict alone.
	judge_with '.verify = {status: "ok"} | .reward = {value: 2}'
	agent --dir run --resume
	stopped final
	jq -e '.outcome | .reward == 2 and .why == null' out
}

@test "what others disturbed is judged again, and at last is told of" {
	judge_with '.verify = {status: "ok"} | .profile = {status: "ok", contended: true} |
		.reward = {value: null, reason: "somebody was there"}'
	script "$(put x)" "$done_turn"
	agent
	stopped final
	[ "$(wc -l <asked)" = 3 ]
	jq -e '.outcome | .reward == null and (.trainable | not) and .why == "somebody was there"' out
	jq -e '[.evaluations[].graded] == ["final"]' out
	"$bin/ca-agent" --show out | grep 'final: somebody was there; no reward'
	rm asked
	judge_with 'if .verify or .profile or .reward then error("not anew") else . end |
		.verify = {status: "ok"} | .profile = {status: "ok", contended: ($n < 2)} |
		.reward = {value: (if $n < 2 then null else 1 end)}'
	agent
	[ "$(wc -l <asked)" = 2 ]
	jq -e '.outcome | .reward == 1 and .why == null' out
}

@test "nothing that a rollout started is left when it is graded" {
	cat >judge <<-'END'
		#!/bin/bash
		while read -r line; do
			n=$(grep -alf mark /proc/[0-9]*/cmdline 2>/dev/null | wc -l)
			jq -c --arg n "$n" '.verify = {status: "ok"} | .reward = {value: 1, reason: $n}' <<<"$line"
		done
	END
	echo "burner.$$.$RANDOM" >mark
	local burn
	burn="python3 -c 'while 1: pass' $(cat mark)"
	script "$(put x)" "$(sh_turn "$burn & (setsid nohup $burn >/dev/null 2>&1 &); sleep 0.2")" \
		"$(sh_turn "trap '' TERM; $burn & $burn" '{"run_in_background":true}')" \
		"$(sh_turn 'sleep 0.5; ca-verify')" "$done_turn"
	agent
	jq -c '[.evaluations[] | {graded, n: .candidate.reward.reason}]' out
	# It was there before.
	jq -e '.evaluations[0].candidate.reward.reason | tonumber > 0' out
	jq -e '.evaluations[-1] | .graded == "final" and .candidate.reward.reason == "0"' out
}

@test "schemas are those that calls are checked against" {
	script "$done_turn"
	"$bin/ca-agent" --model-cmd 'tee -a requests | python3 '"'$endpoint'"' --stdio script' \
		--skill skill -d cpu --judge ./judge tasks >out
	jq -e '[.tools[].function.name] == ["Bash", "BashOutput", "KillBash",
		"Read", "Write", "Edit", "MultiEdit", "Glob", "Grep",
		"NotebookEdit", "TodoWrite"]' requests
	jq -e 'all(.tools[].function.parameters; .type == "object" and
		(.required - (.properties | keys) == []))' requests
}

@test "calls that do not fit are refused by name, and flagged" {
	script "$(tool Nope '{}')" "$(tool Read '{}')" \
		"$(tool Read '{"file_path":3}')" \
		"$(tool Read '{"file_path":"/work/model.py","x":1}')" \
		"$(tool Bash '{"command":"true","timeout":700000}')" \
		"$(tool TodoWrite '{"todos":[{"content":"a","status":"x","activeForm":"b"}]}')" \
		"$done_turn"
	agent
	[[ $(result 0) = *"no such tool; the tools are Bash, BashOutput"* ]]
	[[ $(result 1) = *"'file_path' is missing"* ]]
	[[ $(result 2) = *"'file_path' has to be a string"* ]]
	[[ $(result 3) = *"no parameter 'x'"* ]]
	[[ $(result 4) = *"'timeout' has to be 1 to 600000"* ]]
	[[ $(result 5) = *"todos[0]: parameter 'status' has to be one of"* ]]
	[ "$(jq .schema_violations out)" = 6 ]
	jq -e '[.turns[].calls[]] | all(.schema_violation and (.executed | not))' out
	# Names that servers would not take back travel as text.
	script "$(tool 'no tool!' '{}')" "$(tool '' '{}')" "$done_turn"
	agent
	stopped final
	[ "$(jq '[.messages[] | select(.tool_calls)] | length' out)" = 0 ]
	jq -e '[.messages[] | select(.role == "user") | .content | select(test("no such tool"))] | length == 2' out
}

@test "arguments are mended and flagged" {
	script "$(jq -cn '{calls: [{name: "Write", args: "{\"file_path\":\"/work/a\",\"content\":\"x\ny\"}"}]}')" \
		"$(jq -cn '{calls: [{name: "Read", args: "{\"file_path\":\"/work/a\"} and so on"}]}')" \
		"$(tool Read '{"file_path":"/work/a","offset":"2"}')" \
		"$(tool TodoWrite '{"todos":"[{\"content\":\"a\",\"status\":\"pending\",\"activeForm\":\"b\"}]"}')" \
		"$done_turn"
	agent
	jq -r '.messages[] | select(.role == "user" or .role == "tool") | .content' out >said
	grep -q '1→x' said
	grep -q '(lines 2-2 of 2)' said
	grep -q 'The list has 1 items' said
	jq -e '[.turns[].calls[]] | length == 4 and all(.schema_violation and .executed)' out
}

@test "arguments that break off are never executed" {
	script "$(jq -cn '{calls: [{name: "Write", args: "{\"file_path\":\"/work/a\",\"content\":\"x"}]}')" \
		"$(tool Bash '{"command":"ls /work"}')" "$done_turn"
	agent --model-cmd "tee requests | python3 '$endpoint' --stdio script"
	stopped final
	# The record has what the model wrote, and apart from it what it was sent.
	jq -e '.messages[2] | .content == null and .tool_calls == null and
		(.sent | startswith("<tool_call>\nWrite {"))' out
	jq -c '.messages[2] | .content = .sent | del(.sent)' out >told
	jq -c '.messages[2] // empty' requests | tail -n 1 | cmp - told
	"$bin/ca-agent" --show out | grep -q '^Write {"file_path"'
	result 1 >listing
	[ "$(grep -c '^a$' listing)" = 0 ]
	jq -r '.messages[] | select(.role == "user") | .content' out | grep -q 'not valid JSON'
	jq -e '.turns[0].calls[0] | .schema_violation and (.executed | not)' out
}

@test "nothing of a message that was cut off is executed" {
	script "$(jq -cn '{finish: "length", calls: [{name: "Bash", args: {command: "touch /work/a"}}]}')" \
		"$(jq -cn '{finish: null, calls: [{name: "Bash", args: {command: "touch /work/b"}}]}')"
	agent
	stopped format
	[[ $(result 0) = *"cut off at the token limit"* ]]
	[[ $(result 1) = *"has no end"* ]]
	jq -e 'all(.turns[].calls[]; .executed | not)' out
}

@test "calls are found in the text" {
	script "$(jq -cn '{content: "Now:\n<tool_call>\n{\"name\": \"Bash\", \"arguments\": {\"command\": \"echo {1..3}\"}}\n</tool_call>"}')" \
		"$(jq -cn '{content: "<tool_call>\n<function=Bash>\n<parameter=command>\necho if (x < 3) { y; }\n</parameter>\n<parameter=timeout>\n5000\n</parameter>\n</function>\n</tool_call>"}')" \
		"$done_turn"
	agent
	stopped final
	jq -r '.messages[] | select(.role == "user") | .content' out >said
	grep -q '<tool_response>' said
	grep -q '^1 2 3$' said
	grep -q 'syntax error' said
	jq -e '[.turns[].calls[]] | length == 2 and all(.executed)' out
}

@test "an empty answer is asked about once" {
	script '{"content":"","message":{"role":"assistant","content":"","reasoning":"hm"}}' \
		"$done_turn"
	agent
	stopped final
	jq -e '.messages[2].reasoning == "hm" and .messages[3].role == "user"' out
	script '{"message":{"role":"assistant","content":"","reasoning":"hm"}}'
	agent
	stopped format
	[ "$(jq .cost.turns out)" = 2 ]
}

@test "budgets end a rollout" {
	script "$(tool Bash '{"command":"date +%N"}')"
	agent --turns 3
	stopped max_turns
	[ "$(jq .cost.turns out)" = 3 ]
	agent --ctx 400 --turns 100
	stopped context
	agent --out-tokens 25
	stopped cost
	script "$(sh_turn 'sleep 60')" "$done_turn"
	agent --wall 1s
	stopped wall
}

@test "budgets of tokens hold where nobody counts them" {
	local usage
	for usage in '{}' '{"completion_tokens":-5,"prompt_tokens":1e30}' \
		'{"completion_tokens":0,"prompt_tokens":0}'; do
		script "$(jq -c --argjson u "$usage" '. + {extra: {usage: $u}}' <<<"$(sh_turn 'date +%N; head -c 3000 /dev/urandom | base64')")"
		agent --turns 20 --out-tokens 200 -k 2 2>err
		jq -es 'all(.[]; .outcome.stop_reason == "cost" and .cost.completion_tokens > 200 and .cost.estimated
			and (.turns | length < 20 and all(.[]; .usage.estimated)))' out
		[ "$(grep -c 'tokens are estimated' err)" = 1 ]
		agent --turns 60 --ctx 9000 -q 2>err
		stopped context
		[ ! -s err ]
		jq -e '.turns[-1].usage | .prompt + .completion >= 9000 - 64 and .prompt < 12000' out
	done
	script "$(sh_turn 'date +%N')" "$done_turn"
	agent 2>err
	jq -e '.cost | has("estimated") | not' out
	[ ! -s err ]
}

# judge_by_name: a judge for which model_new.py is its own speedup, or "bad"; it
# says whether it was handed results of an earlier judgement.
judge_by_name() {
	cat >judge <<-'END'
		#!/bin/sh
		exec jq -c --unbuffered '.ask.stage as $stage |
			(if .verify or .profile then "known" else "fresh" end) as $was |
			.files["model_new.py"] as $s |
			.build = {status: "ok", form: "light", device: "cpu"} |
			if $stage == "compile" then . else
				.verify = {status: (if $s == "bad" then "wrong_value" else "ok" end)} end |
			if ($s | IN("bad", "lost")) or ($stage | IN("compile", "verify")) then . else
				.profile = {status: "ok", speedup: {compile: {point: ($s | tonumber)}}} end |
			if $stage != "reward" then . else .reward = {reason: $was,
				value: (if $s == "bad" then -1 elif $s == "lost" then null elif ($s | tonumber) > 1 then 3 else 1 end),
				speedup: {compile: .profile.speedup.compile}} end'
	END
}

put() { # text: a turn that writes model_new.py
	tool Write "{\"file_path\":\"/work/model_new.py\",\"content\":\"$1\"}"
}

@test "training rewards the last files, --eval the best candidate as well" {
	judge_by_name
	script "$(put 2)" "$(sh_turn ca-profile)" "$(put 5)" "$(sh_turn ca-profile)" \
		"$(put 0.5)" "$(sh_turn ca-profile)" "$(put 9)" "$(sh_turn ca-verify)" \
		"$(put bad)" "$(sh_turn ca-verify)" "$done_turn"
	agent
	jq -e '.outcome | .reward == -1 and .final.status == "wrong_value" and .best == null' out
	jq -e '[.evaluations[].candidate.files["model_new.py"]] == ["2", "5", "0.5", "9", "bad", "bad"]' out
	agent --eval
	jq -e '.outcome | .reward == 3 and .final.reward == -1 and .best.rejudged.reward == 3' out
	# The one that was timed and is fastest; judged again from nothing.
	jq -e '.outcome.best.selected as $id | .evaluations[-1] | .graded == "best" and
		.candidate.id == $id and .candidate.files["model_new.py"] == "5" and
		.candidate.reward.reason == "fresh"' out
	# Where the last files are the best ones they are judged once.
	script "$(put 2)" "$(sh_turn ca-profile)" "$done_turn"
	agent --eval
	jq -e '[.evaluations[].graded] == [null, "final"] and
		.outcome.best.selected == .outcome.final.id' out
	# A budget that ends the rollout does not end its worth.
	script "$(put 2)" "$(sh_turn ca-verify)"
	agent --turns 2
	stopped max_turns
	jq -e '.outcome.reward == 3 and .outcome.trainable' out
	# Without a reward there is nothing to learn from.
	script "$(put lost)" "$(sh_turn ca-verify)" "$done_turn"
	agent
	jq -e '.outcome | .reward == null and .final.reward == null and .trainable == false' out
}

@test "a verdict that comes too late is none on what is asked next" {
	# Whoever would bring the first one stands still until the rollout has
	# given it up and asked again.
	cat >judge <<-'END'
		#!/bin/bash
		while read -r line; do
			if [ ! -e late ]; then
				kill -STOP $PPID
				for _ in $(seq 600); do
					[ "$(cat run/*/log.ndjson | grep -c '"e":"try"')" -lt 2 ] || break
					sleep 0.1
				done
			fi
			jq -c '.verify = {status: "ok"} | .reward = {value: 1}' <<<"$line"
			[ -e late ] || kill -CONT $PPID
			touch late
		done
	END
	script "$(put 1)" "$(sh_turn ca-verify)" "$(put 2)" "$(sh_turn ca-verify)" "$done_turn"
	# A slow machine may be late for the others as well.
	"$bin/ca-agent" --model-cmd "python3 '$endpoint' --stdio script" --skill skill -d cpu \
		--judge 'exec ./judge' --judge-timeout 2s --dir run tasks >out || [ $? = 75 ]
	[[ $(result 1) = *'error: the judge did not answer in time'* ]]
	jq -c '[.evaluations[].candidate.files["model_new.py"]]' out
	jq -e 'all(.evaluations[]; .candidate.files["model_new.py"] == "2")' out
}

@test "a verdict on something else is none" {
	# It lags: from the second question on it answers the one before.
	cat >judge <<-'END'
		#!/bin/bash
		while read -r line; do
			jq -c '.verify = {status: "ok"}' <<<"${last:-$line}"
			last=$line
		done
	END
	script "$(put 1)" "$(sh_turn ca-verify)" "$(put 2)" "$(sh_turn ca-verify)" "$done_turn"
	run agent
	[ "$status" = 75 ]
	[[ $(result 1) = *'ok (all'* ]]
	[[ $(result 3) = *'error: the judge answered another question'* ]]
	stopped infra_error
	jq -e '.outcome.why == "the judge answered another question" and
		[.evaluations[].candidate.files["model_new.py"]] == ["1"]' out
}

@test "circles are noticed" {
	script "$(tool Bash '{"command":"echo took 0.0$RANDOM s"}')"
	agent --turns 6
	jq -e '.redundant_loop' out
	script "$(tool Bash '{"command":"echo $RANDOM"}')"
	agent --turns 6
	jq -e '.redundant_loop | not' out
	script "$(tool Bash '{"command":"true"}')"
	agent --eval --turns 8
	[ "$(jq '[.messages[] | select(.role == "user")] | length' out)" = 2 ]
}

@test "a server's faults are survived" {
	script '{"faults":[{"reset":true},{"status":429,"headers":{"Retry-After":"0"}},{"cut":true}],"calls":[{"name":"Bash","args":{"command":"echo one"}}]}' \
		'{"faults":[{"status":503},{"empty":true},{"drip":0.01}],"content":"Done."}'
	http --retries 9
	stopped final
	[ "$(result 0)" = one ]
	jq -e '[.turns[].prov.attempts] == [4, 3]' out
}

@test "a server that stalls, floods or is busy is asked again, and given up" {
	script '{"faults":[{"stall":30},{"status":429}],"content":"Done."}'
	http --model-timeout 2s --retries 2
	stopped final
	jq -e '.turns[0].prov.attempts == 3' out
	script '{"faults":[{"huge":80000000}],"content":"Done."}'
	run http
	[ "$status" = 75 ]
	stopped api_error
	jq -e '.outcome.why | test("too long")' out
}

@test "what is final ends with api_error, and exit 75" {
	script '{"faults":[{"status":401}],"content":"x"}'
	run http
	[ "$status" = 75 ]
	jq -e '.outcome | .stop_reason == "api_error" and .reward == null and
		(.trainable | not) and (.why | test("401"))' out
	[[ $output = "ca-agent: $(jq -r .id out): api_error: status 401: scripted" ]]
}

@test "nothing of a model command outlives its rollout" {
	# Deaf to the end of its input and to SIGTERM, as is what it started.
	nap=sleep\ 7$RANDOM$RANDOM
	printf 'trap "" TERM\n%s & read -r _; echo "$1"; %s\n:\n' "$nap" "$nap" >deaf
	run "$bin/ca-agent" --model-cmd 'sh deaf {}' --skill skill -d cpu --judge ./judge tasks
	[ "$status" = 75 ]
	gone() { # what was killed may take a moment
		for _ in $(seq 600); do
			pgrep -f "^$nap\$" >/dev/null || return 0
			sleep 0.1
		done
		return 1
	}
	gone
	# However the rollout ends.
	"$bin/ca-agent" --model-cmd "echo \$PPID >pid; sed q >/dev/null; $nap; :" --skill skill -d cpu \
		--judge ./judge tasks >out 2>err 3>&- &
	for _ in $(seq 600); do
		pgrep -f "^$nap\$" >/dev/null && break
		sleep 0.1
	done
	kill -KILL "$(cat pid)"
	kill -TERM $!
	wait $! || true
	gone
}

@test "what a model says is never a fault of its server" {
	# NUL, half a pair: neither can be in a record, and both are its own doing.
	for text in 'a\u0000b' 'a\ud800b' 'a\udc00b'; do
		"$bin/ca-agent" --model-cmd "while read -r _; do printf '%s\n' '{\"choices\":[{\"message\":
			{\"content\":\"$text\"},\"finish_reason\":\"stop\"}],\"usage\":{}}' | tr -d '\n\t'; echo; done" \
			--skill skill -d cpu --judge ./judge tasks >out
		stopped final
		[ "$(jq -r '.messages[-1].content' out)" = $'a\xef\xbf\xbdb' ]
	done
}

@test "a full context is no error" {
	script '{"faults":[{"status":400,"body":{"error":{"message":"maximum context length is 10"}}}]}'
	http
	stopped context
}

@test "an answer that no record could hold is a full context" {
	big() { # characters, how many
		python3 -c 'import json, sys
text = sys.argv[1] * int(sys.argv[2])
print(json.dumps([{"calls": [{"name": "Write", "args": {"file_path": "/work/a", "content": text}}]}]))' \
			"$@" >script
		agent --keep --dir run
		stopped context
		jq -e '.turns == [] and (.omitted | not) and (.outcome.why | test("longer"))' out
		[ ! -e "$(echo run/*/work)/a" ]
		rm -rf run
	}
	big x 5000000
	big $'\001' 900000
}

@test "token ids are kept where they add up" {
	ids() { # prompt, ids
		jq -cn --argjson p "$1" --argjson i "$2" --arg text "$3" \
			--argjson calls "${4:-null}" '{content: $text, usage: [($p|length), ($i|length)],
			extra: {prompt_token_ids: $p}, choice: {token_ids: $i, logprobs:
			{content: [$i[] | {token: $text, logprob: -0.5}]}}} +
			if $calls then {calls: $calls} else {} end'
	}
	call='[{"name":"Bash","args":{"command":"true"}}]'
	script "$(ids '[1,2,3]' '[4,5]' a "$call")" \
		"$(ids '[1,2,3,4,5,6]' '[7]' b "$call")" \
		"$(ids '[1,2,9,4,5,6,7,8]' '[7]' c "$call")" \
		"$(ids '[1,2,9,4,5,6,7,8,7]' '[7]' d | jq -c '.usage[1] = 2')"
	agent --token-ids
	jq -e '[.segments[].first_turn] == [1, 3]' out
	jq -e '[.turns[].tokens | .prompt_new] == [3, 1, 8, null]' out
	[ "$(jq -r '.turns[1].tokens.prompt_ids' out | base64 -d | od -An -t d4 | tr -d ' ')" = 6 ]
	[ "$(jq -r '.turns[0].tokens.logprobs' out | base64 -d | od -An -t f4 | tr -s ' ')" = ' -0.5 -0.5' ]
	jq -e '.turns[0].tokens.mask == [[3, 5]]' out
	jq -e '.turns[3].tokens.missing' out
}

@test "ids of half characters are kept; tokens that say something else are not" {
	spelled() { # text, tokens' texts
		jq -cn --arg text "$1" --argjson t "$2" '{content: $text, usage: [1, ($t | length)],
			extra: {prompt_token_ids: [1]}, choice: {token_ids: [$t[] | 7],
			logprobs: {content: [$t[] | {token: ., logprob: -0.5}]}}}'
	}
	for t in '["a","\ufffd","\ufffd","b"]' '["a","","語","b"]' '["a語b"]'; do
		script "$(spelled 'a語b' "$t")"
		agent --token-ids
		jq -e '.turns[0].tokens | has("ids")' out
	done
	script "$(spelled 'a語b' '["a","語","c"]')"
	agent --token-ids
	jq -e '.turns[0].tokens.missing | test("spell")' out
}

@test "single-turn takes fenced blocks, and nothing else" {
	script "$(jq -cn '{content: "Fast.\n\nkernels/a.c\n```c\nint x;\n```\n\n**`model_new.py`**\n````python\ny = \"```\"\n````\n"}')"
	agent --single-turn
	stopped final
	jq -e '.evaluations[0].candidate.files == {"kernels/a.c": "int x;\n",
		"model_new.py": "y = \"```\"\n"}' out
	jq -e '[.messages[].role] == ["system", "user", "assistant"]' out
	script "$(jq -cn '{content: "No code."}')"
	agent --single-turn
	stopped format
	script "$(jq -cn '{content: "```c\nint x;\n```"}')"
	agent --single-turn
	stopped format
	script "$(jq -cn '{content: "../x.py\n```c\nint x;\n```"}')"
	agent --single-turn
	stopped format
	# Cut off: by its own limit, by the context, by the budget.
	script '{"content":"x","finish":"length","usage":[100,20]}'
	agent --single-turn --max-tokens 20
	stopped format
	jq -e '.outcome.why == "the answer was cut off"' out
	agent --single-turn --ctx 256 --turns 3
	stopped format
	agent --single-turn --out-tokens 20
	stopped cost
	script '{"content":"x","finish":"length","usage":[100,156]}'
	agent --single-turn --ctx 256
	stopped context
}

@test "several rollouts of several tasks, each with its id" {
	jq -c '., .code += "\n", {kind: "note", v: 1}' tasks >more
	mv more tasks
	script "$(tool Bash '{"command":"pwd"}')" "$done_turn"
	agent -k 3
	[ "$(wc -l <out)" = 7 ]
	[ "$(jq -r 'select(.kind == "trajectory") | .id' out | sort -u | wc -l)" = 6 ]
	[ "$(jq -r 'select(.kind == "trajectory") | .task.id' out | sort -u | wc -l)" = 2 ]
}

@test "two runs write the same with --no-prov and --seed" {
	script "$(tool Bash '{"command":"ls -a"}')" "$done_turn"
	agent --no-prov --seed 7
	cp out first
	agent --no-prov --seed 7
	cmp out first
	agent --no-prov --seed 8
	[ "$(jq .id out)" != "$(jq .id first)" ]
}

@test "bad lines are answered and the stream goes on" {
	{
		echo nonsense
		echo '{"kind":"task","v":1}'
		# No candidate could hold its model.py: whoever worked on it would lose.
		head -c 1100000 /dev/zero | tr '\0' '#' | jq -cRs '{kind: "task", v: 1, code: .}'
		cat tasks
	} >more
	mv more tasks
	script "$done_turn"
	run agent -q
	[ "$status" = 65 ]
	jq -e -s 'map(.kind) | sort == ["error", "error", "error", "trajectory"]' out
	# A work directory's task likewise.
	mkdir workdir
	touch workdir/model.py
	run agent workdir
	[ "$status" = 65 ]
	[[ $output = *"'workdir/model.py' is empty"* ]]
	jq -e -s 'map(.kind) | sort == ["error", "error", "error", "trajectory"]' out
}

@test "who writes tasks slowly keeps nobody waiting" {
	script "$(put x)" "$(sh_turn ca-verify)" "$done_turn"
	mkfifo slow
	# The second line ends only when the first task is done.
	{
		cat tasks
		printf '{"kind": "no'
		until [ -s out ]; do sleep 0.1; done
		echo 'te", "v": 1}'
	} >slow 3>&- &
	cat slow | "$bin/ca-agent" --model-cmd "python3 '$endpoint' --stdio script" \
		--skill skill -d cpu --judge ./judge >out
	[ "$(jq -r .kind out | xargs)" = 'trajectory note' ]
	wait $!
}

@test "too few open files are told before anything begins" {
	script "$done_turn"
	run bash -c 'ulimit -n 256; "$@"' - "$bin/ca-agent" --model-cmd cat --skill skill -d cpu --judge ./judge -j 100 tasks
	[ "$status" = 78 ]
	[[ $output = *'100 rollouts at once need 556 open files, the limit is 256 (ulimit -n)' ]]
}

@test "usage errors are told" {
	check() { # text, arguments
		run "$bin/ca-agent" "${@:2}" </dev/null
		echo "$output"
		[ "$status" = 64 ]
		[[ $output = *"$1"* ]]
	}
	check 'one of --endpoint and --model-cmd'
	check 'needs --model' --endpoint http://x
	check 'needs --dir' --model-cmd cat --resume
	check 'takes a JSON object' --model-cmd cat --body 3
	check "must not have 'top_p'" --model-cmd cat --body '{"min_p": 0, "top_p": 1}'
	for url in ftp://x http:// http://x:99999999/v1 'http://a b' 'http://[x'; do
		check 'no http or https URL' --endpoint "$url" --model m
	done
	check '--judge and --judges exclude' --model-cmd cat --judge cat --judges 2
	check '--endpoint and --model-cmd exclude' --endpoint http://x --model m --model-cmd cat
	check '--single-turn and --eval exclude' --model-cmd cat --single-turn --eval
	check 'for our own judges' --model-cmd cat --judge cat --remember kept
	check 'exclude each other' --show --export atif
	check 'exclude each other' --show --serve-judge
	check 'exclude each other' --export atif --serve-judge
	check '--all is for --show' --model-cmd cat --all
}

@test "what our own judge lacks is told before a model is asked" {
	missing() { # status, text, options
		run "$bin/ca-agent" --model-cmd 'touch asked' --skill skill "${@:3}" tasks
		echo "$output"
		[ "$status" = "$1" ] && [[ $output = *"$2"* ]] && [ ! -e asked ]
	}
	missing 69 'cuda:999' -d cuda:999 || missing 69 'no CUDA driver' -d cuda:999
	missing 73 "--remember: cannot create '$dir/tasks'" -d cpu --remember "$dir/tasks"
	missing 66 "cannot open 'nokey'" -d cpu --trust-key nokey
}

@test "whoever lets others read nothing gets the same rollout" {
	script "$(tool Read '{"file_path":"/work/model.py"}')" \
		"$(sh_turn 'cat SKILL.md; mkdir kernels/d; stat -c %a kernels/d')" "$done_turn"
	agent --seed 1 --no-prov
	cp out first
	umask 077
	agent --seed 1 --no-prov
	[[ $(result 1) = *'Be fast.'*755 ]]
	cmp out first
}

@test "a directory that is there is not taken without --resume" {
	script "$done_turn"
	agent --dir run
	run agent --dir run
	[ "$status" = 73 ]
	[[ $output = *"--resume goes on with it"* ]]
	agent --dir run --resume
	stopped final
}

@test "an interrupted run leaves nothing running and can go on" {
	nap=sleep\ 3$RANDOM
	script "$(sh_turn "$nap" '{"timeout":3000}')" "$done_turn"
	status=0
	agent --dir run 2>err &
	for _ in $(seq 600); do
		pgrep -f "^$nap" >/dev/null && break
		sleep 0.1
	done
	pkill -TERM -P $! -x ca-agent
	wait $! || status=$?
	[ "$status" = 143 ]
	[ -z "$(pgrep -f "$nap")" ]
	[ ! -s out ]
	grep -q 'goes on' err
	agent --dir run --resume
	stopped final
	[[ $(result 0) = *"exit code 124"* ]]
}

@test "an installed skill that is missing is named" {
	script "$done_turn"
	run "$bin/ca-agent" --model-cmd cat --judge ./judge --skill nowhere tasks
	[ "$status" = 66 ]
	[[ $output = *"cannot find the skill 'nowhere'"* ]]
}

@test "what would end every rollout is told before the first one" {
	export CA_CACHE=$dir/cache
	script "$done_turn"
	fails() { # status, text, options
		run "$bin/ca-agent" --model-cmd cat -d cpu --judge ./judge "${@:3}" tasks
		echo "$output"
		[ "$status" = "$1" ]
		[[ $output = *"$2"* ]]
	}
	mkdir empty twice
	fails 66 "empty/SKILL.md': No such" --skill empty
	rm skill/single-turn.md
	fails 66 "skill/single-turn.md': No such" --skill skill --single-turn
	cp skill/SKILL.md twice/
	echo 'x = 1' >twice/model.py
	fails 65 "model.py': File exists" --skill twice
	rm twice/model.py
	mkdir twice/kernels
	fails 78 'it holds kernels/' --skill twice
	fails 73 'cannot create' --skill skill -o nowhere/out
	OPENAI_API_KEY=$'a\nb' run "$bin/ca-agent" --endpoint http://127.0.0.1:9/v1 --model m \
		-d cpu --skill skill --judge ./judge tasks
	[ "$status" = 78 ]
	[[ $output = *'holds a line break' ]]
	# Nothing of it stays.
	[ -z "$(ls -A cache/rollouts)" ]
}

@test "what was finished before a signal is in the output file" {
	script "$done_turn"
	mkfifo feed
	"$bin/ca-agent" --model-cmd "python3 '$endpoint' --stdio script" --skill skill -d cpu \
		--judge ./judge --dir run -o got - <feed 2>err 3>&- &
	exec 8>feed
	cat tasks >&8
	for _ in $(seq 600); do
		[ -n "$(ls run/*/trajectory.json 2>/dev/null)" ] && break
		sleep 0.1
	done
	[ ! -e got ]
	kill $!
	status=0
	wait $! || status=$?
	exec 8>&-
	[ "$status" = 143 ]
	[ "$(jq -r .outcome.stop_reason got)" = final ]
}

@test "work directories that are kept without --dir are named" {
	export CA_CACHE=$dir/cache
	script "$done_turn"
	agent --keep 2>err
	[ -d "$(sed -n "s/.*kept in '\(.*\)'/\1/p" err)/$(jq -r .id out)/work" ]
}

@test "--show prints a trajectory for people" {
	script "$(jq -cn '{content: "Look.", calls: [{name: "Bash", args: {command: "seq 50; printf \"\\033[31m\""}}]}')" \
		"$(tool Write '{"file_path":"/work/model_new.py","content":"x = 1\n"}')" \
		"$(sh_turn 'ca-verify')" "$done_turn"
	agent
	"$bin/ca-agent" --show out >text
	grep -q -- '--- turn 1  (100 + 10 tokens' text
	grep -q '^  Bash seq 50' text
	grep -q '  | (31 more lines)' text
	grep -q '^  + x = 1' text
	grep -q '^  \[verify: ok\]' text
	grep -q '^=== final; reward 1' text
	[ "$(grep -c $'\033' text)" = 0 ]
	"$bin/ca-agent" --show --all out | grep -q '  | 50'
	"$bin/ca-agent" --show --color always out | grep -q $'\033\[1m--- turn 2'
	"$bin/ca-agent" --show <tasks >text 2>told
	[ ! -s text ]
	grep -q 'no trajectory in the input' told
}

@test "--export writes ATIF and ShareGPT" {
	script "$(jq -cn '{content: "Look.", calls: [{name: "Bash", args: {command: "echo a"}}, {name: "Nope", args: {}}]}')" \
		"$done_turn"
	agent
	"$bin/ca-agent" --export atif out >atif
	jq -e '.schema_version == "ATIF-v1.4" and [.steps[].source] == ["system", "user", "agent", "agent"]
		and .steps[2].tool_calls[0].arguments.command == "echo a"
		and [.steps[2].observation.results[].source_call_id] == ["c0_0", "c0_1"]
		and [.steps[].step_id] == [1, 2, 3, 4] and .steps[2].metrics.prompt_tokens == 100' atif
	"$bin/ca-agent" --export sharegpt out >share
	jq -e '[.conversations[].from] == ["system", "human", "gpt", "tool", "tool", "gpt"] and
		(.conversations[2].value | test("<tool_call>\n{\"name\": \"Bash\""))' share
}
