#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# kernelbench.sh PAIRS [N]: the first N (12) pairs of a collection whose
# candidates are built inline, by KernelBench's own evaluator (KERNELBENCH is
# a checkout) and by ours, each with an empty object cache, one pair after the
# other.  Without a GPU only builds are compared, of candidates that build when
# they are loaded: its build_compile_cache, our ca-compile.
#
# Its evaluator needs more than torch (pydantic, numpy, ...): KERNELBENCH_PYTHON
# is a Python that has them, else the one that our host uses.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
top=$PWD
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
# shellcheck source=test/bench/lib.sh
. test/bench/lib.sh
pairs=$(realpath "${1:?names no collection of pairs}") n=${2:-12}
peer=$(realpath "${KERNELBENCH:?names no checkout of KernelBench}")

own_place
python=${KERNELBENCH_PYTHON:-$CA_PYTHON}
# Its imports would ask the network for prices of models.
export LITELLM_LOCAL_MODEL_COST_MAP=True
device=cuda
arch=()
[ -n "$gpu" ] || arch=(--arch sm_90)

# One pair, in a process of its own as its scripts do it.
cat >"$work/peer.py" <<'END'
import json, sys

import torch

pair = json.load(open(sys.argv[1]))
build_dir = sys.argv[2]
sys.path.insert(0, sys.argv[3])
from kernelbench import eval as kb

custom = pair["files"]["model_new.py"]
if torch.cuda.is_available():
    got = kb.eval_kernel_against_ref(
        pair["task"]["code"], custom, num_correct_trials=5, num_perf_trials=100,
        measure_performance=True, build_dir=build_dir)
    ok = bool(got and got.compiled and got.correctness)
else:
    ok = kb.build_compile_cache(custom, build_dir=build_dir)[0]
print("ok" if ok else "no")
END

theirs() {
	"$python" "$work/peer.py" "$work/pair" "$work/peer.build" "$peer/src" \
		>"$work/peer.out" 2>"$work/peer.log"
}

ours() {
	if [ -z "$gpu" ]; then
		bin/ca-compile --device $device "${arch[@]}" <"$work/pair"
	else
		bin/ca-compile --device $device <"$work/pair" |
			bin/ca-verify --rules kernelbench |
			bin/ca-profile --rules kernelbench --quick --baseline eager
	fi >"$work/ours.out"
}

what=$([ -n "$gpu" ] && echo evaluation || echo build)
# Which are inline is known once one build of each was tried: a cache that is
# thrown away.
CA_CACHE=$work/look bin/ca-compile --device cpu --pairs "$pairs" 2>/dev/null |
	jq -c 'select(.build.form == "inline") | del(.build)' | head -n "$n" >"$work/all" || true
[ -s "$work/all" ] || { echo "no inline candidates in $pairs" >&2; exit 66; }
rm -rf "$work/look"

i=0
while read -r line; do
	i=$((i + 1))
	printf '%s\n' "$line" >"$work/pair"
	rm -rf "$work/peer.build"
	mkdir "$work/peer.build"
	name=$(jq -r '.name // .id' "$work/pair")
	timed theirs || { tail -n 5 "$work/peer.log" >&2; echo no >"$work/peer.out"; }
	theirs_s=$wall said=$(tail -n 1 "$work/peer.out")
	if [ -z "$gpu" ] && [ -z "$(find "$work/peer.build" -name '*.so')" ]; then
		echo "$name: left out, it builds when it is called"
		continue
	fi
	timed ours
	jq -n --arg name "$name" --arg peer "$said" --argjson peer_s "$theirs_s" \
		--argjson ours_s "$wall" \
		--slurpfile got <(jq -c '[.build.status, .build.headers, .verify.status]' \
			"$work/ours.out") \
		'{$name, $peer, ours: $got[0], $peer_s, $ours_s}' |
		jq -c . | tee -a "$work/done"
done <"$work/all"

machine_line
[ -s "$work/done" ] || { echo 'nothing to compare' >&2; exit 69; }
jq -cs --arg work "$what" '{$work, pairs: length,
	peer_s: (map(.peer_s) | add), ours_s: (map(.ours_s) | add),
	slim: (map(select(.ours[1] == "slim")) | length),
	each: (map(.peer_s / .ours_s) | sort |
		{low: .[0], median: .[length / 2 | floor], high: .[-1]})} |
	.ratio = .peer_s / .ours_s' "$work/done" >"$work/result"
keep_result kernelbench "$(cat "$work/result")"
jq -r '"\(.pairs) pairs, \(.work): theirs \(.peer_s | round) s, ours \(.ours_s | round) s, " +
	"\(.ratio * 10 | round / 10) times (of each: \(.each.low * 10 | round / 10) to " +
	"\(.each.high * 10 | round / 10)); \(.slim) with slim headers"' "$work/result"
