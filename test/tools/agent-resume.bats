#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-agent --resume: a rollout that was killed at any write becomes the same
# trajectory as one that was not.  CA_KILL_STEP=1 tries every write (make
# test-agent), the default every 31st.

load agent.bash

setup() {
	agent_setup
	"${CC:-gcc}" -shared -fPIC -o killer.so "$root/test/agent/killer.c" ||
		skip 'no compiler'
}

teardown() {
	agent_teardown
}

# A rollout of 45 turns with little in each.
long_script() {
	local turns=() i
	for i in $(seq 14); do
		turns+=("$(tool Write "{\"file_path\":\"/work/kernels/k$i.c\",\"content\":\"int x$i;\\n\"}")"
			"$(tool Edit "{\"file_path\":\"/work/kernels/k$i.c\",\"old_string\":\"int\",\"new_string\":\"long\"}")"
			"$(tool Read "{\"file_path\":\"/work/kernels/k$i.c\"}")")
	done
	turns+=("$(tool Write '{"file_path":"/work/model_new.py","content":"x"}')"
		"$(sh_turn 'cd kernels; cat *.c >all.txt; echo $RANDOM >/dev/null; ls | wc -l')"
		"$(sh_turn 'pwd; ca-verify')")
	script "${turns[@]}" "$done_turn"
}

calm() {
	agent --no-prov --seed 1 --dir "$dir/run" "$@"
}

# kill_at N: it is killed, and goes on
kill_at() {
	rm -rf run
	# The parent starts it once more, which may get as far, or to the end.
	CA_KILL_AT=$1 LD_PRELOAD=$PWD/killer.so calm -q || case $? in
	75 | 137) ;;
	*) return 1 ;;
	esac
	calm --resume -q || return 1
	# It began anew only where a tool may have changed half of the files.
	for f in run/*/log.[0-9]*.ndjson; do
		[ ! -s "$f" ] || [ "$(grep '}$' "$f" | tail -n 1 | jq -r .e)" = call ] || {
			echo "killed at write $1 it began anew, though no tool was at work: $f"
			tail -n 3 "$f" | cut -c 1-200
			return 1
		}
	done
	cmp out want && return
	echo "killed at write $1:"
	diff <(jq -S . out) <(jq -S . want) | head -20
	return 1
}

@test "killed at any write, it becomes the same trajectory" {
	local n step=${CA_KILL_STEP:-31} last
	long_script
	calm
	cp out want
	# How many writes there are.
	rm -rf run
	: >count
	chmod 666 count
	CA_KILL_AT=1000000 CA_KILL_COUNT=$dir/count LD_PRELOAD=$PWD/killer.so calm
	cmp out want
	last=$(cat count)
	echo "$last writes"
	[ "$last" -ge 200 ]
	for n in $(seq 1 "$step" "$last"); do
		export CA_KILL_HALF=$((n % 2))
		kill_at "$n"
	done
}

@test "files that a killed command half changed begin it anew" {
	script "$(sh_turn 'echo 1 >a')" "$(sh_turn 'echo 2 >b; sleep 2; echo 3 >c; ls')" "$done_turn"
	calm
	cp out want
	rm -rf run
	calm &
	for _ in $(seq 1000); do
		compgen -G "run/*/work/b" >/dev/null && break
		sleep 0.05
	done
	pkill -9 -P $! -x ca-agent
	wait $! || true
	calm --resume
	cmp out want
	ls run/*/log.1.ndjson
}

@test "finished rollouts are written again, and not made again" {
	script "$(tool Bash '{"command":"date +%N"}')" "$done_turn"
	calm -k 3
	sort out >first
	calm -k 3 --resume
	sort out | cmp - first
	# What is asked for otherwise is another rollout.
	calm --resume --turns 7
	[ "$(grep -c -f <(jq .id out) first)" = 0 ]
	cp -r skill skill2
	echo 'Be brief.' >>skill2/SKILL.md
	calm --resume --skill skill2
	[ "$(grep -c -f <(jq .id out) first)" = 0 ]
}

@test "two processes on one directory do not mix" {
	script "$(sh_turn 'echo >begun; until [ -e go ]; do sleep 0.1; done')" "$done_turn"
	calm &
	for _ in $(seq 1000); do
		compgen -G "run/*/work/begun" >/dev/null && break
		sleep 0.05
	done
	"$bin/ca-agent" --model-cmd cat --skill skill -d cpu --judge ./judge --seed 1 --dir run --resume tasks >other 2>err || [ $? = 75 ]
	grep -q 'another process works on' err
	touch "$(echo run/*/work)/go"
	wait $!
	stopped final
}

@test "a process that cannot be had now is had later" {
	script "$(sh_turn 'echo x >model_new.py')" "$(sh_turn ca-verify)" "$done_turn"
	CA_FORK_EVERY=3 LD_PRELOAD=$PWD/killer.so agent -k 3
	jq -es 'length == 3 and all(.outcome | .stop_reason == "final" and .reward == 1)' out
}
