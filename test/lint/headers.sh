#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every header compiles alone.
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0
for header in lib/*/*.h; do
	${CC:-gcc} -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror \
		-Ilib -fsyntax-only -x c -include "$header" /dev/null || {
		echo "$header does not compile alone"
		bad=1
	}
done
exit $bad
