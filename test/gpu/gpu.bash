# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the suites for CUDA share.
# shellcheck disable=SC2034 # used by them

top=$BATS_TEST_DIRNAME/../..
bin=${CA_BIN:-$top/bin}
fix=$top/fixtures/workdirs/cuda

need_gpus() { # how many
	command -v nvidia-smi >/dev/null || skip 'no GPU'
	[ "$(nvidia-smi -L | grep -c GPU)" -ge "$1" ] ||
		skip "fewer GPUs than $1"
}
