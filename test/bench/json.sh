#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# json.sh [RECORDS [RUNS]]: how many small records, for which nothing is to be
# done, go through each stage in a second (200,000 records, 5 runs), beside
# `jq -c .` in the same round; and what a judged candidate costs the stages
# that judged it (see stages.sh).  By the clock and by time of cores, which
# other work on the machine does not change.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/bench/lib.sh
. test/bench/lib.sh
n=${1:-200000} runs=${2:-5}
stages='ca-compile ca-verify ca-profile ca-reward ca-filter ca-dedup-ast'
work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

seq "$n" | sed 's/.*/{"kind":"error","v":1,"line":&,"byte":0,"message":"cannot parse"}/' >"$work/in"

per_s() { # seconds
	awk -v n="$n" -v t="$1" 'BEGIN { print n / (t > 0.001 ? t : 0.001) }'
}

one() { # name, command...
	local name=$1
	shift
	timed "$@" <"$work/in" >"$work/out"
	cmp -s "$work/in" "$work/out" || { echo "$name changes records" >&2; exit 1; }
	per_s "$wall" >>"$work/$name.wall"
	# shellcheck disable=SC2154 # timed's
	per_s "$cpu" >>"$work/$name.cpu"
}

for _ in $(seq "$runs"); do
	one jq jq -c .
	for stage in $stages; do
		one "$stage" "bin/$stage"
	done
done

machine_line
printf '%-14s%14s%14s%10s\n' records/s 'by the clock' 'by cores' 'x jq'
for name in jq $stages; do
	jq -n --arg stage "$name" --argjson records "$n" \
		--argjson wall "$(spread <"$work/$name.wall")" \
		--argjson cpu "$(spread <"$work/$name.cpu")" \
		--argjson peer "$(spread <"$work/jq.wall")" \
		'{$stage, $records, per_s: $wall, per_core_s: $cpu,
			over_jq: ($wall.median / $peer.median)}' >"$work/result"
	keep_result json "$(cat "$work/result")"
	printf '%-14s%14.0f%14.0f%10.1f\n' "$name" \
		"$(jq .per_s.median "$work/result")" \
		"$(jq .per_core_s.median "$work/result")" \
		"$(jq .over_jq "$work/result")"
done
