#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh [cpu|cuda]: judges eight candidates for three tasks, good, slow,
# wrong, broken and cheating ones, and prints what each is worth.  Without a
# device named: the GPU if there is one (and nvcc), else the CPU.
set -eu -o pipefail
usage() { sed -n '4,6s/^# \{0,1\}//p' "$0" >&$((1 + (${1:-64} > 0))) && exit "${1:-64}"; }
case ${1-} in '' | cpu | cuda) ;; -h | --help) usage 0 ;; *) usage ;; esac
cd "$(dirname "$0")/.."

pick_device() {
	if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
		echo cpu
	elif command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
		echo cuda
	else
		echo 'demo: there is a GPU but no nvcc; using the CPU' >&2
		echo cpu
	fi
}

# Passes records on and says on stderr what became of each.
watch() { # stage, jq expression for its verdict
	local line n=0
	while IFS= read -r line; do
		printf '%s\n' "$line"
		n=$((n + 1))
		printf '%4d s  %-8s %d/%d  %s\n' "$SECONDS" "$1" "$n" "$count" \
			"$(jq -r ".name + \": \" + ($2)" <<<"$line")" >&2
	done
}

device=${1:-$(pick_device)}
# Clear cases: an even race with torch.compile is timed for many rounds.
names=(masked-mean diag-matmul slow-diag-matmul matmul-sum bad-compile
	bad-value bad-cached bad-torch)
[ "$device" = cpu ] || names[0]=axpby-paper	# laid out as the released one
count=${#names[@]}
printf 'Judging %d candidates on %s; torch.compile takes most of the time.\n' \
	"$count" "$device" >&2
bin/ca-compile --device "$device" \
	"${names[@]/#/fixtures/workdirs/$device/}" |
	watch compile .build.status |
	bin/ca-verify | watch verify .verify.status |
	bin/ca-profile |
	watch profile '.profile.candidate.median_us |
		if . then "\(. / 10 | round / 100) ms" else "not timed" end' |
	bin/ca-reward --table
cat <<END

That took $SECONDS s.  For a kernel of your own:
  bin/ca-workdir init model.py mine     a work directory for the task in model.py
  (write mine/model_new.py and mine/kernels/, as in fixtures/workdirs/$device/axpby)
  bin/ca-compile --device $device mine | bin/ca-verify --explain
  bin/ca-compile --device $device mine | bin/ca-verify | bin/ca-profile | bin/ca-reward --table
END
