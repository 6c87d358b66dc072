#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Value pretraining.

load train

setup() {
	load train
	train_setup
}

pretrain() {
	try 0 ca-vpretrain --ctx 256 --batch 8 --no-prov "$@"
}

@test "a critic learns what the prompt determines, from the first quarter on" {
	python3 "$here/trajs.py" told 96 3 64 >told
	pretrain --actor model --out critic --epochs 24 --lr 1e-3 --held-out 0.25 told
	jq -es 'map(select(has("val/vf_loss"))) | length == 2 and
		(.[0]."val/mc_explained_var_q1" | fabs) < 0.01 and
		.[1]."val/mc_explained_var_q1" > 0.5 and .[1].step > 100' out
}

@test "it is a critic as transformers write them" {
	pretrain --actor model --out critic in
	jq -e '.architectures == ["LlamaForTokenClassification"] and .num_labels == 1 and
		.classifier_dropout == 0 and .vocab_size == 262' critic/config.json
	jq -e '.state.gae == "skip"' critic/train.json
	python3 - <<-'END'
		import json, struct
		raw = open("critic/model.safetensors", "rb").read()
		head = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
		assert head["score.weight"]["shape"] == [1, 32] and head["score.bias"]["shape"] == [1]
		assert "lm_head.weight" not in head
	END
	# And can be gone on from as such.
	pretrain --critic critic --out more in
	try 78 ca-rft --actor critic --out x --ctx 64 in
	said 'is a critic'
}

@test "gone on with, it is the same training" {
	pretrain --actor model --out whole --epochs 4 --lr 1e-3 in
	pretrain --actor model --out parts --steps 3 --lr 1e-3 in
	pretrain --actor model --out parts --epochs 4 --lr 1e-3 --resume in
	same whole parts
	killed "$bin/ca-vpretrain" --actor model --out hurt --ctx 256 --batch 8 --epochs 4 \
		--lr 1e-3 --save-every 1 in
	same whole hurt
}

@test "failures are missed where there are none, and modes are kept apart" {
	jq -c 'select(.outcome.reward > 0)' in >good
	pretrain --actor model --out critic --gae turn good
	said 'no trajectory failed'
	jq -e '.state.gae == "turn"' critic/train.json
	try 78 ca-ppo --actor model --critic critic --out x --ctx 64 --batch 8 in
	said 'trained with --gae=turn'
	try 78 ca-vpretrain --critic critic --out x --ctx 256 in
	said 'trained with --gae=turn, not skip'
	try 78 ca-vpretrain --actor model --out critic --ctx 256 --batch 8 --resume good
	said 'trained with --gae=turn, not skip'
	# Gone on with, it still says what it was trained with.
	pretrain --actor model --out critic --gae turn --epochs 2 --resume good
	jq -e '.state.gae == "turn"' critic/train.json
	try 64 ca-vpretrain --out x in
	try 64 ca-vpretrain --actor model --critic critic --out x in
}

@test "what is held out is not trained on" {
	pretrain --actor model --out a --held-out 0.4 --seed 3 in
	n=$(pick 'select(."data/held_out") | ."data/held_out"')
	[ "$n" -gt 0 ] && [ "$n" -lt 16 ]
	pretrain --actor model --out b --held-out 0 --seed 3 in
	[ -z "$(pick 'select(has("val/vf_loss"))')" ]
	cmp -s a/model.safetensors b/model.safetensors && return 1
	try 65 ca-vpretrain --actor model --out c --held-out 1 --ctx 256 in
	said 'no trajectory of 16 is left: all that can be used are held out'
}

@test "trajectories without ids are tokenised once, failures too; ca-ppo drops them" {
	python3 "$here/trajs.py" text 8 >texts
	for gae in skip turn; do
		pretrain --actor model --out "$gae" --gae "$gae" texts
		[ "$(pick 'select(."data/seen") | [."data/used", ."data/tokenised"]')" = '[8,8]' ]
		[ "$(pick 'select(has("critic/score/min")) | ."critic/score/min"')" = -1 ]
	done
	try 65 ca-ppo --actor model --out x --ctx 256 --batch 8 texts
	said 'dropped (no_ids): it has no token ids'
	[ "$(pick '."data/dropped/no_ids" // empty')" = 8 ]
}
