# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# One PyTorch host for all tests of a file, as all programs of a user have one:
# to start one takes a second.  It is found by its mark in the environment.

# Most files need no more; what a file defines itself comes after and counts.
setup_file() {
	share_host
}

teardown_file() {
	end_host
}

# For setup_file.  The mark is not in use yet: what bats starts for a test, its
# deadline's sleep say, would have it.
share_host() {
	unset CA_TORCH_SHARED
	export CA_TORCH_IDLE=100 HOST_MARK=$BATS_ROOT_PID.$RANDOM.$RANDOM
	own_tmpdir
}

# For setup.
use_host() {
	export CA_TEST_MARK=$HOST_MARK
}

# For teardown_file: whatever of the file is left is ended.
end_host() {
	local CA_TEST_MARK=$HOST_MARK _ left
	left=$(marked)
	# shellcheck disable=SC2086
	[ -z "$left" ] || kill $left || true
	for _ in {1..100}; do
		left=$(marked)
		[ -n "$left" ] || break
		sleep 0.1
	done
	# shellcheck disable=SC2086
	[ -z "$left" ] || kill -9 $left
	rm -rf "$TMPDIR"
}

# Compilers run as nobody, who cannot get into bats' own directory.
own_tmpdir() {
	TMPDIR=$(TMPDIR=/tmp mktemp -d -t ca-test.XXXXXX) || return
	chmod 1777 "$TMPDIR"
	export TMPDIR
}

# Pids of the processes that have this mark and are none of bats' own.
marked() {
	local p
	# shellcheck disable=SC2013 # such names have no blanks
	for p in $(grep -lsz "^CA_TEST_MARK=$CA_TEST_MARK\$" \
		/proc/[0-9]*/environ); do
		case $(tr '\0' ' ' <"${p%environ}cmdline") in
		'' | *bats* | "grep "*) ;;
		*) p=${p#/proc/} && echo "${p%/environ}" ;;
		esac
	done 2>/dev/null
	return 0
}

# Those of them that are no shared hosts: a test leaves none.
at_large() {
	local hosts
	hosts=$("${CA_BIN:-$BATS_TEST_DIRNAME/../../bin}/ca-torch" --list \
		2>/dev/null | grep -o '"pid":[0-9]*')
	marked | grep -vxF -e '' -e "${hosts//\"pid\":/}"
}
