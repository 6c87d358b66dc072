#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# synth.sh -o DIR --keep-total N [OPTION...] [-- FILTER-OPTION...]
# synth.sh --report FILE [--json]
#
# Makes N tasks that survive ca-filter and ca-dedup-ast, in the paper's mix:
# operators are crawled, stacked, filtered; what a stratum loses is made again.
# Everything is in DIR; the same command again goes on where it was, after
# kill -9 too.  tasks.ndjson are the tasks; funnel.txt and funnel.json say what
# became of the others, and --report says it of any output of ca-filter.
#   --device cpu|cuda    --seed N (1)        --mix SHARES (as ca-combine's)
#   -j N  tasks at once (cores)              --operators N  to crawl (N, but >= 24)
#   --ms MS  of an operator (3)              --source torch|transformers (torch)
#   --against FILE  tasks to keep away from (ca-dedup-ast); these two repeated
# Exit status: 65 when a stratum cannot be filled; else as the programs'.
# shellcheck disable=SC2016 # what looks like variables is jq's
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CA_BIN:-$here/../bin} && [ -d "$bin" ] || bin=$here/../../../bin
bin=$(cd "$bin" && pwd)

usage() { sed -n '4,17s/^# \{0,1\}//p' "$0" >&$((1 + (${1:-64} > 0))) && exit "${1:-64}"; }
fail() { # status, text
	echo "synth: $2" >&2
	exit "$1"
}
funnel() { # option..., program; the input is stdin
	jq -L "$here/synth" "${@:1:$#-1}" "include \"funnel\"; ${*: -1}"
}

out='' keep='' seed=1 jobs=$(nproc) ops='' ms=3 file='' show=text
device='' sources=() against=()
mix=x1=3.40,x2=83.77,x3=7.62,x4=2.80,x5=1.23,transformers=1.18
while [ $# -gt 0 ]; do
	case $1 in
	--json) show=. && shift && continue ;;
	--) shift && break ;;
	-h | --help) usage 0 ;;
	esac
	[ $# -gt 1 ] || usage
	case $1 in
	-o) out=$2 ;;
	--keep-total) keep=$2 ;;
	--device) device=--device=$2 ;;
	--seed) seed=$2 ;;
	--mix) mix=$2 ;;
	-j) jobs=$2 ;;
	--operators) ops=$2 ;;
	--ms) ms=$2 ;;
	--source) sources+=("$2") ;;
	--against) against+=(--against "$2") ;;
	--report) file=$2 ;;
	*) usage ;;
	esac
	shift 2
done
for need in parallel jq flock; do
	command -v $need >/dev/null || fail 69 "needs $need"
done
if [ -n "$file" ]; then
	[ -r "$file" ] || fail 66 "cannot open '$file'"
	funnel -rn "counts(inputs | select(.kind == \"task\")) | $show" <"$file" ||
		fail 65 "'$file' is no output of ca-filter"
	exit
fi
[[ -n $out && $device != *[![:alnum:]:=-]* && $keep =~ ^[1-9][0-9]{0,6}$ && $seed =~ ^[0-9]{1,9}$ &&
	$jobs =~ ^[1-9][0-9]{0,3}$ && ${ops:-1} =~ ^[1-9][0-9]{0,5}$ ]] || usage
[ ${#sources[@]} -gt 0 ] || sources=(torch)
[[ " ${sources[*]} " == *' transformers '* ]] || mix=${mix%,transformers=*}
quota=$(funnel -cn --arg mix "$mix" --argjson n "$keep" \
	'$mix | shares | quota($n)' 2>/dev/null) || fail 64 "'$mix' is no mix"
: "${ops:=$((keep > 24 ? keep : 24))}"

mkdir -p "$out"
exec 9>"$out/lock"
# What a kill left behind finishes its task first.
flock -w 300 9 || fail 75 "another run is at work in '$out'"
# Unfinished files have six letters behind their names.
rm -f "$out"/{part,share}.*.?????? "$out/checked.ndjson".??????
# shellcheck source=pipelines/synth/make.sh
. "$here/synth/make.sh"
# shellcheck source=pipelines/synth/judge.sh
. "$here/synth/judge.sh"
crawl_enough
count
for ((round = 1, dry = 0; dry < 5; round++)); do
	want=$(funnel -c --argjson quota "$quota" 'missing($quota)' \
		<"$out/counts.json")
	[ "$want" != '{}' ] || break
	before=$(jq .kept "$out/counts.json")
	combine_round
	filter_round "$@"
	count
	dry=$(($(jq .kept "$out/counts.json") > before ? 0 : dry + 1))
done
finish
