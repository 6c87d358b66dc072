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
}
