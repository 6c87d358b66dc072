#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The mechanical part of the house style.  .clang-format is for editors: as a
# gate it would undo tables and comments that people aligned by hand, and no
# two of its versions agree on macros.
set -u
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C.UTF-8
bad=$(mktemp) || exit 1
trap 'rm -f "$bad"' EXIT

dirs=$(ls -d lib tools test pipelines 2>/dev/null)

sources() { # find's tests
	# shellcheck disable=SC2086
	find $dirs -type f "$@"
}

rule() { # message, extended regular expression; files on stdin
	xargs -r grep -nHE -- "$2" |
		awk -v why="$1" '{ print $0 "   <- " why }' >>"$bad"
}

# Text that fills a line is not broken up.
width() { # columns; files on stdin
	while read -r file; do
		expand -t8 "$file" | grep -nE "^.{$(($1 + 1)),}" |
			grep -vE '^[0-9]+: *"[^"]*(\\"[^"]*)*"[,;)]*$' |
			sed "s,^,$file:,; s/\$/   <- over $1 columns/" >>"$bad"
	done
}

tab=$(printf '\t')
c() {
	sources \( -name '*.c' -o -name '*.h' \)
}
c | width 80
sources \( -name '*.cu' -o -name '*.cuh' -o -name '*.[ch]pp' \
	-o -name '*.py'  -o -name '*.sh' \) | width 100
c | rule 'indent with tabs' '^ {8}'
c | rule 'space before tab' " $tab"
c | rule 'space after keyword' \
	"^$tab+(\\} else )?(if|for|while|switch)\\("
c | rule 'space before brace' "^$tab+(if|for|while|switch|\\} else).*\\)\\{\$"
c | rule 'brace of a function on its own line' \
	'^[a-z][^=;(]*\([^;=]*\) *\{$'
c | rule 'comments are /* */' "(^|[ $tab;{}])//"
c | rule 'the star belongs to the name' \
	"^$tab*(static |const )*(void|char|int|long|struct [a-z_]+)\\* [a-z]"
c | rule 'goto out only' "goto +([^o]|o[^u]|ou[^t]|out[a-z0-9_])"
c | rule 'banner' '^ ?/?\*{4,}|/\* ?[-=*]{4,}'
sources \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.py' \
	-o -name '*.sh' -o -name '*.bats' \) |
	rule 'blank at end of line' "[ $tab]\$"
sources \( -name '*.[ch]' -o -name '*.py' -o -name '*.sh' -o -name '*.cu' \
	-o -name '*.[ch]pp' -o -name '*.bats' \) |
	while read -r file; do
		head -n 5 "$file" | grep -q 'SPDX-License-Identifier' ||
			echo "$file: no SPDX line" >>"$bad"
		[ -z "$(tail -c 1 "$file")" ] ||
			echo "$file: no newline at the end" >>"$bad"
	done
cat "$bad"
[ ! -s "$bad" ]
