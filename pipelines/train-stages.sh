# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2086 # set by train.sh; options are words
#
# The stages of train.sh, which sources this.
# shellcheck source=pipelines/train-stay.sh
. "$here/train-stay.sh"

# With one GPU the server gives it up while weights are updated; who needs it next wakes it.
train() { # stage, program and its options
	[ -z "$url" ] || order sleep
	"$bin/$2" --device "$dev" --ctx "$ctx" --out "$out/$1/w" --resume $common "${@:3}" \
		>>"$out/$1/metrics.ndjson"
}

data() { # actor: the agent's trajectories that rft and vpretrain read
	mkdir -p "$out/data"
	[ -e "$out/data/used.ndjson" ] || {
		serve "$1"
		rollouts "$out/data" "$((seed + 1000000))" "$single" "${tasks[@]}"
	}
}

once() { # stage, further options as words, program and its options
	mkdir -p "$out/$1"
	[ -e "$out/$1/trained" ] || train "$1" "${@:3}" $2 "$out/data/used.ndjson" "${extra[@]}"
	touch "$out/$1/trained"
}

mean_reward() { # of trajectories; null when none has one
	jq -s 'map(.outcome.reward | numbers) | if length > 0 then add / length else null end' "$1"
}

# Held-out tasks: val/*, the best actor so far with its score, and whether it has collapsed:
# more than 1 below the best.
evaluate() { # rounds so far, actor
	local now best=null
	[ ! -e "$out/ppo/val.$1/done" ] || return 0
	# Killed between the two moves below.
	[ -e "$out/best" ] || [ ! -e "$out/best.old" ] || mv "$out/best.old" "$out/best"
	serve "$2"
	rollouts "$out/ppo/val.$1" "$seed" "${single:---eval}" "$val"
	now=$(mean_reward "$out/ppo/val.$1/used.ndjson")
	echo "{\"kind\":\"metric\",\"v\":1,\"step\":$1,\"val/reward/mean\":$now}" \
		>>"$out/ppo/metrics.ndjson"
	[ ! -e "$out/best/score" ] || best=$(cat "$out/best/score")
	if jq -en "$now != null and ($best == null or $now > $best)" >/dev/null; then
		rm -rf "$out/best.new" "$out/best.old"
		cp -rL "$2" "$out/best.new"
		echo "$now" >"$out/best.new/score"
		[ ! -e "$out/best" ] || mv "$out/best" "$out/best.old"
		mv "$out/best.new" "$out/best"
		rm -rf "$out/best.old"
	elif jq -en "$now != null and $best - $now > 1" >/dev/null; then
		say "collapse after $1 rounds: $now on held-out tasks, $best before ($out/best)"
	fi
	touch "$out/ppo/val.$1/done"
}

trajectories() { # of a file; other records pass through it
	jq -c 'select(.kind == "trajectory")' "$1" | wc -l
}

ppo() { # stage, rounds, option of ca-agent or none, actor, critic or none
	local r dir=$out/$1 actor=$4 used=()
	mkdir -p "$dir"
	for ((r = 0; r <= $2; r++)); do
		if [ "$1" = ppo ] && [ -n "$val" ] && [ $((r % every)) = 0 ]; then
			evaluate "$r" "$actor"
		fi
		[ "$r" -lt "$2" ] || break
		used+=("$dir/round.$r/used.ndjson")
		[ -e "$dir/round.$r/trained" ] || round "$@"
		actor=$(first_of "$dir/policy/$((r + 1))" "$dir/w/actor")
	done
}

# Round $r of ppo, to which r, dir and used belong.
round() { # what it got
	serve "$(first_of "$dir/policy/$r" "$dir/w/actor" "$4")"
	rollouts "$dir/round.$r" "$((seed + r))" "$3" "${tasks[@]}"
	if [ "$stay" = 1 ]; then
		feed "$@"
	else
		train "$1" ca-ppo --actor "$4" ${5:+--critic "$5"} --steps $((r + 1)) \
			--batch "$(trajectories "${used[0]}")" $ppo_opts "${used[@]}"
	fi
	[ "$stay" = 1 ] || [ "$(jq .state.step "$dir/w/actor/train.json")" = $((r + 1)) ] || {
		say "$1: round $((r + 1)) has made no update"
		exit 65
	}
	touch "$dir/round.$r/trained"
	say "$1: round $((r + 1)) of $2, mean reward $(mean_reward "${used[r]}")"
}
