#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Manuals: every tool has one, mandoc finds nothing to say, and the options
# that a tool's --help lists are those that its page describes.
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v mandoc >/dev/null || {
	echo 'no mandoc: manuals are not checked'
	exit 77
}
bad=0
for page in man/*.[1-8]; do
	[ -e "$page" ] || break
	mandoc -Tlint -W warning "$page" || bad=1
done

words() { # options, one a line
	grep -oE -- '(^|[[:space:],[|])--?[a-zA-Z][a-zA-Z0-9-]*' |
		grep -oE -- '-.*' | sort -u
}

for tool in tools/ca-*.c; do
	[ -e "$tool" ] || break
	name=$(basename "$tool" .c)
	page=man/$name.1
	if [ ! -f "$page" ]; then
		echo "$page is missing"
		bad=1
		continue
	fi
	"bin/$name" --help | grep -E '^ *-' | sed 's/^ *//; s/   .*//; s/=[^ ,]*//g' |
		words | grep -- '^--' >"${TMPDIR:-/tmp}/ca-help.$$"
	mandoc -Tutf8 "$page" | col -b | sed 's/[‐−]/-/g' | words |
		grep -- '^--' >"${TMPDIR:-/tmp}/ca-page.$$"
	comm -3 "${TMPDIR:-/tmp}/ca-help.$$" "${TMPDIR:-/tmp}/ca-page.$$" |
		sed "s|^\t|$page describes what $name --help does not list: |
			s|^--|$page does not describe: --|" |
		grep . && bad=1
	rm -f "${TMPDIR:-/tmp}/ca-help.$$" "${TMPDIR:-/tmp}/ca-page.$$"
done
exit $bad
