#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# repeat.sh [-n RUNS] [-q] [-d DEVICE] [WORKDIR]: judges one candidate so many
# times (20) from its build on, and tells how often each verdict and reward
# came, and how far apart the speedups are.  -q: quick profiles.  Exit 1 when
# not all runs say the same.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/bench/lib.sh
. test/bench/lib.sh
runs=20 quick='' device=cpu
while getopts n:qd: o; do
	case $o in
	n) runs=$OPTARG ;;
	q) quick=--quick ;;
	d) device=$OPTARG ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
workdir=${1:-fixtures/workdirs/${device%:*}/diag-matmul}
work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$work"	# compilers run as nobody

machine_line
bin/ca-compile --device "$device" "$workdir" >"$work/built"
for i in $(seq "$runs"); do
	from=$EPOCHREALTIME
	# shellcheck disable=SC2086 # one word or none
	bin/ca-verify <"$work/built" | bin/ca-profile $quick |
		bin/ca-reward >"$work/one"
	jq -c --arg s "$(bc <<<"$EPOCHREALTIME - $from")" \
		'{verdict: .verify.status, reward: .reward.value, seconds: ($s | tonumber),
		  rounds: .profile.rounds, us: .profile.candidate.median_us,
		  eager: .profile.speedup.eager.point, compile: .profile.speedup.compile.point}' \
		"$work/one" | tee -a "$work/all" | sed "s/^/$i: /"
done
echo
echo "$workdir, $runs runs${quick:+ (quick)}; verdict and reward:"
jq -r '"\(.verdict) \(.reward)"' "$work/all" | sort | uniq -c
for field in us eager compile seconds; do
	printf '%-8s ' $field
	jq -r ".$field // empty" "$work/all" | spread |
		jq -r 'if .n == 0 then "none" else "\(.low) \(.median) \(.high)" end'
done
[ "$(jq -c '[.verdict, .reward]' "$work/all" | sort -u | wc -l)" = 1 ]
