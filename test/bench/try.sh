#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# try.sh [RUNS]: one try of the work directory that CUDA-Agent's authors
# released, by their scripts and by ours, in turn: the first, all caches empty,
# and RUNS later ones (3), each with a changed kernel.  CUDA_AGENT_WORKDIR is
# their agent_workdir.  Without a GPU only what builds is compared: their
# utils/compile.sh, our ca-compile.
#
# Theirs leaves no caches but torch.compile's; ours has a host that stays.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
top=$PWD
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
# shellcheck source=test/bench/lib.sh
. test/bench/lib.sh
runs=${1:-3}
released=${CUDA_AGENT_WORKDIR:?names no agent_workdir of the released CUDA-Agent}
[ -f "$released/utils/compile.sh" ] || { echo "no work directory: $released" >&2; exit 66; }
released=$(realpath "$released")

own_place

theirs() {
	(
		cd "$work/peer"
		export HOME=$work/home TORCHINDUCTOR_CACHE_DIR=$work/inductor
		bash utils/compile.sh
		[ -z "$gpu" ] || python3 -m utils.verification
		[ -z "$gpu" ] || python3 -m utils.profiling
	) >"$work/peer.log" 2>&1
}

ours() {
	local bin=$top/bin
	cd "$work"
	if [ -z "$gpu" ]; then
		"$bin/ca-compile" --device cuda --arch sm_90 ours
	else
		"$bin/ca-compile" --device cuda ours | "$bin/ca-verify" |
			"$bin/ca-profile" --quick | "$bin/ca-reward"
	fi >ours.out
	cd "$top"
}

right() {
	if [ -z "$gpu" ]; then
		jq -e '.build.status == "ok"' "$work/ours.out" >/dev/null
	else
		jq -e '.verify.status == "ok" and .profile.status == "ok"' \
			"$work/ours.out" >/dev/null
	fi
}

mkdir "$work/home"
for who in peer ours; do
	cp -R "$released" "$work/$who"
done
what=$([ -n "$gpu" ] && echo try || echo build)
for i in $(seq 0 "$runs"); do
	for who in peer ours; do
		for source in "$work/$who"/kernels/*.cu; do
			echo "// changed $i" >>"$source"
		done
	done
	when=$([ "$i" = 0 ] && echo first || echo later)
	timed theirs || { tail -n 20 "$work/peer.log" >&2; exit 70; }
	echo "$wall" >>"$work/peer.$when"
	peer=$wall
	timed ours
	if ! right; then
		jq -c '[.build.status, .verify, .profile.status]' "$work/ours.out" >&2
		exit 70
	fi
	echo "$wall" >>"$work/ours.$when"
	echo "$when $what: theirs $peer s, ours $wall s"
done

machine_line
for when in first later; do
	jq -n --arg work "$what" --arg when "$when" \
		--argjson peer "$(spread <"$work/peer.$when")" \
		--argjson ours "$(spread <"$work/ours.$when")" \
		--arg headers "$(jq -r .build.headers "$work/ours.out")" \
		'{$work, $when, $headers, peer_s: $peer, ours_s: $ours,
			ratio: ($peer.median / $ours.median)}' >"$work/result"
	keep_result try "$(cat "$work/result")"
	jq -r '"\(.when) \(.work): theirs \(.peer_s.median) s (\(.peer_s.low) to " +
		"\(.peer_s.high)), ours \(.ours_s.median) s (\(.ours_s.low) to " +
		"\(.ours_s.high)), \(.ratio * 10 | round / 10) times"' "$work/result"
done
