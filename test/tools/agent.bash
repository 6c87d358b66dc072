# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the suites of ca-agent share.  Scripts of the model are written with
# jq: say TEXT, call NAME ARGS..., turn.
# shellcheck disable=SC2034 # used by them

bin=${CA_BIN:-$BATS_TEST_DIRNAME/../../bin}
root=$BATS_TEST_DIRNAME/../..
fix=$root/fixtures/workdirs/cpu
endpoint=$root/test/agent/endpoint.py

agent_setup() {
	command -v jq >/dev/null || skip 'no jq'
	command -v python3 >/dev/null || skip 'no python3'
	"$bin/ca-jail" --probe | jq -e '.command == "full"' >/dev/null ||
		skip 'no jail of level full'
	# Everybody has to be able to pass where rollouts live.
	dir=$(TMPDIR=/tmp mktemp -d -t ca-agent.XXXXXX) || return
	chmod 755 "$dir"
	cd "$dir" || return
	mkdir skill
	printf -- '---\nname: n\ndescription: d\n---\n\nBe fast.\n' \
		>skill/SKILL.md
	echo 'Answer with files.' >skill/single-turn.md
	jq -cn --rawfile c "$fix/diag-matmul/model.py" \
		'{kind: "task", v: 1, code: $c}' >tasks
	# A judge that only counts how often it was asked.
	cat >judge <<-'END'
		#!/bin/sh
		exec jq -c --unbuffered '. + {
			build: {status: "ok", form: "light", device: "cpu"},
			verify: {status: "ok"}, profile: {status: "ok"},
			reference: {status: "ok"},
			reward: {value: 1, reason: "counted"}}'
	END
	chmod 755 judge
	unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
}

# serve: the script over HTTP; $url.  Every server goes with the test: one
# that stayed would keep bats waiting.
serve() {
	# Or the last one's would be read.
	rm -f port
	python3 "$endpoint" script >port 2>/dev/null 3>&- &
	echo $! >>"$dir/servers"
	for _ in $(seq 600); do
		[ -s port ] && break
		sleep 0.1
	done
	url=http://127.0.0.1:$(cat port)/v1
}

agent_teardown() {
	[ ! -s "$dir/servers" ] || xargs kill <"$dir/servers" || true
	cd / && rm -rf "$dir"
}

# script TURN...: JSON of each turn
script() {
	jq -cn '[inputs]' <<<"$*" >script
}

# tool NAME ARGS: a turn that makes one call
tool() {
	jq -cn --arg n "$1" --argjson a "$2" '{calls: [{name: $n, args: $a}]}'
}

# bash COMMAND [MEMBER=VALUE...]: a turn that runs it
sh_turn() {
	jq -cn --arg c "$1" --argjson more "${2:-{\}}" \
		'{calls: [{name: "Bash", args: ({command: $c} + $more)}]}'
}

done_turn='{"content":"Done."}'

# agent [OPTION...]: runs the script over tasks; the trajectory in out
agent() {
	"$bin/ca-agent" --model-cmd "python3 '$endpoint' --stdio script" \
		--skill skill -d cpu --judge ./judge -j 4 "$@" tasks >out
}

# results: texts of all tool messages, one JSON string a line
results() {
	jq -c '.messages[] | select(.role == "tool") | .content' out
}

# result N: the N-th of them, raw
result() {
	jq -r "[.messages[] | select(.role == \"tool\") | .content][$1]" out
}

stopped() { # reason
	local got
	got=$(jq -r .outcome.stop_reason out)
	[ "$got" = "$1" ] && return
	echo "stopped by $got: $(jq -c .outcome out)"
	return 1
}

# strong DEVICE NAME: task and script of a model that works on the fixture NAME
# as a strong one would.  Results: 0 model.py, 1 the skill, 2 the reference's
# profile, 3 to 4 the files, 5 what the compiler says, 6 its repair, 7 the
# build and the verdict, 8 the profile.
strong() {
	local from=$root/fixtures/workdirs/$1/$2 kernel turns
	local long='{"timeout":600000}'
	kernel=$(basename "$from"/kernels/*)
	jq -cn --rawfile c "$from/model.py" '{kind: "task", v: 1, code: $c}' >tasks
	turns=("$(tool Read '{"file_path":"/work/model.py"}')"
		"$(sh_turn 'head -3 SKILL.md; ls examples')"
		"$(sh_turn 'ca-profile --reference' "$long")"
		"$(jq -cn --arg p "/work/kernels/$kernel" --rawfile c "$from/kernels/$kernel" \
			'{calls: [{name: "Write", args: {file_path: $p, content: ($c + "\n!")}}]}')"
		"$(jq -cn --rawfile c "$from/model_new.py" \
			'{calls: [{name: "Write", args: {file_path: "/work/model_new.py", content: $c}}]}')"
		"$(sh_turn utils/compile.sh "$long")"
		"$(jq -cn --arg p "/work/kernels/$kernel" \
			'{calls: [{name: "Edit", args: {file_path: $p, old_string: "\n!", new_string: ""}}]}')"
		"$(sh_turn 'ca-compile && sudo python3 -m utils.verification' "$long")"
		"$(sh_turn ca-profile "$long")")
	script "${turns[@]}" "$done_turn"
}

# work DEVICE [OPTION...]: that model works, and the device's own judge judges
work() {
	"$bin/ca-agent" --model-cmd "python3 '$endpoint' --stdio script" \
		-d "$1" --rules paper "${@:2}" tasks >out
}

# solve DEVICE NAME ...: that model works on several side by side, each graded
# in full, by CA_JUDGES judges (1); trajectories are left in CA_KEEP, if set.
solve() {
	local device=$1 name
	shift
	for name; do
		strong "$device" "$name"
		cat tasks >>all.tasks
		jq -c --slurpfile task tasks '{code: $task[0].code, turns: .}' script
	done | jq -cs '{scripts: .}' >all
	mv all script
	mv all.tasks tasks
	work "$device" -j $# --grade full --judges "${CA_JUDGES:-1}"
	mv out all
	[ -z "${CA_KEEP-}" ] || cp all "$CA_KEEP"
}

# was_solved DEVICE NAME: what became of it
was_solved() {
	jq -c --rawfile c "$root/fixtures/workdirs/$1/$2/model.py" 'select(.task.code == $c)' all >out
	# What each verdict took, in seconds, and what its judge waited for.
	jq -c '.evaluations[] | {stage, wall_s, judge_s} + (.candidate |
		{verify, profile, reference} | map_values(.prov | {seconds, waited}))' out
	jq -r '.evaluations[-1].candidate | .reward.value as $r | .profile | def n: . * 100 | round / 100;
		[.speedup.eager, .speedup.compile | select(.) | "\(.point | n)x (\(.lower // 0 | n) to \(.upper // 0 | n))"] +
		["reward \($r)"] | join(", ")' out
	solved "$1" "$2"
	jq -e '.evaluations[-1].candidate | .reward.provisional // false | not' out
}

# solved DEVICE NAME: it went as it has to.  On a machine that others keep busy
# nothing is paid for speed, and the record says why.
solved() {
	local want
	want=$(jq -c .reward "$root/fixtures/workdirs/$1/$2/expect.json")
	stopped final
	[[ $(result 1) = *"name: $1-kernels"*resnet-basicblock* ]]
	[[ $(result 2) = *eager*compile* ]]
	[[ $(result 5) = *compile_error*"kernels/"*'[exit code 1]' ]]
	[[ $(result 7) = *'built: light form'*'ok (all is as it should be)'* ]]
	[[ $(result 8) = *'over eager'* ]]
	jq -e '[.evaluations[] | [.stage, .graded]] == [["reference", null],
		["compile", null], ["compile", null], ["verify", null],
		["profile", null], ["reward", "final"]]' out
	jq -ce --argjson want "$want" '.evaluations[-1].candidate.profile.contended as $busy |
		.outcome | ., .final.status == "ok" and
		(.reward as $r | $want + [null | select($busy)] | any(. == $r))' out
}
