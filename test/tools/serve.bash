# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the suites of ca-serve share: a small model without sense, made once for
# a file, a copy for each test.
# shellcheck disable=SC2034 # used by them

here=$BATS_TEST_DIRNAME
bin=${CA_BIN:-$here/../../bin}

setup_file() {
	python3 "$here/serve_model.py" "$BATS_FILE_TMPDIR/model"
}

setup() {
	export CUDA_VISIBLE_DEVICES=	# the CPU is what is tried
	cd "$BATS_TEST_TMPDIR" || return
	cp -r "$BATS_FILE_TMPDIR/model" .
}
