# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the suites of the judging tools share.
# shellcheck disable=SC2034 # used by them

bin=${CA_BIN:-$BATS_TEST_DIRNAME/../../bin}
fix=$BATS_TEST_DIRNAME/../../fixtures/workdirs/cpu
# shellcheck source=test/tools/host.bash
. "${BASH_SOURCE[0]%/*}/host.bash"

setup() {
	judge_setup
}

teardown() {
	judge_teardown
}

judge_setup() {
	command -v jq >/dev/null || skip 'no jq'
	cd "$BATS_TEST_TMPDIR" || return
	if [ -n "${HOST_MARK-}" ]; then use_host; else own_hosts; fi
}

# For tests that kill hosts, or count processes.
own_hosts() {
	export CA_TORCH_SHARED=0 CA_TEST_MARK=$BATS_ROOT_PID.$RANDOM.$RANDOM
	own_tmpdir
	owner=yes
}

# Whatever a test started carries its mark: nothing may be left.
judge_teardown() {
	local _ left
	for _ in {1..50}; do
		left=$(at_large) || break
		# One's own are gone when the program is.
		[ -z "${owner-}" ] || break
		sleep 0.1
	done
	if [ -n "$left" ]; then
		echo "still running: $(ps -o pid,stat,args -p "${left//$'\n'/,}")"
		# shellcheck disable=SC2086
		kill -9 $left
	fi
	if [ -n "$(ls -A "$TMPDIR")" ]; then
		echo "left in TMPDIR: $(ls -A "$TMPDIR")"
		rm -rf "${TMPDIR:?}"/*
		left=files
	fi
	[ -z "${owner-}" ] || rm -rf "$TMPDIR"
	[ -z "$left" ]
}

# wait_for COMMAND...: until it succeeds; others may hold the device for a while
wait_for() {
	local _
	for _ in $(seq 1500); do
		"$@" && return
		sleep 0.1
	done
	echo "waited in vain for: $*"
	return 1
}

# Whether a host and at least N processes that it forked are there.
at_work() {
	[ "$(marked | wc -l)" -ge $((${1:-1} + 2)) ]
}

nothing_left() {
	[ -z "$(marked)" ]
}

# build FILE DIR...: candidates, built for the CPU
build() {
	local out=$1
	shift
	"$bin/ca-compile" --device cpu "$@" >"$out"
}

# statuses FIELD FILE: name and status, one record a line
statuses() {
	jq -r "[.name, .$1.status] | @tsv" "$2"
}

# task DIR: a workdir with model.py from stdin and a candidate that adds
# nothing but itself
task() {
	mkdir -p "$1/kernels"
	cat >"$1/model.py"
	cat >"$1/model_new.py" <<-'END'
		import cuda_extension
		import torch
		class ModelNew(torch.nn.Module):
		    def forward(self, x):
		        out = torch.empty_like(x)
		        cuda_extension.twice(x, out, x.numel())
		        return out
	END
	cat >"$1/kernels/twice.c" <<-'END'
		#include <stdint.h>
		void twice(const float *x, float *out, int64_t n)
		{
			for (int64_t i = 0; i < n; i++)
				out[i] = 2 * x[i];
		}
	END
}

# model CODE...: a model.py whose forward doubles; the lines of code, if any,
# stand in front of get_inputs' return
model() {
	cat <<-'END'
		import os, sys, time, torch
		class Model(torch.nn.Module):
		    def forward(self, x):
		        return 2 * x
		def get_init_inputs():
		    return []
		def get_inputs():
	END
	printf '    %s\n' "$@" 'return [torch.randn(300, 7)]'
}
