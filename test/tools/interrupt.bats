#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Ctrl-C while the chain works: every program says 130 and nothing else, no
# process and no file is left.

setup() {
	root=$BATS_TEST_DIRNAME/../..
	bin=${CA_BIN:-$root/bin}
	work=$(mktemp -d)
	export CA_TORCH_SHARED=0
	mkdir "$work/tmp"
	"$bin/ca-compile" --device cpu \
		"$root"/fixtures/workdirs/cpu/{bad-hang,axpby} >"$work/built"
	cat >"$work/chain" <<-'EOF'
	ca-verify --device cpu built | ca-profile --device cpu --quick |
		ca-reward >out
	echo "${PIPESTATUS[*]}" >statuses
	EOF
}

teardown() {
	rm -rf "$work"
}

# left: processes that descend from the chain, found by their environment; one
# that has been killed may take a moment to go.
left() {
	local found
	for _ in {1..50}; do
		found=$(grep -lzsxF "TMPDIR=$work/tmp" /proc/[0-9]*/environ) ||
			return 0
		sleep 0.1
	done
	printf '%s' "$found"
}

@test "an interrupted chain ends at once and leaves nothing" {
	for seconds in 0.3 1 3; do
		# A shell's background jobs ignore SIGINT; these must not.
		(cd "$work" && TMPDIR=$work/tmp PATH=$bin:$PATH exec perl -e \
			'$SIG{INT} = "DEFAULT"; setpgrp; exec @ARGV' \
			bash chain 2>err) 3>&- &
		pid=$!
		sleep $seconds
		kill -INT -- -"$pid"
		wait "$pid"
		echo "after $seconds s: $(cat "$work/statuses" "$work/err")"
		[ "$(cat "$work/statuses")" = '130 130 130' ]
		[ ! -s "$work/err" ]
		[ ! -s "$work/out" ]
		[ -z "$(ls -A "$work/tmp")" ]
		[ -z "$(left)" ]
	done
}

@test "a hang-up ends judges that work side by side, unless it is ignored" {
	cd "$work"
	for how in DEFAULT IGNORE; do
		TMPDIR=$work/tmp perl -e '$SIG{HUP} = shift; exec @ARGV' $how \
			"$bin/ca-verify" --device cpu -j 2 built >out 2>err 3>&- &
		pid=$!
		sleep 0.5
		kill -HUP $pid
		status=0
		wait "$pid" || status=$?
		echo "$how: $status, $(cat err)"
		[ ! -s err ]
		[ -z "$(ls -A tmp)" ]
		[ -z "$(left)" ]
		if [ $how = DEFAULT ]; then
			[ "$status" = 129 ]
			[ ! -s out ]
		else
			[ "$status" = 0 ]
			[ "$(wc -l <out)" = 2 ]
		fi
	done
}
