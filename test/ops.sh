#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ops.sh [-d DEVICE] [-j N] [FILE]: `ops` of all tasks in a file that are kept
# (fixtures/tasks/sample.ndjson, on the CPU), in N processes (1), against what
# torch's profiler saw of a run of each.  They run unconfined: for tasks that
# one trusts.
set -eu -o pipefail
cd "$(dirname "$0")/.."
export top=$PWD
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
device=cpu jobs=1
while getopts d:j: o; do
	case $o in
	d) device=$OPTARG ;;
	j) jobs=$OPTARG ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
file=${1:-fixtures/tasks/sample.ndjson}
python=$(torch_python)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pids=()
for ((k = 0; k < jobs; k++)); do
	"$python" test/ops.py "$device" "$file" $k "$jobs" >"$work/$k" 2>"$work/err.$k" &
	pids+=($!)
done
rc=0
for ((k = 0; k < jobs; k++)); do
	wait "${pids[k]}" || rc=1
	[ -s "$work/$k" ] || tail -n 3 "$work/err.$k" >&2
done
cat "$work"/[0-9]* | grep -v ' tasks, ' || true
cat "$work"/[0-9]* | awk '/ tasks, / { n += $1; wrong += $3 }
	END { print n + 0 " tasks, " wrong + 0 " wrong" }'
exit $rc
