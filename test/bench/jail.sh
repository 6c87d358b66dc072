#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# jail.sh [TIMES]: what a jail costs, for each level that this machine offers:
# ms that a command takes in one beyond the same command alone, by medians,
# TIMES (50) each in turns.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/bench/lib.sh
. test/bench/lib.sh
bin=${CA_BIN:-bin}
times=${1:-50}

ms() { # COMMAND...
	local from=${EPOCHREALTIME/./}
	"$@"
	echo "$((${EPOCHREALTIME/./} - from))" | awk '{ print $1 / 1000 }'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for level in full uid; do
	"$bin/ca-jail" -q --level $level true 2>/dev/null || continue
	: >"$work/jail"
	: >"$work/alone"
	for ((i = 0; i < times; i++)); do
		ms "$bin/ca-jail" -q --level $level true >>"$work/jail"
		ms env true >>"$work/alone"
	done
	jq -nr --arg level $level --argjson j "$(spread <"$work/jail")" \
		--argjson a "$(spread <"$work/alone")" '
		def tenths: . * 10 | round / 10;
		"\($level): \($j.median - $a.median | tenths) ms (\($j.median | tenths), from \(
			$j.low | tenths) on, against \($a.median | tenths)), \($j.n) times"'
done
