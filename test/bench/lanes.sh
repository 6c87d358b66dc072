#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# lanes.sh [-s SECONDS] [-o DIR] LIST [LIST ...]: what is measured on CUDA, in little time.
# The k-th LIST, words in one argument, runs on the k-th GPU, one word after the other, beside
# the other lists; SECONDS (540) after the start all that still runs is ended.  Each word's
# output is DIR/K.WORD.log (DIR: lanes), and what it keeps in order to go on the next time is in
# DIR too.  Lanes share the processors: a time that is to count wants one list.  Exit 1 when a
# word failed, or did not begin or end in time.  Words:
#   refs:GLOB        KernelBench's references as their own candidates (KERNELBENCH)
#   pairs:N          KernelBench's evaluator beside ours (KERNELBENCH, CUDA_L1_PAIRS)
#   same:N           references paid as their own candidates, of N full runs
#   attacks:RULES controls faults:N     candidates that cheat, honest ones, those that break
#   serve engine try kernelbench:N      the benches of these names
#   SUITE.bats       test/gpu/SUITE.bats
# For instance, with two GPUs:  lanes.sh 'refs:level1/*.py same:30' 'attacks:paper engine.bats'
set -eu -o pipefail
cd "$(dirname "$0")/../.."
limit=540 dir=lanes
while getopts s:o: o; do
	case $o in
	s) limit=$OPTARG ;;
	o) dir=$OPTARG ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || exit 64
mkdir -p "$dir"
dir=$(realpath "$dir")
[ -z "${CUDA_L1_PAIRS-}" ] || CUDA_L1_PAIRS=$(realpath "$CUDA_L1_PAIRS")

command_of() { # word: its command in "${run[@]}"
	local arg=${1#*:}
	case $1 in
	refs:*)
		run=(test/kernelbench-refs.sh -j 4 -s "$dir/refs.sizes.$gpu"
			-d "$dir/refs.done.$gpu" cuda "$arg")
		;;
	pairs:*)
		run=(test/kernelbench-pairs.sh -n "$arg" -k "$dir/pairs.$gpu.ndjson"
			"$CUDA_L1_PAIRS")
		;;
	same:*) run=(test/judge-stats.sh -p s -n "$arg" -j 3 -k "$dir/same.$gpu.ndjson" cuda) ;;
	attacks:*) run=(test/attacks/run.sh -r "$arg" cuda) ;;
	controls) run=(test/controls/run.sh -a cuda) ;;
	faults:*) run=(test/faults.sh -d cuda -j 4 "$arg") ;;
	serve) run=(test/bench/serve.sh cuda) ;;
	engine) run=(test/bench/engine.sh -o cuda) ;;
	try) run=(test/bench/try.sh) ;;
	kernelbench:*) run=(test/bench/kernelbench.sh "$CUDA_L1_PAIRS" "$arg") ;;
	*.bats) run=(bats --tap -T "test/gpu/$1") ;;
	*)
		echo "lanes.sh: no such word: '$1'" >&2
		return 64
		;;
	esac
}

lane() { # number, words
	local gpu=$1 word rc began left all=0
	local -a run
	export CUDA_VISIBLE_DEVICES=$gpu
	for word in $2; do
		began=$SECONDS left=$((limit - SECONDS)) rc=0
		command_of "$word"
		if [ "$left" -lt 5 ]; then
			echo "$word: no time left"
			all=1
			continue
		fi
		timeout -k 5 "$left" "${run[@]}" </dev/null \
			>"$dir/$gpu.${word//[^a-zA-Z0-9_.]/-}.log" 2>&1 || rc=$? all=1
		echo "$word: status $rc, $((SECONDS - began)) s"
	done
	return $all
}

set -f	# globs are for whom they are handed to
gpu=0
for list; do
	for word in $list; do
		command_of "$word"
	done
done
for list; do
	lane $gpu "$list" &
	lanes[gpu]=$!
	gpu=$((gpu + 1))
done
rc=0
for pid in "${lanes[@]}"; do
	wait "$pid" || rc=1
done
exit $rc
