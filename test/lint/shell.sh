#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs shellcheck over every script and suite.  SC2015: `a && b || c` is used as
# such.  SC2030, SC2031: bats runs tests in subshells.  SC2317, SC2329:
# functions that are called by name.
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v shellcheck >/dev/null || {
	echo 'no shellcheck: scripts are not checked'
	exit 77
}
find test pipelines .ci fixtures -type f \
	\( -name '*.sh' -o -name '*.bats' -o -name '*.bash' -o -name run \) \
	! -path '*/corpus/*' 2>/dev/null | sort |
	xargs -r shellcheck -x -S info -e SC2015,SC2030,SC2031,SC2317,SC2329
