#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tasks.sh [-d DEVICE] [-t SECONDS] crawl SOURCE [OPTION...]
# tasks.sh [-d DEVICE] [-t SECONDS] filter FILE [OPTION...]
# tasks.sh [-d DEVICE] [-t SECONDS] kernelbench DIR [OPTION...]
#
# What ca-crawl and ca-filter do in so many seconds (60), on a GPU by default,
# and where the time goes: operators by the second and the slowest ten; tasks by
# reason and the seconds of a task by check, waits among them, with the GPU's and
# the cores' load.  kernelbench: levels 1 to 3, how many lie in the window, and
# how many accept zeros, a constant, another input's or other weights' result.
# What was made or judged is kept, in the folder that is named at the end.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
device=cuda seconds=60
while getopts d:t: o; do
	case $o in
	d) device=$OPTARG ;;
	t) seconds=$OPTARG ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -ge 2 ] || exit 64
what=$1 from=$2
shift 2
work=$(mktemp -d /var/tmp/ca-tasks.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null' EXIT

# Twice a second until we end.
watch() {
	while :; do
		nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits 2>/dev/null |
			sed -n '1s/^/gpu /p' || true
		sed -n '1p' /proc/stat
		sleep 0.5
	done >"$work/load" &
}

tell_load() {
	awk -v cores="$(nproc)" '/^gpu/ { gpu += $2; n++ }
		/^cpu/ { all = 0; for (i = 2; i <= 9; i++) all += $i; idle = $5 + $6
			if (!first) { first = all; first_idle = idle } }
		END { if (n) printf "GPU busy %.0f %%, ", gpu / n
			if (all > first) busy = 1 - (idle - first_idle) / (all - first)
			printf "cores busy %.1f of %d\n", cores * busy, cores }' "$work/load"
}

# Each line of stdin behind the seconds since the start.
stamp() {
	local line
	while IFS= read -r line; do
		printf '%d.%d %s\n' $((($(date +%s%N) - began) / 1000000000)) \
			$((($(date +%s%N) - began) / 100000000 % 10)) "$line"
	done
}

crawl() {
	local began rc=0
	began=$(date +%s%N)
	timeout -s INT "$seconds" bin/ca-crawl -v --device "$device" --summary "$work/summary" \
		-o "$work/tasks" "$@" "$from" 2> >(stamp >"$work/told") || rc=$?
	sleep 0.2	# for what was told last
	echo "ca-crawl $from: status $rc, $(wc -l <"$work/tasks") tasks"
	grep "made '" "$work/told" | awk 'NR == 1 || NR % 50 == 0 { print NR " by " $1 " s" }'
	sed -n "s/.*\\(made\\) '\\(.*\\)':.* it took \\(.*\\) s$/\\3 \\2/p
		s/.*'\\(.*\\)' was tried for \\(.*\\) s$/\\2 \\1 (none)/p" "$work/told" |
		sort -gr | head
	tail -n 1 "$work/told"
	jq -c .seconds "$work/summary"
}

tell_tasks() {
	jq -rs 'def mean: add / length;
		"\(length) tasks, kept \(map(select(.keep)) | length): " +
			(map(.filter.reason // .filter.status) | group_by(.) |
			map("\(length) \(.[0])") | join(", ")),
		"seconds of a task \(map(.filter.prov.seconds) | mean | . * 100 | round / 100): " +
			(map(.filter.prov | .spent + (.waited | with_entries(.key |= "wait \(.)")) +
			{"its process": .asked} | to_entries[]) | group_by(.key) |
			map("\(.[0].key) \((map(.value) | add) | . * 100 | round / 100)") |
			join(", ")) + " (of all)"' "$work/judged"
}

filter() {
	local rc=0 began
	began=$(date +%s%N)
	timeout -s INT "$seconds" bin/ca-filter -v --device "$device" -j "$(nproc)" "$@" "$from" \
		>"$work/judged" 2>"$work/told" || rc=$?
	echo "ca-filter: status $rc, $((($(date +%s%N) - began) / 1000000000)) s"
	[ ! -s "$work/judged" ] || tell_tasks
}

kernelbench() {
	bin/ca-crawl -q -o "$work/tasks" "$from"/KernelBench/level[123]
	from=$work/tasks
	filter --exhaustive --max-mem 130G "$@" \
		--checks contract,trace,eager,time,memory,mutation,finite,random,trivial,guard
	jq -rs 'def n(f): map(select(f)) | length;
		def ms: .filter.checks.time.ms;
		def taken: .filter.checks.trivial.accepted // "";
		"in the window \(n(ms != null and ms >= 1 and ms <= 100)), " +
			"below \(n(ms != null and ms < 1)), above \(n(ms != null and ms > 100)), " +
			"without a time \(n(ms == null))",
		"accept zeros, a constant, another result: " +
			"\(n(taken | test("zeros|mean|other_input|other_weights")))",
		"accept any trivial answer: \(n(.filter.checks.trivial.ok == false)), " +
			"no tolerance: \(n(.filter.checks.guard.ok == false))"' "$work/judged"
}

watch
case $what in
crawl | filter | kernelbench) $what "$@" ;;
*) exit 64 ;;
esac
tell_load
echo "kept in $work"
