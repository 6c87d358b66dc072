#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# pipelines/train.sh with everything real but small: a tiny random model behind
# ca-serve, four tasks in jails on the CPU, all trainers.  Such a model earns
# only -1, so fine-tuning and value pretraining read scripted trajectories too.

load ../tools/agent.bash

setup() {
	command -v curl >/dev/null || skip 'no curl'
	agent_setup
	export OMP_NUM_THREADS=1
	local tests=$root/test/tools
	python3 "$tests/serve_model.py" model
	# Room for the agent's prompt, which is bytes to it; tools it cannot call.
	jq '.max_position_embeddings = 4096' model/config.json >c && mv c model/config.json
	jq '.chat_template |= sub(".*endif %}{% for m"; "{% for m")' \
		model/tokenizer_config.json >c && mv c model/tokenizer_config.json
	python3 "$tests/trajs.py" random 12 >scripted
	jq -c '., .code += "\n", .code += "\n\n", .code += "\n\n\n"' tasks >four
}

teardown() {
	agent_teardown
}

train() {
	CA_BIN=$bin "$root/pipelines/train.sh" -m model -o run -c 3072 -j 2 -x scripted \
		-R '--batch 8' -P '--batch 8 --held-out 0.3' "$@" four -- --skill skill \
		--max-tokens 8 --judge ./judge 2>err 3>&- || {
		cat err
		tail run/serve.log
		return 1
	}
}

step() {
	jq .state.step "run/$1/train.json"
}

@test "warm-up, fine-tuning, value pretraining, two rounds of PPO; each stage alone" {
	train -w 1 -V four
	[ "$(step warm/w/actor)" = 1 ] && [ "$(step rft/w)" -ge 1 ]
	[ "$(step vpretrain/w)" -ge 1 ] && [ "$(step ppo/w/critic)" = 2 ]
	# All were the agent's own weights, and those of the round.
	jq -es 'map(select(."data/seen")) | length == 2 and
		all(."rho/max_dev_update0" == 0) and
		all(."critic/rewards/mean" == -1 and ."data/used" >= 1)' run/ppo/metrics.ndjson
	jq -es 'map(select(has("val/reward/mean")) | .step) == [0, 1, 2]' run/ppo/metrics.ndjson
	for r in 0 1; do
		jq -r .model.weight_version run/ppo/round.$r/used.ndjson | sort -u
	done >versions
	[ "$(sort -u versions | wc -l)" = 2 ] && [ "$(wc -l <versions)" = 2 ]
	# Whatever order they ended in, they are trained on in one.
	LC_ALL=C sort -c run/ppo/round.0/used.ndjson
	[ "$(jq -s 'map(select(."data/seen")) | .[0]."data/seen"' run/rft/metrics.ndjson)" = 16 ]
	cmp run/actor/model.safetensors run/ppo/w/actor/model.safetensors
	[ -e run/best/model.safetensors ]
	[ "$(cat run/best/score)" = -1 ] && [ -e run/ppo/val.2/done ]
	# Again: nothing is left to do, but an evaluation that was killed.
	cp -r run/ppo/w before
	rm run/ppo/val.2/done
	mv run/best run/best.old
	train -w 1 -V four
	[ -e run/ppo/val.2/done ] && [ "$(cat run/best/score)" = -1 ]
	cmp before/actor/model.safetensors run/ppo/w/actor/model.safetensors
	# As if killed in the rollouts of the second round, three of which were there.
	rm -r run/ppo/round.1/{trained,used.ndjson,trajectories.ndjson} run/ppo/val.2
	rm -r "$(find run/ppo/round.1/run -mindepth 1 -maxdepth 1 -type d | head -n 1)"
	for m in actor critic; do rm -r run/ppo/w/$m && mv run/ppo/w/$m.prev run/ppo/w/$m; done
	train -w 1 -V four
	[ "$(step ppo/w/actor)" = 2 ]
	# One stage alone, on what the others left.
	rm -r run/vpretrain
	train -s vpretrain
	[ "$(step vpretrain/w)" -ge 1 ]
	# Two more go on, of a trainer that stays; the weights it hands out are those that it keeps.
	train -s ppo -r 4 --stay
	[ "$(step ppo/w/actor)" = 4 ]
	[ "$(echo run/ppo/policy/*)" = 'run/ppo/policy/3 run/ppo/policy/4' ]
	cmp run/ppo/policy/4/model.safetensors run/ppo/w/actor/model.safetensors
	for r in 2 3; do
		jq -r .model.weight_version run/ppo/round.$r/used.ndjson | sort -u
	done >versions
	[ "$(sort -u versions | wc -l)" = 2 ] && [ "$(wc -l <versions)" = 2 ]
	[ -z "$(pgrep -f "$PWD/run" || true)" ]
}

@test "the ablations leave out what they say" {
	# Over a server that somebody else has started.
	"$bin/ca-serve" --device cpu -m model --name policy --port 0 --ctx 3072 >url 2>/dev/null 3>&- &
	echo $! >>servers
	for _ in {1..600}; do
		[ -s url ] && break
		sleep 0.1
	done
	# Records of other kinds are no trajectories.
	echo '{"kind":"metric","v":1}' >>four
	train -e "$(cat url)" --no-rft --no-vpretrain --no-agent --raw-reward -r 1
	[ ! -e run/rft ] && [ ! -e run/vpretrain ]
	[ "$(jq -r '.mode // empty' run/ppo/round.0/used.ndjson | sort -u)" = single-turn ]
	[ "$(step ppo/w/actor)" = 1 ]
	grep -q '"asleep":true' run/serve.log
	# It does not stay asleep.
	[ "$(jq -s ".[-1].asleep" run/serve.log)" = false ]
	status=0
	"$root/pipelines/train.sh" -o x four 2>/dev/null || status=$?
	[ "$status" = 64 ]
}

@test "killed, it leaves nothing behind" {
	CA_BIN=$bin "$root/pipelines/train.sh" -m model -o killed -c 3072 four -- --skill skill \
		--max-tokens 2048 --judge ./judge 2>/dev/null 3>&- &
	for _ in {1..600}; do
		[ ! -s killed/url ] || break
		sleep 0.1
	done
	curl -fsS -m 5 "$(cat killed/url)/models" >models
	kill -9 $!
	# The server goes at once; rollouts end for want of it.
	for _ in {1..600}; do
		curl -fsS -m 5 "$(cat killed/url)/models" >models 2>/dev/null ||
			pgrep -f 'dir killed/data' >left || break
		sleep 0.1
	done
	[ -z "$(curl -fsS -m 5 "$(cat killed/url)/models" || true)" ]
	[ -z "$(pgrep -f 'dir killed/data' || true)" ]
}

@test "what is wrong is said before anything is rolled out" {
	wrong() { # status, what is said, options
		status=0
		CA_BIN=$bin "$root/pipelines/train.sh" -m model "${@:3}" >out 2>err || status=$?
		cat err
		[ "$status" = "$1" ] && grep -qF -e "$2" err && [ ! -e run/data ]
	}
	wrong 64 'train.sh -m MODEL' -o run -r two four
	wrong 64 'train.sh -m MODEL' -o run -V four -v 0 four
	wrong 66 "cannot open 'none'" -o run four none
	wrong 66 "cannot open 'none'" -o run -V none four
	wrong 66 "cannot open 'none'" -o run -x none four
	wrong 64 "'--nothing'" -o run -t '--nothing' four
	wrong 64 "'--lr'" -o run -Q '--lr fast' four
	wrong 64 "'--nothing'" -o run four -- --nothing
	wrong 69 "no server answers at 'http://127.0.0.1:1/v1'" -o run -e http://127.0.0.1:1/v1 four
	wrong 73 "cannot create '/proc/x'" -o /proc/x four
	mkdir busy
	echo $$ >busy/lock
	exec 6<busy/lock
	flock 6
	wrong 75 "another run is at work in 'busy'" -o busy four
	exec 6<&-
	# What the server said of another start is not this one's.
	wrong 69 'no such device' -o other -d gpu four
	wrong 69 "'none' has no model.safetensors" -m none -o other four
	! grep 'no such device' err
}

@test "the server computes with what the trainers do" {
	served() { # options of all trainers, of ca-ppo
		common=$1 ppo_opts=$2 bash -c '. "$0/pipelines/train-serve.sh"; alike' "$root" |
			tr '\n' ' '
	}
	[ "$(served ' --ranks 2 --dtype bf16' '--lr 1')" = '--dtype bf16 ' ]
	[ "$(served ' --dtype=fp32' '--exact --lr 1')" = '--dtype=fp32 --exact ' ]
	[ -z "$(served ' --preset paper' '--lr 1')" ]
}

@test "demo-learn: what it cannot do is said" {
	learn() { # status, what is said, options
		status=0
		CA_BIN=$bin "$root/pipelines/demo-learn.sh" "${@:3}" >out 2>err || status=$?
		cat err
		[ "$status" = "$1" ] && grep -qF -e "$2" err
	}
	learn 64 'demo-learn.sh -m MODEL' -m model
	learn 64 'demo-learn.sh -m MODEL' -m model -o d -r none
	learn 64 'demo-learn.sh -m MODEL' -m model -o d -A fast
	learn 66 "'none' has no config.json" -m none -o d
	[ ! -e d ]
	mkdir d
	echo '-r 3' >d/settings
	learn 78 "'d' was begun with -r 3" -m model -o d -r 4
}

@test "demo-learn: tasks with a teacher that solves them, and a table of gains" {
	learn=$root/pipelines/learn
	jq -nc -f "$learn/tasks.jq" >family
	[ "$(jq -s 'map(.task.code) | unique | length' family)" = 48 ]
	[ "$(jq -c .held family | sort | uniq -c | wc -l)" = 2 ]
	jq -c .task family | sed -n '1p;2p' >tasks
	for style in fast slow; do
		for device in cpu cuda; do
			"$bin/ca-agent" --model-cmd "jq --unbuffered -c --slurpfile family family \
				--arg device $device --arg style $style -f '$learn/teacher.jq'" \
				--skill skill -d cpu --judge ./judge -j 2 tasks >demos
			jq -es 'length == 2 and all(.outcome.reward == 1 and
				(.turns | length) == 4 and .schema_violations == 0 and
				([.messages[] | select(.role == "tool")] | length) == 3)' demos
		done
	done
	"$bin/ca-agent" --model-cmd "jq --unbuffered -c --slurpfile family family --arg device cuda \
		--arg style fast -f '$learn/teacher.jq'" --skill skill -d cpu --judge ./judge \
		--single-turn tasks >one
	jq -es 'length == 2 and all(.mode == "single-turn" and .outcome.reward == 1 and
		.outcome.stop_reason == "final")' one
	# As the model sees it, calls included.
	cp "$learn/chat_template.jinja" model/
	"$bin/ca-rft" --actor model --out tuned --ctx 4096 --dry-run --no-prov demos >out 2>err
	jq -e '."data/used" == 2 and ."data/tokenised" == 2' out
	for s in 1 2 3; do
		for n in {1..6}; do
			jq -nc --argjson s $s --argjson n $n '{seed: $s, step: $n} +
				({variant: "full", reward: ($n + $s / 10)},
				{variant: "control", reward: ($s / 10)},
				{variant: "full", train: $n})'
		done
	done >results
	jq -sr -f "$learn/table.jq" results >table
	grep -q "^full	3	1.7	5.7	4 \[4, 4\]	4 \[4, 4\]$" table
	grep -q '^control	3	0.2	0.2	0 \[0, 0\]' table
	# Two evaluations differ, as those of a control do.
	jq -c 'select(.variant == "full" and .step < 3)' results | jq -sr -f "$learn/table.jq" >table
	grep -q '^full	3	1.2	2.2	1 \[1, 1\]	none$' table
	jq -sr -f "$learn/plot.jq" results >curve.svg
	python3 - <<-'END'
		import xml.dom.minidom
		svg = xml.dom.minidom.parse("curve.svg")
		lines = svg.getElementsByTagName("polyline")
		assert [len(x.getAttribute("points").split()) for x in lines] == [0, 6, 6, 6]
		assert len(svg.getElementsByTagName("polygon")) == 2
	END
}
