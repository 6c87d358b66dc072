#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# engine.sh [-o] [cpu|cuda]: decoding and training steps of the engine beside
# those of transformers (-o: ours only), on the same random weights in one go;
# one JSON object a row, as it comes: tokens per second, ratio, on known devices
# MFU or, of one sequence, the share of the memory's bandwidth that reading the
# weights takes; memory planned and taken.  The table is on stderr; so is, on
# CUDA, where the time of a step goes, kernel by kernel.
# ROWS="decode 135m 64 256 ..." names other rows: kind, shape, sequences,
# tokens each.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
top=$PWD
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
peers=1
if [ "${1-}" = -o ]; then
	peers=0
	shift
fi
device=${1:-cpu}
B=${B:-build}
child=${CA_BIN:-bin}/libca-child.so
case $device in
cuda)
	dtype=bf16
	rows='decode 135m 1 256
		decode 135m 64 256
		decode 135m 256 256
		train 135m 8 4096
		decode 1b 1 128
		train 1b 4 4096
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
if [ $peers = 1 ]; then
	py=$(models_python)
else
	py=$(torch_python)
fi || {
	say 'no torch or transformers: test/setup/venv.sh models installs them'
	exit 1
}
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Runs the engine; what it prints is then in $work/out.
engine() { # kind, shape, sequences, length
	local recompute=0
	# Long contexts are trained with recomputed activations.
	[ "$4" -lt 32768 ] || recompute=1
	[ "$1" = train ] || recompute=0
	timeout 120 "$B/test/nn" "$1" "$work/$2" "$device" "$dtype" "$3" "$4" $recompute \
		2>"$work/err" >"$work/out" || {
		sed "s,^,engine: ," "$work/err" >&2
		return 1
	}
}

# Its figures: tokens per second, MFU and bandwidth in percent, MiB of memory
# planned and taken.
figures() {
	awk '/tokens\/s/ { for (i = 1; i < NF; i++) {
			if ($(i + 1) ~ /^tokens\/s/) t = $i
			if ($i == "MFU") m = $(i + 1) } }
		/^bandwidth:/ { b = $2 }
		/^memory:/ { p = $2; k = $5 }
		END { print t, (m > 0 ? m : "null"), (b > 0 ? b : "null"), p, k }' "$work/out"
}

while read -r kind shape n len; do
	[ -e "$work/$shape" ] || "$py" test/bench/random_model.py "$work/$shape" "$shape"
	row='null null null null null'
	if engine "$kind" "$shape" "$n" "$len"; then row=$(figures); fi
	read -r tokens mfu share planned taken <<<"$row"
	peer=null
	if [ $peers = 1 ]; then
		peer=$(timeout 300 "$py" test/bench/engine_peer.py "$work/$shape" "$device" \
			"$kind" "$n" "$len" 2>"$work/err") || {
			tail -n 1 "$work/err" >&2
			peer=null
		}
	fi
	jq -nc --arg kind "$kind" --arg shape "$shape" --arg device "$device" \
		--argjson n "$n" --argjson len "$len" --argjson tokens "$tokens" \
		--argjson mfu "$mfu" --argjson share "$share" --argjson peer "$peer" \
		--argjson planned "$planned" --argjson taken "$taken" \
		'{bench: "engine", kind: $kind, shape: $shape, device: $device,
		  sequences: $n, length: $len, tokens_per_s: $tokens, mfu: $mfu,
		  bandwidth: (if $n == 1 then $share else null end),
		  mib_planned: $planned, mib_taken: $taken,
		  transformers: $peer,
		  ratio: (if $tokens and $peer then $tokens / $peer else null end)}'
	# Where the time goes, of fewer tokens; tracing costs some itself.
	if [ "$device" = cuda ] && [ "$len" -le 32768 ]; then
		[ "$kind" = train ] || len=48
		if KERNELS=$child engine "$kind" "$shape" "$n" "$len"; then
			sed -n "s/^kernel/$kind $shape $n x $len: &/p" "$work/out" >&2
		fi
	fi
done <<<"$rows" | tee "$work/rows"
jq -r '[.kind, .shape, "\(.sequences) x \(.length)", .tokens_per_s, .mfu // .bandwidth // "-",
	.mib_planned, .mib_taken, .transformers // "-",
	(.ratio // 0 | . * 100 | round / 100)] | @tsv' "$work/rows" |
	awk -F '\t' 'function row(a, b, c, d, e, f, g, h, i) {
			printf "%-8s%-7s%12s%11s%7s%10s%10s%13s%7s\n", a, b, c, d, e, f, g, h, i }
		BEGIN { row("", "shape", "sequences", "tokens/s", "%", "planned", "taken",
			"transformers", "ratio") }
		{ row($1, $2, $3, $4, $5, $6, $7, $8, $9) }' >&2
