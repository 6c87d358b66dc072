#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# gpus.sh judges [N [WORKDIRS]] | serve [STREAMS LEN]: what several GPUs gain over one, in one
# run each.
#   judges: a stream of N candidates (100), of the first WORKDIRS (12), through ca-verify, already
#           built: seconds on cuda:0 and on all free GPUs, caches warm.
#   serve:  tokens a second of STREAMS streams (512) of LEN tokens (1024) through HTTP, a
#           replica on each of two GPUs against one; random weights of 135 M.
# With CA_DEVICE=cpu both halves run on the CPU (-j and --replicas), which only shows that
# they run.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/bench/lib.sh
. test/bench/lib.sh
what=${1:?judges or serve} a=${2:-} b=${3:-}
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
	"$bin/ca-serve" -m "$work/model" --port 0 -q --ctx $((length + 64)) "$@" >"$work/url" &
	pid=$!
	until [ -s "$work/url" ]; do
		kill -0 "$pid"
		sleep 0.1
	done
	python3 test/bench/serve_client.py "$(cat "$work/url")" streams "$streams" "$length"
	kill "$pid"
	wait "$pid"
	pid=
}

serve() {
	local n=${a:-512} length=${b:-1024} py two=(--gpus 2) one=(--device cuda:0)
	local common=(--dtype bf16 -j "$n" --queue "$n") shape=135m
	py=${CA_PYTHON:-$("$bin/ca-torch" --no-prov | jq -r .python)}
	[ "$device" = cuda ] || {
		one=(--device cpu) two=(--device cpu --replicas 2) common=(--queue "$n") shape=small
	}
	ulimit -n "$(ulimit -Hn)"
	"$py" test/bench/random_model.py "$work/model" "$shape"
	give_words "$work/model"
	jq -nc --argjson streams "$n" --argjson length "$length" \
		--argjson one "$(speed "$n" "$length" "${common[@]}" "${one[@]}")" \
		--argjson two "$(speed "$n" "$length" "${common[@]}" "${two[@]}")" \
		'{what: "serve", $streams, $length, $one, $two,
			ratio: ($two / $one * 100 | round / 100)}'
}

case $what in
judges | serve) $what ;;
*) exit 64 ;;
esac
