#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fixtures.sh [-v] [-q] [-j JOBS] cpu|cuda [NAME ...]
#
# Judges the fixtures of a device and compares each with its expect.json.
# -v stops after ca-verify (no reward), -q profiles with --quick, -j has so
# many prepared at once.
# Prints one line for each as soon as it is judged; exit 1 when one differs.
set -eu -o pipefail
cd "$(dirname "$0")/.."
bin=${CA_BIN:-bin}

verify_only="" quick="" jobs=1
while getopts vqj: o; do
	case $o in
	v) verify_only=1 ;;
	q) quick=--quick ;;
	j) jobs=$OPTARG ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
device=${1:?cpu or cuda}
shift
if [ $# -gt 0 ]; then
	dirs=("${@/#/fixtures/workdirs/$device/}")
else
	dirs=("fixtures/workdirs/$device"/*)
fi

timed() {
	if [ "$verify_only" ]; then
		cat
	else
		# shellcheck disable=SC2086 # none or one word
		"$bin/ca-profile" --device "$device" -j "$jobs" $quick |
			"$bin/ca-reward"
	fi
}

# What is expected, a line for each, then records: one after the other.
compare() {
	jq -rn --unbuffered --arg verify_only "$verify_only" \
		--slurpfile want <(jq -c '. + {name: (input_filename |
			split("/")[-2])}' "${dirs[@]/%//expect.json}") '
		($want[] as $w | (try input catch null) as $rec |
		$rec.verify.status as $s | $rec.reward.value as $r |
		(($rec.name == $w.name) and ($s == $w.verify) and
		 ($verify_only != "" or ($w.reward | any(. == $r)))) as $good |
		[if $good then "ok" else "NOT OK" end, $w.name, ($s // "none"),
		 ($r // "-"), "expected \($w.verify) \($w.reward | tojson)",
		 if $good then empty else $rec.verify.text // "" end] | @tsv),
		(inputs | "NOT OK\t\(.name)\tone too many")' |
		awk '{ print; fflush() } !/^ok/ { bad = 1 } END { exit bad }'
}

judge() {
	"$bin/ca-compile" --device "$device" "${dirs[@]}" |
		"$bin/ca-verify" --device "$device" -j "$jobs" \
			--first-timeout "$first" |
		timed | compare
}

# Candidates' first calls take 0.9 s here, a hanging one all of it.
first=10s
[ "$device" = cuda ] || first=6s
# A process group, so that all of it ends with this script.
set -m
judge &
trap 'kill -- "-$!" 2>/dev/null || :' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
wait $!
