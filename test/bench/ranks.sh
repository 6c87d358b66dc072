#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ranks.sh [-d DEVICE] [-r RANKS] [-s STEPS] [SHAPE:SEQS:LEN ...]: tokens a second of ca-rft
# on RANKS GPUs (2) against one, with SEQS sequences of LEN tokens for each, taken one after
# the other in one run.  Without shapes those of the issue: 1b:4:4096 (has to reach 1.9) and
# 135m:8:4096 (1.85).  With -d cpu processes share the CPU, which only shows that it runs.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/bench/lib.sh
. test/bench/lib.sh
device=cuda ranks=2 steps=8
while getopts d:r:s: opt; do
	case $opt in
	d) device=$OPTARG ;;
	r) ranks=$OPTARG ;;
	s) steps=$OPTARG ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- 1b:4:4096 135m:8:4096
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${CA_PYTHON:-$(bin/ca-torch --no-prov | jq -r .python)}
dtype=bf16
[ "$device" = cuda ] || dtype=fp32

# Tokens a second of a rank count, the first two steps left out.  It is killed when it has said
# enough: a checkpoint of a large model takes longer than all the steps.
speed() { # ranks, shape, seqs, len
	local pid
	rm -rf "$work/out"
	bin/ca-rft --actor "$work/$2" --out "$work/out" --device "$device" --dtype $dtype \
		--ranks "$1" --ctx "$4" --tokens $(($3 * $4)) --batch $(($1 * $3)) \
		--steps 1000000 --save-every 1000000 -q "$work/in" >"$work/metrics" &
	pid=$!
	until [ "$(grep -c perf/tokens_per_s "$work/metrics")" -ge "$steps" ]; do
		kill -0 $pid
		sleep .1
	done
	kill -KILL $pid
	wait $pid 2>/dev/null || true
	head -n "$((steps + 1))" "$work/metrics" |
		jq -s 'map(."perf/tokens_per_s" // empty) | .[2:] | sort | .[length / 2 | floor]'
}

machine_line
python3 test/tools/serve_model.py "$work/words"
for what; do
	IFS=: read -r shape seqs len <<<"$what"
	"$python" test/bench/random_model.py "$work/$shape" "$shape"
	cp "$work"/words/tokenizer* "$work/$shape/"
	python3 test/tools/trajs.py told $((ranks * seqs)) 3 $((len - 24)) |
		jq -c '.outcome.reward = 3' >"$work/in"
	one=$(speed 1 "$shape" "$seqs" "$len")
	all=$(speed "$ranks" "$shape" "$seqs" "$len")
	jq -nc --arg shape "$shape" --argjson seqs "$seqs" --argjson len "$len" \
		--argjson ranks "$ranks" --argjson one "$one" --argjson all "$all" \
		'{$shape, $seqs, $len, $ranks, $one, $all,
			ratio: ($all / $one * 100 | round / 100)}'
done
