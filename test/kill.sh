#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# kill.sh [STREAMS [CANDIDATES [KILLS]]]: streams of candidates with cached
# objects through ca-verify, while in each stream so many hosts and workers
# are killed at random moments (20 streams of 50, 10 kills each: 200).
# Every stream must give all its records, in order, and leave neither a
# process nor a temporary file.  Prints the statuses seen, what was killed, and
# of each record that is not ok why.
set -eu -o pipefail
cd "$(dirname "$0")/.."
streams=${1:-20} candidates=${2:-50} kills=${3:-10}
bin=${CA_BIN:-bin}

work=$(mktemp -d)
chmod 755 "$work"	# compilers run as nobody
trap 'rm -rf "$work"' EXIT
# CA_TORCH_SHARED=1: with a host that outlives each stream.
export CA_TORCH_SHARED=${CA_TORCH_SHARED:-0} CA_TORCH_IDLE=1
export CA_TEST_MARK=kill.$$ TMPDIR=$work/tmp
mkdir -m 1777 "$TMPDIR"

candidate() { # a workdir that is quick to judge
	mkdir -p "$1/kernels"
	cat >"$1/model.py" <<-'END'
		import torch
		class Model(torch.nn.Module):
		    def forward(self, x):
		        return 2 * x
		def get_inputs():
		    return [torch.randn(300, 7)]
		def get_init_inputs():
		    return []
	END
	cat >"$1/model_new.py" <<-'END'
		import cuda_extension
		import torch
		class ModelNew(torch.nn.Module):
		    def forward(self, x):
		        out = torch.empty_like(x)
		        cuda_extension.twice(x, out, x.numel())
		        return out
	END
	cat >"$1/kernels/twice.c" <<-'END'
		#include <stdint.h>
		void twice(const float *x, float *out, int64_t n)
		{
			for (int64_t i = 0; i < n; i++)
				out[i] = 2 * x[i];
		}
	END
}

# Processes of ours other than shells and the judge itself: the host and what
# it forked.
victims() {
	local p
	# shellcheck disable=SC2013 # such names have no blanks
	for p in $(grep -lsz "^CA_TEST_MARK=$CA_TEST_MARK\$" \
		/proc/[0-9]*/environ); do
		p=${p%/environ}
		[ "${p#/proc/}" != "$judge" ] &&
			grep -qs '^python' "$p/comm" && echo "${p#/proc/}"
	done
	return 0
}

# Waits a random while, up to 2 s, and kills one at random.
kill_one() {
	local found victim what=child
	sleep "$((RANDOM % 2)).$((RANDOM % 10))"
	mapfile -t found < <(victims)
	[ ${#found[@]} -gt 0 ] || return 1
	victim=${found[RANDOM % ${#found[@]}]}
	grep -qs '^python' "/proc/$(ps -o ppid= -p "$victim" | tr -d ' ')/comm" ||
		what=host
	kill -9 "$victim" 2>/dev/null || return 1
	echo $what >>"$work/killed"
}

one_stream() {
	local killed=0
	"$bin/ca-verify" --device cpu "$work/in" >"$work/out" &
	judge=$!
	while [ "$killed" -lt "$kills" ] && kill -0 "$judge" 2>/dev/null; do
		if kill_one; then killed=$((killed + 1)); fi
	done
	wait "$judge" || echo "ca-verify ended with $?"
	total=$((total + killed))
	jq -r .name "$work/out" | cmp - "$work/names"
	jq -r .verify.status "$work/out" >>"$work/statuses"
	jq -r 'select(.verify.status != "ok").verify | "\(.status), \(.phase): \(.text)"' \
		"$work/out" >>"$work/reasons"
	judge=0
	for _ in $(seq 50); do
		[ -n "$(victims)" ] || break
		sleep 0.1
	done
	[ -z "$(victims)" ] || { echo 'processes are left'; return 1; }
	[ -z "$(ls -A "$TMPDIR")" ] || {
		echo "files are left: $(ls -A "$TMPDIR")"
		return 1
	}
}

candidate "$work/c"
"$bin/ca-compile" --device cpu "$work/c" >"$work/one"
for i in $(seq "$candidates"); do
	sed "s/\"name\":\"c\"/\"name\":\"c$i\"/" "$work/one"
done >"$work/in"
jq -r .name "$work/in" >"$work/names"

total=0
for _ in $(seq "$streams"); do
	one_stream
done
echo "$streams streams of $candidates, $total kills"
echo "killed: $(sort "$work/killed" | uniq -c | tr -s '\n ' ' ')"
sort "$work/statuses" | uniq -c
[ ! -s "$work/reasons" ] || sort "$work/reasons" | uniq -c
# For busy machines, where only records and leftovers count.
[ -z "${CA_KILL_ANY-}" ] || exit 0
# Whose process it was that was killed is no candidate's fault.
! grep -q '^crashed,.* reference' "$work/reasons" &&
	! grep -qvE '^(ok|crashed|killed|invalid_reference|infra_error)$' \
		"$work/statuses"
