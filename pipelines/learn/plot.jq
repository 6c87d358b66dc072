# SPDX-License-Identifier: Apache-2.0
#
# jq -sr -f plot.jq: of {variant, seed, step, reward} an SVG: for each variant the mean over seeds
# of the held-out reward by updates, and the band between the lowest and the highest seed; of
# {variant, seed, step, train} what the rounds' own tries earned, as a dotted line.
def colours: ["#0b6e99", "#b04a00", "#4d7c0f", "#7e3794", "#8a6d00", "#555555"];
def r: . * 10 | round / 10;
map(select(.reward != null)) as $all | map(select(.train != null)) as $train |
([($all + $train)[].step] | (max // 0) | if . < 1 then 1 else . end) as $steps |
def x($step): 60 + 560 * $step / $steps | r;
def y($reward): 330 - 300 * ($reward + 1) / 4 | r;
def points: map("\(.[0]),\(.[1])") | join(" ");
def line($x1; $y1; $x2; $y2): "<line x1=\"\($x1)\" y1=\"\($y1)\" x2=\"\($x2)\" y2=\"\($y2)\" stroke=\"#ccc\"/>";
def text($x; $y; $anchor; $s): "<text x=\"\($x)\" y=\"\($y)\" text-anchor=\"\($anchor)\">\($s | tostring | @html)</text>";
"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"390\" font-family=\"sans-serif\" font-size=\"13\">",
"<rect width=\"760\" height=\"390\" fill=\"white\"/>",
(range(-1; 4) | line(60; y(.); 620; y(.)), text(50; y(.) + 4; "end"; .)),
([range(0; 5) | . * $steps / 4 | floor] | unique[] | text(x(.); 350; "middle"; .)),
text(340; 375; "middle"; "updates"),
text(60; 20; "start"; "held-out reward; dotted: of the tries that it trained on"),
($all | group_by(.variant) | to_entries[] | .key as $k | colours[$k % 6] as $c |
	(.value | group_by(.step) | map(map(.reward) as $v |
		{s: .[0].step, m: ($v | add / length), lo: ($v | min), hi: ($v | max)})) as $p |
	"<polygon fill=\"\($c)\" opacity=\"0.15\" points=\"\(($p | map([x(.s), y(.hi)])) +
		($p | reverse | map([x(.s), y(.lo)])) | points)\"/>",
	(.value[0].variant as $v | $train | map(select(.variant == $v)) | group_by(.step) |
		"<polyline fill=\"none\" stroke=\"\($c)\" stroke-dasharray=\"2 4\" points=\"\(
		map([x(.[0].step), y(map(.train) | add / length)]) | points)\"/>"),
	"<polyline fill=\"none\" stroke=\"\($c)\" stroke-width=\"2\" points=\"\($p |
		map([x(.s), y(.m)]) | points)\"/>",
	"<rect x=\"636\" y=\"\(40 + 20 * $k)\" width=\"12\" height=\"12\" fill=\"\($c)\"/>",
	text(654; 51 + 20 * $k; "start"; .value[0].variant)),
"</svg>"
