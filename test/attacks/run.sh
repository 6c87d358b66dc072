#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [-qvw] [-r RULES] [-s FILE] cpu|cuda [NAME ...]
#
# Judges the attacks of a device and compares each with what its file states
# for the rules (README.md); one line for each as soon as it is known, exit 1
# when one differs, 75 when some could not be timed for the load on the machine.
# -q takes only those marked `quick: yes`, -v times none.  -w asks the weakened
# judges instead: each attack must be paid where the defences that it names are
# off.  -s keeps what was as stated in FILE and leaves that out the next time.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
bin=${CA_BIN:-bin}

quick="" untimed="" weak="" rules=paper state=/dev/null
while getopts qvwr:s: o; do
	case $o in
	q) quick=1 ;;
	v) untimed=1 ;;
	w) weak=1 ;;
	r) rules=$OPTARG ;;
	s) state=$OPTARG ;;
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
[ -e "$state" ] || : >"$state"
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
CA_CACHE=$(cache_dir)	# some attacks look there
export CA_CACHE

work=$(mktemp -d "${TMPDIR:-/tmp}/attacks.XXXXXX")
chmod 755 "$work"	# compilers and workers run as others
trap 'rm -rf "$work"' EXIT
# What a weakened judge signs nobody else believes.
mkfifo "$work/fifo"
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

timing() { # FILE
	"$bin/ca-profile" --device "$device" --rules "$rules" --quick \
		--baseline eager --trust-key "$work/key" "$1" |
		"$bin/ca-reward" --trust-key "$work/key"
}

# told NAME WHAT GOT WANT TEXT: one line, and kept if it is as it should be
told() {
	if [[ " $4 " == *" $3 "* ]]; then
		echo "ok	$1	$2$3"
		printf '%s\t%s\t%s\n' "$rules$weak" "$1" "$2" >>"$state"
	else
		echo "NOT OK	$1	$2$3, not $4: $5"
		rc=1
	fi
}

# known NAME WHAT: an earlier run has told it so
known() {
	grep -qxF "$rules$weak	$1	$2" "$state"
}

# expand FILE DIR
expand() {
	awk -v tasks="$here/tasks" -v out="$2" -f "$here/expand.awk" "$1"
}

# honest TASK DIR: a workdir of the task's own candidate
# shellcheck disable=SC2317 # for scripts
honest() {
	echo "task: $1" >"$work/honest"
	expand "$work/honest" "$2"
}

compile() {
	"$bin/ca-compile" --device "$device" --trust-key "$work/key" "$@"
}

verify() {
	"$bin/ca-verify" --device "$device" --rules "$rules" \
		--first-timeout 12s --timeout 5s --load-timeout 10s \
		--trust-key "$work/key"
}

# verdict RECORD: held against what its file states
verdict() {
	local name want
	name=$(jq -r .name <<<"$1")
	want=$(expected "$here/$device/$name.attack")
	[ "$weak" ] && want=ok
	told "$name" '' "$(jq -r .verify.status <<<"$1")" "$want" \
		"$(jq -r .verify.text <<<"$1")"
	echo "$1" >>"$work/out"
}

# by_script NAME: what takes more than one candidate does it by its own
# commands; the last line is the record
by_script() {
	# shellcheck disable=SC2034 # read there
	local dir=$work/$1 line
	# shellcheck source=/dev/null
	. "$work/$1.script" >"$work/told" &
	if wait $!; then
		line=$(tail -n 1 "$work/told")
		verdict "$line"
		[ "$(jq .reward <<<"$line")" = null ] || payment "$line"
	else
		told "$1" '' 'script failed' "$(expected \
			"$here/$device/$1.attack")" ''
	fi
}

# payment RECORD: the same for its reward
payment() {
	local name
	name=$(jq -r .name <<<"$1")
	told "$name" 'reward ' "$(jq -r .reward.value <<<"$1")" \
		"$(reward_of "$here/$device/$name.attack")" \
		"$(jq -r .reward.reason <<<"$1")"
}

# judge FILE...: one stream, so that the hosts are shared; leaves $work/out
judge() {
	local dirs=() scripts=() f line
	: >"$work/out"
	for f; do
		f=$(basename "$f" .attack)
		expand "$here/$device/$f.attack" "$work/$f"
		if [ -e "$work/$f/script" ]; then
			mv "$work/$f/script" "$work/$f.script"
			scripts+=("$f")
		else
			dirs+=("$work/$f")
		fi
	done
	if [ ${#dirs[@]} -gt 0 ]; then
		compile "${dirs[@]}" | verify >"$work/fifo" &
		while read -r line <&4; do
			verdict "$line"
		done 4<"$work/fifo"
		wait $!
	fi
	for f in "${scripts[@]}"; do by_script "$f"; done
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
		*) known "$(basename "$f" .attack)" '' || echo "$list $f" ;;
		esac
	done | sort >"$work/groups"
	cut -d' ' -f1 "$work/groups" | uniq >"$work/lists"
	while read -r list <&3; do
		mapfile -t group < <(sed -n "s/^$list //p" "$work/groups")
		echo "# without $list"
		CA_WEAKEN=$list judge "${group[@]}"
	done 3<"$work/lists"
}

# profile FILE: what is right in it, a line for each; what was disturbed by
# somebody else says nothing and stays
profile() {
	local line
	timing "$1" >"$work/fifo" &
	: >"$work/disturbed"
	while read -r line <&4; do
		if [ "$(jq .profile.contended <<<"$line")" = true ]; then
			jq -c 'del(.profile, .reward)' <<<"$line" \
				>>"$work/disturbed"
		else
			payment "$line"
		fi
	done 4<"$work/fifo"
	wait $!
	mv "$work/disturbed" "$1"
}

# timed FILE: whether its time matters and is not known yet
timed() {
	[ -z "$untimed" ] && [ "$(reward_of "$1")" ] &&
		! known "$(basename "$1" .attack)" 'reward '
}

# What was right must not gain time where that is what it wants.
paid() {
	local line name _
	: >"$work/right"
	while read -r line <&3; do
		name=$(jq -r .name <<<"$line")
		[ "$(jq -r .verify.status <<<"$line")" != ok ] ||
			[ "$(jq .reward <<<"$line")" != null ] ||
			! timed "$here/$device/$name.attack" ||
			echo "$line" >>"$work/right"
	done 3<"$work/out"
	for _ in 1 2 3 4; do
		[ ! -s "$work/right" ] || profile "$work/right"
	done
	while read -r name <&3; do
		echo "BUSY	$name	not timed: the machine was not left alone"
		[ "$rc" = 1 ] || rc=75
	done 3< <(jq -r .name "$work/right")
}

all() {
	local chosen=() f
	for f in "${files[@]}"; do
		[ -z "$quick" ] || [ "$(header "$f" quick)" = yes ] || continue
		! known "$(basename "$f" .attack)" '' || timed "$f" || continue
		chosen+=("$f")
	done
	[ ${#chosen[@]} -gt 0 ] || return 0
	judge "${chosen[@]}"
	paid
}

rc=0
if [ "$weak" ]; then all_weak; else all; fi
exit $rc
