#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# torch's own headers, precompiled: most of a minute and 0.8 GB of the cache
# for the first candidate.

setup_file() {
	export BATS_TEST_TIMEOUT=900
}

@test "torch's own headers are precompiled once" {
	local bin=${CA_BIN:-$BATS_TEST_DIRNAME/../../bin} name told
	cd "$BATS_TEST_TMPDIR" || return
	for name in first second; do
		mkdir $name
		printf 'import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n%s\n' \
			'        return 2 * x' >$name/model.py
		# of a name that no cache holds
		cat >$name/model_new.py <<-END
			import torch
			from torch.utils.cpp_extension import load_inline
			ext = load_inline("two_$RANDOM$RANDOM",
			    "torch::Tensor twice(torch::Tensor x) { return x + x; }", functions=["twice"])
			class ModelNew(torch.nn.Module):
			    def forward(self, x):
			        return ext.twice(x)
		END
		"$bin/ca-compile" -v --device cpu --headers real $name \
			>out 2>told
		cat told
		[ "$(jq -r '.build | .status + .headers' out)" = okreal ]
		told=$(grep -o "precompiled header of 'torch/extension.h': .*" told)
	done
	[[ $told = *'found in the cache' ]]
}
