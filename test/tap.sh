# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Counting TAP that passes by; used by run.sh and check.sh.

tap_begin() { # file for the totals
	tap_file=$1
	tap_log=$(mktemp "${TMPDIR:-/tmp}/ca-tap.XXXXXX") || exit 1
	trap 'rm -f "$tap_log"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	mkdir -p "$(dirname "$tap_file")"
	rm -f "$tap_file"
	tap_passed=0 tap_failed=0 tap_skipped=0
}

# Runs a command, shows its TAP and counts it.  One that fails without a
# "not ok" (it crashed, or did not start) counts as one failure.
tap_suite() { # name, command...
	local name=$1 from=$SECONDS status passed failed skipped
	shift
	"$@" </dev/null 2>&1 | tee "$tap_log"
	status=${PIPESTATUS[0]}
	read -r passed failed skipped < <(awk '
		/^ok .*# *[Ss][Kk][Ii][Pp]/ { skipped++; next }
		/^ok / { passed++ }
		/^not ok .*# *TODO/ { skipped++; next }
		/^not ok/ { failed++ }
		END { print passed + 0, failed + 0, skipped + 0 }' "$tap_log")
	if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
		echo "not ok - $name ended with status $status"
		failed=1
	fi
	tap_passed=$((tap_passed + passed))
	tap_failed=$((tap_failed + failed))
	tap_skipped=$((tap_skipped + skipped))
	echo "$name: $((SECONDS - from)) s, $passed passed," \
		"$failed failed, $skipped skipped" >&2
}

tap_end() {
	echo "$tap_passed $tap_failed $tap_skipped" >"$tap_file"
	echo "$tap_passed passed, $tap_failed failed, $tap_skipped skipped"
	[ "$tap_failed" -eq 0 ] && [ "$tap_passed" -gt 0 ]
}
