#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [-q] [-w] [-r RULES] cpu|cuda [NAME ...]
#
# Judges the attacks of a device and compares each with what its file states
# for the rules (README.md); one line for each, exit 1 when one differs, 75
# when some could not be timed for the load on the machine.
# -q takes only those marked `quick: yes`.  -w asks the weakened judges
# instead: each attack must be paid where the defences that it names are off.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
bin=${CA_BIN:-bin}

quick="" weak="" rules=paper
while getopts qwr: o; do
	case $o in
	q) quick=1 ;;
	w) weak=1 ;;
	r) rules=$OPTARG ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
device=${1:?cpu or cuda}
shift
here=test/attacks
if [ $# -gt 0 ]; then
	files=("${@/#/$here/$device/}")
	files=("${files[@]/%/.attack}")
else
	files=("$here/$device"/*.attack)
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/attacks.XXXXXX")
chmod 755 "$work"	# compilers and workers run as others
trap 'rm -rf "$work"' EXIT
# What a weakened judge signs nobody else believes.
(umask 077 && od -An -tx1 -N32 -v /dev/urandom | tr -d ' \n' >"$work/key")

# header FILE KEY: what comes before the first section
header() {
	sed -n '/^===/q; s/^'"$2"': //p' "$1"
}

# expected FILE: the status under the rules; paper's where it says no other
expected() {
	local status
	status=$(header "$1" "$rules")
	echo "${status:-$(header "$1" paper)}"
}

# reward_of FILE: what it may be paid under the rules; empty: not asked
reward_of() {
	local reward
	reward=$(header "$1" "$rules-reward")
	echo "${reward:-$(header "$1" reward)}"
}

expand() {
	awk -v tasks="$here/tasks" -v out="$work/$(basename "$1" .attack)" \
		-f "$here/expand.awk" "$1"
	echo "$work/$(basename "$1" .attack)"
}

# judge OUT DIR...: one stream, so that the hosts are shared
judge() {
	local out=$1
	shift
	"$bin/ca-compile" --device "$device" --trust-key "$work/key" "$@" |
		"$bin/ca-verify" --device "$device" --rules "$rules" \
			--first-timeout 5s --timeout 5s --load-timeout 10s \
			--trust-key "$work/key" >"$out"
}

# compare OUT FILE...: against what the files state
compare() {
	local out=$1 n=0 f got want
	shift
	for f; do
		n=$((n + 1))
		got=$(sed -n "${n}p" "$out" | jq -r '.verify.status')
		want=$(expected "$f")
		[ "$weak" ] && want=ok
		if [[ " $want " == *" $got "* ]]; then
			echo "ok	$(basename "$f" .attack)	$got"
		else
			echo "NOT OK	$(basename "$f" .attack)	$got, not $want:" \
				"$(sed -n "${n}p" "$out" | jq -r '.verify.text')"
			rc=1
		fi
	done
}

# In groups that are weakened alike.
all_weak() {
	local f list
	CA_LIBDIR=$PWD/lib
	bin=$($here/weak.sh)
	export CA_LIBDIR
	for f in "${files[@]}"; do
		list=$(header "$f" paid-by)
		case $list in
		*:*) ;;		# paid elsewhere, or by rules: not a judge's
		*) echo "$list $f" ;;
		esac
	done | sort >"$work/groups"
	cut -d' ' -f1 "$work/groups" | uniq >"$work/lists"
	while read -r list <&3; do
		mapfile -t group < <(sed -n "s/^$list //p" "$work/groups")
		dirs=()
		for f in "${group[@]}"; do dirs+=("$(expand "$f")"); done
		CA_WEAKEN=$list judge "$work/out" "${dirs[@]}"
		echo "# without $list"
		compare "$work/out" "${group[@]}"
	done 3<"$work/lists"
}

# profile TO: what is in $work/right, where the machine was left to it
profile() {
	"$bin/ca-profile" --device "$device" --rules "$rules" --quick \
		--baseline eager --trust-key "$work/key" "$work/right" |
		"$bin/ca-reward" --trust-key "$work/key" >"$work/now"
	jq -c 'select(.profile.contended | not)' "$work/now" >>"$1"
	jq -c 'select(.profile.contended) | del(.profile, .reward)' \
		"$work/now" >"$work/right"
}

# Those that are right by design must not gain time: what they are paid.  A
# time that somebody else disturbed says nothing, so it is taken again.
paid() {
	local line name got want _
	jq -c 'select(.verify.status == "ok")' "$work/out" >"$work/right"
	: >"$work/paid"
	for _ in 1 2 3 4; do
		[ ! -s "$work/right" ] || profile "$work/paid"
	done
	while read -r name <&3; do
		echo "BUSY	$name	not timed: the machine was not left alone"
		[ "$rc" = 1 ] || rc=75
	done 3< <(jq -r .name "$work/right")
	while read -r line <&3; do
		name=$(jq -r .name <<<"$line")
		want=$(reward_of "$here/$device/$name.attack")
		got=$(jq -r .reward.value <<<"$line")
		if [[ " $want " == *" $got "* ]]; then
			echo "ok	$name	reward $got"
		else
			echo "NOT OK	$name	reward $got, not $want:" \
				"$(jq -r .reward.reason <<<"$line")"
			rc=1
		fi
	done 3<"$work/paid"
}

all() {
	local chosen=() dirs=() timed=0 f
	for f in "${files[@]}"; do
		if [ -z "$quick" ] || [ "$(header "$f" quick)" = yes ]; then
			chosen+=("$f")
			dirs+=("$(expand "$f")")
		fi
	done
	judge "$work/out" "${dirs[@]}"
	compare "$work/out" "${chosen[@]}"
	for f in "${chosen[@]}"; do
		if [ -z "$(reward_of "$f")" ]; then
			f=$(basename "$f" .attack)
			jq -c "select(.name != \"$f\")" "$work/out" >"$work/rest"
			mv "$work/rest" "$work/out"
		else
			timed=1
		fi
	done
	if [ "$timed" = 1 ]; then paid; fi
}

rc=0
if [ "$weak" ]; then all_weak; else all; fi
exit $rc
