# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the suites of the trainers share: a tiny model, made once a file, and
# trajectories without an agent.
# shellcheck disable=SC2034 # used by them

here=$BATS_TEST_DIRNAME
bin=${CA_BIN:-$here/../../bin}

train_setup() {
	command -v jq >/dev/null || skip 'no jq'
	export OMP_NUM_THREADS=1
	cd "$BATS_TEST_TMPDIR" || return
	python3 "$here/serve_model.py" model
	python3 "$here/trajs.py" random 16 >in
}

# run STATUS PROGRAM [ARG...]: output in out and err.
try() {
	local want=$1 status=0
	shift
	"$bin/$1" "${@:2}" >out 2>err || status=$?
	[ "$status" = "$want" ] || {
		echo "exit $status instead of $want"
		cat err
		return 1
	}
}

said() {
	grep -qF -e "$1" err || {
		cat err
		return 1
	}
}

# same DIR DIR: the same bits in all that training goes on from.
same() {
	local f
	for f in model.safetensors optimizer.safetensors; do
		cmp "$1/$f" "$2/$f" || return
	done
}

# hurt MODEL: makes it answer with no number to what only trajectory t5 says.
hurt() {
	python3 - "$1" "$here/hurt.py" <<-'END'
		import base64, json, struct, subprocess, sys
		ids = {}
		for rec in map(json.loads, open("in")):
		    all = ids.setdefault(rec["id"], [])
		    for turn in rec["turns"]:
		        for k in "prompt_ids", "ids":
		            raw = base64.b64decode(turn["tokens"][k])
		            all += struct.unpack(f"<{len(raw) // 4}i", raw)
		own = ids.pop("t5")
		token = next(t for t in own[:-1] if not any(t in x for x in ids.values()))
		subprocess.run([sys.executable, sys.argv[2], sys.argv[1], str(token)], check=True)
	END
}

# Members of metric records: pick FILTER.
pick() {
	jq -c "$1" out
}

# killed PROGRAM...: runs it with --resume until it comes to its end, killing
# it on the way $kills times, each at some moment of a run.
killed() {
	local i pid
	for ((i = 0; i < ${kills:-3}; i++)); do
		"$@" --resume >/dev/null 2>&1 3>&- &
		pid=$!
		sleep "0.0$((RANDOM % 90 + 10))"
		kill -9 $pid 2>/dev/null || true
		wait $pid || true
	done
	"$@" --resume >out 2>err
}
