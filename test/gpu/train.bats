#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The trainers on CUDA: gradients as on the CPU, rho = 1 exactly where rollout and training
# compute the same bits, the same training after a kill, and no room for a tensor of logits.

load gpu

setup() {
	need_gpus 1
	cd "$BATS_TEST_TMPDIR" || return
	python3 "$top/test/tools/serve_model.py" model
	python3 "$top/test/tools/trajs.py" random 16 >in
}

# What two runs say of their steps, alike but for the arithmetic's order.
alike() { # two files of metrics, how many lines
	python3 - "$@" <<-'END'
		import json, sys
		a, b = ([json.loads(x) for x in open(f)] for f in sys.argv[1:3])
		assert len(a) == len(b) == int(sys.argv[3]), (len(a), len(b))
		for x, y in zip(a, b):
		    assert x.keys() == y.keys()
		    for k in x:
		        if isinstance(x[k], float):
		            assert abs(x[k] - y[k]) <= 5e-3 * abs(x[k]) + 1e-4, (k, x[k], y[k])
	END
}

@test "metrics of ca-ppo are those of the CPU" {
	for d in cpu cuda; do
		"$bin/ca-ppo" --actor model --out $d --ctx 64 --batch 4 --device $d --no-prov -q in >$d.out
	done
	alike cpu.out cuda.out 4
}

@test "metrics of ca-vpretrain are those of the CPU" {
	for d in cpu cuda; do
		"$bin/ca-vpretrain" --actor model --out $d --ctx 64 --batch 4 --epochs 2 \
			--held-out 0.25 --device $d --no-prov -q in >$d.out
	done
	alike cpu.out cuda.out "$(wc -l <cpu.out)"
	[ "$(wc -l <cpu.out)" -ge 6 ]
}

@test "--exact: rho is 1 exactly before the first update" {
	for n in {1..8}; do
		jq -nc --arg n "$n" '{kind: "prompt", v: 1, tokens: [1, 2, ($n | tonumber)],
			max_tokens: 24, ignore_eos: true, seed: $n}'
	done | "$bin/ca-serve" --generate -m model --device cuda --dtype bf16 --exact --no-prov |
		python3 "$top/test/tools/trajs.py" wrap >drawn
	"$bin/ca-ppo" --actor model --out x --ctx 64 --batch 8 --device cuda --dtype bf16 --exact \
		--no-prov drawn >out
	jq -e '."rho/max_dev_update0" == 0' out
}

@test "gone on with, it is the same training" {
	"$bin/ca-rft" --actor model --out whole --ctx 64 --batch 4 --device cuda --epochs 4 -q in >out
	"$bin/ca-rft" --actor model --out parts --ctx 64 --batch 4 --device cuda --steps 5 -q in >out
	"$bin/ca-rft" --actor model --out parts --ctx 64 --batch 4 --device cuda --epochs 4 --resume \
		-q in >out
	cmp whole/model.safetensors parts/model.safetensors
}

@test "SmolLM2 at 131,072 tokens of context: no tensor of logits is planned" {
	smol=${CA_CACHE:-/var/cache/cuda-agent}/smol
	[ -f "$smol/model.safetensors" ] || skip "no SmolLM2 in $smol"
	mkdir long
	ln -s "$smol"/* long/
	rm long/config.json
	jq '.max_position_embeddings = 131072' "$smol/config.json" >long/config.json
	"$bin/ca-ppo" --actor long --out x --ctx 131072 --device cuda --dtype bf16 --recompute \
		--dry-run in 2>plan >out
	cat plan
	# All logits would be 131072 x 49152 x 4 bytes, 24 GiB.
	awk '/MiB  logits/ { found = 1; if ($1 > 256) exit 1 } END { exit !found }' plan
}
