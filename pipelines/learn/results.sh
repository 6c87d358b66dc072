#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # variables of demo-learn.sh
#
# Results of those runs of demo-learn.sh that are done, from whose environment the rest comes.
set -eu -o pipefail
for d in "$out"/*.*/ppo; do
	[ -e "${d%/ppo}/done" ] || continue
	name=$(basename "${d%/ppo}")
	jq -c 'select(has("val/reward/mean")) | {step, reward: ."val/reward/mean"}' \
		"$d/metrics.ndjson" | jq -c --arg v "${name%.*}" --argjson s "${name##*.}" \
		'{variant: $v, seed: $s} + .'
	# What the rounds earned, by milestones whatever the training went by.
	for f in "$d"/round.*/trajectories.ndjson; do
		[ ! -e "$f" ] || jq -sc --arg v "${name%.*}" --argjson s "${name##*.}" \
			--arg step "$(basename "${f%/*}")" '{variant: $v, seed: $s,
			step: ($step[6:] | tonumber), train: (map(.outcome.reward | numbers) |
			if length > 0 then add / length else null end)}' "$f"
	done
done >"$out/results.new"
mv "$out/results.new" "$out/results.ndjson"
jq -sr -f "$here/learn/table.jq" "$out/results.ndjson" | tee "$out/table.txt"
jq -sr -f "$here/learn/plot.jq" "$out/results.ndjson" >"$out/curve.svg"
