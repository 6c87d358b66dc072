# SPDX-License-Identifier: Apache-2.0
#
# What became of tasks, by stratum: for synth.sh.

# One operator, x2 to x5, or transformers.
def stratum: (.source.name // "") as $n |
	if $n | test("^x[2-5]$") then $n elif $n == "transformers" then $n
	else "x1" end;

# "x1=3.4,x2=83.77" as an object.
def shares: split(",") | map(split("=") | {(.[0]): (.[1] | tonumber)}) | add;

# n tasks in these shares, by largest remainders.
def quota($n): (add) as $sum | map_values(. / $sum * $n) |
	(([$n, (map_values(floor) | add)] | .[0] - .[1])) as $left |
	(to_entries | sort_by(-(.value - (.value | floor))) |
		.[:$left] | map({(.key): 1}) | add // {}) as $more |
	with_entries(.value = (.value | floor) + ($more[.key] // 0));

# Why a record is not kept: the stage's name and its reason; null if it is.
def fate: if .filter == null then ["filter", "not run"]
	elif .filter.status != "ok" then
		["filter", .filter.reason // .filter.status]
	elif .dedup.reason then ["dedup", .dedup.reason]
	elif .keep == false then ["before", "not kept"]
	else null end;

# Counts over a stream of records, ca-filter's or ca-dedup-ast's.
def counts(records): reduce records as $r (
	{judged: 0, kept: 0, rejected: {}, strata: {}, seconds: 0, device: null,
		torch: null};
	($r | stratum) as $s | ($r | fate) as $f |
	.judged += 1 | .strata[$s].judged += 1 |
	.seconds += ($r.filter.prov.seconds // 0) |
	.device = ($r.filter.model // .device) |
	.torch = ($r.filter.torch // .torch) |
	if $f then .rejected[$f[0]][$f[1]] += 1 else
		.kept += 1 | .strata[$s].kept += 1 end);

# How many more tasks to make of each stratum, given the quota and counts so
# far: as many as are missing, and more by the share that did not survive.
def missing($quota): . as $c | $quota | with_entries(
	($c.strata[.key].kept // 0) as $kept |
	($c.strata[.key].judged // 0) as $judged |
	([($kept + 1) / ($judged + 1.4), 0.15] | max) as $yield |
	.value = ([.value - $kept, 0] | max / $yield | ceil)) |
	with_entries(select(.value > 0));

# Lines of a stage: {made, skipped, reasons[{why, n}]} summed up.
def stage(lines): reduce lines as $l ({made: 0, skipped: {}};
	.made += $l.made | reduce $l.reasons[] as $r (.; .skipped[$r.why] += $r.n));

def listed: to_entries | sort_by(-.value) |
	map("\(.value) \(.key)") | join(", ");
def percent($of): if $of > 0 then . * 1000 / $of | round / 10 | "\(.) %"
	else "-" end;

# The report as text.
def text: . as $r |
	(if .crawl then "crawl    \(.crawl.made) operators" +
		(if .crawl.skipped == {} then "" else
			"; skipped: \(.crawl.skipped | listed)" end) else empty end),
	(if .combine then "combine  \(.combine.made) tasks; draws without one: " +
		(.combine.skipped | listed) else empty end),
	"judged   \(.judged)",
	"filter   -\([.rejected.filter // {} | .[]] | add // 0): " +
		(.rejected.filter // {} | listed),
	"dedup    -\([.rejected.dedup // {} | .[]] | add // 0): " +
		(.rejected.dedup // {} | listed),
	"kept     \(.kept), \(.kept | percent($r.judged))",
	(.strata | keys[] | . as $k | $r.strata[$k] |
		"  \($k): kept \(.kept // 0) of \(.judged), " +
		((.kept // 0) | percent($r.kept)) + " of the kept" +
		(if $r.quota then ", wanted \($r.quota[$k] // 0)" else "" end)),
	(if .wrote then "wrote    \(.wrote) tasks" else empty end),
	"seconds  filter \(.seconds | round), by the tasks" +
		(if .stages then "; by the clock: " + (.stages | to_entries |
			map("\(.key) \(.value)") | join(", ")) else "" end),
	"on       \(.device // "?"), torch \(.torch // "?")";
