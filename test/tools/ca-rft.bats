#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Rejection fine-tuning.

load train

setup() {
	load train
	train_setup
}

rft() {
	try 0 ca-rft --actor model --ctx 64 --batch 4 --lr 1e-2 --no-prov "$@"
}

@test "what earned something becomes likelier" {
	rft --out tuned --epochs 8 in
	[ "$(pick 'select(."data/used") | [."data/seen", ."data/used",
		."data/dropped/low_reward"]')" = '[16,12,4]' ]
	jq -es 'map(."actor/rft_loss" // empty) |
		length == 24 and (.[-3:] | add) < 0.8 * (.[:3] | add)' out
	# The checkpoint is a model.
	echo '{"kind":"prompt","v":1,"text":"in"}' |
		"$bin/ca-serve" --generate --device cpu -m tuned --max-tokens 3 >said
	[ "$(jq '.completion.tokens | length' said)" -ge 1 ]
}

@test "--select keeps bytes, order and other records, and loads no model" {
	{
		sed -n 1,4p in
		echo '{"kind":"note" ,"v":1}'
		jq -c 'if .id == "t5" then .redundant_loop = true elif .id == "t6" then
			.schema_violations = 2 elif .id == "t7" then .outcome.trainable = false
			else . end' in | sed -n 6,9p
		sed -n 2p in | jq -c '.omitted = "messages" | .messages = [] | .turns = []'
	} >mixed
	try 0 ca-rft --select -v mixed
	{
		sed -n 2,5p mixed
	} >want
	cmp want out
	said 'low_reward 2'
	said 'redundant_loop 1'
	said 'schema_violation 1'
	said 'no_reward 1'
	said 'omitted 1'
	said 'kept 3'
}

@test "the same data and seed give the same bits, another seed does not" {
	rft --out a --epochs 2 in
	rft --out b --epochs 2 in
	rft --out c --epochs 2 --seed 5 in
	same a b
	cmp -s a/model.safetensors c/model.safetensors && return 1
	true
}

@test "gone on with, it is the same training" {
	rft --out whole --epochs 4 in
	rft --out parts --steps 5 in
	rft --out parts --epochs 4 --resume in
	same whole parts
	[ "$(jq .state.step parts/train.json)" = 12 ]
	# Nothing is left to do.
	rft --out parts --epochs 4 --resume in
	same whole parts
}

@test "killed at any moment and gone on with, it is the same training" {
	rft --out whole --epochs 6 in
	killed "$bin/ca-rft" --actor model --ctx 64 --batch 4 --lr 1e-2 --no-prov \
		--out parts --epochs 6 --save-every 1 in
	same whole parts
}

@test "micro-batches and ranks change nothing that matters" {
	rft --out one --epochs 1 --seqs 1 in
	cp out one.out
	rft --out packed --epochs 1 --tokens 256 in
	rft --out ranks --epochs 1 --ranks 3 --seqs 2 in
	jq -es 'map(."actor/rft_loss" // empty) | length == 3' out
	python3 - <<-'END'
		import json
		a, b = ([json.loads(x).get("actor/rft_loss", 0) for x in open(f)] for f in ("one.out", "out"))
		assert all(abs(x - y) <= 1e-4 * abs(x) for x, y in zip(a, b, strict=True)), (a, b)
	END
}

@test "ranks: gone on with by as many, it is the same training" {
	rft --out whole --epochs 4 --ranks 3 in
	rft --out parts --steps 5 --ranks 3 in
	rft --out parts --epochs 4 --ranks 3 --resume in
	same whole parts
	try 78 ca-rft --actor model --out parts --ctx 64 --batch 4 --lr 1e-2 --ranks 2 --resume in
	said 'ranks 2, in the checkpoint 3'
	# What each has of the moments is together in the checkpoint.
	rft --out one --epochs 4 in
	python3 - <<-'END'
		import struct
		def load(path):
		    raw = open(path, "rb").read()
		    head = struct.unpack("<Q", raw[:8])[0]
		    return struct.unpack(f"<{(len(raw) - 8 - head) // 4}f", raw[8 + head:])
		for name in "model", "optimizer":
		    a, b = (load(f"{d}/{name}.safetensors") for d in ("one", "whole"))
		    assert len(a) == len(b)
		    off = sum((x - y) ** 2 for x, y in zip(a, b))
		    assert off <= 1e-8 * sum(x * x for x in a), (name, off)
	END
	try 64 ca-rft --actor model --out x --ctx 64 --gpus 2 --device cpu in
}

@test "a rank that is killed: its name, and the last checkpoint is whole" {
	"$bin/ca-rft" --actor model --ctx 64 --batch 4 --out hurt --ranks 3 --steps 1000000 \
		--save-every 5 in >out 2>err 3>&- &
	pid=$!
	for _ in {1..400}; do
		[ -e hurt/manifest.json ] && break
		sleep 0.05
	done
	kill -9 "$(pgrep -P $pid | tail -1)"
	status=0
	wait $pid || status=$?
	[ "$status" = 69 ]
	grep -Eq 'rank [12]: it ended by signal 9' err
	[ "$(grep -c 'it ended' err)" = 1 ]
	[ -z "$(pgrep -f "$PWD/hurt" || true)" ]
	try 0 ca-rft --actor model --ctx 64 --batch 4 --out hurt --ranks 3 --steps 1 --resume in
}

@test "trajectories without ids are tokenised once, and said so" {
	python3 "$here/trajs.py" text 8 >texts
	rft --out tuned --ctx 128 texts
	[ "$(pick 'select(."data/seen") | [."data/used", ."data/tokenised"]')" = '[6,6]' ]
	# The agent's tokens: in, blank, the, " a", <e>; the, blank, digits, <e>.
	[ "$(jq -s 'map(."response_length/min" // empty) | min' out)" = 9 ]
	# Who says <e> does not end a turn.
	jq -c '.messages[1].content = "in<e>the a"' texts >spelled
	rft --out said --ctx 128 spelled
	[ "$(jq -s 'map(."response_length/min" // empty) | min' out)" = 11 ]
}

@test "bad data: named or counted, and nothing is written when nothing is left" {
	jq -c '.outcome.reward = null' in >null
	try 65 ca-rft --actor model --out x --ctx 64 null
	said 'no trajectory of 16 can be used'
	[ "$(pick '."data/dropped/no_reward"')" = 16 ]
	[ ! -e x ]
	try 66 ca-rft --actor model --out x --ctx 64 nothere
	try 65 ca-rft --actor model --out x --ctx 8 in
	[ "$(pick '."data/dropped/too_long" > 5')" = true ]
	try 65 ca-rft --actor model --out x --ctx 64 /dev/null
	said 'no trajectory of 0'
	# A torn line and one that is nothing do not stop the others.
	{ cat in; echo nonsense; head -1 in | head -c 200; } >torn
	try 65 ca-rft --actor model --out tuned --ctx 64 torn
	said 'torn:17: cannot parse'
	[ -e tuned/model.safetensors ]
}

@test "a checkpoint that is there, damaged or of other data" {
	rft --out tuned --steps 2 in
	try 73 ca-rft --actor model --out tuned --ctx 64 in
	said '--resume'
	# What cannot be written is not found out after the first updates.
	for out in /proc/x in/x "$(printf '%0300d' 0)"; do
		try 73 ca-rft --actor model --out "$out" --ctx 64 --batch 4 in
		said 'cannot '
		[ ! -s out ]
	done
	try 73 ca-ppo --actor model --out x --publish in/x --ctx 64 --batch 4 in
	[ ! -s out ]
	# Looking whether it can be written touches nothing else.
	mkdir -p exp.new && touch exp.new/kept
	try 65 ca-ppo --actor model --out exp --ctx 64 --batch 4 /dev/null
	[ -e exp.new/kept ]
	[ -z "$(find . -name '*.try.*')" ]
	python3 "$here/trajs.py" random 16 9 >other
	try 78 ca-rft --actor model --out tuned --ctx 64 --batch 4 --steps 3 --resume other
	said 'other data'
	rft --out tuned --steps 3 --resume in
	# The one before it is whole.
	printf x | dd of=tuned/optimizer.safetensors bs=1 seek=300 conv=notrunc 2>/dev/null
	rft --out tuned --steps 3 --resume in
	said 'is not what was written'
	[ "$(jq .state.step tuned/train.json)" = 3 ]
	rft --out whole --steps 3 in
	same whole tuned
	rm -rf tuned.prev
	printf x | dd of=tuned/optimizer.safetensors bs=1 seek=300 conv=notrunc 2>/dev/null
	try 65 ca-rft --actor model --out tuned --ctx 64 --steps 4 --resume in
	said 'is not what was written'
	# What an update reads depends on these.
	rft --out parts --steps 2 in
	try 78 ca-rft --actor model --out parts --ctx 32 --batch 8 --lr 1e-2 --resume in
	said 'context 32, in the checkpoint 64; batch 8, in the checkpoint 4'
	try 78 ca-rft --actor model --out parts --ctx 64 --batch 4 --lr 1e-2 --seed 7 --resume in
	said "'parts' was made with --seed 0"
	rft --out parts --steps 3 --lr 1e-3 --resume in
	said 'learning rate of the actor 0.001, in the checkpoint 0.01'
}

@test "log-probabilities that are not finite: the step and the trajectory are named" {
	hurt model
	try 65 ca-rft --actor model --out x --ctx 64 --batch 4 --no-prov in
	grep -Eq 'step [0-9]: skipped: actor: the log-probability of token [0-9]+ is not finite; trajectory t5' err
	[ "$(grep -c skipped err)" = 1 ]
	jq -es 'map(select(."actor/skipped")) | length == 1' out
	[ ! -e x ]
	try 65 ca-rft --actor model --out x --ctx 64 --batch 4 --max-skipped 1 in
	said '1 updates in a row were not finite; last: actor: the log-probability'
}

@test "no space while saving: said, and the last good checkpoint is there" {
	rft --out tuned --steps 2 in
	cp -r tuned kept
	status=0
	(
		trap '' XFSZ
		ulimit -f 60
		"$bin/ca-rft" --actor model --out tuned --ctx 64 --batch 4 --steps 3 --resume in \
			>out 2>err
	) || status=$?
	[ "$status" = 74 ]
	said "checkpoint 'tuned'"
	same kept tuned
}

@test "weights that are not finite are not saved" {
	python3 - <<-'END'
		import struct
		raw = bytearray(open("model/model.safetensors", "rb").read())
		raw[-4:] = struct.pack("<f", float("inf"))
		open("model/model.safetensors", "wb").write(raw)
	END
	try 65 ca-rft --actor model --out x --ctx 64 --steps 0 in
	said "weight 'model.norm.weight' is not finite"
	[ ! -e x ]
	try 65 ca-rft --actor model --out x --ctx 64 --steps 9 --max-skipped 2 in
	said 'step 0: skipped: actor: the log-probability of '
	said 'trajectory t'
	said '2 updates in a row were not finite'
	[ ! -e x ]
}

@test "SIGTERM saves, and a signal while reading leaves nothing" {
	"$bin/ca-rft" --actor model --ctx 64 --batch 1 --out tuned --steps 100000 \
		--save-every 100000 in >out 2>err 3>&- &
	for _ in {1..1200}; do
		[ "$(wc -l <out)" -gt 3 ] && break
		sleep 0.05
	done
	kill -TERM $!
	status=0
	wait $! || status=$?
	[ "$status" = 143 ]
	[ "$(jq .state.step tuned/train.json)" -gt 2 ]
}

@test "plan, differences and usage" {
	try 0 ca-rft --actor model --out x --ctx 64 --dry-run in
	said 'MiB  in all'
	said 'not as in the paper: context 64, in the paper 131072'
	[ "$(pick '."data/used"')" = 12 ]
	[ ! -e x ]
	try 64 ca-rft --out x in
	try 64 ca-rft --actor model in
	try 78 ca-rft --actor model --out x --ctx 4096 in
	said "longer than the model's 256"
	try 66 ca-rft --actor nowhere --out x --ctx 64 in
}
