#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Sizes that must not creep.  Exceptions stand in allow.txt, one a line:
# "budget where reason"; one that is no longer needed is an error too.
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v pmccabe >/dev/null || {
	echo 'no pmccabe: budgets are not checked'
	exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

code() {
	find lib tools -name '*.c' | sort
}

over() { # budget, cap; "number where" on stdin
	awk -v budget="$1" -v cap="$2" \
		'$1 > cap { print budget, $2, $1, "cap", cap }'
}

lines() { # files on stdin
	while read -r file; do
		echo "$(wc -l <"$file") $file"
	done
}

code | xargs -r pmccabe >"$work/functions"
awk '{ sub(/\(.*/, "", $6); print $5, $6 ":" $7 }' \
	"$work/functions" >"$work/length"
awk '{ sub(/\(.*/, "", $6); print $2, $6 ":" $7 }' \
	"$work/functions" >"$work/cyclomatic"
{
	over function-lines 120 <"$work/length"
	grep ':main$' "$work/length" | over main-lines 60
	over cyclomatic 30 <"$work/cyclomatic"
	sort -n "$work/length" | awk '
		{ n[NR] = $1 }
		END {
			if (!NR) exit
			print n[int((NR + 1) / 2)], "lib,tools" > "/dev/stderr"
			print n[int(NR * 0.95 + 0.5)], "lib,tools"
		}' 2>"$work/median" | over function-lines-p95 80
	over function-lines-median 20 <"$work/median"
	find tools -name '*.c' | lines | over tool-lines 500
	find lib \( -name '*.c' -o -name '*.cu' -o -name '*.py' \) | lines |
		over file-lines 800
	find lib -name '*.h' | lines | over header-lines 300
	find pipelines -name '*.sh' | lines | over script-lines 100
	echo Makefile | lines | over makefile-lines 250
} 2>/dev/null | sort >"$work/over"

awk -v allow=test/lint/allow.txt '
	BEGIN {
		while ((getline line < allow) > 0) {
			if (line ~ /^(#|$)/) continue
			if (split(line, w, " ") < 3) {
				print allow ": no reason: " line
				bad = 1
			}
			known[w[1] " " w[2]] = 1
		}
	}
	($1 " " $2) in known { used[$1 " " $2] = 1; next }
	{ print $2 ": " $1 " " $3 ", cap " $5; bad = 1 }
	END {
		for (k in known)
			if (!(k in used)) {
				print allow ": not needed any more: " k
				bad = 1
			}
		exit bad
	}' "$work/over"
