#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # variables of demo-learn.sh
#
# run.sh VARIANT SEED: one of the trainings of demo-learn.sh, from whose environment the rest
# comes; `full` has the control behind it.  What is done has a file `done`.
set -eu -o pipefail
now=$(date +%s) dir=$out/$1.$2
longest=$(sort -n "$out/took" | tail -n 1)
[ "$until" = 0 ] || [ $((now - began + ${longest:-0})) -le "$until" ] || {
	echo "demo-learn: no time for $1.$2" >&2
	exit 75
}
IFS=, read -ra devices <<<"$devs"
# Where several runs take turns at a device, they prepare for each other.
judges=()
[ "$at_once" -le ${#devices[@]} ] || judges=(--judges 1)

model=warm demo=demo
[ "$1" != no-agent ] || model=warm-single demo=single

train() { # variant, seed, rounds, options of train.sh
	"$here/train.sh" -m "$out/$model" -o "$out/$1.$2" -d "${devices[slot % ${#devices[@]}]}" \
		-c "$ctx" -S "$(($2 * 1000))" -r "$3" -k "$k" -j 16 -V "$out/held" -v "$every" \
		--stay -x "$out/$demo.fast" -x "$out/$demo.slow" ${common:+-t "$common"} \
		-R '--batch 16' -P '--batch 16 --lr 1e-5 --epochs 4 --lambda-critic 1' \
		"${@:4}" "$out/tasks" -- \
		--skill "$out/skill" --grade quick --max-tokens 512 --turns 6 \
		--remember "$out/graded" "${judges[@]}"
}

# Of what is done only records and the best actor are wanted.
lighten() {
	[ "$keep" = 1 ] || rm -rf "$1"/actor "$1"/ppo/{w,policy} "${@:2}"
}

# Sixty tokens lie between what decides and the end: 0.95 would leave a twentieth of the reward.
on="--lr $lr --critic-lr $critic_lr --lambda-actor 1 --lambda-critic 1 --save-every $every"
if [ "$1" = full ]; then
	train full "$2" "$rounds" -Q "$on"
	mkdir -p "$out/control.$2" # which begins as that one does
	ln -sfn "$(realpath "$dir")"/{data,rft,vpretrain} "$out/control.$2/"
	train control "$2" 1 -s ppo -v 1 -Q '--lr 0 --critic-lr 0'
	touch "$out/control.$2/done"
	lighten "$out/control.$2"
else
	train "$1" "$2" "$rounds" -Q "$on" "--$1"
fi
touch "$dir/done"
lighten "$dir" "$dir"/{rft,vpretrain}/w{,.prev}
echo $(($(date +%s) - now)) >>"$out/took"
