# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2016,SC2086 # set by train.sh; jq has variables; words
#
# The server and rollouts of train.sh, which sources this.

# Our server goes; another's does not stay asleep.
leave() {
	if [ -n "$trainer" ]; then
		kill "$trainer" 2>/dev/null || true
		wait "$trainer" || true
	fi
	if [ -n "$own" ]; then
		kill "$own" 2>/dev/null || true
	elif [ -n "$url" ]; then
		order wake || true
	fi
}

first_of() { # the first folder that is there; else the last argument
	while [ $# -gt 1 ]; do
		[ ! -e "$1" ] || break
		shift
	done
	echo "$1"
}

order() { # reload, sleep or wake; body
	curl -fsS -m 600 -X POST "${url%/v1}/$1" -d "${2:-}" >>"$log"
}

# What ca-ppo computes with, its rollouts are drawn with.
alike() {
	local o was=''
	for o in $common $ppo_opts; do
		case $was$o in
		--ex*) echo --exact ;;
		--dt*=* | --dt*fp32 | --dt*bf16) echo "${was:+$was }$o" ;;
		esac
		case $o in --dt*=*) was='' ;; --dt*) was=$o ;; *) was='' ;; esac
	done
}

# The server gets these weights, which may be new ones of the same name.
serve() {
	if [ -z "$url" ]; then
		with=$(alike) said=$(wc -l <"$log")
		rm -f "$out/url"
		setpriv --pdeathsig TERM "$bin/ca-serve" -m "$1" --name policy --port 0 \
			--device "$dev" --ctx "$ctx" -j "$jobs" $with \
			>"$out/url" 2>>"$log" 3>&- 8>&- &
		own=$!
		until [ -s "$out/url" ]; do
			kill -0 "$own" 2>/dev/null || {
				tail -n "+$((said + 1))" "$log" | tail -n 3 >&2
				exit 69
			}
			sleep 0.1
		done
		url=$(cat "$out/url")
	else
		# One that sleeps, whoever left it so, notes them and loads them when it wakes.
		order reload "$(jq -nc --arg model "$(realpath "$1")" '{$model}')"
		order wake
	fi
}

# Under --preset paper rewards go by medians of device times, which the CPU does not have.
paper_rule() {
	[[ $common == *'--preset paper'* ]] || return 0
	echo --point-estimate
	if [ "${dev%%:*}" = cuda ]; then
		echo '--clock device-sum'
	else
		say "not as in the paper: rewards go by the judge's clock, without device times"
	fi
}

# What candidates were worth as the trainers see it: milestones, or speedups.
reward='if $raw == 0 or .outcome.reward == null then . else .outcome |= (.reward =
	if .final.status == "ok" then .final.speedup.compile // .final.speedup.eager // -1
	else -1 end) end'

rollouts() { # folder, seed, option of ca-agent or none, tasks...
	local status=0 full=() by=$raw rule
	rule=$(paper_rule)
	# Held-out scores are milestones of full runs, whatever the training goes by.
	case $1 in */val.*) full=(--grade full) by=0 ;; esac
	[ ! -e "$1/used.ndjson" ] || return 0
	"$here/rollout.sh" -e "$url" -m policy -o "$1" -k "$k" -j "$jobs" "${@:4}" -- -d "$dev" \
		--ctx "$ctx" --token-ids --temperature 1 --seed "$2" ${3:+"$3"} $rule "${more[@]}" \
		"${full[@]}" >"$1.txt" 8>&- || status=$?
	# 75: some were broken off, and have no reward.
	[ "$status" = 0 ] || [ "$status" = 75 ] || {
		say "rollouts failed, see $1.txt"
		exit "$status"
	}
	# They come as they end; sums do not depend on that when they are read in one order.
	jq -c --argjson raw "$by" "$reward" <"$1/trajectories.ndjson" | LC_ALL=C sort \
		>"$1/used.new" && mv "$1/used.new" "$1/used.ndjson"
}
