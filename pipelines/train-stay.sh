# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2086 # set by train.sh; options are words
#
# A trainer that stays from round to round, for train-stages.sh, which sources this.  It reads
# what we write, publishes the actor after each update, and ends by itself after the last.  Killed
# and started anew, it goes on from its last checkpoint over the same trajectories.

# Round $r of ppo, to which r, dir and used belong.
feed() { # what ppo got
	local next=$dir/policy/$((r + 1)) batch status=0
	batch=$(trajectories "${used[0]}")
	[ "$(trajectories "${used[r]}")" -ge "$batch" ] || {
		say "$1: round $((r + 1)) has fewer trajectories than the first, which had $batch"
		exit 65
	}
	rm -rf "$next"
	if [ -z "$trainer" ]; then
		exec 8> >(exec "$bin/ca-ppo" --device "$dev" --ctx "$ctx" --out "$dir/w" \
			--resume $common --actor "$4" ${5:+--critic "$5"} --steps "$2" \
			--publish "$dir/policy" --batch "$batch" \
			$ppo_opts >>"$dir/metrics.ndjson" 3>&-)
		trainer=$!
		[ "$r" = 0 ] || cat "${used[@]:0:r}" >&8 || true
	fi
	# It may have died, which shows below.
	cat "${used[r]}" >&8 || true
	until [ -e "$next" ] || ! kill -0 "$trainer" 2>/dev/null; do sleep 0.05; done
	[ ! -e "$next" ] || [ $((r + 1)) = "$2" ] || return 0
	exec 8>&-
	wait "$trainer" || status=$?
	trainer=''
	[ "$status" != 0 ] || [ -e "$next" ] || status=65
	[ "$status" = 0 ] || {
		say "$1: the trainer ended in round $((r + 1)), status $status"
		exit "$status"
	}
}
