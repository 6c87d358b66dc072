#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [-a] cpu|cuda [NAME ...]
#
# Judges the controls of a device (README.md), each by the first of the rules
# that it is for, with -a by all of them.  One line for each; exit 1 when one
# is not verified.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
bin=${CA_BIN:-bin}
here=test/controls

all=""
while getopts a o; do
	case $o in
	a) all=1 ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
device=${1:?cpu or cuda}
shift
if [ $# -gt 0 ]; then
	files=("${@/#/$here/$device/}")
	files=("${files[@]/%/.control}")
else
	files=("$here/$device"/*.control)
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/controls.XXXXXX")
chmod 755 "$work"	# compilers run as others
trap 'rm -rf "$work"' EXIT

# One stream of records for all, each with the rules that it is for.
for f in "${files[@]}"; do
	name=$(basename "$f" .control)
	rules=$(sed -n 's/^rules: //p' "$f")
	mkdir "$work/$name"
	awk -v out="$work/$name" -f $here/expand.awk "$f"
	for r in $rules; do
		echo "$name $r" >>"$work/plan"
		[ "$all" ] || break
	done
done
cut -d' ' -f1 "$work/plan" | sed "s|^|$work/|" | uniq |
	xargs -d '\n' "$bin/ca-compile" --device "$device" >"$work/built"
jq -c --rawfile plan "$work/plan" '. as $rec | $plan | split("\n")[] |
	split(" ") | select(.[0] == $rec.name) | .[1] as $by |
	$rec | .rules = $by' "$work/built" |
	"$bin/ca-verify" --device "$device" >"$work/out"
jq -r '[if .verify.status == "ok" then "ok" else "NOT OK" end, .name, .rules,
	.verify.status, .verify.text // ""] | @tsv' "$work/out"
[ "$(jq -s 'map(select(.verify.status == "ok")) | length' "$work/out")" -eq \
	"$(wc -l <"$work/plan")" ]
