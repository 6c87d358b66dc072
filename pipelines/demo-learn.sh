#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-learn.sh -m MODEL -o DIR [-d DEV,...] [-s SEEDS] [-p N] [-r ROUNDS] [-n TASKS] [-k N]
#               [-H TASKS] [-v N] [-w N] [-c N] [-u SECONDS] [-a]
#
# Shows that the loop learns: a small instructed model (SmolLM2-135M-Instruct) on a family of
# elementwise and reduction tasks.  A warm-up of -w updates (40) on demonstrations that are made
# here, then train.sh with -r rounds (20) of -n tasks (16), -k tries each (1), for each of -s
# seeds (3), and with -a for each of the paper's ablations too; -p of these runs at once (1), the
# devices in turn.  -H held-out tasks (8) are judged in full before the first round and after
# every -v (5).  The control is trained at rates of 0, which change nothing however often, for one
# round.  -c: context (3072).  With -u no run begins that would not end so many seconds after the
# start, if it takes as long as the longest did.  In DIR: results.ndjson, table.txt, curve.svg.
# The same command again goes on where it was; of a run that is done it wants no checkpoint.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CA_BIN:-$here/../bin}
model='' out='' devs=cuda seeds=3 at_once=1 rounds=20 tasks=16 k=1 held=8 every=5 warm=40
ctx=3072 until=0 variants=full began=$(date +%s)
usage() { sed -n '4,16s/^# \{0,1\}//p' "$0" >&$((1 + (${1:-64} > 0))) && exit "${1:-64}"; }
case ${1-} in -h | --help) usage 0 ;; esac
while getopts m:o:d:s:p:r:n:k:H:v:w:c:u:a opt; do
	case $opt in
	m) model=$OPTARG ;;
	o) out=$OPTARG ;;
	d) devs=$OPTARG ;;
	s) seeds=$OPTARG ;;
	p) at_once=$OPTARG ;;
	r) rounds=$OPTARG ;;
	n) tasks=$OPTARG ;;
	k) k=$OPTARG ;;
	H) held=$OPTARG ;;
	v) every=$OPTARG ;;
	w) warm=$OPTARG ;;
	c) ctx=$OPTARG ;;
	u) until=$OPTARG ;;
	a) variants='full no-rft no-vpretrain raw-reward no-agent' ;;
	*) usage ;;
	esac
done
if [ -z "$model" ] || [ -z "$out" ]; then usage; fi
dev=${devs%%,*}
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

export here bin out devs ctx k every rounds until began
touch "$out/took"
rc=0
for v in $variants; do
	for ((s = 1; s <= seeds; s++)); do
		[ -e "$out/$v.$s/done" ] || echo "$v $s"
	done
done | xargs -rP "$at_once" --process-slot-var=slot -L 1 "$here/learn/run.sh" || rc=$?
for d in "$out"/*.*/ppo; do
	[ -e "${d%/ppo}/done" ] || continue
	name=$(basename "${d%/ppo}")
	jq -c --arg v "${name%.*}" --argjson s "${name##*.}" 'select(has("val/reward/mean")) |
		{variant: $v, seed: $s, step, reward: ."val/reward/mean"}' "$d/metrics.ndjson"
done >"$out/results.ndjson"
jq -sr -f "$here/learn/table.jq" "$out/results.ndjson" | tee "$out/table.txt"
jq -sr -f "$here/learn/plot.jq" "$out/results.ndjson" >"$out/curve.svg"
exit "$rc"
