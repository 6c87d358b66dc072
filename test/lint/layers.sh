#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Includes obey the order that ARCHITECTURE.md draws (its indented lines with
# "<"): a module includes itself and what is below it; modules in one brace
# never include each other.  Only lib/rec/json.c knows cJSON.
set -u
cd "$(dirname "$0")/../.." || exit 1

{
	grep -E '^    [{a-z].* < ' ARCHITECTURE.md | sed 's/^/order /'
	find lib -mindepth 1 -maxdepth 1 -type d | sed 's,^lib/,module ,'
	grep -rnHE --include='*.[ch]' --include='*.cu' --include='*.cpp' \
		'^ *# *include "[a-z_]+/' lib tools 2>/dev/null |
		sed -E 's/^([^:]*:[0-9]+):.*"([a-z_]+)\/.*/use \1 \2/'
} | awk '
	function close_over(  i, j, k) {
		for (k in name) for (i in name) for (j in name)
			if (((i, k) in below) && ((k, j) in below))
				below[i, j] = 1
		closed = 1
	}
	$1 == "order" {
		sub(/^order +/, "")
		steps = split($0, step, / *< */)
		for (i = 1; i <= steps; i++) {
			gsub(/[{},]/, " ", step[i])
			width = split(step[i], now, " ")
			for (j = 1; j <= width; j++) name[now[j]] = 1
			for (h = 1; h < i; h++) {
				lower = split(step[h], was, " ")
				for (j = 1; j <= width; j++)
					for (k = 1; k <= lower; k++)
						below[now[j], was[k]] = 1
			}
		}
		next
	}
	$1 == "module" && !($2 in name) {
		print "lib/" $2 ": not in the order of ARCHITECTURE.md"
		bad = 1
	}
	$1 == "use" {
		if (!closed) close_over()
		split($2, path, "/")
		from = path[1] == "tools" ? "tools" : path[2]
		if (from != $3 && !((from, $3) in below)) {
			print $2 ": " from " must not include " $3
			bad = 1
		}
	}
	END {
		if (!length(name)) {
			print "ARCHITECTURE.md draws no order of the modules"
			bad = 1
		}
		exit bad
	}'
bad=$?
if grep -rlE --include='*.[ch]' 'include <cjson/' lib tools |
	grep -vx lib/rec/json.c; then
	echo 'cJSON is for lib/rec/json.c only'
	bad=1
fi
exit $bad
