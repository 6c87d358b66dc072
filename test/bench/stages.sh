#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# stages.sh [cpu|cuda [WORKDIR]]: where the time of one try goes, stage by
# stage: with an empty cache, again with a full one, and with --quick.  Then
# what a stage costs for a record that it only passes on.
set -eu
cd "$(dirname "$0")/../.."
top=$PWD
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
device=${1:-cpu}
workdir=${2:-fixtures/workdirs/$device/axpby}
work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$work"
CA_PYTHON=$(torch_python)
CA_CACHE=$work/cache
export CA_PYTHON CA_CACHE

now() {
	date +%s%N
}

# Runs a command from one record file to the next; the seconds in $took.
timed() { # input, output, command...
	local in=$1 out=$2 from
	shift 2
	from=$(now)
	"$@" <"$in" >"$out"
	took=$(awk -v ns=$(($(now) - from)) 'BEGIN { printf "%.2f", ns / 1e9 }')
}

try() { # column, flags of ca-profile
	local column=$1 sum=0 stage
	shift
	for stage in compile verify profile reward; do
		case $stage in
		compile) timed /dev/null "$work/compile" \
			bin/ca-compile --device "$device" "$workdir" ;;
		verify) timed "$work/compile" "$work/verify" bin/ca-verify ;;
		profile) timed "$work/verify" "$work/profile" \
			bin/ca-profile "$@" ;;
		reward) timed "$work/profile" "$work/reward" bin/ca-reward ;;
		esac
		echo "$stage $took" >>"$work/$column"
		sum=$(awk -v a="$sum" -v b="$took" 'BEGIN { print a + b }')
	done
	echo "total $sum" >>"$work/$column"
}

per_record() {
	local n=200 stage
	yes "$(cat "$work/reward")" | head -n $n >"$work/many" || true
	for stage in compile verify profile reward; do
		timed "$work/many" "$work/passed" "bin/ca-$stage"
		awk -v s="$stage" -v t="$took" -v n=$n \
			'BEGIN { printf "%-8s %8.2f ms\n", s, t * 1000 / n }'
	done
}

try cold
try warm
try quick --quick
echo "one try of $workdir on $device, seconds"
printf '%-8s %8s %8s %8s\n' stage cold warm --quick
paste -d' ' "$work/cold" "$work/warm" "$work/quick" |
	awk '{ printf "%-8s %8s %8s %8s\n", $1, $2, $4, $6 }'
jq -r '"verdict: \(.verify.status), reward \(.reward.value)"' "$work/reward"
echo 'a record that is passed on'
per_record
