#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Two GPUs: the same training as on one, bit for bit when it is gone on with, what happens
# when a rank goes; candidates judged on both at once, replicas of a model behind one port.

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

# Relative distance of the gradients of two first updates, by the first moments that they left.
distance() {
	python3 - "$1" "$2" <<-'END'
		import json, struct, sys
		def load(folder):
		    raw = open(f"{folder}/optimizer.safetensors", "rb").read()
		    size = struct.unpack("<Q", raw[:8])[0]
		    head, x = json.loads(raw[8:8 + size]), []
		    for name in sorted(n for n in head if n.startswith("m.")):
		        a, b = (8 + size + k for k in head[name]["data_offsets"])
		        x += struct.unpack(f"<{(b - a) // 4}f", raw[a:b])
		    return x
		a, b = load(sys.argv[1]), load(sys.argv[2])
		assert len(a) == len(b) > 1000
		print((sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)) ** 0.5)
	END
}

@test "the gradient of two GPUs is that of one" {
	for dtype in fp32 bf16; do
		rft --out one.$dtype --device cuda --dtype $dtype --steps 1 in
		rft --out two.$dtype --gpus 2 --dtype $dtype --steps 1 in
		distance one.$dtype two.$dtype >$dtype
		echo "$dtype: $(cat $dtype)"
	done
	awk '{ exit !($1 <= 1e-6) }' fp32
	awk '{ exit !($1 <= 2e-2) }' bf16
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

# Of a process, within 30 s; where it is when it has none by then.
status_of() {
	for _ in {1..300}; do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	status=0
	if kill -0 "$1" 2>/dev/null; then
		cat err
		head -c 300 /proc/"$1"/task/*/{comm,wchan,syscall} || true
		kill -KILL "$1"
		status=timeout
	else
		wait "$1" || status=$?
	fi
}

@test "a rank that is killed or stopped: 30 s, its name, a checkpoint that is whole" {
	for signal in KILL STOP; do
		"$bin/ca-rft" --actor model --ctx 64 --batch 4 --out $signal --gpus 2 \
			--steps 1000000 --save-every 5 in >out 2>err 3>&- &
		pid=$!
		for _ in {1..400}; do
			[ -e $signal/manifest.json ] && break
			sleep 0.05
		done
		tail -n 1 out
		kill -$signal "$(pgrep -P $pid)"
		status_of $pid
		echo "$signal: $status: $(cat err)"
		[ "$status" = 69 ]
		grep -Eq 'rank 1: it (ended by signal 9|hangs)' err
		rft --gpus 2 --out $signal --steps 1 --resume in
	done
}

@test "a rank without room: its number and both sizes" {
	size=$(nvidia-smi -i 1 --query-gpu=memory.total --format=csv,noheader,nounits)
	# A token of this model takes 5.1 KiB: six tenths of a GPU.
	tokens=$((size * 6 / 10 * 1024 * 10 / 51))
	status=0
	"$bin/ca-rft" --actor model --out x --ctx 256 --tokens $((2 * tokens)) --gpus 2 in 2>err ||
		status=$?
	cat err
	[ "$status" = 69 ]
	grep -Eq 'rank [01]: .*MiB are needed on .*, [0-9]+ are free' err
	# There is room for the first, but somebody else is on the second.
	"$bin/ca-rft" --actor model --out other --ctx 256 --tokens $tokens --batch 4 --device cuda:1 \
		--steps 1000000 --save-every 1000000 in >out 2>err.other 3>&- &
	other=$!
	for _ in {1..300}; do
		! grep -q rft_loss out || break
		sleep 0.1
	done
	"$bin/ca-rft" --actor model --out x --ctx 256 --tokens $tokens --gpus 2 in >out.x 2>err 3>&- &
	status_of $!
	kill -KILL $other
	wait $other || true
	echo "$status: $(cat err err.other)"
	[ "$status" = 69 ]
	grep -Eq 'rank 1: .*MiB are needed on .*, [0-9]+ are free' err
	[ ! -e x ]
}

@test "candidates go over all free GPUs, and leave in order" {
	"$bin/ca-compile" --device cuda "$fix"/{axpby,bad-value,slow-axpby,axpby-kernel} >some
	cat some some >in
	"$bin/ca-verify" --device cuda in >out
	[ "$(jq -r '[.name, .verify.status] | @tsv' out | head -n 4)" = \
		$'axpby\tok\nbad-value\twrong_value\nslow-axpby\tok\naxpby-kernel\tok' ]
	[ "$(jq -r .verify.device out | sort -u | xargs)" = 'cuda:0 cuda:1' ]
	# What one GPU's judge has signed another's believes, and nobody is foreign.
	"$bin/ca-profile" --device cuda --quick out >timed
	cmp <(jq -c .verify.mac out) <(jq -c .verify.mac timed)
	jq -e -s 'map(select(.verify.status == "ok") | .profile |
		.contended == false and .eager.median_us > 0) | all' timed
}

@test "a GPU that somebody has for himself is left out" {
	uuid=$(nvidia-smi -L | sed -n 's/^GPU 0.*UUID: \(.*\))/\1/p')
	"$bin/ca-verify" --device cuda:0 "$fix/axpby" >out	# now there is its lease
	flock -o -x "${CA_CACHE:-/var/cache/cuda-agent}/lease/$uuid" sleep 60 3>&- &
	holder=$!
	"$bin/ca-compile" --device cuda "$fix/axpby" "$fix/axpby-kernel" >in
	timeout 100 "$bin/ca-verify" --device cuda in >out
	kill "$holder"
	[ "$(jq -r .verify.device out | sort -u)" = cuda:1 ]
}

# In the jail is one GPU's node, and nothing that the environment's number could count.
@test "a GPU that the environment chose is the first one" {
	uuid=$(nvidia-smi -L | sed -n 's/^GPU 1.*UUID: \(.*\))/\1/p')
	for only in 1 "$uuid"; do
		CUDA_VISIBLE_DEVICES=$only "$bin/ca-compile" --device cuda "$fix/axpby" |
			CUDA_VISIBLE_DEVICES=$only "$bin/ca-verify" --device cuda >out
		[ "$(jq -r '[.verify.status, .verify.device] | @tsv' out)" = $'ok\tcuda:0' ]
	done
}

@test "replicas on two GPUs answer as one does" {
	for how in '--device cuda:1' '--gpus 2'; do
		rm -f url
		# shellcheck disable=SC2086 # words
		"$bin/ca-serve" -m model --port 0 -q -j 2 --exact $how >url 3>&- &
		pid=$!
		until [ -s url ]; do
			kill -0 "$pid"
			sleep 0.1
		done
		for n in {1..8}; do
			curl -sS -m 60 -d "{\"prompt\":\"the in\",\"max_tokens\":99,\"ignore_eos\":true,
				\"seed\":$n}" "$(cat url)/completions" >"answer.$n" 3>&- &
			asking[n]=$!
		done
		wait "${asking[@]}"
		jq -r '.choices[0].text' answer.{1..8} >"told ${how%% *}"
		curl -sS "$(sed 's,/v1$,,' url)/metrics" >metrics
		kill "$pid"
		wait "$pid"
	done
	cmp 'told --device' 'told --gpus'
	grep replica_tokens metrics
	[ "$(grep -c '^ca_serve_replica_tokens_total{replica="[01]"} [1-9]' metrics)" = 2 ]
}
