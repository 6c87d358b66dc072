#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-learn.sh -m MODEL -o DIR [-d DEV] [-s SEEDS] [-p N] [-r ROUNDS] [-n TASKS] [-k N]
#               [-H TASKS] [-v N] [-w N] [-c N] [-a]
#
# Shows that the loop learns: a small instructed model (SmolLM2-135M-Instruct) on a family of
# elementwise and reduction tasks.  A warm-up of -w updates (40) on demonstrations that are made
# here, then train.sh with -r rounds (20) of -n tasks (16), -k tries each (1), for each of -s
# seeds (3), -p of them at once (1); with -a the paper's ablations too.  -H held-out tasks (8) are
# judged in full before the first round and after every -v (5).  The control is trained at rates
# of 0, which change nothing however often, for one round.  -c: context (3072).
# In DIR: results.ndjson, table.txt, curve.svg.  The same command again goes on where it was.
# shellcheck disable=SC2317 # xargs's shells call functions
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CA_BIN:-$here/../bin}
model='' out='' dev=cuda seeds=3 at_once=1 rounds=20 tasks=16 k=1 held=8 every=5 warm=40
ctx=3072 all=0
usage() { sed -n '4,13s/^# \{0,1\}//p' "$0" >&$((1 + (${1:-64} > 0))) && exit "${1:-64}"; }
case ${1-} in -h | --help) usage 0 ;; esac
while getopts m:o:d:s:p:r:n:k:H:v:w:c:a opt; do
	case $opt in
	m) model=$OPTARG ;;
	o) out=$OPTARG ;;
	d) dev=$OPTARG ;;
	s) seeds=$OPTARG ;;
	p) at_once=$OPTARG ;;
	r) rounds=$OPTARG ;;
	n) tasks=$OPTARG ;;
	k) k=$OPTARG ;;
	H) held=$OPTARG ;;
	v) every=$OPTARG ;;
	w) warm=$OPTARG ;;
	c) ctx=$OPTARG ;;
	a) all=1 ;;
	*) usage ;;
	esac
done
[ -n "$model" ] && [ -n "$out" ] || usage
mkdir -p "$out/model" "$out/skill"
for f in "$model"/*; do ln -sf "$(realpath "$f")" "$out/model/"; done
ln -sf "$here/learn/chat_template.jinja" "$out/model/chat_template.jinja"
form='C in kernels/k.c, called as cuda_extension.k(...)'
[ "$dev" = cpu ] || form='CUDA in kernels/k.cu, launched as cuda_extension.k[grid, block, 0](...)'
echo "Write $form from model_new.py, then ca-verify." | tee "$out/skill/SKILL.md" \
	>"$out/skill/single-turn.md"
jq -nc -f "$here/learn/tasks.jq" >"$out/family"
jq -nc --argjson n "$held" 'limit($n; inputs | select(.held) | .task)' "$out/family" >"$out/held"
jq -nc --argjson n "$tasks" 'limit($n; inputs | select(.held | not) | .task)' "$out/family" \
	>"$out/tasks"

for style in fast slow; do
	[ ! -e "$out/demo.$style" ] || continue
	"$bin/ca-agent" --model-cmd "jq --unbuffered -c --slurpfile family '$out/family' --arg \
device '${dev%%:*}' --arg style $style -f '$here/learn/teacher.jq'" -d "$dev" --grade quick \
		--skill "$out/skill" --dir "$out/demo.run.$style" --resume -j 8 \
		--remember "$out/graded" "$out/tasks" \
		>"$out/demo.new" || [ $? = 75 ]
	jq -es 'any(.[]; .outcome.reward != null)' "$out/demo.new" >/dev/null || {
		echo "demo-learn: no demonstration has a reward, see $out/demo.new" >&2
		exit 75
	}
	mv "$out/demo.new" "$out/demo.$style"
done
"$bin/ca-rft" --actor "$out/model" --out "$out/warm" --device "$dev" --ctx "$ctx" --batch 8 \
	--steps "$warm" --lr 3e-5 --save-every 20 --resume "$out/demo.fast" "$out/demo.slow" \
	>>"$out/warm.ndjson"

run() { # variant, seed, rounds, options of train.sh
	"$here/train.sh" -m "$out/warm" -o "$out/$1.$2" -d "$dev" -c "$ctx" -S "$(($2 * 1000))" \
		-r "$3" -k "$k" -j 16 -V "$out/held" -v "$every" --stay \
		-x "$out/demo.fast" -x "$out/demo.slow" \
		-R '--batch 16' -P '--batch 16 --lr 1e-5 --epochs 4' "${@:4}" "$out/tasks" -- \
		--skill "$out/skill" --grade quick --max-tokens 512 --turns 6 \
		--remember "$out/graded" || return
	jq -c --arg v "$1" --argjson s "$2" 'select(has("val/reward/mean")) |
		{variant: $v, seed: $s, step, reward: ."val/reward/mean"}' \
		"$out/$1.$2/ppo/metrics.ndjson" >"$out/$1.$2/curve"
}
seed() { # its number; a variant that fails does not keep the others from running
	local on="--lr 1e-5 --critic-lr 2e-5 --save-every $every" rc=0
	run full "$1" "$rounds" -Q "$on" || rc=$?
	mkdir -p "$out/control.$1"	# which begins as that one does
	ln -sfn "$(realpath "$out/full.$1")"/{data,rft,vpretrain} "$out/control.$1/" || rc=$?
	run control "$1" 1 -s ppo -v 1 -Q '--lr 0 --critic-lr 0' || rc=$?
	[ "$all" = 0 ] || for v in no-agent raw-reward no-rft no-vpretrain; do
		run "$v" "$1" "$rounds" -Q "$on" "--$v" || rc=$?
	done
	return "$rc"
}
export -f run seed
export here bin out dev ctx k every all rounds
rc=0
seq "$seeds" | xargs -P "$at_once" -I{} bash -euc 'seed {}' || rc=$?
cat "$out"/*.*/curve >"$out/results.ndjson"
jq -sr -f "$here/learn/table.jq" "$out/results.ndjson" | tee "$out/table.txt"
jq -sr -f "$here/learn/plot.jq" "$out/results.ndjson" >"$out/curve.svg"
exit "$rc"
