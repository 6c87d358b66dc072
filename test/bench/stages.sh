#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# stages.sh [-q] [cpu|cuda [WORKDIR]]: where the time of one try goes: with an
# empty cache, again with a full one, and with --quick; for each stage in
# seconds and percent of the try, and what the judge waited for in it.  Then
# such a try as people make it, stages piped and the source changed, a few
# times; and what a stage costs for a record that it only passes on.  -q: all
# of it with --quick, in a minute.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
top=$PWD
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
full=() names='empty cache|full cache|--quick'
if [ "${1-}" = -q ]; then
	full=(--quick) names='quick, empty|quick, full|quick again'
	shift
fi
device=${1:-cpu}
workdir=${2:-fixtures/workdirs/$device/axpby}
work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$work"
CA_PYTHON=$(torch_python)
CA_CACHE=$work/cache
# Its own host, which leaves when this is over.
CA_TORCH_IDLE=5
export CA_PYTHON CA_CACHE CA_TORCH_IDLE

# Runs a command from one record file to the next; the seconds in $took.
timed() { # input, output, command...
	local in=$1 out=$2 from=$EPOCHREALTIME
	shift 2
	"$@" <"$in" >"$out"
	took=$(awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }')
}

# Lines "row seconds": each stage, and what it waited for.
try() { # column, flags of ca-profile
	local column=$1 in=/dev/null stage
	local -a flags
	shift
	for stage in compile verify profile reward; do
		flags=()
		case $stage in
		compile) flags=(--device "$device" "$workdir") ;;
		profile) flags=("$@") ;;
		esac
		timed "$in" "$work/$stage" "bin/ca-$stage" "${flags[@]}"
		in=$work/$stage
		echo "$stage $took"
		jq -r --arg s $stage '(.[$s].prov.waited // {}) | to_entries[] |
			"\($s).\(.key) \(.value)"' "$in"
	done >"$work/$column"
	took=$(awk 'index($1, ".") == 0 { sum += $2 } END { print sum }' "$work/$column")
	echo "total $took" >>"$work/$column"
	echo "# a try, $column: $took s" >&2
}

# The columns side by side, rows in the order of a try.
table() {
	awk -v names="$names" '
		FNR == 1 { col++ }
		{ v[col, $1] = $2; seen[$1] = 1 }
		function cell(c, r) {
			if (!((c, r) in v)) return sprintf("%17s", "")
			return sprintf("%9.2f s %4.0f %%", v[c, r],
				100 * v[c, r] / v[c, "total"])
		}
		END {
			split(names, name, "|")
			printf "%-18s%17s%17s%17s\n", "", name[1], name[2], name[3]
			n = split("compile verify profile reward total", stage, " ")
			m = split("lease host oracle start candidate eager compile calibration",
				part, " ")
			for (i = 1; i <= n; i++)
				for (k = 0; k <= m; k++) {
					r = stage[i] (k ? "." part[k] : "")
					if (!(r in seen)) continue
					printf "%-18s%s%s%s\n", k ? "  " part[k] : r,
						cell(1, r), cell(2, r), cell(3, r)
				}
		}' "$work/empty" "$work/full" "$work/quick"
}

# Seconds of later tries, one a line.
piped() { # times
	local i from
	cp -r "$workdir" "$work/later"
	for ((i = 0; i < $1; i++)); do
		for f in "$work"/later/kernels/*; do
			echo "// try $i" >>"$f"
		done
		from=$EPOCHREALTIME
		"bin/ca-compile" --device "$device" "$work/later" | bin/ca-verify |
			bin/ca-profile --quick | bin/ca-reward >"$work/reward"
		awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f\n", b - a }'
	done
}

per_record() {
	local n=200 stage
	local -a flags
	yes "$(cat "$work/reward")" | head -n $n >"$work/many" || true
	for stage in compile verify profile reward; do
		flags=()
		[ $stage != profile ] || flags=(--quick)
		# Timed while others used the device, it would be timed again.
		if [ $stage = profile ] && jq -e .profile.contended "$work/reward" >/dev/null; then
			echo 'profile  contended: not measured'
			continue
		fi
		timed "$work/many" "$work/passed" "bin/ca-$stage" "${flags[@]}"
		awk -v s="$stage" -v t="$took" -v n=$n \
			'BEGIN { printf "%-8s %8.2f ms\n", s, t * 1000 / n }'
	done
}

try empty "${full[@]}"
try full "${full[@]}"
try quick --quick
echo "one try of $workdir on $device ($(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg))"
table
jq -r '"verdict: \(.verify.status), reward \(.reward.value)"' "$work/reward"
piped 5 | sort -n | awk '{ v[NR] = $1 } END {
	printf "later tries, source changed, stages piped: %.2f s (%.2f to %.2f)\n",
		v[int((NR + 1) / 2)], v[1], v[NR] }'
echo 'a record that is passed on'
per_record
