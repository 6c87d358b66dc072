#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-profile from outside, on the CPU.  Nothing here depends on how long
# anything takes, except that a matrix product takes longer than reading the
# matrix.  Two rounds, as --quick has, give no bounds.

bats_require_minimum_version 1.5.0
load judge

profile() {
	"$bin/ca-profile" --device cpu "$@"
}

@test "a candidate that wins by algebra, from the workdir on" {
	profile --quick "$fix/diag-matmul" >out
	[ "$(statuses verify out)" = $'diag-matmul\tok' ]
	jq -e '.profile | (.status == "ok" or .status == "inconclusive_time") and
		.clock == "bracket" and .device == "cpu" and .provisional and
		(.contended | type) == "boolean" and .rounds >= 1 and
		.eager.median_us > 0 and .compile.median_us > 0 and
		.eager.low_us == null and .speedup.eager.lower == null and
		.speedup.eager.point > 2 and .speedup.compile.point > 2 and
		(.prov.waited | .oracle > 0 and .eager > 0 and .compile > 0 and
		.calibration > 0)' out
}

@test "compiled code that was damaged is compiled again, and said with -v" {
	local cache=${CA_CACHE:-/var/cache/cuda-agent} store file
	[ "$(id -u)" = 0 ] || cache=${CA_CACHE:-$HOME/.cache/cuda-agent}
	mkdir mine
	cp -r "$fix/diag-matmul/." mine
	echo "# $RANDOM $BATS_ROOT_PID" >>mine/model.py
	profile --quick mine >out
	# As the judge names it: model.py and the mode, each with its length.
	store=$cache/torch/code/$(python3 - mine/model.py default <<-'END'
		import hashlib, sys
		h = hashlib.sha256()
		for part in (open(sys.argv[1], "rb").read(), sys.argv[2].encode()):
		    h.update(len(part).to_bytes(8, "little") + part)
		print(h.hexdigest())
	END
	)
	file=$(find "$store" -name '*.so' | head -1)
	[ -s "$file" ]
	truncate -s 100 "$file"
	jq -c 'del(.profile)' out >in
	profile -v --quick in >again 2>told
	grep -q "'$store' is damaged: compiled again" told
	jq -e '.profile.compile.median_us > 0' again
	[ "$(stat -c %s "$file")" -gt 100 ]
	rm -r "$store"
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
			float off = calls++ < 10 ? 0 : 1;

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

# A task of two operations, the second in place.
two_steps() {
	mkdir -p "$1"
	cat >"$1/model.py" <<-'END'
		import torch
		class Model(torch.nn.Module):
		    def forward(self, x):
		        y = x @ x.t()
		        y.relu_()
		        return y[:3]
		def get_init_inputs():
		    return []
		def get_inputs():
		    return [torch.randn(200, 50)]
	END
}

@test "what there is to beat, and where its time goes" {
	two_steps steps
	profile --reference --json steps >out
	jq -e '.kind == "candidate" and (has("profile") | not)' out
	jq -e '.reference | .status == "ok" and .copy_bytes_per_s > 1e8 and
		.bytes > 40000 and .candidate == null and
		.kernels.candidate == null and .speedup.eager == null and
		.eager.median_us > 0 and .compile.median_us > 0 and
		(has("kernels_reason") | not)' out
	# mm: two of 200 x 50 floats to 200 x 200; relu_ reads and writes it.
	# The transpose is another view of the same bytes, counted once more.
	jq -e '.reference.kernels.eager |
		map({(.name): .}) | add |
		.["aten::mm"].calls == 1 and .["aten::mm"].bytes == 240000 and
		.["aten::relu_"].calls == 1 and
		.["aten::relu_"].bytes == 320000 and
		([.[].share] | add - 1 | fabs) < 1e-6 and
		(keys == ["[between]", "aten::mm", "aten::relu_"])' out
	jq -e '.reference.kernels.compile |
		map(select(.bytes != null) | .name) | sort | length == 2 and
		(.[0] | startswith("cpp_fused")) and
		.[1] == "extern_kernels.mm"' out
}

@test "--reference takes tasks and says in a line what is wrong with one" {
	two_steps steps
	{
		jq -nc --rawfile code steps/model.py \
			'{kind: "task", v: 1, id: "good", code: $code}'
		jq -nc '{kind: "task", v: 1, id: "bad\u001b", code:
			"def get_inputs():\n    return []\n"}'
		echo '{"kind":"metric","v":1,"step":3}'
	} >in
	profile --reference --baseline eager -v in >out 2>err
	cat out
	[ "$(grep -c . out)" -ge 7 ]
	grep -Eq '^good: ok, ' out
	grep -Eq '^  eager +calls +us +share +MB +GB/s +copy$' out
	grep -Eq '^    aten::mm +1 +[0-9.]+ +[0-9.]+% +0\.24 +[0-9.]+ +[0-9]+%$' \
		out
	grep -Eq '^    whole call, .* 1 +[0-9.]+ +0\.04 ' out
	[ "$(tail -1 out)" = \
		"bad\\x1b: invalid_reference: model.py defines no 'Model'" ]
	grep -q '1 of other kinds' err
}

@test "--table prints speedups and whole calls" {
	profile --quick --baseline eager --table "$fix/diag-matmul" \
		"$fix/bad-shape" >out
	cat out
	grep -Eq '^diag-matmul: ok, ' out
	grep -Eq '^  [0-9.e+]+x over eager$' out
	grep -Eq '^  candidate +calls ' out
	grep -Eq '^    whole call, by .* 1 +[0-9.]+ +8\.39 ' out
	[ "$(tail -1 out)" = 'bad-shape: wrong_shape' ]
	run ! grep -q '^{' out
}

@test "a signed profile is believed" {
	# One of a machine that others keep busy is not, unless that is no matter.
	profile --quick --baseline eager --allow-shared "$fix/diag-matmul" >once
	profile --quick --baseline eager --allow-shared once >twice
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
	own_hosts
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
