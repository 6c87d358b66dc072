#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Where the time goes on CUDA: torch's profiler for references, CUPTI for
# whatever was timed.

bats_require_minimum_version 1.5.0
load gpu

setup() {
	need_gpus 1
	command -v jq >/dev/null || skip "no jq"
	cd "$BATS_TEST_TMPDIR" || return
}

# A task of two operations.
two_steps() {
	mkdir -p "$1"
	cat >"$1/model.py" <<-'END'
		import torch
		class Model(torch.nn.Module):
		    def forward(self, x):
		        return torch.relu(x @ x.t())
		def get_init_inputs():
		    return []
		def get_inputs():
		    return [torch.randn(2048, 1024)]
	END
}

@test "--reference names kernels, their operations and bytes" {
	two_steps steps
	timeout 300 "$bin/ca-profile" --device cuda --reference --json steps \
		>out
	jq .reference out
	jq -e '.reference | .status == "ok" and (has("kernels_reason") | not)
		and .copy_bytes_per_s > 1e9 and .kernels.candidate == null' out
	# Two views of the input, 2048 x 1024 floats, make 2048 x 2048.
	jq -e '.reference.kernels.eager |
		(map(select(.op == "aten::mm" and .bytes == 33554432 and
			.calls >= 1 and .us > 0)) | length == 1) and
		(map(select(.op == "aten::relu" and .bytes == 33554432 and
			.calls == 1 and (.grid | length) == 3 and
			(.block | length) == 3)) | length == 1) and
		([.[].share] | add - 1 | fabs) < 1e-6' out
	jq -e '.reference.kernels.compile |
		(map(select(.op == "extern_kernels.mm" and
			.bytes == 33554432)) | length == 1) and
		(map(select(.op != null and (.op | startswith("triton_")) and
			.bytes >= 16777216)) | length == 1)' out
}

@test "--table shows the candidate's kernels beside those of the baselines" {
	timeout 300 "$bin/ca-profile" --device cuda --quick --table \
		"$fix/axpby" >out
	cat out
	grep -Eq '^axpby: (ok|inconclusive_time), ' out
	grep -Eq '^  candidate +calls +us +share +MB +GB/s +copy +grid x block$' \
		out
	grep -Eq '^    axpby_kernel +1 +[0-9.]+ +100\.0% +- +- +- +[0-9]+,1,1 x ' \
		out
	[ "$(grep -c '^    whole call, by the judge' out)" -eq 3 ]
	run ! grep -Eq 'not recorded|no kernels' out
}
