#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-learn.sh -m MODEL -o DIR [-d DEV,...] [-s SEEDS] [-p N] [-r ROUNDS] [-n TASKS] [-k N]
#               [-H TASKS] [-v N] [-w N] [-l RATES] [-t OPTIONS] [-c N] [-u SECONDS]
#               [-a] [-A NAMES] [-K]
#
# Shows that the loop learns: a small instructed model (SmolLM2-135M-Instruct) on a family of
# elementwise and reduction tasks.  A warm-up of -w updates (40) on demonstrations that are made
# here, then train.sh with -r rounds (20) of -n tasks (16), -k tries each (1), for each of -s
# seeds (3), and with -a for each of the paper's ablations too (-A: these of full, no-rft, ...);
# -p of these runs at once (1), the devices in turn.  -H held-out tasks (8) are judged in full
# before the first round and after every -v (10).  The control is trained at rates of 0, which
# change nothing however often, for one round.  -l: rates of actor, critic and warm-up; -t: for
# all trainers; -c: context (3072).  With -u no run begins that would not end so many seconds
# after the start, if it takes as long as the longest did.  In DIR: results.ndjson, table.txt,
# curve.svg, and of a run that is done its records and the best actor, the rest of its weights
# only with -K.  The same command again goes on where it was; one with other -A may work in DIR
# beside it.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CA_BIN:-$here/../bin}
model='' out='' devs=cuda seeds=3 at_once=1 rounds=20 tasks=16 k=1 held=8 every=10 warm=40
ctx=3072 until=0 variants=full began=$(date +%s) rates=1e-5,2e-5,1e-4 common='' keep=0
all='full no-rft no-vpretrain raw-reward no-agent'
usage() { sed -n '4,19s/^# \{0,1\}//p' "$0" >&$((1 + (${1:-64} > 0))) && exit "${1:-64}"; }
case ${1-} in -h | --help) usage 0 ;; esac
while getopts m:o:d:s:p:r:n:k:H:v:w:l:t:c:u:A:aK opt; do
	case $opt in
	m) model=$OPTARG ;;
	o) out=$OPTARG ;;
	d) devs=$OPTARG ;;
	s) seeds=$OPTARG ;;
	p) at_once=$OPTARG ;;
	r) rounds=$OPTARG ;;
	n) tasks=$OPTARG ;;
	k) k=$OPTARG ;;
	H) held=$OPTARG ;;
	v) every=$OPTARG ;;
	w) warm=$OPTARG ;;
	l) rates=$OPTARG ;;
	t) common=$OPTARG ;;
	c) ctx=$OPTARG ;;
	u) until=$OPTARG ;;
	A) variants=${OPTARG//,/ } ;;
	a) variants=$all ;;
	K) keep=1 ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
if [ -z "$model" ] || [ -z "$out" ] || [ $# -gt 0 ]; then usage; fi
for n in "$seeds" "$at_once" "$rounds" "$tasks" "$k" "$held" "$every" "$warm" "$ctx"; do
	[[ $n =~ ^[1-9][0-9]*$ ]] || usage
done
for v in $variants; do [[ " $all " == *" $v "* ]] || usage; done
IFS=, read -r lr critic_lr warm_lr <<<"$rates"
[ -n "$warm_lr" ] || usage
[ -r "$model/config.json" ] || {
	echo "demo-learn: '$model' has no config.json" >&2
	exit 66
}
mkdir -p "$out"
# What is there was made so, and cannot be gone on with otherwise.
was="-r $rounds -n $tasks -k $k -H $held -v $every -w $warm -l $rates -c $ctx -t '$common'"
[ -e "$out/settings" ] || echo "$was" >"$out/settings"
[ "$(cat "$out/settings")" = "$was" ] || {
	echo "demo-learn: '$out' was begun with $(cat "$out/settings")" >&2
	exit 78
}
export here bin out devs ctx k every rounds until began at_once lr critic_lr common keep variants
# Whoever comes first makes what all runs begin with.
(
	flock 9
	m=$model n=$tasks h=$held w=$warm rate=$warm_lr "$here/learn/warm.sh" 9>&-
	flock -u 9
) 9>"$out/lock"

touch "$out/took"
rc=0
for v in $variants; do
	for ((s = 1; s <= seeds; s++)); do
		[ -e "$out/$v.$s/done" ] || echo "$v $s"
	done
done | xargs -rP "$at_once" --process-slot-var=slot -L 1 "$here/learn/run.sh" || rc=$?
(
	flock 9
	"$here/learn/results.sh" 9>&-
	flock -u 9
) 9>"$out/lock"
exit "$rc"
