#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Losses and gradients of lib/rl against PyTorch in double precision, and the
# same gradient however a batch is split.

load models

@test "losses and gradients are PyTorch's, and the same for every split" {
	need_models
	"$py" "$here/make.py" "$BATS_TEST_TMPDIR" >/dev/null 2>&1
	OMP_NUM_THREADS=1 "$py" "$here/rl.py" "$top/${B:-build}/test/rl" "$BATS_TEST_TMPDIR"
}
