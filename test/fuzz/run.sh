#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [SECONDS [NAME...]]: builds the harnesses test/fuzz/NAME_fuzz.c with
# clang and its sanitizers and runs each for a while (10 s), from the corpus
# in test/fuzz/corpus/NAME and what earlier runs kept in build/fuzz/corpus.
# An input that breaks one is left in build/fuzz.
set -u
cd "$(dirname "$0")/../.." || exit 1
seconds=${1:-10}
[ $# -eq 0 ] || shift
command -v clang >/dev/null || {
	echo 'no clang: nothing is fuzzed'
	exit 77
}
echo 'int LLVMFuzzerTestOneInput(const char *p, long n) { return !p && n; }' |
	clang -fsanitize=fuzzer,address -x c -o /dev/null - 2>/dev/null || {
	echo "no fuzzing runtime of clang's: nothing is fuzzed"
	exit 77
}
if [ $# -eq 0 ]; then
	mapfile -t names < <(basename -s _fuzz.c test/fuzz/*_fuzz.c)
	set -- "${names[@]}"
fi
env -u MAKEFLAGS make -s -j"$(nproc)" B=build/fuzz CC=clang \
	CFLAGS='-O1 -g -fsanitize=address,undefined,fuzzer-no-link -Wno-pass-failed' \
	"${@/#/build/fuzz/test/fuzz_}" || exit 1
status=0
for name; do
	corpus=build/fuzz/corpus/$name
	mkdir -p "$corpus"
	seeds=()
	[ ! -d "test/fuzz/corpus/$name" ] || seeds=("test/fuzz/corpus/$name")
	if "build/fuzz/test/fuzz_$name" -max_total_time="$seconds" \
		-timeout=10 -rss_limit_mb=2048 -verbosity=0 \
		-print_final_stats=1 -artifact_prefix="build/fuzz/$name-" \
		"$corpus" "${seeds[@]}" >"build/fuzz/$name.log" 2>&1; then
		echo "$name: $(awk '/number_of_executed_units/ { print $2 }' \
			"build/fuzz/$name.log") inputs"
	else
		tail -n 40 "build/fuzz/$name.log"
		status=1
	fi
done
exit $status
