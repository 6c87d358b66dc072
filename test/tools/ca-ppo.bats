#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# PPO, an update for each batch.

load train

setup() {
	load train
	train_setup
}

ppo() {
	try 0 ca-ppo --actor model --ctx 64 --batch 4 --lr 1e-3 --critic-lr 1e-3 --no-prov "$@"
}

# Completions that ca-serve drew from the model, as trajectories.
drawn() { # how many, further options
	for ((n = 0; n < $1; n++)); do
		jq -nc --arg n $n '{kind: "prompt", v: 1, tokens: [1, 2, ($n | tonumber)],
			max_tokens: 12, ignore_eos: true, seed: $n} + '"${2:-{\}}"
	done | "$bin/ca-serve" --generate --device cpu -m model --no-prov |
		python3 "$here/trajs.py" wrap
}

@test "rollout and training compute the same bits" {
	drawn 8 >drawn
	ppo --out x --exact --batch 8 drawn
	[ "$(pick '[."rho/max_dev_update0", ."actor/ppo_kl", ."actor/pg_clipfrac",
		."training/rollout_probs_diff_max"]')" = '[0,0,0,0]' ]
	drawn 8 '{temperature: 0.7}' >cold
	ppo --out y --exact --batch 8 cold
	[ "$(pick '."rho/max_dev_update0"')" = 0 ]
	# Others do not pass for exact, and are warned about without.
	try 65 ca-ppo --actor model --out z --ctx 64 --batch 8 --exact in
	said 'before the first update'
	[ ! -e z ]
	ppo --out w in
	said 'do not compute the same'
}

@test "what earned more becomes likelier" {
	drawn 32 >drawn
	# The same batch again and again is no PPO, but has to move the policy.
	ppo --out x --batch 32 drawn
	jq -es 'length == 1 and .[0]."critic/rewards/mean" == 1.25 and
		.[0]."reward/3" == 8 and .[0]."response_length/mean" == 12' out
	# Log-probabilities after the step, through the same program.
	try 0 ca-ppo --actor x/actor --critic x/critic --out y --ctx 64 --batch 32 --no-prov drawn
	jq -e '."actor/ppo_kl" != 0 and ."actor/pg_loss" < -0.001' out
}

@test "a batch is an update, published before its record is written" {
	mkfifo pipe
	# Stays alive over its input.
	"$bin/ca-ppo" --actor model --out x --ctx 64 --batch 4 --no-prov pipe >out 2>err 3>&- &
	exec 8>pipe
	head -4 in >&8
	for _ in {1..1200}; do
		[ -s out ] && break
		sleep 0.05
	done
	[ "$(jq .state.step x/actor/train.json)" = 1 ]
	[ "$(jq .state.step x/critic/train.json)" = 1 ]
	sed -n 5,11p in >&8
	exec 8>&-
	wait $!
	[ "$(jq -s length out)" = 2 ]
	said '3 trajectories are less than a batch of 4'
	jq -e '.architectures == ["LlamaForTokenClassification"]' x/critic/config.json
}

@test "gone on with over the whole stream, it is the same training" {
	ppo --out whole in
	[ "$(jq -s length out)" = 4 ]
	head -9 in >part
	ppo --out parts part
	ppo --out parts --resume in
	[ "$(jq -s 'map(.step)' -c out)" = '[2,3]' ]
	for m in actor critic; do same whole/$m parts/$m; done
	# Nothing new: nothing is done.
	ppo --out parts --resume in
	[ ! -s out ]
	{ sed 1d in; head -1 in; } >other
	try 78 ca-ppo --actor model --out parts --ctx 64 --batch 4 --resume other
	said 'does not begin with the 16 trajectories'
	head -3 in >short
	try 65 ca-ppo --actor model --out parts --ctx 64 --batch 4 --resume short
	said 'ends before the 16'
}

@test "killed at any moment and gone on with, it is the same training" {
	ppo --out whole in
	killed "$bin/ca-ppo" --actor model --ctx 64 --batch 4 --lr 1e-3 --critic-lr 1e-3 \
		--no-prov --out parts in
	for m in actor critic; do same whole/$m parts/$m; done
}

@test "actor and critic that were saved apart are brought together" {
	ppo --out whole in
	head -12 in >part
	ppo --out parts part
	# As if killed between the two saves of the next update.
	ppo --out next in
	rm -rf parts/actor.prev
	mv parts/actor parts/actor.prev
	cp -r next/actor parts/actor
	ppo --out parts --resume in
	[ "$(jq -s 'map(.step)' -c out)" = '[3]' ]
	for m in actor critic; do same whole/$m parts/$m; done
}

@test "ranks train the same model" {
	ppo --out one in
	cp out one.out
	ppo --out two --ranks 2 in
	python3 - <<-'END'
		import json
		a, b = ([json.loads(x) for x in open(f)] for f in ("one.out", "out"))
		assert len(a) == len(b) == 4
		for x, y in zip(a, b):
		    for k in x:
		        if isinstance(x[k], float):
		            assert abs(x[k] - y[k]) <= 1e-3 * abs(x[k]) + 1e-6, (k, x[k], y[k])
	END
}

@test "other settings: what may change is said, what may not is refused" {
	head -8 in >part
	ppo --out parts part
	ppo --out parts --lr 1e-4 --batch 8 --clip-low 0.1 --dual-clip 3 --resume in
	said 'going on with other settings: learning rate of the actor 0.0001, in the checkpoint 0.001'
	said 'batch 8, in the checkpoint 4'
	said 'clip below 0.1, in the checkpoint 0.2'
	said 'dual clip 3, in the checkpoint none'
	[ "$(grep -c 'other settings' err)" = 4 ]
	try 78 ca-ppo --actor model --out parts --ctx 64 --batch 8 --ranks 2 --resume in
	said "'parts/actor': cannot go on with other settings: ranks 2, in the checkpoint 1"
}

@test "batches of two policies are refused" {
	jq -c 'if .id == "t2" then .model.weight_version = "w1" else . end' in >mixed
	try 65 ca-ppo --actor model --out x --ctx 64 --batch 4 mixed
	said "mixes weight versions 'w0' and 'w1'"
	# What is not known is not what is known; alone it is believed, and said.
	jq -c 'if .id == "t2" then .model.weight_version = null else . end' in >mixed
	try 65 ca-ppo --actor model --out x --ctx 64 --batch 4 mixed
	said "mixes weight versions 'w0' and unknown (trajectories t0, t2)"
	jq -c '.model.weight_version = null' in >unknown
	ppo --out u unknown
	said 'does not say which weights made it'
	jq -c 'if .id == "t2" then .model.sampling.temperature = 0.9 |
		.model.sampling.logprobs = "temperature" else . end' in >mixed
	try 65 ca-ppo --actor model --out x --ctx 64 --batch 4 mixed
	said 'mixes temperatures 1 and 0.9'
	[ ! -e x ]
	jq -c '.model.weight_version = "mixed"' in >mixed
	try 65 ca-ppo --actor model --out x --ctx 64 --batch 4 mixed
	said 'trajectory t0 was drawn while the weights changed'
	# Two batches may differ.
	jq -c 'if .id | IN("t4", "t5", "t6", "t7") then .model.weight_version = "w1"
		else . end' in >mixed
	ppo --out x mixed
}

@test "log-probabilities of another distribution are refused" {
	jq -c '.model.sampling = {temperature: 0.7}' in >warm
	try 65 ca-ppo --actor model --out x --ctx 64 --batch 4 warm
	said 'of an unknown kind'
	try 65 ca-ppo --actor model --out x --ctx 64 --batch 4 --logprobs raw warm
	said 'are raw'
	ppo --out a --logprobs temperature warm
	ppo --out b --recompute-old warm
	jq -es 'map(select(."actor/ppo_kl" != 0)) == []' out
	jq -c '.model.sampling = {temperature: 1, top_p: 0.9}' in >cut
	try 65 ca-ppo --actor model --out x --ctx 64 --batch 4 cut
	said 'top-p, top-k or min-p'
	jq -c '.model.sampling = {temperature: 1, min_p: 0.1}' in >cut
	try 65 ca-ppo --actor model --out x --ctx 64 --batch 4 cut
	said 'top-p, top-k or min-p'
	jq -c '.model.sampling = {}' in >silent
	try 65 ca-ppo --actor model --out x --ctx 64 --batch 4 silent
	said 'does not state its temperature'
	ppo --out c --temperature 1 silent
}

@test "what cannot be used is dropped and counted" {
	jq -c 'if .id == "t0" then .turns[].tokens = {missing: "none"}
		elif .id == "t1" then .outcome.reward = null
		elif .id == "t2" then .turns[1].tokens.mask = [[0, 1]]
		elif .id == "t3" then .turns[0].tokens.logprobs = .turns[1].tokens.logprobs
		elif .id == "t4" then .turns[0].tokens.hash = "0"
		elif .id == "t5" then .omitted = "messages" | .messages = [] | .turns = []
		elif .id == "t6" then .omitted = "tokens" | del(.turns[].tokens) else . end' in >bad
	ppo --out x bad
	jq -es 'map(."data/used") == [0, 1, 5, 9] and
		(.[3] | ."data/dropped/no_ids" == 2 and ."data/dropped/omitted" == 1 and
		."data/dropped/no_reward" == 1 and ."data/dropped/bad_ids" >= 2)' out
	said 'has no token ids: none'
	said 'has no token ids: left out, since it is too long for a record'
	said 'its messages were left out'
	said 'no trajectory of the batch can be used'
	# A turn that has none is as if the environment had said it.
	jq -c '.turns[1].tokens = {missing: "none"}' in >half
	ppo --out h half
	jq -es '.[0]."data/turns_without_ids" == 4 and .[0]."data/used" == 4' out
	# Ids of another model.
	jq -c '.messages = [{role: "assistant", content: "what it never said"}]' in >foreign
	try 65 ca-ppo --actor model --out y --ctx 64 --batch 16 foreign
	[ "$(pick '."data/dropped/other_tokenizer"')" = 16 ]
	said 'no trajectory of 16 can be used'
	# Nor is anything else a trajectory.
	for none in /dev/null task; do
		echo '{"kind":"task","v":1,"id":"x","code":"y"}' >task
		try 65 ca-ppo --actor model --out w --ctx 64 --batch 16 $none
		said 'no trajectory of 0 can be used'
	done
	try 66 ca-ppo --actor model --out w --ctx 64 --batch 16 nothere
	said "cannot open 'nothere'"
	ppo --out z -v in task
	said '17 in, 0 out, 0 failed, 1 of other kinds'
}

@test "a gradient that is not finite is skipped and named" {
	jq -c 'if .id == "t5" then .outcome.reward = 1e308 else . end' in >huge
	ppo --out x huge
	said 'step 1: skipped: critic: the gradient of'
	said 'trajectory t5'
	[ "$(pick 'select(."critic/skipped") | .step')" = 1 ]
	jq -es 'length == 4' out
	# Tokenizers differ.
	cp -r model other
	jq '.added_tokens[0].content = "<S>"' model/tokenizer.json >other/tokenizer.json
	try 78 ca-ppo --actor model --critic other --out z --ctx 64 in
	said 'different tokenizers'
}

@test "values that are not finite: the step and the trajectory are named, others go on" {
	try 0 ca-vpretrain --actor model --out critic --ctx 64 --batch 16 --steps 1 in
	hurt critic
	# Such weights are not saved, whatever they were trained on.
	try 65 ca-ppo --actor model --critic critic --out x --ctx 64 --batch 4 --steps 4 \
		--save-every 9 --no-prov in
	grep -Eq 'step 1: skipped: critic: the value of token [0-9]+ is not finite; trajectory t5' err
	[ "$(grep -c skipped err)" = 1 ]
	[ "$(pick 'select(."critic/skipped") | .step')" = 1 ]
	[ "$(pick 'select(."actor/grad_norm") | .step' | tr -d '\n')" = 02 ]
	said 'is not finite: nothing is saved'
	[ ! -e x/actor ] || [ ! -e x/critic ]
}

@test "weights are handed out after each update, checkpoints when they are due" {
	ppo --out whole in
	ppo --out x --publish given --save-every 3 in
	[ "$(echo given/*)" = 'given/3 given/4' ]
	cmp given/4/model.safetensors whole/actor/model.safetensors
	cmp given/4/model.safetensors x/actor/model.safetensors
	[ ! -e given/4/optimizer.safetensors ]
	try 0 ca-ppo --actor given/3 --out y --ctx 64 --dry-run in
	# What is gone on with hands out the same again.
	for m in actor critic; do rm -r x/$m && mv x/$m.prev x/$m; done
	rm -r given/4
	ppo --out x --publish given --save-every 3 --resume in
	cmp given/4/model.safetensors whole/actor/model.safetensors
	ppo --out z --ranks 2 --publish shared in
	cmp shared/4/model.safetensors z/actor/model.safetensors
}

@test "--steps ends it, however long its input is" {
	ppo --out x --steps 2 in
	[ "$(jq -s length out)" = 2 ]
	mkfifo pipe
	exec 8<>pipe
	cat in >&8
	ppo --out y --steps 1 <pipe
	exec 8>&-
	[ "$(jq -s length out)" = 1 ]
}

@test "presets, differences and usage" {
	try 0 ca-ppo --actor model --out x --preset paper --ctx 64 --batch 16 in
	said 'context 64'
	grep -q whiten err && return 1
	jq -e '.state.gae == "all"' x/critic/train.json
	ppo --out y in
	said '--no-whiten off, in the paper on'
	try 64 ca-ppo --out z in
	try 64 ca-ppo --actor model --out z --gae never in
	try 64 ca-ppo --actor model --out z --ctx 64 --tokens 8 in
}
