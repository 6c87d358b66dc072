#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# gpus.sh judges [N [WORKDIRS]] | serve [STREAMS LEN [SHAPE [PROMPT]]]: what several GPUs gain
# over one, in one run each.
#   judges: a stream of N candidates (100), of the first WORKDIRS (12), through ca-verify, already
#           built: seconds on cuda:0 and on all free GPUs, caches warm.
#   serve:  tokens a second of STREAMS streams (512) of LEN tokens (1024) through HTTP, behind
#           prompts of PROMPT tokens (16), a replica on each of two GPUs against one; random
#           weights of SHAPE (135m; see random_model.py).  Beside it what bounds that: the
#           same by the seconds in steps of each replica's engine, and what the engine does by
#           itself, without HTTP, with all streams and with those that a replica has.  A step
#           costs less than twice one of half as many streams, so `ideal`, from the engine
#           alone, is the most that two can gain.
# With CA_DEVICE=cpu both halves run on the CPU (-j and --replicas), which only shows that
# they run.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/bench/lib.sh
. test/bench/lib.sh
what=${1:?judges or serve} a=${2:-} b=${3:-} shape=${4:-} prompt=${5:-16}
device=${CA_DEVICE:-cuda}
bin=${CA_BIN:-bin}
machine_line
work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

seconds() { # file for the output, command
	local out=$1 start=$EPOCHREALTIME
	shift
	"$@" >"$out"
	awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f\n", b - a }'
}

judges() {
	local n=${a:-100} of=${b:-12} one=cuda:0 all=(--device cuda) same=true some=()
	local took_one took_all
	[ "$device" = cuda ] || one=cpu all=(--device cpu -j 2)
	for w in fixtures/workdirs/"$device"/*/; do
		[ "$(jq -r '.verify // empty' "$w/expect.json")" != ok ] || some+=("$w")
	done
	"$bin/ca-compile" -j 8 --device "$device" "${some[@]:0:of}" >"$work/some"
	"$bin/ca-verify" --device "$one" "$work/some" >"$work/warm"
	: >"$work/in"
	while [ "$(wc -l <"$work/in")" -lt "$n" ]; do
		cat "$work/some" >>"$work/in"
	done
	"$bin/ca-verify" "${all[@]}" -n 4 "$work/in" >"$work/warm"
	took_one=$(seconds "$work/one" "$bin/ca-verify" --device "$one" -n "$n" "$work/in")
	took_all=$(seconds "$work/all" "$bin/ca-verify" "${all[@]}" -n "$n" "$work/in")
	for f in one all; do
		jq -c '[.id, .verify.status]' "$work/$f" >"$work/$f.verdicts"
	done
	cmp -s "$work/one.verdicts" "$work/all.verdicts" || same=false
	jq -s --argjson n "$n" --argjson one "$took_one" --argjson all "$took_all" \
		--argjson same "$same" -c '{what: "judges", $n, $one, $all,
			ratio: ($one / $all * 100 | round / 100), $same,
			used: (map(.verify.device) | group_by(.) | map({(.[0]): length}) | add)}' \
		"$work/all"
}

speed() { # streams, length, options of the server
	local streams=$1 length=$2
	shift 2
	rm -f "$work/url"
	"$bin/ca-serve" -m "$work/model" --port 0 -q --ctx $((length + prompt + 64)) "$@" \
		>"$work/url" &
	pid=$!
	until [ -s "$work/url" ]; do
		kill -0 "$pid"
		sleep 0.1
	done
	python3 test/bench/serve_client.py "$(cat "$work/url")" streams "$streams" "$length" \
		"$prompt" |
		jq -sc '{through_http: .[0], in_steps: .[1]}'
	kill "$pid"
	wait "$pid"
	pid=
}

alone() { # streams, length
	if ! "${B:-build}/test/nn" decode "$work/model" "$first" bf16 "$1" "$2" 0 "$prompt" \
		2>"$work/plan" >"$work/said"; then
		tail -n 1 "$work/plan" >&2
		return 1
	fi
	sed -n 's/.*warm: \([0-9.]*\) tokens.*/\1/p' "$work/said"
}

serve() {
	local n=${a:-512} length=${b:-1024} py two=(--gpus 2) first=cuda:0
	local common=(--dtype bf16 -j "$n" --queue "$n")
	py=${CA_PYTHON:-$("$bin/ca-torch" --no-prov | jq -r .python)}
	[ "$device" = cuda ] || {
		first=cpu two=(--device cpu --replicas 2) common=(--queue "$n")
	}
	[ -n "$shape" ] || shape=$([ "$device" = cuda ] && echo 135m || echo small)
	ulimit -n "$(ulimit -Hn)"
	"$py" test/bench/random_model.py "$work/model" "$shape"
	give_words "$work/model"
	jq -nc --argjson streams "$n" --argjson length "$length" --arg shape "$shape" \
		--argjson prompt "$prompt" \
		--argjson all "$(alone "$n" "$length" || echo null)" \
		--argjson half "$(alone $((n / 2)) "$length" || echo null)" \
		--argjson one "$(speed "$n" "$length" "${common[@]}" --device "$first")" \
		--argjson two "$(speed "$n" "$length" "${common[@]}" "${two[@]}")" \
		'def r: . * 100 | round / 100;
		{what: "serve", $shape, $streams, $prompt, $length, $one, $two,
			ratio: ($two.through_http / $one.through_http | r),
			engine: {$all, $half, ideal: (if $all and $half then
				2 * $half / $all | r else null end)}}'
}

case $what in
judges | serve) $what ;;
*) exit 64 ;;
esac
