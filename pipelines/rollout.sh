#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# rollout.sh -e URL [-e URL ...] -m MODEL -o DIR [-j N] [-k N] TASKS... [-- OPTION...]
#
# Tasks in, trajectories out: rollouts of each task, spread over one or several
# endpoints, each served by a ca-agent of its own (-J CMD: a judge, for all of
# them).  Everything is in DIR; the same command again goes on where it was.
# Ends with a summary: rewards, stop reasons, tokens, seconds, cost.  Options
# behind -- go to ca-agent.  -c DOLLARS and -C DOLLARS: price of a million
# tokens in and out.
set -eu -o pipefail
bin=${CA_BIN:-$(cd "$(dirname "$0")/.." && pwd)/bin}

usage() {
	sed -n '4,12s/^# \{0,1\}//p' "$0" >&2
	exit 64
}

endpoints=() judges=() model='' out='' jobs=8 k=1 in=0 price=0 more=()
while getopts e:m:o:j:k:J:c:C:h opt; do
	case $opt in
	e) endpoints+=("$OPTARG") ;;
	m) model=$OPTARG ;;
	o) out=$OPTARG ;;
	j) jobs=$OPTARG ;;
	k) k=$OPTARG ;;
	J) judges+=(--judge "$OPTARG") ;;
	c) in=$OPTARG ;;
	C) price=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
tasks=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	tasks+=("$1")
	shift
done
[ $# = 0 ] || more=("${@:2}")
[ ${#endpoints[@]} -gt 0 ] && [ -n "$model" ] && [ -n "$out" ] &&
	[ ${#tasks[@]} -gt 0 ] || usage
command -v parallel >/dev/null || [ ${#endpoints[@]} = 1 ] || {
	echo 'rollout: several endpoints need GNU parallel' >&2
	exit 69
}
mkdir -p "$out"

# One share of the tasks for each endpoint, always the same ones, so that a
# second run finds what the first one left.
cat -- "${tasks[@]}" | awk -v n=${#endpoints[@]} -v to="$out/tasks" \
	'{ print > (to "." (NR - 1) % n) }'
one() { # endpoint, number
	[ -s "$out/tasks.$2" ] || return 0
	"$bin/ca-agent" --endpoint "$1" --model "$model" -k "$k" -j "$jobs" \
		--dir "$out/run.$2" --resume -o "$out/part.$2" \
		"${judges[@]}" "${more[@]}" "$out/tasks.$2" || [ $? = 75 ]
}
if [ ${#endpoints[@]} = 1 ]; then
	one "${endpoints[0]}" 0
else
	export -f one
	export bin model k jobs out
	# Arrays are not exported, so each job has its words.
	words=$(printf '%q ' "${judges[@]}" "${more[@]}")
	export words
	parallel --will-cite --line-buffer --halt soon,fail=1 --link \
		"eval \"judges=() more=(\$words)\"; one {1} {2}" \
		::: "${endpoints[@]}" ::: $(seq 0 $((${#endpoints[@]} - 1)))
fi
cat "$out"/part.* >"$out/trajectories.ndjson.new"
mv "$out/trajectories.ndjson.new" "$out/trajectories.ndjson"

jq -rn --argjson in "$in" --argjson price "$price" '
	def counts(f): [f] | group_by(.) | map("\(.[0] // "none"): \(length)") | join(", ");
	def total(f): [.[] | f // 0] | add // 0;
	[inputs | select(.kind == "trajectory")] |
	"\(length) trajectories",
	"rewards     " + counts(.[].outcome.reward),
	"stopped by  " + counts(.[].outcome.stop_reason),
	"turns       \(total(.cost.turns)), tries \(total(.cost.tries))",
	"tokens      \(total(.cost.prompt_tokens)) in, \(total(.cost.completion_tokens)) out",
	"seconds     model \(total(.cost.model_seconds) | round), judge " +
		"\(total(.cost.judge_seconds) | round), GPU \(total(.cost.gpu_seconds) | round)",
	"cost        \((total(.cost.prompt_tokens) * $in + total(.cost.completion_tokens) * $price) / 1e6)",
	"loops       \(map(select(.redundant_loop)) | length), with schema violations " +
		"\(map(select((.schema_violations // 0) > 0)) | length)"
	' "$out/trajectories.ndjson"
