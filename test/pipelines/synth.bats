#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# pipelines/synth.sh on a few operators: killed at each stage, it ends with
# what it would have ended with.

bats_require_minimum_version 1.5.0

load ../tools/host
root=$BATS_TEST_DIRNAME/../..

setup() {
	use_host
	for need in jq parallel flock setsid; do
		command -v $need >/dev/null || skip "no $need"
	done
	CA_BIN=${CA_BIN:-$root/bin}
	export CA_BIN
	"$CA_BIN/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
	cd "$BATS_TEST_TMPDIR" || return
}

synth() {
	"$root/pipelines/synth.sh" -o out --keep-total 5 --device cpu --operators 4 \
		--ms 0.2 --mix x1=1,x2=3,x3=1 --seed 3 -j 2 -- --min-ms 0 \
		--checks contract,trace,eager,trivial
}

# killed CONDITION: a run that is killed, all of it, once this holds
killed() {
	setsid ./start >log 2>&1 3>&- &
	local pid=$! n
	for ((n = 0; n < 2000; n++)); do
		! eval "$1" || break
		sleep 0.05
	done
	kill -0 $pid
	pkill -KILL -s $pid
	wait $pid 2>/dev/null || true
	eval "$1"
}

@test "killed while it crawls, combines and filters, it goes on where it was" {
	{
		echo '#!/usr/bin/env bash'
		declare -p root
		declare -f synth
		echo synth
	} >start
	chmod 755 start
	killed 'compgen -G "out/part.*" >/dev/null'
	killed 'compgen -G "out/ops.torch.1.*" >/dev/null'
	cp out/ops.torch.1.* ops
	killed 'compgen -G "out/share.*" >/dev/null'
	killed '[ -s out/judged.ndjson ]'
	cmp ops out/ops.torch.1.*
	printf '{"kind":"task","id":"half' >>out/judged.ndjson
	synth >text
	cat text
	[ "$(wc -l <out/tasks.ndjson)" = 5 ]
	[ "$(jq -r '.parts | length' out/tasks.ndjson | sort | uniq -c |
		tr -s ' \n' ' ')" = ' 1 1 3 2 1 3 ' ]
	[ "$(jq -r .id out/judged.ndjson | sort | uniq -d | wc -l)" = 0 ]
	[ "$(cat out/made.* | wc -l)" = "$(wc -l <out/judged.ndjson)" ]
	jq -se 'all(.keep and .filter.status == "ok" and .dedup.reason == null)' \
		out/tasks.ndjson
	# All that was made is accounted for.
	jq -e '.judged == .kept + ([.rejected[][]] | add // 0) and .wrote == 5 and
		.quota == {x1: 1, x2: 3, x3: 1} and .crawl.made >= 4' out/funnel.json
	cmp text out/funnel.txt
	"$root/pipelines/synth.sh" --report out/checked.ndjson --json >again
	[ "$(jq -S '{judged, kept, rejected, strata, seconds}' again)" = \
		"$(jq -S '{judged, kept, rejected, strata, seconds}' out/funnel.json)" ]
	cp out/tasks.ndjson first
	synth >text
	cmp first out/tasks.ndjson
}

@test "what cannot be filled is said; wrong words are usage" {
	mkdir out
	jq -cn '{kind: "task", v: 1, id: "a", code: "x", source: {name: "torch"},
		parts: ["x"], pieces: [{name: "x", init: null, call: "torch.sum({0})",
		chain: 0, inputs: [{kind: "randn", shape: [64, 64]}]}]}' \
		>out/ops.torch.1.1
	echo '{"source":"torch","made":1,"skipped":0,"reasons":[]}' >out/crawl.torch.1.1
	run -65 --separate-stderr "$root/pipelines/synth.sh" -o out --keep-total 2 \
		--device cpu --operators 1 --mix x2=1
	[[ $output == *'combine  0 tasks'* ]]
	[[ $stderr == *'could not be filled'* ]]
	for words in '' '-o out' '-o out --keep-total 0' '--keep-total 3' \
		'-o out --keep-total 3 --mix x2' '-o out --keep-total 3 -j x' \
		'-o out --keep-total 3 --nonsense 1'; do
		# shellcheck disable=SC2086
		run -64 "$root/pipelines/synth.sh" $words
	done
	run -66 "$root/pipelines/synth.sh" --report nowhere
	echo nonsense >bad
	run -65 "$root/pipelines/synth.sh" --report bad
}
