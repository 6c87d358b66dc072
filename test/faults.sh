#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# faults.sh [-d DEVICE] [-j N] [N [NAME ...]]: N of each kind of candidate that
# hangs, crashes, floods or exhausts something (default 20), each followed by
# an honest one, in one stream a kind (-j: judged side by side).  Every bad one
# must get the status that its file states (test/attacks), every honest one be
# right, and nothing may be left.  Prints for each kind what it got and seconds
# a record, and what an honest one was told that was not right; by hand.
set -eu -o pipefail
cd "$(dirname "$0")/.."
device=cpu jobs=1
while getopts d:j: o; do
	case $o in
	d) device=$OPTARG ;;
	j) jobs=$OPTARG ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
times=${1:-20}
shift || true
kinds=("$@")
task=twice
if [ "$device" = cpu ]; then
	[ ${#kinds[@]} -gt 0 ] || kinds=(parent-killed parent-stopped
		channel-flooded output-flooded memory-exhausted disk-filled
		threads-without-end descriptors-without-end forked-worker hang
		hang-in-the-kernel segfault aborts)
else
	task=cuda-twice
	[ ${#kinds[@]} -gt 0 ] || kinds=(illegal-address misaligned
		memory-exhausted device-memory-taken hang-in-the-kernel
		resident-kernel)
fi
bin=${CA_BIN:-bin}
work=$(mktemp -d)
chmod 755 "$work"	# compilers run as others
trap 'rm -rf "$work"' EXIT
export CA_TEST_MARK=faults.$$ TMPDIR=$work/tmp
mkdir -m 1777 "$TMPDIR"

expand() { # FILE NAME
	awk -v tasks=test/attacks/tasks -v out="$work/$2" \
		-f test/attacks/expand.awk "$1"
	"$bin/ca-compile" --device "$device" "$work/$2" >"$work/$2.json"
}

# Processes of this run that are no shells of ours.
left() {
	grep -lsz "^CA_TEST_MARK=$CA_TEST_MARK\$" /proc/[0-9]*/environ |
		sed 's|/proc/\([0-9]*\)/.*|\1|' |
		while read -r p; do
			[ "$(cat "/proc/$p/comm" 2>/dev/null)" != python3 ] || echo "$p"
		done
}

printf 'task: %s\n' $task >"$work/honest"
expand "$work/honest" good
rc=0
for kind in "${kinds[@]}"; do
	file=test/attacks/$device/$kind.attack
	expand "$file" "$kind"
	want=$(sed -n 's/^paper: //p' "$file")
	for _ in $(seq "$times"); do
		cat "$work/$kind.json" "$work/good.json"
	done >"$work/in"
	began=$(date +%s)
	CA_TORCH_SHARED=0 "$bin/ca-verify" --device "$device" -j "$jobs" \
		--timeout 2s --first-timeout 2s "$work/in" >"$work/out" || rc=1
	took=$(($(date +%s) - began))
	bad=$(jq -r --arg k "$kind" --arg w " $want " '
		select(.name == $k) | .verify.status |
		select(. as $s | $w | contains(" \($s) ") | not)' "$work/out" | wc -l)
	wrong=$(jq -r 'select(.name == "good" and .verify.status != "ok") |
		.verify | [.status, .text] | @tsv' "$work/out" |
		tee /dev/stderr | wc -l)
	[ "$(wc -l <"$work/out")" -eq $((2 * times)) ] || rc=1
	[ -z "$(left)" ] || { echo "$kind: processes are left"; rc=1; }
	[ -z "$(ls -A "$TMPDIR")" ] || { echo "$kind: files are left"; rc=1; }
	[ "$bad" = 0 ] && [ "$wrong" = 0 ] || rc=1
	printf '%-24s %s x %s, %s not so; honest ones not ok: %s; %s s\n' "$kind" \
		"$times" "$want" "$bad" "$wrong" "$took"
done
exit $rc
