#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# dedup.sh [FILES [RUNS]]: what ca-dedup-ast takes for that many task files
# (20,000), all unlike each other, 3 times: to parse them, for the exact
# similarities of 6,000 of them to 250 others with nearest ids and histogram,
# and for the verdict at 0.9 alone.  From the verdict what parsing takes is
# taken away, of these files and of the others, and a million tasks are told
# from what is left for all files: with few files that is mostly noise.
# By the clock and by time of cores, which other work does not change.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/bench/lib.sh
. test/bench/lib.sh
n=${1:-20000} runs=${2:-3}
work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Files with one to eight operators, some in functions, loops and branches.
files() { # how many, seed
	awk -v n="$1" -v seed="$2" 'function pick(k) { return int(rand() * k) }
	function call(x, k) {
		k = pick(6)
		if (k == 0) return "torch." op[1 + pick(ops)] "(" x ")"
		if (k == 1) return x " * " pick(9) " + self.w" pick(3)
		if (k == 2) return "F." op[1 + pick(ops)] "(" x ", dim=" pick(3) ")"
		if (k == 3) return "self.l" pick(3) "(" x ")"
		if (k == 4) return x ".view(" x ".size(0), -1)"
		return "torch.where(" x " > 0, " x ", -" x ")"
	}
	function helper(h, k, t) {
		t = "def helper" h "(x, y=" pick(5) "):\n"
		for (k = pick(3); k > 0; k--) t = t "    x = " call("x") "\n"
		return t "    return " call("x") "\n\n"
	}
	function line(j) {
		j = pick(5)
		j = j == 0 ? "for i in range(" pick(9) "):" : \
			j == 1 ? "if x.dim() > " pick(4) ":" : ""
		return "        " (j == "" ? "" : j "\n            ") "x = " call("x") "\n"
	}
	function layer() { return pick(2) ? "Linear(size, " : "Conv1d(size, 3, " }
	function module(k, t) {
		t = "class Model(nn.Module):\n    def __init__(self, size=" pick(512) "):\n" \
			"        super().__init__()\n"
		for (k = 0; k < 3; k++)
			t = t "        self.l" k " = nn." layer() pick(64) ")\n" \
				"        self.w" k " = nn.Parameter(torch.randn(" pick(99) "))\n"
		t = t "\n    def forward(self, x):\n"
		for (k = 1 + pick(8); k > 0; k--) t = t line()
		return t "        return x\n\n"
	}
	BEGIN {
		srand(seed)
		ops = split("relu sigmoid tanh softmax cumsum exp log1p abs gelu norm " \
			"mean amax", op)
		for (i = 0; i < n; i++) {
			t = "import torch\nimport torch.nn as nn\n" \
				"import torch.nn.functional as F\n\n"
			for (h = pick(3); h > 0; h--) t = t helper(h)
			t = t module() "def get_inputs():\n"
			print t "    return [torch.randn(" pick(999) ")]\n\001"
		}
	}' | jq -cRs 'split("\u0001\n")[:-1][] | {kind: "task", v: 1, code: .}'
}

measure() { # name, option...
	local name=$1
	shift
	timed bin/ca-dedup-ast -q --no-prov "$@" >"$work/out" 2>"$work/err"
	# shellcheck disable=SC2154 # timed's
	echo "$wall" >>"$work/$name.wall"
	# shellcheck disable=SC2154
	echo "$cpu" >>"$work/$name.cpu"
}

files 250 1 >"$work/refs"
files "$n" 2 >"$work/tasks"
head -n 6000 "$work/tasks" >"$work/6000"
for _ in $(seq "$runs"); do
	measure parse "$work/tasks"
	measure exact --histogram --against "$work/refs" "$work/6000"
	measure none /dev/null
	measure others --verdict-only --against "$work/refs" /dev/null
	measure verdict --verdict-only --against "$work/refs" "$work/tasks"
done

machine_line
report() { # name, what, limit
	jq -n --arg what "$2" --argjson files "$n" --argjson wall "$(spread <"$work/$1.wall")" \
		--argjson cpu "$(spread <"$work/$1.cpu")" --argjson limit_s "$3" \
		'{$what, $files, wall_s: $wall, cpu_s: $cpu, $limit_s}' >"$work/result"
	keep_result dedup "$(cat "$work/result")"
	printf '%-44s%10.2f%10.2f%10s\n' "$2" "$(jq .wall_s.median "$work/result")" \
		"$(jq .cpu_s.median "$work/result")" "<= $3"
}
for how in wall cpu; do
	paste "$work"/{verdict,parse,others,none}."$how" |
		awk -v n="$n" '{ print ($1 - $2 - $3 + $4) * 1e6 / n }' >"$work/million.$how"
done
printf '%-44s%10s%10s%10s\n' seconds 'by clock' 'by cores' wanted
report parse "$n files parsed" 15
report exact '6000 x 250 exact, nearest, histogram' 10
# By cores alone, which others disturb less, and only where the difference stands out.
cp "$work/million.cpu" "$work/million.wall"
if [ "$(sort -g "$work/million.cpu" | head -n 1 | awk '{ print $1 > 0 }')" = 0 ]; then
	echo 'verdicts of 10^6 x 250: less than the differences between runs; more files tell'
	exit
fi
report million 'verdicts of 10^6 x 250, without parsing' 10
