#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Tasks on a GPU: crawled, stacked and judged; large ones beside each other.

load gpu

setup() {
	need_gpus 1
	command -v jq >/dev/null || skip "no jq"
	cd "$BATS_TEST_TMPDIR" || return
}

@test "operators are crawled through a pipe, stacked, and judged by all checks" {
	set -o pipefail
	timeout 150 "$bin/ca-crawl" -v --device cuda --ms 1.1 -j 6 --only softmin \
		--only GroupNorm --only Mish --only nn.functional.gelu torch 2>told | cat >ops
	cat told
	[ "$(wc -l <ops)" -ge 4 ]
	timeout 100 "$bin/ca-combine" --device cuda --count 4 --mix x2=1 ops >stacks
	[ "$(wc -l <stacks)" = 4 ]
	timeout 200 "$bin/ca-filter" --device cuda -j 4 --max-mem 40G ops stacks >out
	jq -c '[.parts, .filter.status, .filter.reason, .filter.text]' out
	[ "$(jq -c 'select(.filter.status == "infra_error")' out)" = '' ]
	[ "$(jq -c 'select(.keep)' out | wc -l)" -ge 6 ]
}

@test "tasks that do not fit into memory together wait for each other" {
	# Of each some 12 copies, so that two or three fill the GPU.
	mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1)
	for f in tanh relu sigmoid sin cos exp; do
		jq -cn --arg f $f --arg n "$((mib / 30 << 18))" '{kind: "task", v: 1, code:
"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n" +
"        return torch.\($f)(x)\ndef get_inputs():\n    return [torch.randn(\($n))]\n"}'
	done >in
	timeout 200 "$bin/ca-filter" --device cuda -j 6 --min-ms 0 --max-ms 1000 --max-mem 1000G \
		--checks contract,eager,memory,finite,random,trivial in >out
	jq -c '[.filter.status, .filter.reason, .filter.text, .filter.prov]' out
	[ "$(jq -r .filter.status out | sort | uniq -c | xargs)" = '6 ok' ]
	# None found no memory: they were not there together.
	[ "$(jq -r .filter.prov.attempts out | sort | uniq -c | xargs)" = '6 1' ]
	jq -es 'map(.filter.prov.waited.room) | max > 0' out
}
