#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# An installed tree works without the checkout, and leaves when told to.

bats_require_minimum_version 1.5.0

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.." || return
	export TOP=$PWD STAGE=$BATS_FILE_TMPDIR/stage
	# Workers drop root and have to get to the installed files.
	chmod 755 "$BATS_RUN_TMPDIR" "${BATS_FILE_TMPDIR%/*}" "$BATS_FILE_TMPDIR"
	env -u MAKEFLAGS make -s install DESTDIR="$STAGE" PREFIX=/usr
}

installed_tools() {
	(cd "$TOP/tools" && basename -s .c ca-*.c)
}

@test "every tool is installed with its manual and completion" {
	for tool in $(installed_tools); do
		[ -x "$STAGE/usr/bin/$tool" ]
		[ -s "$STAGE/usr/share/man/man1/$tool.1" ]
		bash -n "$STAGE/usr/share/bash-completion/completions/$tool"
		grep -q "$tool" \
			"$STAGE/usr/share/bash-completion/completions/$tool"
	done
}

@test "an installed tool says its version in any directory" {
	cd /
	for tool in $(installed_tools); do
		run -0 "$STAGE/usr/bin/$tool" --version
		[ "$output" = "$tool $(cat "$TOP/VERSION")" ]
	done
}

@test "pipelines are installed, find the programs, and the manual has their options" {
	local at=$STAGE/usr/lib/cuda-agent/pipelines
	cd "$BATS_TEST_TMPDIR"
	run -66 env -u CA_BIN "$at/synth.sh" --report nowhere
	mandoc -Tascii "$STAGE/usr/share/man/man7/ca-pipelines.7" | sed 's/.\x08//g' >page
	for script in synth rollout train; do
		run -64 env -u CA_BIN "$at/$script.sh"
		grep -oE -e '(^|[ [,])--?[a-zA-Z][a-z-]*' <<<"$output" | tr -d '[ ,' >options
		[ "$(wc -l <options)" -gt 5 ]
		while read -r option; do
			grep -qw -e "$option" page || {
				echo "$script.sh: $option"
				false
			}
		done <options
	done
}

@test "an installed chain judges without the checkout" {
	[ "$(id -u)" = 0 ] || skip 'only root can hide the checkout'
	cp -r "$TOP/fixtures/workdirs/cpu/axpby" "$BATS_TEST_TMPDIR/mine"
	# shellcheck disable=SC2016
	unshare -m sh -ec '
		mount -t tmpfs none "$TOP"
		cd "$BATS_TEST_TMPDIR"
		b=$STAGE/usr/bin
		"$b/ca-compile" --device cpu mine >built
		"$b/ca-verify" <built >verified'
	run -0 jq -r .verify.status "$BATS_TEST_TMPDIR/verified"
	[ "$output" = ok ]
}

@test "uninstall leaves no file" {
	env -u MAKEFLAGS make -s -C "$TOP" uninstall DESTDIR="$STAGE" \
		PREFIX=/usr
	run -0 find "$STAGE" -type f
	[ -z "$output" ]
	[ ! -e "$STAGE/usr/lib/cuda-agent" ]
}
