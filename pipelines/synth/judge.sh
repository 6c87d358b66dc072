# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2016 # its variables are synth.sh's; jq's
#
# synth.sh's second half: what was made is filtered, compared and counted.

filter_some() { # reads records
	# shellcheck disable=SC2086 # words
	eval "\"$bin/ca-filter\" $device -j $ahead $words" || [ $? = 75 ]
}

take() { # of how many: appends records as they come
	local line n=0 kept=0
	while IFS= read -r line; do
		printf '%s\n' "$line" >>"$out/judged.ndjson"
		n=$((n + 1))
		[[ $line != *'"keep":true'* ]] || kept=$((kept + 1))
		progress "filter, round $round: $n of $1, kept $kept"
	done
}

# What of the round has not been judged.
filter_round() { # option...
	jq -r .id "$out/judged.ndjson" >"$out/ids"
	by_id -v "$out/ids" <"$out/made.$round" >"$out/todo"
	words=${*@Q}
	timed filter filter_all
}

# Where one program works side by side, it gets all.
filter_all() {
	local n
	n=$(lines "$out/todo")
	if [ "$beside" = 1 ]; then
		filter_some <"$out/todo" | take "$n"
	else
		parallel --will-cite -k --pipe -N 1 -j "$beside" --halt now,fail=1 filter_some \
			<"$out/todo" | take "$n"
	fi
}

# Looks for repeats in all there is, and counts.
count() {
	touch "$out/judged.ndjson"
	# Half a line is what a kill left.
	[ -z "$(tail -c 1 "$out/judged.ndjson")" ] || {
		head -n -1 "$out/judged.ndjson" >"$out/judged.whole"
		mv "$out/judged.whole" "$out/judged.ndjson"
	}
	progress dedup
	timed dedup "$bin/ca-dedup-ast" -q --no-prov "${against[@]}" -o "$out/checked.ndjson" \
		"$out/judged.ndjson"
	funnel -cn 'counts(inputs)' <"$out/checked.ndjson" >"$out/counts.new"
	mv "$out/counts.new" "$out/counts.json"
}

# The first kept ones of each stratum, and the report.
finish() {
	funnel -rn --argjson quota "$quota" 'foreach (inputs | select(.kind == "task" and
		fate == null)) as $r ({}; .[$r | stratum] += 1; select(.[$r | stratum] <=
		($quota[$r | stratum] // 0)) | $r.id)' <"$out/checked.ndjson" >"$out/ids"
	by_id "$out/ids" <"$out/checked.ndjson" >"$out/tasks.new"
	mv "$out/tasks.new" "$out/tasks.ndjson"
	cat "${crawled[@]/#/$out/crawl.}" >"$out/crawl"
	cat "$out"/combine.*.* >"$out/combine"
	funnel -n --argjson quota "$quota" --argjson seed "$seed" --slurpfile crawl "$out/crawl" \
		--slurpfile combine "$out/combine" --slurpfile times "$out/times" \
		--argjson wrote "$(lines "$out/tasks.ndjson")" 'input + {crawl: stage($crawl[]),
		combine: stage($combine[]), $quota, $wrote, $seed,
		stages: (reduce $times[] as $t ({}; reduce ($t | to_entries[]) as $e
			(.; .[$e.key] += $e.value)))}' <"$out/counts.json" >"$out/funnel.json"
	[ ! -t 2 ] || echo >&2
	funnel -r text <"$out/funnel.json" | tee "$out/funnel.txt"
	rm -f "$out"/{ids,todo,known,crawl,combine}
	[ "$(lines "$out/tasks.ndjson")" = "$keep" ] ||
		fail 65 "some strata could not be filled; more --operators may help"
}

export -f filter_some
export words=''
