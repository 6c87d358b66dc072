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

# demonstrate NAME STYLE TASKS OPTION...
demonstrate() {
	local to=$out/$1.$2
	"$bin/ca-agent" --model-cmd "jq --unbuffered -c --slurpfile family '$out/family' --arg \
device '${dev%%:*}' --arg style $2 -f '$here/learn/teacher.jq'" -d "$dev" --grade quick \
		--skill "$out/skill" --dir "$out/$1.run.$2" --resume -j 8 \
		--remember "$out/graded" "${@:4}" "$3" >"$to.new" || [ $? = 75 ]
	jq -es 'any(.[]; .outcome.reward != null)' "$to.new" >/dev/null || {
		echo "demo-learn: no demonstration has a reward, see $to.new" >&2
		exit 75
	}
	mv "$to.new" "$to"
}

demonstrations() { # name, options
	local slow=''
	# The slow ones from the other end, so that no task is met by both for the first time.
	[ -e "$out/$1.slow" ] || {
		tac "$out/tasks" >"$out/tasks.slow"
		demonstrate "$1" slow "$out/tasks.slow" "${@:2}" &
		slow=$!
		# Beside each other neither is timed in peace.
		[ "$dev" != cpu ] || { wait "$slow" && slow=''; }
	}
	[ -e "$out/$1.fast" ] || demonstrate "$1" fast "$out/tasks" "${@:2}"
	[ -z "$slow" ] || wait "$slow"
}

warmed() { # model, name of its demonstrations
	[ "$(cat "$out/$1.done" 2>/dev/null)" != "$w $rate" ] || return 0
	# Twice as many slow ones leave something to learn.
	"$bin/ca-rft" --actor "$out/model" --out "$out/$1" --device "$dev" --ctx "$ctx" --batch 8 \
		--steps "$w" --lr "$rate" --save-every 20 --resume $common \
		"$out/$2.fast" "$out/$2.slow" "$out/$2.slow" >>"$out/$1.ndjson"
	echo "$w $rate" >"$out/$1.done"
}

demonstrations demo
warmed warm demo
# Who answers without tools begins with a model that has seen such answers.
[[ " $variants " != *' no-agent '* ]] || {
	demonstrations single --single-turn
	warmed warm-single single
}
