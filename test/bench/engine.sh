#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# engine.sh [cpu|cuda]: decoding and training steps of the engine beside those
# of transformers, on the same random weights in one go; one JSON object a row
# (tokens per second, ratio, on known devices MFU), the table on stderr.
# ROWS="decode 135m 64 256 ..." names other rows: kind, shape, sequences,
# tokens each.  PEER=0 leaves transformers out.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
device=${1:-cpu}
B=${B:-build}
case $device in
cuda)
	dtype=bf16
	rows='decode 135m 1 256
		decode 135m 64 256
		decode 135m 256 256
		decode 1b 1 128
		train 1b 4 4096
		train 135m 8 4096
		train 135m 1 32768
		train 135m 1 131072'
	;;
*)
	dtype=fp32
	rows='decode small 1 64
		decode small 8 64
		train small 4 128'
	;;
esac
rows=$(awk 'NF == 4' <<<"${ROWS:-$rows}")
py=$(models_python) || {
	say 'no transformers: test/setup/venv.sh models installs it'
	exit 1
}
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# The engine's line of figures: tokens per second and MFU in percent.
ours() { # kind, shape, sequences, length
	local recompute=0
	# Long contexts are trained with recomputed activations.
	[ "$4" -lt 32768 ] || recompute=1
	[ "$1" = train ] || recompute=0
	timeout 300 "$B/test/nn" "$1" "$work/$2" "$device" "$dtype" "$3" "$4" $recompute \
		2>"$work/err" >"$work/out" || {
		sed "s,^,engine: ," "$work/err" >&2
		echo null null
		return
	}
	awk '/tokens\/s/ { for (i = 1; i < NF; i++) {
			if ($(i + 1) ~ /^tokens\/s/) t = $i
			if ($i == "MFU") m = $(i + 1) } }
		END { print t, (m > 0 ? m : "null") }' "$work/out"
}

while read -r kind shape n len; do
	[ -e "$work/$shape" ] || "$py" test/bench/random_model.py "$work/$shape" "$shape"
	read -r tokens mfu <<<"$(ours "$kind" "$shape" "$n" "$len")"
	peer=null
	if [ "${PEER:-1}" != 0 ]; then
		peer=$(timeout 300 "$py" test/bench/engine_peer.py "$work/$shape" "$device" \
			"$kind" "$n" "$len" 2>"$work/err") || {
			tail -n 1 "$work/err" >&2
			peer=null
		}
	fi
	jq -nc --arg kind "$kind" --arg shape "$shape" --arg device "$device" \
		--argjson n "$n" --argjson len "$len" --argjson tokens "$tokens" \
		--argjson mfu "$mfu" --argjson peer "$peer" \
		'{bench: "engine", kind: $kind, shape: $shape, device: $device,
		  sequences: $n, length: $len, tokens_per_s: $tokens, mfu: $mfu,
		  transformers: $peer,
		  ratio: (if $tokens and $peer then $tokens / $peer else null end)}'
done <<<"$rows" | tee "$work/rows"
jq -r '[.kind, .shape, "\(.sequences) x \(.length)", .tokens_per_s, .mfu // "-",
	.transformers // "-", (.ratio // 0 | . * 100 | round / 100)] | @tsv' "$work/rows" |
	awk -F '\t' 'BEGIN { printf "%-8s%-8s%14s%14s%8s%14s%8s\n", "", "shape", "sequences",
			"tokens/s", "MFU %", "transformers", "ratio" }
		{ printf "%-8s%-8s%14s%14s%8s%14s%8s\n", $1, $2, $3, $4, $5, $6, $7 }' >&2
