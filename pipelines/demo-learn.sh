#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-learn.sh -m MODEL -o DIR [-d DEV] [-s SEEDS] [-r ROUNDS] [-n TASKS] [-k N] [-w N] [-c N]
#               [-a]
#
# Shows that the loop learns: a small instructed model (SmolLM2-135M-Instruct) on a family of
# elementwise and reduction tasks.  A warm-up of -w updates (40) on demonstrations that are made
# here, then train.sh with -r rounds (20) of -n tasks (16), -k tries each (1), for each of -s
# seeds (3), and the same with learning rates of 0 as the control; with -a the paper's ablations
# too.  Held-out tasks are judged in full before the first round and after every fifth.
# -c: context (3072).
# In DIR: results.ndjson, table.txt, curve.png.  The same command again goes on where it was.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CA_BIN:-$here/../bin}
model='' out='' dev=cuda seeds=3 rounds=20 tasks=16 k=1 warm=40 ctx=3072 all=0
while getopts m:o:d:s:r:n:k:w:c:a opt; do
	case $opt in
	m) model=$OPTARG ;;
	o) out=$OPTARG ;;
	d) dev=$OPTARG ;;
	s) seeds=$OPTARG ;;
	r) rounds=$OPTARG ;;
	n) tasks=$OPTARG ;;
	k) k=$OPTARG ;;
	w) warm=$OPTARG ;;
	c) ctx=$OPTARG ;;
	a) all=1 ;;
	*) model='' && break ;;
	esac
done
[ -n "$model" ] && [ -n "$out" ] || {
	sed -n '4,14s/^# \{0,1\}//p' "$0" >&2
	exit 64
}
mkdir -p "$out/model" "$out/skill"
for f in "$model"/*; do ln -sf "$(realpath "$f")" "$out/model/"; done
ln -sf "$here/learn/chat_template.jinja" "$out/model/chat_template.jinja"
form='C in kernels/k.c, called as cuda_extension.k(...)'
[ "$dev" = cpu ] || form='CUDA in kernels/k.cu, launched as cuda_extension.k[grid, block, 0](...)'
echo "Write $form from model_new.py, then ca-verify." | tee "$out/skill/SKILL.md" \
	>"$out/skill/single-turn.md"
jq -nc -f "$here/learn/tasks.jq" >"$out/family"
jq -nc 'limit(8; inputs | select(.held) | .task)' "$out/family" >"$out/held"
jq -nc --argjson n "$tasks" 'limit($n; inputs | select(.held | not) | .task)' "$out/family" \
	>"$out/tasks"

for style in fast slow; do
	[ ! -e "$out/demo.$style" ] || continue
	"$bin/ca-agent" --model-cmd "jq --unbuffered -c --slurpfile family '$out/family' --arg \
device '${dev%%:*}' --arg style $style -f '$here/learn/teacher.jq'" -d "$dev" --grade quick \
		--skill "$out/skill" --dir "$out/demo.run.$style" --resume -j 2 "$out/tasks" \
		>"$out/demo.new" || [ $? = 75 ]
	jq -es 'any(.[]; .outcome.reward != null)' "$out/demo.new" >/dev/null || {
		echo "demo-learn: no demonstration has a reward, see $out/demo.new" >&2
		exit 75
	}
	mv "$out/demo.new" "$out/demo.$style"
done
"$bin/ca-rft" --actor "$out/model" --out "$out/warm" --device "$dev" --ctx "$ctx" --batch 8 \
	--steps "$warm" --lr 3e-5 --save-every 10 --resume "$out/demo.fast" "$out/demo.slow" \
	>>"$out/warm.ndjson"

run() { # variant, seed, options of train.sh
	"$here/train.sh" -m "$out/warm" -o "$out/$1.$2" -d "$dev" -c "$ctx" -S "$(($2 * 1000))" \
		-r "$rounds" -k "$k" -j 16 -V "$out/held" -v 5 \
		-x "$out/demo.fast" -x "$out/demo.slow" \
		-R '--batch 16' -P '--batch 16 --lr 1e-5 --epochs 4' "${@:3}" "$out/tasks" -- \
		--skill "$out/skill" --grade quick --max-tokens 512 --turns 6
	jq -c --arg v "$1" --argjson s "$2" 'select(has("val/reward/mean")) |
		{variant: $v, seed: $s, step, reward: ."val/reward/mean"}' \
		"$out/$1.$2/ppo/metrics.ndjson" >"$out/$1.$2/curve"
}
learn='--lr 1e-5 --critic-lr 2e-5'
for ((s = 1; s <= seeds; s++)); do
	run full "$s" -Q "$learn"
	run control "$s" -Q '--lr 0 --critic-lr 0'
	[ "$all" = 1 ] || continue
	run no-agent "$s" -Q "$learn" --no-agent
	run raw-reward "$s" -Q "$learn" --raw-reward
	run no-rft "$s" -Q "$learn" --no-rft
	run no-vpretrain "$s" -Q "$learn" --no-vpretrain
done
cat "$out"/*.*/curve >"$out/results.ndjson"
jq -sr -f "$here/learn/table.jq" "$out/results.ndjson" | tee "$out/table.txt"
jq -sr 'map(select(.variant == "full")) | group_by(.step)[] | map(.reward) as $r |
	[.[0].step, ($r | add / length), ($r | min), ($r | max)] | @tsv' \
	"$out/results.ndjson" >"$out/curve.tsv"
command -v gnuplot >/dev/null || {
	echo "demo-learn: no gnuplot, so no plot of $out/curve.tsv" >&2
	exit 0
}
gnuplot -e "set terminal png; set output '$out/curve.png';
	set xlabel 'updates'; set ylabel 'held-out reward';
	plot '$out/curve.tsv' using 1:2:3:4 with yerrorlines title 'mean and range of seeds'"
