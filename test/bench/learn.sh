#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# learn.sh [UPDATES [SEEDS]]: does the loop learn?  Rollouts of ca-serve, a reward, ca-ppo, the new
# weights, again, with what the agent and the judge add left out: a tiny random model on the CPU
# earns 3 when most of its 8 tokens have odd numbers, else -1.  For each of SEEDS seeds (3)
# UPDATES updates (25) of 32 trajectories, and as many at a learning rate of 0.  A row each: mean
# reward of the first and the last five rounds.  About half a minute a row.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
top=$PWD
bin=${CA_BIN:-$top/bin}
updates=${1:-25} seeds=${2:-3}
work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work"
python3 "$top/test/tools/serve_model.py" model

rollouts() { # actor, seed
	for n in {1..32}; do
		jq -nc --argjson n "$n" --arg seed "$(($2 + n))" '{kind: "prompt", v: 1,
			tokens: [1, 2, $n], max_tokens: 8, ignore_eos: true, seed: $seed}'
	done | "$bin/ca-serve" --generate --device cpu -m "$1" --no-prov |
		python3 "$top/test/tools/trajs.py" wrap
}

rewarded() { # weight version
	python3 -c '
import base64, json, struct, sys
for line in sys.stdin:
    t = json.loads(line)
    tokens = t["turns"][0]["tokens"]
    ids = struct.unpack("<%di" % tokens["n"], base64.b64decode(tokens["ids"]))
    t["model"]["weight_version"] = sys.argv[1]
    t["outcome"]["reward"] = 3 if sum(i % 2 for i in ids) > len(ids) / 2 else -1
    print(json.dumps(t))' "$1"
}

row() { # learning rate, seed
	local dir=$1.$2 actor=model ins=()
	mkdir "$dir"
	for ((r = 0; r < updates; r++)); do
		ins+=("$dir/in.$r")
		rollouts "$actor" $(($2 * 100000 + r * 100)) | rewarded "$r" >"$dir/in.$r"
		"$bin/ca-ppo" --actor model --out "$dir/w" --ctx 64 --batch 32 --lr "$1" \
			--critic-lr "$1" --steps $((r + 1)) --resume -q --no-prov "${ins[@]}" \
			>>"$dir/metrics"
		actor=$dir/w/actor
	done
	jq -s --arg lr "$1" --argjson seed "$2" -c 'map(."critic/score/mean") |
		{lr: $lr, $seed, first: (.[:5] | add / 5), last: (.[-5:] | add / 5)}' "$dir/metrics"
}

for ((s = 1; s <= seeds; s++)); do
	row 1e-2 "$s"
	row 0 "$s"
done
