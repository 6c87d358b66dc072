#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# rollout.sh -e URL [-e URL ...] -m MODEL -o DIR [-j N] [-k N] [-J CMD ...] TASKS...
#            [-- OPTION...]
#
# Tasks in, trajectories out: -k rollouts of each task (1), -j at once (8),
# spread over the endpoints; each -J is a judge, as `ssh gpu3 ca-agent
# --serve-judge`, instead of one here.  Options behind -- go to ca-agent.
# What is finished is in DIR/trajectories.part at once, and in
# DIR/trajectories.ndjson when all is.  The same command again goes on where
# it was, and makes again what failed for want of a model or a judge.
# Ends with a summary: rewards, stop reasons, tokens, seconds, cost.  -c DOLLARS
# and -C DOLLARS: price of a million tokens in and out.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CA_BIN:-$here/../bin} && [ -d "$bin" ] || bin=$here/../../../bin

usage() { sed -n '4,15s/^# \{0,1\}//p' "$0"; }
fail() { # status, text
	echo "rollout.sh: $2" >&2
	exit "$1"
}

ends=() judges=() model='' out='' jobs=8 k=1 in=0 price=0
[ "${1-}" != --help ] || set -- -h
while getopts e:m:o:j:k:J:c:C:h opt; do
	case $opt in
	e) ends+=(--endpoint "$OPTARG") ;;
	m) model=$OPTARG ;;
	o) out=$OPTARG ;;
	j) jobs=$OPTARG ;;
	k) k=$OPTARG ;;
	J) judges+=(--judge "$OPTARG") ;;
	c) in=$OPTARG ;;
	C) price=$OPTARG ;;
	h) usage && exit ;;
	*) usage >&2 && exit 64 ;;
	esac
done
shift $((OPTIND - 1))
tasks=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	tasks+=("$1")
	shift
done
[ $# = 0 ] || shift
[ ${#ends[@]} -gt 0 ] && [ -n "$model" ] && [ -n "$out" ] && [ ${#tasks[@]} -gt 0 ] ||
	{ usage >&2 && exit 64; }
jq -en --arg a "$in" --arg b "$price" '[$a, $b | tonumber] | all(. >= 0)' >/dev/null 2>&1 ||
	fail 64 '-c and -C take dollars'
for opt; do
	case $opt in
	-o* | -[!-]*o* | --outp* | --dir* | --sh* | --ser* | --ex*)
		fail 64 "'$opt' is not for what is behind --: trajectories go to -o DIR"
		;;
	esac
done
mkdir -p "$out"
exec 9>>"$out/lock"
# What a kill left behind ends by itself.
flock -n 9 || { ! kill -0 "$(cat "$out/lock")" 2>/dev/null && flock -w 60 9; } ||
	fail 75 "another run is at work in '$out'"
echo $$ >"$out/lock"

status=0
setpriv --pdeathsig TERM "$bin/ca-agent" "${ends[@]}" --model "$model" -k "$k" -j "$jobs" \
	--dir "$out/run" --resume "${judges[@]}" "$@" "${tasks[@]}" \
	>"$out/trajectories.part" || status=$?
# 75: some were broken off; 65: some lines were no tasks.
case $status in
0 | 65 | 75) mv "$out/trajectories.part" "$out/trajectories.ndjson" ;;
*)
	[ "$status" -lt 128 ] || fail "$status" 'interrupted; the same command goes on'
	fail "$status" 'ca-agent says above what is wrong; what is finished is kept'
	;;
esac

jq -rn --argjson in "$in" --argjson price "$price" '
	def counts(f): [f] | group_by(.) | map("\(.[0] // "none"): \(length)") | join(", ") |
		if . == "" then "none" else . end;
	def total(f): [.[] | f // 0] | add // 0;
	def mean: if length == 0 then "none" else add / length * 100 | round / 100 end;
	[inputs | select(.kind == "trajectory") |
		{task, outcome, cost, redundant_loop, schema_violations} | del(.task.code)] |
	"\(length) trajectories of \(map(.task.id) | unique | length) tasks",
	"rewards     " + counts(.[].outcome.reward) +
		"; mean \([.[].outcome.reward | numbers] | mean)",
	"stopped by  " + counts(.[].outcome.stop_reason),
	"turns       \(total(.cost.turns)), tries \(total(.cost.tries))",
	"tokens      \(total(.cost.prompt_tokens)) in, \(total(.cost.completion_tokens)) out" +
		(if any(.[]; .cost.estimated) then " (some estimated)" else "" end),
	"seconds     model \(total(.cost.model_seconds) | round), judge " +
		"\(total(.cost.judge_seconds) | round), GPU \(total(.cost.gpu_seconds) | round)",
	"cost        \((total(.cost.prompt_tokens) * $in + total(.cost.completion_tokens) * $price) / 1e6)",
	"loops       \(map(select(.redundant_loop)) | length), with schema violations " +
		"\(map(select((.schema_violations // 0) > 0)) | length)"
	' "$out/trajectories.ndjson"
[ "$status" != 75 ] || echo 'Some were broken off: the same command makes them again.'
exit "$status"
