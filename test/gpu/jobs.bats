#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Judges side by side on one GPU: one clock at a time, nobody foreign.

load gpu

setup() {
	need_gpus 1
	command -v jq >/dev/null || skip "no jq"
	cd "$BATS_TEST_TMPDIR" || return
}

@test "-j keeps order and verdicts, and finds the GPU its own" {
	"$bin/ca-compile" --device cuda "$fix/axpby" "$fix/bad-value" \
		"$fix/slow-axpby" "$fix/axpby-kernel" >in
	timeout 300 "$bin/ca-profile" -v -j 3 --device cuda --quick in >out 2>told
	cat told
	[ "$(jq -r '[.name, .verify.status] | @tsv' out)" = \
		$'axpby\tok\nbad-value\twrong_value\nslow-axpby\tok\naxpby-kernel\tok' ]
	jq -e -s 'map(select(.verify.status == "ok") | .profile |
		.contended == false and .eager.median_us > 0) | all' out
	# All of them had begun when the first one was done.
	grep -m 1 -B 99 'is done' told | grep -q 'record 2: process'
}

@test "judges that verify at once do not take each other for the candidate" {
	yes "$("$bin/ca-compile" --device cuda "$fix/axpby")" | head -n 8 >in || true
	"$bin/ca-verify" -j 4 --device cuda in >out
	[ "$(jq -r .verify.status out | sort | uniq -c | xargs)" = '8 ok' ]
}

# Of each some ten copies, so that two or three fill the GPU.
@test "records that do not fit into memory together are judged one after the other" {
	mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1)
	for f in tanh relu sigmoid; do
		jq -cn --arg f $f --arg n "$((mib / 24 << 18))" '
"class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.\($f)(x)\n" as $m |
			{kind: "candidate", v: 1, name: $f, rules: "kernelbench", task: {code:
"import torch\n\($m)def get_inputs():\n    return [torch.rand(\($n))]\ndef get_init_inputs():\n    return []\n"},
			files: {"model_new.py": ("import torch\n\($m | sub("Model"; "ModelNew"))")}}'
	done >in
	timeout 220 "$bin/ca-verify" -j 3 --device cuda in >out
	jq -c '[.name, .verify.status, .verify.text]' out
	[ "$(jq -r .verify.status out | sort | uniq -c | xargs)" = '3 ok' ]
}
