#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs shellcheck over every script and suite.  Left out: SC2015 (`a && b ||
# c` is used as such), SC2317 and SC2329 (functions called by name), SC2238
# (a file may be called `more`); in suites also SC2030 and SC2031 (every test
# is a subshell), SC2034 and SC2154 (helpers and tests share variables).
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v shellcheck >/dev/null || {
	echo 'no shellcheck: scripts are not checked'
	exit 77
}
all=SC2015,SC2238,SC2317,SC2329
bad=0
find test pipelines fixtures -name '*.sh' | sort |
	xargs -r shellcheck -x -S info -e $all .ci/run || bad=1
find test \( -name '*.bats' -o -name '*.bash' \) | sort |
	xargs -r shellcheck -x -S warning \
		-e $all,SC2030,SC2031,SC2034,SC2154 || bad=1
exit $bad
