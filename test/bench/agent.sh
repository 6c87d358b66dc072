#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# agent.sh [ROLLOUTS [SECONDS [TURNS]]]: what ca-agent costs beside the model
# and the tools.  That many rollouts at once (100) of TURNS turns (20) against
# a scripted server that takes SECONDS (1) for each answer.  Prints how long a
# turn took beyond what the model and the tools did (from the logs), how long
# a rollout took from its start to its first question, and what all of
# ca-agent's processes took of the processor and of memory.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
top=$PWD
n=${1:-100} wait=${2:-1} turns=${3:-20}
work=$(mktemp -d /tmp/ca-bench.XXXXXX)
server=''
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$work"
cd "$work"

jq -cn --argjson wait "$wait" --argjson turns "$turns" '
	def call(n; a): {wait: $wait, calls: [{name: n, args: a}]};
	[range($turns - 1) | . as $i | "/work/kernels/k\($i - $i % 4).c" as $f |
		[call("Write"; {file_path: $f, content: ("int x\($i);\n" * 50)}),
		 call("Read"; {file_path: $f}),
		 call("Edit"; {file_path: $f, old_string: "int", new_string: "long",
			replace_all: true}),
		 call("Grep"; {pattern: "x1", path: "kernels"})][$i % 4]] +
	[{wait: $wait, content: "Done."}]' >script
jq -cn --rawfile c "$top/fixtures/workdirs/cpu/diag-matmul/model.py" \
	'{kind: "task", v: 1, code: $c}' >tasks
python3 "$top/test/agent/endpoint.py" script >port 2>/dev/null &
server=$!
until [ -s port ]; do sleep 0.1; done

# The largest sum of what the processes have for themselves, in MiB.
memory() {
	local now most=0 p
	while [ ! -e out ]; do
		now=0
		for p in $(pgrep -x ca-agent); do
			now=$((now + $(awk '/^Pss:/ { print $2 }' "/proc/$p/smaps_rollup" \
				2>/dev/null || echo 0)))
		done
		[ "$now" -le "$most" ] || most=$now
		echo $((most / 1024)) >most
		sleep 2
	done
}
memory &
before=$(awk '{ print $16 + $17 }' /proc/$$/stat)
"$top/bin/ca-agent" --endpoint "http://127.0.0.1:$(cat port)/v1" --model m -d cpu \
	--judge true -k "$n" -j "$n" --turns "$turns" --dir "$work/run" --keep -o out tasks
ticks=$(($(awk '{ print $16 + $17 }' /proc/$$/stat) - before))
wait $!

whole=$(jq -n --argjson turns "$turns" '[inputs | select(.outcome.stop_reason == "final" and
	.cost.turns == $turns)] | length' out)
[ "$whole" = "$n" ]
# quantiles NAME: of the milliseconds on standard input
quantiles() {
	sort -n | awk -v what="$1" '{ v[NR] = $1 }
		END { printf "%-22s p50 %.2f, p99 %.2f, most %.2f ms\n", what,
			v[int(NR * 0.5) + 1], v[int(NR * 0.99) + 1], v[NR] }'
}
jq -r '[.e, .at, (.prov | .model_s // .seconds // 0)] | @tsv' run/*/log.ndjson | awk '
	$1 == "begin" { made = $2; first = 1 }
	$1 == "ask" && first { print "start", (made + $2) * 1000; first = 0; was = $2; other = 0 }
	$1 == "result" { other += $3 }
	$1 == "turn" { print "turn", ($2 - was - other - $3) * 1000; was = $2; other = 0 }' >laps
sed -n 's/^turn //p' laps | quantiles 'a turn, beyond the rest'
sed -n 's/^start //p' laps | quantiles 'start of a rollout'
awk -v t=$ticks -v hz="$(getconf CLK_TCK)" -v n=$((n * turns)) \
	'BEGIN { printf "processor              %.2f ms a turn\n", t * 1000 / hz / n }'
echo "memory                 $(cat most) MiB"
