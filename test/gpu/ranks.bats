#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Two GPUs: the same training as on one, bit for bit when it is gone on with, and what
# happens when a rank goes.

load gpu

setup() {
	need_gpus 2
	cd "$BATS_TEST_TMPDIR" || return
	python3 "$top/test/tools/serve_model.py" model
	python3 "$top/test/tools/trajs.py" random 16 >in
}

rft() {
	"$bin/ca-rft" --actor model --ctx 64 --batch 4 --lr 1e-2 --no-prov "$@" >out 2>err || {
		cat err
		return 1
	}
}

# Relative distance of two folders' weights.
distance() {
	python3 - "$1" "$2" <<-'END'
		import struct, sys
		def load(folder):
		    raw = open(f"{folder}/model.safetensors", "rb").read()
		    head = struct.unpack("<Q", raw[:8])[0]
		    return struct.unpack(f"<{(len(raw) - 8 - head) // 4}f", raw[8 + head:])
		a, b = load(sys.argv[1]), load(sys.argv[2])
		print((sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)) ** 0.5)
	END
}

@test "the gradient of two GPUs is that of one" {
	# The norm is of the gradient, and one step's direction is its signs.
	for dtype in fp32 bf16; do
		rft --out one.$dtype --device cuda --dtype $dtype --steps 1 in
		jq -s 'map(."actor/grad_norm" // empty)[0]' out >one.norm
		rft --out two.$dtype --gpus 2 --dtype $dtype --steps 1 in
		jq -s 'map(."actor/grad_norm" // empty)[0]' out >two.norm
		paste one.norm two.norm
		distance one.$dtype two.$dtype
	done
	python3 - <<-'END'
		one, two = (float(open(f"{n}.norm").read()) for n in ("one", "two"))
		assert abs(one - two) <= 1e-2 * one, (one, two)
	END
	awk -v d="$(distance one.fp32 two.fp32)" 'BEGIN { exit !(d <= 1e-5) }'
}

@test "gone on with on two GPUs, it is the same training; on one it is refused" {
	rft --out whole --gpus 2 --epochs 4 in
	rft --out parts --gpus 2 --steps 5 in
	rft --out parts --gpus 2 --epochs 4 --resume in
	cmp whole/model.safetensors parts/model.safetensors
	cmp whole/optimizer.safetensors parts/optimizer.safetensors
	status=0
	"$bin/ca-rft" --actor model --ctx 64 --batch 4 --lr 1e-2 --out parts --device cuda \
		--epochs 4 --resume in 2>err || status=$?
	[ "$status" = 78 ]
	grep -q 'ranks 1, in the checkpoint 2' err
}

@test "a rank that is killed or stopped: 30 s, its name, a checkpoint that is whole" {
	for signal in KILL STOP; do
		"$bin/ca-rft" --actor model --ctx 64 --batch 4 --out $signal --gpus 2 \
			--steps 1000000 --save-every 5 in >out 2>err 3>&- &
		pid=$!
		for _ in {1..1200}; do
			[ -e $signal/manifest.json ] && break
			sleep 0.05
		done
		kill -$signal "$(pgrep -P $pid)"
		SECONDS=0
		status=0
		wait $pid || status=$?
		[ "$SECONDS" -le 30 ]
		[ "$status" = 69 ]
		grep -Eq 'rank 1: it (ended by signal 9|hangs)' err
		rft --gpus 2 --out $signal --steps 1 --resume in
	done
}

@test "a rank without room: its number and both sizes" {
	status=0
	"$bin/ca-rft" --actor model --out x --ctx 256 --tokens 60000000 --gpus 2 in 2>err || status=$?
	cat err
	[ "$status" = 69 ]
	grep -Eq 'MiB are needed' err
}
