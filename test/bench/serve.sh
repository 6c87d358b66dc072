#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# serve.sh [cpu|cuda [SHAPE]]: what a server costs, beside the engine in the
# same run: throughput of many streams through HTTP against the engine's own;
# time to the first token of new tokens behind a long shared prefix against
# that of the same ones alone; the pause of a reload.  ONLY=turn: that alone.
# Random weights of a real model's size (test/bench/random_model.py); with a real
# model in $MODEL, which ends its answers itself, the 20th turn of a conversation too.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
top=$PWD
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
# shellcheck source=test/bench/lib.sh
. test/bench/lib.sh
device=${1:-cpu}
bin=${CA_BIN:-bin}
nn=${B:-build}/test/nn
case $device in
cpu) shape=${2:-small} streams=16 length=64 prefix=2000 new=(10 30 100) dtype=fp32 ;;
*) shape=${2:-135m} streams=256 length=512 prefix=20000 new=(30 100 300 1000) dtype=bf16 ;;
esac
py=$(torch_python) || {
	say 'no torch: make deps'
	exit 1
}
work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
ulimit -n "$(ulimit -Hn)"
"$py" test/bench/random_model.py "$work/model" "$shape"
# Prompts are token ids.
give_words "$work/model"

[ "${ONLY-}" = turn ] ||
	own=$("$nn" decode "$work/model" "$device" "$dtype" "$streams" "$length" 0 |
		sed -n 's/.*warm: \([0-9.]*\) tokens.*/\1/p')
start() { # model
	rm -f "$work/url"
	"$bin/ca-serve" -m "$1" --device "$device" --dtype "$dtype" --port 0 -q \
		-j "$streams" --ctx $((prefix + 2 * new[-1] + 1064)) \
		--cache $((streams * (length + 32) + 4 * prefix)) >"$work/url" &
	pid=$!
	for ((i = 0; i < 600; i++)); do
		[ ! -s "$work/url" ] || break
		kill -0 "$pid"
		sleep 0.1
	done
}
start "$work/model"
ask() {
	python3 test/bench/serve_client.py "$(cat "$work/url")" "$@"
}
if [ "${ONLY-}" != turn ]; then
	mapfile -t served < <(ask streams "$streams" "$length")
	awk -v own="$own" -v served="${served[0]}" -v steps="${served[1]}" -v n="$streams" 'BEGIN {
		printf "%d streams: %.0f tokens/s through HTTP ", n, served
		printf "(%.0f in its steps), ", steps
		printf "%.0f of the engine alone: %.1f %%\n", own, 100 * served / own }'
fi
for n in "${new[@]}"; do
	ask turn "$prefix" "$n" | jq -r 'def r: . * 100 | round / 100;
		def all: "\(.ms.median | r) ms (\(.ms.low | r) to \(.ms.high | r); " +
			"\(.steps.median | r) in steps, \(.prompt.median | r) on the prompt)";
		"first token of \(.new) new ones: \(.alone | all) alone, \(.behind | all) " +
		"behind \(.prefix) shared: \(.behind.ms.median / .alone.ms.median | r) times " +
		"(\(.ratio.low | r) to \(.ratio.high | r))"'
done
if [ -n "${MODEL-}" ]; then
	kill "$pid"
	wait "$pid" || true
	start "$MODEL"
	mapfile -t turn < <(ask chat "$prefix" "${new[0]}")
	awk -v a="${turn[0]}" -v b="${turn[1]}" -v all="${turn[2]}" -v n="${turn[3]}" 'BEGIN {
		printf "first token of turn 20, %d tokens, %d not in the cache: ", all, n
		printf "%.1f ms, %.1f ms of as many alone: %.2f times\n", b, a, b / a }'
fi
[ "${ONLY-}" != turn ] || exit 0
mapfile -t pause < <(ask reload 64 "$length")
echo "pauses of three reloads: ${pause[*]} ms"
