#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-profile from outside, on the CPU.  Nothing here depends on how long
# anything takes, except that a matrix product takes longer than reading the
# matrix.  Two rounds, as --quick has, give no bounds.

bats_require_minimum_version 1.5.0
load judge

setup() {
	judge_setup
}

teardown() {
	judge_teardown
}

profile() {
	"$bin/ca-profile" --device cpu "$@"
}

@test "a candidate that wins by algebra, from the workdir on" {
	profile --quick "$fix/diag-matmul" >out
	[ "$(statuses verify out)" = $'diag-matmul\tok' ]
	jq -e '.profile | (.status == "ok" or .status == "inconclusive_time") and
		.clock == "bracket" and .device == "cpu" and .provisional and
		.contended == false and .rounds >= 1 and
		.eager.median_us > 0 and .compile.median_us > 0 and
		.eager.low_us == null and .speedup.eager.lower == null and
		.speedup.eager.point > 2 and .speedup.compile.point > 2' out
}

@test "--baseline eager leaves torch.compile out" {
	profile --quick --baseline eager "$fix/slow-diag-matmul" >out
	jq -e '.profile | .compile == null and (.compile_reason | length > 0) and
		.provisional and .speedup.eager.point < 0.9 and
		.options.baseline == "eager"' out
}

@test "what is not verified is not timed" {
	"$bin/ca-compile" --device cpu "$fix/bad-compile" "$fix/bad-value" \
		"$fix/bad-segfault" >in
	profile --quick in >out
	[ "$(statuses profile out)" = "$(statuses verify out)" ]
	[ "$(statuses verify out)" = \
		$'bad-compile\tcompile_error\nbad-value\twrong_value\nbad-segfault\tcrashed' ]
	jq -e -s 'map(.profile.candidate == null and .profile.eager == null) |
		all' out
}

@test "a forged verdict is judged again before the clock" {
	"$bin/ca-verify" --device cpu "$fix/bad-value" >in
	sed 's/"verify":{"status":"wrong_value"/"verify":{"status":"ok"/' in >forged
	run ! cmp -s in forged
	profile --quick --baseline eager forged >out
	[ "$(statuses verify out)" = $'bad-value\twrong_value' ]
	[ "$(jq .profile.candidate out)" = null ]
}

@test "right while it is verified, wrong while it is timed" {
	# A process that times a quick task calls more often than one that
	# verifies it on plain inputs only.
	model | task tired
	cat >tired/kernels/twice.c <<-'END'
		#include <stdint.h>
		void twice(const float *x, float *out, int64_t n)
		{
			static int calls;
			float off = calls++ < 18 ? 0 : 1;

			for (int64_t i = 0; i < n; i++)
				out[i] = 2 * x[i] + off;
		}
	END
	"$bin/ca-verify" --device cpu --literal tired >in
	[ "$(statuses verify in)" = $'tired\tok' ]
	profile --literal --quick --baseline eager in >out
	statuses profile out
	[ "$(statuses profile out)" = $'tired\twrong_value' ]
	[ "$(jq .profile.candidate out)" = null ]
}

@test "a signed profile is believed" {
	profile --quick --baseline eager "$fix/diag-matmul" >once
	profile --quick --baseline eager once >twice
	cmp once twice
}

@test "records of other kinds pass as they are" {
	printf '%s\n' '{"kind":"task","v":1,"id":"7","code":"x = 1","own": 1.50}' \
		'{"kind":"metric","v":1,"step":3}' >in
	profile in >out
	cmp in out
}

@test "wrong usage" {
	run profile --max-rounds 0 /dev/null
	[ "$status" -eq 64 ]
	run profile --baseline jit /dev/null
	[ "$status" -eq 64 ]
	for opts in --json '--json --table' '--table -o x' \
		'--reference -o x'; do
		# shellcheck disable=SC2086
		run profile $opts /dev/null
		[ "$status" -eq 64 ]
	done
	[ ! -e x ]
	run profile no-such-file
	[ "$status" -eq 66 ]
}

@test "an interrupt while a clock runs leaves nothing running" {
	"$bin/ca-verify" --device cpu "$fix/diag-matmul" >in
	env --default-signal=INT "$bin/ca-profile" --device cpu in >out &
	judge=$!
	wait_for at_work 2
	sleep 3
	kill -INT "$judge"
	status=0
	wait "$judge" || status=$?
	[ "$status" -eq 130 ]
	[ ! -s out ]
}
