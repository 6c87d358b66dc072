#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.sh PART...: what developers run before a change lands.  Parts: lint
# (seconds) and build (strict compilers, sanitizers, fuzzers).  Every step is
# a script or command that exits 0, 77 (skipped, having said why) or else.
set -u
cd "$(dirname "$0")/.." || exit 1
. test/tap.sh
jobs=$(nproc)
strict='-Werror -Wundef -Wredundant-decls -Wnested-externs'
strict="$strict -Wold-style-definition -Wimplicit-fallthrough"
strict="$strict -Wnull-dereference"
gcc_only='-Wduplicated-cond -Wduplicated-branches -Wlogical-op'
clang_only="-Wno-format-nonliteral -Wno-pass-failed"
sanitize='-fsanitize=address,undefined -fno-sanitize-recover=undefined'
# Sanitizers hide from gcc what bounds these.
quiet=-Wno-format-truncation

variant() { # name, make arguments...
	local dir=build/$1
	shift
	env -u MAKEFLAGS make -s -j"$jobs" B="$dir" BIN="$dir/bin" "$@" all test-bins
}

strict_gcc() {
	variant gcc CC=gcc CFLAGS="-O2 -g $strict $gcc_only"
}

strict_clang() {
	command -v clang >/dev/null || return 77
	variant clang CC=clang CFLAGS="-O2 -g $strict $clang_only"
}

asan_build() {
	variant asan CC=gcc \
		CFLAGS="-O1 -g -fno-omit-frame-pointer $sanitize $quiet"
}

asan_tests() {
	B=build/asan BIN=build/asan/bin CA_LIBDIR=$PWD/lib test/run.sh "$@"
}

step() { # name, command...
	local name=$1 status
	shift
	echo "# $name"
	"$@" </dev/null
	status=$?
	case $status in
	0) echo "ok - $name" ;;
	77) echo "ok - $name # skip" ;;
	*) echo "not ok - $name" ;;
	esac
}

lint() {
	local script
	for script in test/lint/*.sh; do
		step "$(basename "$script" .sh)" "$script"
	done
}

build() {
	step 'gcc, strict' strict_gcc
	step 'clang, strict' strict_clang
	step 'sanitizers: build' asan_build
	step 'sanitizers: unit tests' asan_tests lib
	step 'sanitizers: contract' asan_tests contract
	step 'fuzzers' test/fuzz/run.sh
}

tap_begin build/check.count
for part; do
	tap_suite "$part" "$part"
done
tap_end
