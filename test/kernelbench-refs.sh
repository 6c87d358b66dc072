#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# KERNELBENCH=DIR kernelbench-refs.sh [-m MIB] [-g GFLOP] [-j N] [-s FILE]
#                                     [-d FILE] cpu|cuda [GLOB]
#
# Judges tasks of a KernelBench checkout (its folder with level1, level2, …;
# GLOB chooses, default 'level[123]/*.py'), each as its own candidate under the
# rules `kernelbench`: every one has to be verified.  Tasks that take more than
# MIB of inputs, parameters and results (default 256 on the CPU) or more than
# GFLOP in one call (default 20 there) are skipped and counted; both are found
# on torch's meta device, and kept in FILE (-s) for the next time.  Small ones
# come first, N (-j) side by side.  What -d has as verified is left out, and
# each line appears there as soon as it is known.  Exit 1 when one is rejected.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CA_BIN:-$here/../bin}
mib="" gflop="" jobs=1 known="" done=/dev/null
while getopts m:g:j:s:d: o; do
	case $o in
	m) mib=$OPTARG ;;
	g) gflop=$OPTARG ;;
	j) jobs=$OPTARG ;;
	s) known=$(realpath -m "$OPTARG") ;;
	d) done=$(realpath -m "$OPTARG") ;;
	*) exit 64 ;;
	esac
done
shift $((OPTIND - 1))
device=${1:?cpu or cuda}
glob=${2:-level[123]/*.py}
if [ "$device" = cpu ]; then
	: "${mib:=256}" "${gflop:=20}"
else
	: "${mib:=65536}" "${gflop:=1000000}"
fi
[ -e "$done" ] || : >"$done"
cd "${KERNELBENCH:?a checkout of KernelBench}"

work=$(mktemp -d "${TMPDIR:-/tmp}/kernelbench.XXXXXX")
trap 'rm -rf "$work"' EXIT

# A line for each task: MiB, GFLOP and name; "-" where they cannot be told.
sizes() {
	"${CA_PYTHON:-python3}" - "$@" <<-'END'
		import sys, torch
		from torch.utils.flop_counter import FlopCounterMode

		def tensors(value):
		    if isinstance(value, torch.Tensor):
		        yield value
		    elif isinstance(value, (list, tuple)):
		        for v in value:
		            yield from tensors(v)

		torch.set_default_device("meta")
		for name in sys.argv[1:]:
		    space = {}
		    try:
		        exec(compile(open(name).read(), name, "exec"), space)
		        model = space["Model"](*space["get_init_inputs"]())
		        x = space["get_inputs"]()
		        with FlopCounterMode(display=False) as count, torch.no_grad():
		            y = model(*x)
		        every = [*tensors(x), *tensors(y), *model.parameters()]
		        mib = sum(t.numel() * t.element_size() for t in every) >> 20
		        print(mib, round(count.get_total_flops() / 1e9, 3), name)
		    except Exception as exc:
		        print("-", "-", name)
		        print(name, repr(exc)[:100], file=sys.stderr)
	END
}

n=0 skipped=0 before=0
: "${known:=$work/sizes}"
# shellcheck disable=SC2086 # a pattern
[ -s "$known" ] || sizes $glob >"$known"
# shellcheck disable=SC2086
ls $glob >"$work/chosen"
while read -r size flop f; do
	grep -qxF "$f" "$work/chosen" || continue
	if grep -qF "ok	$f	" "$done"; then
		before=$((before + 1))
		continue
	fi
	if [ "$size" != - ] && awk -v s="$size" -v f="$flop" -v m="$mib" -v g="$gflop" \
		'BEGIN { exit !(s > m || f > g) }'; then
		echo "skip	$f	$size MiB, $flop GFLOP"
		skipped=$((skipped + 1))
		continue
	fi
	jq -nc --rawfile code "$f" --arg name "$f" '{
		kind: "candidate", v: 1, name: $name, task: {code: $code},
		files: {"model_new.py": ($code | gsub("\\bModel\\b"; "ModelNew"))},
		rules: "kernelbench"}' >>"$work/in"
	n=$((n + 1))
done < <(sort -n "$known")
[ "$n" -gt 0 ] || { echo "0 judged, $before before, $skipped skipped"; exit 0; }
"$bin/ca-verify" --device "$device" -j "$jobs" --timeout 60s \
	--task-timeout 120s "$work/in" |
	jq --unbuffered -r '[if .verify.status == "ok" then "ok" else "NOT OK" end,
		.name, .verify.status, .verify.text // "",
		"\(.verify.prov.seconds) s", (.verify.prov.waited | tojson)] | @tsv' |
	tee -a "$done" "$work/out"
good=$(grep -c '^ok' "$work/out" || :)
echo "$good of $n verified, $before before, $skipped skipped"
[ "$good" -eq "$n" ]
