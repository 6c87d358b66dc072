#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# pipelines/rollout.sh: tasks in, trajectories out, over endpoints; again.

load ../tools/agent.bash

setup() {
	agent_setup
}

teardown() {
	agent_teardown
}

@test "tasks become trajectories and a summary, and are not made twice" {
	jq -c '., .code += "\n", .code += "\n\n"' tasks >more
	mv more tasks
	script "$(tool Bash '{"command":"date +%N"}')" "$done_turn"
	serve
	again() {
		CA_BIN=$bin "$root/pipelines/rollout.sh" -e "$url" -m m -o out.d -k 2 -j 3 \
			-J ./judge -c 1 -C 2 tasks -- --skill skill -d cpu
	}
	again >summary
	cat summary
	[ "$(wc -l <out.d/trajectories.ndjson)" = 6 ]
	grep -q '^6 trajectories' summary
	grep -q '^rewards *-1: 6' summary
	grep -q '^stopped by *final: 6' summary
	sort out.d/trajectories.ndjson >first
	again >summary
	sort out.d/trajectories.ndjson | cmp - first
	run "$root/pipelines/rollout.sh" -m m
	[ "$status" = 64 ]
	run rollouts -e "$url" -c free tasks
	[ "$status" = 64 ]
	# Not while another one is at work there.
	exec 8>out.d/lock
	flock 8
	echo $$ >out.d/lock
	run rollouts -e "$url" -k 2 tasks
	[ "$status" = 75 ]
	exec 8>&-
	sort out.d/trajectories.ndjson | cmp - first
	for help in -h --help; do
		"$root/pipelines/rollout.sh" $help | grep -q '^Tasks in, trajectories out'
	done
}

@test "what the same command cannot mend is not said to go on" {
	script "$done_turn"
	serve
	refused() { # status, text, arguments
		CA_BIN=$bin run "$root/pipelines/rollout.sh" -e "$url" -m m -o bad.d "${@:3}"
		echo "$output"
		[ "$status" = "$1" ]
		[[ $output = *"$2"* ]]
		[[ $output != *'goes on'* ]]
	}
	refused 66 "skill 'nowhere'" tasks -- --skill nowhere
	refused 66 "cannot open 'missing'" missing -- --skill skill -d cpu
	refused 64 "'--jobs'" -j x tasks
	for opt in -ofoo -vofoo --output=foo --dir=foo --show --export=atif --serve-judge; do
		refused 64 "'$opt' is not for what is behind --" tasks -- $opt
	done
	# Others that look like them are.
	refused 65 'cannot parse' - -- --skill skill -d cpu --out-tokens 9 --disk 1G --seed 3 <<<kind
	[[ $output = *'rewards     none; mean none'* ]]
}

@test "killed alone it takes its rollouts along, and the same command goes on" {
	script "$(sh_turn 'touch begun; sleep 600' '{"timeout":600000}')" "$done_turn"
	serve
	CA_BIN=$bin "$root/pipelines/rollout.sh" -e "$url" -m m -o out.d -J ./judge tasks -- --skill skill \
		-d cpu >/dev/null 2>&1 3>&- &
	for _ in $(seq 600); do
		[ -z "$(ls out.d/run/*/work/begun 2>/dev/null)" ] || break
		sleep 0.1
	done
	kill -KILL $!
	wait $! || true
	script "$done_turn"
	serve
	rollouts -e "$url" -J ./judge tasks
	grep -q '^stopped by  final: 1$' summary
}

# rollouts ARG...: of the script, into out.d, summary in summary
rollouts() {
	CA_BIN=$bin "$root/pipelines/rollout.sh" -m m -o out.d "$@" -- --skill skill -d cpu \
		--retries 0 >summary
}

@test "endpoints and judges share the work; one that is down is made up for" {
	local first turns
	turns=("$(tool Write '{"file_path":"/work/model_new.py","content":"x"}')" "$(sh_turn ca-verify)")
	script "${turns[@]}" "$done_turn"
	serve
	first=$url
	# The other one answers 401, until it is served anew.
	script "${turns[@]}" "$(jq -nc '{faults: [range(9) | {status: 401}]}')"
	serve
	# Each judge answers once the other one has been asked too.
	for i in 1 2; do
		cat >judge.$i <<-END
			#!/bin/bash
			while read -r line; do
				echo >asked.$i
				for _ in {1..600}; do
					[ -e asked.$((3 - i)) ] && break
					sleep 0.1
				done
				cat <<<"\$line"
			done | ./judge
		END
		chmod 755 judge.$i
	done
	run rollouts -e "$first" -e "$url" -k 8 -j 4 -J ./judge.1 -J ./judge.2 tasks
	[ "$status" = 75 ]
	cat summary
	grep -q '^8 trajectories of 1 tasks' summary
	grep -q '^rewards .*none: [1-7], 1: [1-7]; mean 1$' summary
	grep -q '^stopped by .*api_error: [1-7]' summary
	grep -q 'makes them again' summary
	[ -s asked.1 ] && [ -s asked.2 ]
	# They go on with the turn that had no answer, each where it was.
	cp out.d/trajectories.ndjson before
	rollouts -e "$first" -k 8 -j 4 -J ./judge tasks
	grep -q '^stopped by  final: 8$' summary
	grep -q '^rewards     1: 8; mean 1$' summary
	grep -q '^turns       24, ' summary
	jq -r 'select(.outcome.stop_reason == "api_error") | .id' before |
		while read -r id; do
			echo "$id"
			jq -c '[.e, .reason, .digest]' "out.d/run/$id/log.ndjson"
			[ "$(grep -c '"e":"begin"' "out.d/run/$id/log.ndjson")" = 1 ]
			grep -q '"e":"again"' "out.d/run/$id/log.ndjson"
		done
}

@test "an endpoint that is gone does not take all rollouts with it" {
	script "$(sh_turn 'sleep 0.3')" "$done_turn"
	serve
	run rollouts -e http://127.0.0.1:9/v1 -e "$url" -k 10 -j 2 -J ./judge tasks
	[ "$status" = 75 ]
	cat summary
	grep -q '^stopped by  api_error: [12], final: [89]$' summary
}

@test "interrupted, the same command goes on" {
	script "$(tool Bash '{"command":"date +%N"}')" "$(sh_turn 'sleep 2')" "$done_turn"
	serve
	rollouts -e "$url" -k 6 -j 2 -J ./judge tasks 3>&- &
	for _ in $(seq 600); do
		[ -s out.d/trajectories.part ] && break
		sleep 0.1
	done
	pkill -TERM -o -f -- "--endpoint $url "
	status=0
	wait $! || status=$?
	[ "$status" = 143 ]
	[ ! -e out.d/trajectories.ndjson ]
	sort out.d/trajectories.part >first
	rollouts -e "$url" -k 6 -j 6 -J ./judge tasks
	grep -q '^6 trajectories' summary
	# What was finished is as it was.
	sort out.d/trajectories.ndjson | comm -23 first - >lost
	[ ! -s lost ]
}

@test "a terminal shows how far it is" {
	script "$(sh_turn 'sleep 3')" "$done_turn"
	serve
	export -f rollouts
	export bin root url
	# dash, which script(1) starts where SHELL is not set, drops functions.
	SHELL=$BASH command script -qec 'bash -c "rollouts -e $url -k 2 -j 1 -J ./judge tasks"' typescript >/dev/null
	tr '\r' '\n' <typescript | grep -q 'ca-agent: 1 done, 1 at work, .* 50 %, .* s left; final 1'
}
