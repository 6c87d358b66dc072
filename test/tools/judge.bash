# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the suites of the judging tools share.
# shellcheck disable=SC2034 # used by them

bin=${CA_BIN:-$BATS_TEST_DIRNAME/../../bin}
fix=$BATS_TEST_DIRNAME/../../fixtures/workdirs/cpu

judge_setup() {
	command -v jq >/dev/null || skip 'no jq'
	cd "$BATS_TEST_TMPDIR" || return
	export CA_TORCH_SHARED=0
	export CA_TEST_MARK=$BATS_TEST_NUMBER.$BATS_ROOT_PID.$RANDOM
	# Compilers run as nobody, who cannot get into bats' own directory.
	TMPDIR=$(TMPDIR=/tmp mktemp -d -t ca-test.XXXXXX) || return
	chmod 1777 "$TMPDIR"
	export TMPDIR
}

# Whatever a test started carries its mark: nothing may be left.
judge_teardown() {
	local left
	left=$(marked)
	if [ -n "$left" ]; then
		echo "still running: $(ps -o pid,stat,args -p "${left//$'\n'/,}")"
		# shellcheck disable=SC2086
		kill -9 $left
	fi
	if ! rmdir "$TMPDIR"; then
		echo "left in TMPDIR: $(ls -A "$TMPDIR")"
		rm -rf "$TMPDIR"
		left=files
	fi
	[ -z "$left" ]
}

# Pids of the processes that have this test's mark and are none of bats' own.
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
