# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2016 # its variables are synth.sh's; jq's
#
# synth.sh's first half: tasks are made.  A file of $out under its own name is
# whole; only judged.ndjson grows, a line at a time, and may end in half a one.

# Of a source, so that a kill costs one of them, or $jobs; few where one program works side by side.
PARTS=48 beside=$jobs ahead=1
[[ $device == *cpu* || ! -e /dev/nvidiactl ]] || { PARTS=4 beside=1 ahead=$jobs; }

timed() { # stage, command...: adds what it took to `times`
	local began=$SECONDS
	"${@:2}"
	echo "{\"$1\":$((SECONDS - began))}" >>"$out/times"
}

lines() { # file...
	cat -- "$@" | wc -l
}

crawl_part() { # source, part, tasks at most
	local name=$1.$2.$3
	[ -e "$out/ops.$name" ] || {
		rm -f "$out/crawl.$name"
		# shellcheck disable=SC2086 # no word, or one
		"$bin/ca-crawl" -q $device -j "$ahead" --seed "$seed" \
			--part "$2/$PARTS" -n "$3" --ms "$ms" --min-yield 0 \
			--summary "$out/crawl.$name" -o "$out/part.$name" "$1" &&
			mv "$out/part.$name" "$out/ops.$name"
	}
}

# The first parts of each source that are enough together: operators, and of
# transformers twice the tasks that are wanted.  As many at once as $beside says;
# what was crawled beyond need is kept and not used, so that the same seed makes
# the same tasks whatever -j is.
crawl_enough() {
	local source enough part last have
	crawled=()
	for source in "${sources[@]}"; do
		have=0 enough=$ops
		[ "$source" != transformers ] || enough=$(jq '.transformers * 2 + 2' <<<"$quota")
		for ((part = 1; part <= PARTS && have < enough; part++)); do
			last=$((part + beside - 1 < PARTS ? part + beside - 1 : PARTS))
			[ -e "$out/ops.$source.$part.$enough" ] ||
				timed crawl parallel --will-cite -j "$beside" --halt soon,fail=1 \
					crawl_part "$source" {} "$enough" ::: $(seq $part $last)
			crawled+=("$source.$part.$enough")
			have=$((have + $(lines "$out/ops.$source.$part.$enough")))
			progress "crawl $source: $have of $enough"
		done
	done
	cat "${crawled[@]/#/$out/ops.}" >"$out/operators.ndjson"
	[ -s "$out/operators.ndjson" ] || fail 65 'the sources yield nothing'
}

progress() { # text: on a terminal only
	[ ! -t 2 ] || printf '\r\033[K%5d s  %s' $SECONDS "$1" >&2
}

# Lines of stdin whose ids are in a file, or (-v) are not; as they are.
by_id() { # [-v] file
	local want=1
	[ "$1" != -v ] || { want=0 && shift; }
	cat >"$out/by_id"
	jq -r .id "$out/by_id" | paste - "$out/by_id" | awk -F '\t' -v want=$want \
		'FILENAME == ARGV[1] { has[$1] = 1; next } ($1 in has) == want' "$1" - | cut -f 2-
	rm "$out/by_id"
}

combine_share() { # share, of how many
	local options
	options=$(jq -r --argjson i "$1" --argjson of "$2" 'map_values((. + $i) / $of | floor) |
		"--count \(add) --mix \(to_entries | map("\(.key)=\(.value)") | join(","))"' \
		<<<"$want")
	# shellcheck disable=SC2086 # words
	"$bin/ca-combine" -q $device $options --seed "$seed$(printf '%03d%03d' "$round" "$1")" \
		--not-in "$out/known" --summary "$out/combine.$round.$1" -o "$out/share.$1" \
		"$out/operators.ndjson" || [ $? = 65 ]
}

# Asks for what is wanted, in shares that run side by side.
combine_round() {
	[ ! -e "$out/made.$round" ] || return 0
	local n shares
	n=$(jq add <<<"$want")
	shares=$(((n + 31) / 32 < jobs ? (n + 31) / 32 : jobs))
	progress "combine: $n tasks"
	rm -f "$out/combine.$round".* "$out"/share.*
	cat "$out"/made.* >"$out/known" 2>/dev/null || true
	timed combine parallel --will-cite -j "$jobs" --halt now,fail=1 \
		combine_share {} $shares ::: $(seq 0 $((shares - 1)))
	# Two shares may have had the same idea.
	cat "$out"/share.* | awk '!seen[$0]++' >"$out/made.new"
	mv "$out/made.new" "$out/made.$round"
	rm -f "$out"/share.*
}

export -f combine_share crawl_part
export bin out device want='' round=0 seed ms PARTS ahead
