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

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

for tool in tools/ca-*.c; do
	[ -e "$tool" ] || break
	name=$(basename "$tool" .c)
	page=man/$name.1
	if [ ! -f "$page" ]; then
		echo "$page is missing"
		bad=1
		continue
	fi
	"bin/$name" --help | sed -nE 's/^ +(-., )?(--[a-z-]+).*/\2/p' |
		sort -u >"$work/help"
	sed -nE 's/^\.It Fl (. , )?(-[a-z-]+).*/-\2/p' "$page" |
		sort -u >"$work/page"
	comm -23 "$work/page" "$work/help" |
		sed "s|^|$page: not in --help: |" | grep . && bad=1
	comm -13 "$work/page" "$work/help" |
		sed "s|^|$page: does not describe |" | grep . && bad=1
done
exit $bad
