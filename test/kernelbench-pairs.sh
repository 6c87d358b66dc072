#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# KERNELBENCH=DIR kernelbench-pairs.sh [-n PAIRS] [-j N] [-k FILE] FILE
#
# On a GPU: verdicts of KernelBench's own evaluator (DIR is a checkout of it)
# beside ours under the rules `kernelbench`, of the first PAIRS (60) of a
# collection (FILE, `{ref_code, custom_code}` a line) whose candidates build
# nothing, since its builds take half a minute each (test/bench/kernelbench.sh
# has those).  Its evaluator runs as its scripts run it, five trials and a
# process for each pair, but forked from one that has imported it, N (4) at
# once.  A line for each difference, -k keeps one for each pair; the last one
# counts.
#
# It needs more than torch (pydantic, …): KERNELBENCH_PYTHON is a Python that
# has them, else the one that our host uses.
set -eu -o pipefail
cd "$(dirname "$0")/.."
bin=${CA_BIN:-bin}
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
number=60 jobs=4 kept=""
while getopts n:j:k: o; do
	case $o in
	n) number=$OPTARG ;;
	j) jobs=$OPTARG ;;
	k) kept=$OPTARG ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
pairs=${1:?names no collection of pairs}
peer=$(realpath "${KERNELBENCH:?names no checkout of KernelBench}")
python=${KERNELBENCH_PYTHON:-$(torch_python)}
export LITELLM_LOCAL_MODEL_COST_MAP=True	# its imports would ask for prices
work=$(mktemp -d "${TMPDIR:-/tmp}/pairs.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Spread over the collection, which is sorted by level.
jq -c 'select((.custom_code // "None") | . != "None" and
	(test("load_inline|cpp_extension") | not))' "$pairs" >"$work/all"
awk -v n="$number" '{ line[NR] = $0 } END {
	for (i = 0; i < n && i < NR; i++)
		print line[1 + int(i * (NR < n ? 1 : NR / n))]
}' "$work/all" >"$work/pairs"

cat >"$work/peer.py" <<'END'
import json, os, signal, sys
import torch

pairs, out, source, jobs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
# CUDA has to be started in the children.
real, torch.cuda.is_available = torch.cuda.is_available, lambda: False
sys.path.insert(0, source)
from kernelbench import eval as kb
torch.cuda.is_available = real

def judge(pair, path):
    signal.alarm(120)
    try:
        got = kb.eval_kernel_against_ref(
            pair["ref_code"], pair["custom_code"], num_correct_trials=5,
            build_dir=path + ".build", device=torch.device("cuda:0"))
        said = {"ok": bool(got and got.compiled and got.correctness),
                "why": str(got.metadata if got else None)[:300]}
    except BaseException as exc:
        said = {"ok": False, "why": f"{type(exc).__name__}: {exc}"[:300]}
    with open(path, "w") as f:
        json.dump(said, f)
    os._exit(0)

running = 0
for i, line in enumerate(open(pairs)):
    if running == jobs:
        os.wait()
        running -= 1
    if os.fork() == 0:
        sys.stdout = open(os.devnull, "w")
        judge(json.loads(line), f"{out}/{i:04}")
    running += 1
for _ in range(running):
    os.wait()
END

began=$SECONDS
mkdir "$work/said"
"$python" "$work/peer.py" "$work/pairs" "$work/said" "$peer/src" "$jobs" \
	2>"$work/peer.log" || tail -n 5 "$work/peer.log" >&2
peer_s=$((SECONDS - began)) i=0
while read -r _; do
	said=$work/said/$(printf %04d $i)
	i=$((i + 1))
	if [ -s "$said" ]; then cat "$said"; else echo '{"ok": false, "why": "it ended"}'; fi
	echo
done <"$work/pairs" | jq -c . >"$work/theirs"
began=$SECONDS
jq -c --arg rules kernelbench '{kind: "candidate", v: 1,
	name: "\(.level_id // 0)/\(.task_id // 0)", task: {code: .ref_code},
	files: {"model_new.py": .custom_code}, $rules}' "$work/pairs" |
	"$bin/ca-verify" --device cuda -j "$jobs" --timeout 60s |
	jq -c '{name, status: .verify.status, text: .verify.text}' >"$work/ours"
ours_s=$((SECONDS - began))
paste -d '\t' "$work/theirs" "$work/ours" | jq -Rc 'split("\t") | map(fromjson) |
	add | .same = (.ok == (.status == "ok"))' >"$work/both"
[ -z "$kept" ] || cp "$work/both" "$kept"
jq -c 'select(.same | not) | {name, theirs: (if .ok then "ok" else "no" end), why,
	ours: .status, text}' "$work/both"
jq -rs --arg t "$peer_s" --arg o "$ours_s" '"\(length) pairs: the same \(
	map(select(.same)) | length), it accepts and we do not \(
	map(select(.ok and .status != "ok")) | length), we accept and it does not \(
	map(select((.ok | not) and .status == "ok")) | length); it took \($t) s, we \($o) s"' \
	"$work/both"
