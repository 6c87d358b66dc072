#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2086 # variables of demo-learn.sh; options are words
#
# What all runs of demo-learn.sh, from whose environment the rest comes, begin with: tasks,
# demonstrations in two styles, and a model that was trained on them.
set -eu -o pipefail
dev=${devs%%,*}
mkdir -p "$out/model" "$out/skill"
for f in "$m"/*; do ln -sf "$(realpath "$f")" "$out/model/"; done
ln -sf "$here/learn/chat_template.jinja" "$out/model/chat_template.jinja"
form='C in kernels/k.c, called as cuda_extension.k(...)'
[ "$dev" = cpu ] || form='CUDA in kernels/k.cu, launched as cuda_extension.k[grid, block, 0](...)'
echo "Write $form from model_new.py, then ca-verify." | tee "$out/skill/SKILL.md" \
	>"$out/skill/single-turn.md"
jq -nc -f "$here/learn/tasks.jq" >"$out/family"
jq -nc --argjson n "$h" 'limit($n; inputs | select(.held) | .task)' "$out/family" >"$out/held"
jq -nc --argjson n "$n" 'limit($n; inputs | select(.held | not) | .task)' "$out/family" \
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
# Twice as many slow ones leave something to learn.
[ "$(cat "$out/warmed" 2>/dev/null)" = "$w $rate" ] || "$bin/ca-rft" --actor "$out/model" \
	--out "$out/warm" --device "$dev" --ctx "$ctx" --batch 8 --steps "$w" --lr "$rate" \
	--save-every 20 --resume $common "$out/demo.fast" "$out/demo.slow" "$out/demo.slow" \
	>>"$out/warm.ndjson"
echo "$w $rate" >"$out/warmed"
