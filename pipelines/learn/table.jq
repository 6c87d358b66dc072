# SPDX-License-Identifier: Apache-2.0
#
# jq -sr -f table.jq: of {variant, seed, step, reward}, for each variant the held-out reward at the
# first and last two evaluations (the first and the last, where there are fewer than five), the
# gain with its 95 % interval (Student's t over seeds), and the same of the gain less that of the
# control with the same seed.
def t: {"2": 12.706, "3": 4.303, "4": 3.182, "5": 2.776, "6": 2.571, "7": 2.447, "8": 2.365,
	"9": 2.306, "10": 2.262}[tostring] // 1.96;
def mean: add / length;
def r: . * 1000 | round / 1000;
def interval: length as $n | mean as $m | if $n < 2 then "\($m | r)" else
	((map((. - $m) * (. - $m)) | add / ($n - 1)) | sqrt * ($n | t) / ($n | sqrt)) as $h |
	"\($m | r) [\($m - $h | r), \($m + $h | r)]" end;
map(select(.reward != null)) | group_by([.variant, .seed]) |
map(sort_by(.step) | (if length < 5 then 1 else 2 end) as $n | {variant: .[0].variant,
	seed: .[0].seed, first: (.[:$n] | map(.reward) | mean),
	last: (.[-$n:] | map(.reward) | mean)} | .gain = .last - .first) as $runs |
($runs | map(select(.variant == "control") | {(.seed | tostring): .gain}) | add // {}) as $control |
["variant", "seeds", "first", "last", "gain", "gain over control"],
($runs | group_by(.variant)[] | [.[0].variant, length, (map(.first) | mean | r),
	(map(.last) | mean | r), (map(.gain) | interval),
	([.[] | .gain - ($control[.seed | tostring] // empty)] |
	if length > 0 then interval else "none" end)]) | @tsv
