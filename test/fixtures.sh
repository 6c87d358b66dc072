#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fixtures.sh [-v] [-q] cpu|cuda [NAME ...]
#
# Judges the fixtures of a device and compares each with its expect.json.
# -v stops after ca-verify (no reward), -q profiles with --quick.
# Prints one line for each; exit 1 when one differs.
set -eu -o pipefail
cd "$(dirname "$0")/.."
bin=${CA_BIN:-bin}

verify_only="" quick=""
while getopts vq o; do
	case $o in
	v) verify_only=1 ;;
	q) quick=--quick ;;
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

out=$(mktemp)
trap 'rm -f "$out"' EXIT
on="--device $device"
# shellcheck disable=SC2086 # $on is two words, $quick none or one
if [ "$verify_only" ]; then
	"$bin/ca-compile" $on "${dirs[@]}" |
		"$bin/ca-verify" $on --first-timeout 10s >"$out"
else
	"$bin/ca-compile" $on "${dirs[@]}" |
		"$bin/ca-verify" $on --first-timeout 10s |
		"$bin/ca-profile" $on $quick | "$bin/ca-reward" >"$out"
fi

rc=0
n=0
for d in "${dirs[@]}"; do
	name=${d##*/}
	n=$((n + 1))
	line=$(sed -n "${n}p" "$out")
	verdict=$(jq -rn --slurpfile want "$d/expect.json" \
		--argjson rec "${line:-null}" --arg name "$name" \
		--arg verify_only "$verify_only" '
		$want[0] as $w | $rec.verify.status as $s | $rec.reward.value as $r |
		(($rec.name == $name) and ($s == $w.verify) and
		 ($verify_only != "" or ($w.reward | any(. == $r)))) as $good |
		[if $good then "ok" else "NOT OK" end, $name, ($s // "none"),
		 ($r // "-"), "expected \($w.verify) \($w.reward | tojson)"] | @tsv')
	printf '%s\n' "$verdict"
	case $verdict in ok*) ;; *) rc=1 ;; esac
done
[ "$n" -eq "$(wc -l <"$out")" ] || { echo "records: $(wc -l <"$out"), not $n"; rc=1; }
exit $rc
