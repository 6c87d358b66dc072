#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# judge-stats.sh [-p PARTS] [-n RUNS] [-j N] [-k FILE] cpu|cuda
#
# How often the judge is wrong, with 95 % intervals after Wilson: attacks that
# it verifies, honest controls that it rejects, and references that it pays as
# their own candidates (A/A: a gain over eager or torch.compile where there is
# none).  PARTS are letters of `acs`: attacks, controls, same against same
# (default all); RUNS of the last, 12 unless told, each a full profile (a
# minute or two on the CPU), N (1) of them prepared at once.  -k keeps their
# records in FILE; those that are there already count, so that what was cut off
# goes on.  Exit 1 when something was paid or rejected.
set -eu -o pipefail
cd "$(dirname "$0")/.."
bin=${CA_BIN:-bin}

parts=acs runs=12 kept="" jobs=1
while getopts p:n:j:k: o; do
	case $o in
	p) parts=$OPTARG ;;
	n) runs=$OPTARG ;;
	j) jobs=$OPTARG ;;
	k) kept=$OPTARG ;;
	*)
		sed -n '4s/^# /usage: /p' "$0" >&2
		exit 64
		;;
	esac
done
shift $((OPTIND - 1))
device=${1:?cpu or cuda}
work=$(mktemp -d "${TMPDIR:-/tmp}/judge-stats.XXXXXX")
trap 'rm -rf "$work"' EXIT
rc=0

# count WHAT K N: K of N and the interval
count() {
	awk -v what="$1" -v k="$2" -v n="$3" 'BEGIN {
		if (!n) {
			printf "%-28s none there\n", what
			exit
		}
		z = 1.959964; p = k / n; d = 1 + z * z / n
		mid = (p + z * z / (2 * n)) / d
		by = z / d * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
		low = mid > by ? mid - by : 0
		printf "%-28s %d of %d: %.2f %% (%.2f to %.2f %%)\n", what, k, n,
			100 * p, 100 * low, 100 * (mid + by)
	}'
	[ "$2" -eq 0 ] || rc=1
}

# What a file of verdicts says was wrong goes to stderr.
attacks() {
	local rules
	for rules in paper strict kernelbench; do
		test/attacks/run.sh -r "$rules" "$device" >"$work/out" || :
		grep '^NOT OK' "$work/out" >&2 || :
		count "attacks paid, $rules" \
			"$(grep -c $'^NOT OK\t[^\t]*\tok,' "$work/out" || :)" \
			"$(grep -cE '^(ok|NOT OK)' "$work/out" || :)"
	done
}

controls() {
	local rules
	test/controls/run.sh -a "$device" >"$work/out" || :
	grep '^NOT OK' "$work/out" >&2 || :
	for rules in paper strict kernelbench; do
		awk -F '\t' -v r=$rules '$3 == r' "$work/out" >"$work/some"
		count "controls rejected, $rules" \
			"$(grep -c '^NOT OK' "$work/some" || :)" \
			"$(wc -l <"$work/some")"
	done
}

# Fixtures' references under the name of a candidate, in turn.
same() {
	local i task have
	: "${kept:=$work/same}"
	[ -e "$kept" ] || : >"$kept"
	have=$(wc -l <"$kept")
	local tasks=(axpby diag-matmul softmax-temperature cross-entropy)
	for ((i = have; i < runs; i++)); do
		task=fixtures/workdirs/$device/${tasks[i % 4]}/model.py
		jq -nc --rawfile code "$task" --arg name "${tasks[i % 4]}-$i" '{
			kind: "candidate", v: 1, name: $name, task: {code: $code},
			files: {"model_new.py":
				($code | gsub("class Model\\("; "class ModelNew("))},
			rules: "kernelbench"}'
	done | "$bin/ca-profile" --device "$device" -j "$jobs" |
		"$bin/ca-reward" >>"$kept"
	jq -r '[.name, .verify.status, .profile.status, .reward.value,
		.profile.speedup.eager.point] | @tsv' "$kept" >&2
	count "a/a paid" \
		"$(jq -s 'map(select(.reward.value >= 2)) | length' "$kept")" \
		"$(jq -s 'map(select(.reward.value != null)) | length' "$kept")"
	jq -s -r 'map(.profile.speedup.eager.point | values) | length as $n |
		(add / $n) as $m |
		(map((. - $m) * (. - $m)) | add / ([$n - 1, 1] | max) | sqrt) as $s |
		"a/a speedup over eager       mean \($m * 1e4 | round / 1e4), standard deviation \(
			$s * 1e4 | round / 100) % of \($n) runs"' "$kept"
}

case $parts in *a*) attacks ;; esac
case $parts in *c*) controls ;; esac
case $parts in *s*) same ;; esac
exit $rc
