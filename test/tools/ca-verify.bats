#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-verify from outside, on the CPU.

bats_require_minimum_version 1.5.0
load judge

verify() {
	"$bin/ca-verify" --device cpu "$@"
}

@test "every fixture gets the status that it states" {
	# Not under `run`: a deadline would leave it behind.  Those that are only
	# slow have fast twins.
	local names
	mapfile -t names < <(cd "$fix" && ls -d [!s]* s[!l]*)
	"$BATS_TEST_DIRNAME/../fixtures.sh" -v cpu "${names[@]}" >out
	[ "$(wc -l <out)" -ge 28 ]
}

@test "a workdir as operand is built and verified" {
	verify "$fix/diag-matmul" >out
	[ "$(statuses build out)" = $'diag-matmul\tok' ]
	[ "$(statuses verify out)" = $'diag-matmul\tok' ]
	jq -e '.verify | .rules == "paper" and .device == "cpu" and
		.iterations >= 5 and .aten.compute == 0 and
		(.tensors | length) == 1 and .tensors[0].misses == 0 and
		.tensors[0].shape == [1024, 1024] and
		(.mac | type) == "string" and
		(.prov.waited | .oracle > 0 and .start > 0 and .candidate > 0 and
		(has("eager") | not))' out
}

@test "-e tells by the exit status, and only then" {
	build in "$fix/bad-value" "$fix/diag-matmul"
	verify in >out
	jq -c 'select(.name == "diag-matmul")' in >good
	verify -e good >/dev/null
	run verify -e in
	[ "$status" -eq 1 ]
}

@test "--explain names the first element that missed" {
	build in "$fix/bad-value"
	run verify --explain in
	[ "$status" -eq 0 ]
	[[ ${lines[0]} == "bad-value: wrong_value"* ]]
	[[ $output == *"[1023, "*"got "*"wanted "*"allowed "* ]]
	[[ $output != *'{"kind"'* ]]
}

@test "--explain shows the compiler's message and its place" {
	run verify --explain "$fix/bad-compile"
	[ "$status" -eq 0 ]
	[[ ${lines[0]} == "bad-compile: compile_error"* ]]
	[[ $output == *kernels/scale_rows.c:*undeclared* ]]
}

@test "--explain says what was not judged, and keeps control characters in" {
	build in "$fix/bad-compile" "$fix/diag-matmul"
	jq -c '.name = "a\u001b[31m\nb"' in >odd
	CA_TORCH_IDLE=x run -78 --separate-stderr verify --explain odd
	[[ ${lines[0]} == 'a\x1b[31m\x0ab: compile_error ('* ]]
	[[ ${lines[-1]} == 'a\x1b[31m\x0ab: not judged' ]]
	[[ $stderr == *CA_TORCH_IDLE* && $output != *$'\e'* ]]
}

@test "--explain says NaN as it is, and which input was written" {
	run verify --explain "$fix/bad-nan" "$fix/bad-input-modified"
	[ "$status" -eq 0 ]
	[[ $output == *"got nan, wanted "* ]]
	[[ $output == *"bad-input-modified: input_modified"*"input 1 was "* ]]
}

# workdir NAME: a candidate with model.py's forward, ModelNew's and a kernel in
# m.py, n.py and k.c.
workdir() {
	mkdir -p "$1/kernels"
	{
		printf 'import torch\n\n\nclass Model(torch.nn.Module):\n'
		sed 's/^/    /' m.py
		printf '\n\ndef get_inputs():\n    return [torch.rand(32, 33), '
		printf 'torch.rand(32, 33)]\n\n\ndef get_init_inputs():\n'
		printf '    return []\n'
	} >"$1/model.py"
	{
		printf 'import torch\nimport cuda_extension as ext\n\n\n'
		printf 'class ModelNew(torch.nn.Module):\n'
		sed 's/^/    /' n.py
	} >"$1/model_new.py"
	cp k.c "$1/kernels/k.c"
}

@test "a modified input has the tolerance of results, and a first miss" {
	cat >m.py <<-'END'
		def forward(self, p, m):
		    m.mul_(0.9).add_(p, alpha=1 - 0.9)
		    p.sub_(m)
		    return p * 2
	END
	cat >n.py <<-'END'
		def forward(self, p, m):
		    y = torch.empty_like(p)
		    ext.step(p, m, y, p.numel())
		    return y
	END
	cat >k.c <<-'END'
		#include <stdint.h>
		void step(float *p, float *m, float *y, int64_t n)
		{
			for (int64_t i = 0; i < n; i++) {
				m[i] = m[i] * 0.9f + p[i] * (1 - 0.9f);
				p[i] -= m[i];
				y[i] = p[i] * 2;
			}
		}
	END
	workdir near
	sed -i '$s/}/m[n - 1] = 7;\n}/' k.c
	workdir off
	verify near off >out
	[ "$(statuses verify out)" = $'near\tok\noff\tinput_modified' ]
	jq -se '.[1].verify.modified | .inputs == "plain" and
		(.tensor | .path == "input 1" and .shape == [32, 33] and
		.misses == 1 and (.first_miss | .index == [31, 32] and
		.got == 7 and .want < 2 and .allowed > 0))' out
	jq -se '.[0].verify.modified == null' out
	run verify --explain out
	[[ $output == *"input 1 was not left as the reference leaves it, plain inputs: 1 of 1056 elements differ; first at [31, 32]: got 7, wanted "* ]]
}

@test "who misses a reference that misses itself is not to blame" {
	cat >n.py <<-'END'
		def forward(self, x, y):
		    out = torch.empty_like(x)
		    ext.keep(x, out, x.numel())
		    return out
	END
	cat >k.c <<-'END'
		#include <stdint.h>
		void keep(const float *x, float *out, int64_t n)
		{
			for (int64_t i = 0; i < n; i++)
				out[i] = x[i] * 2;
		}
	END
	cat >m.py <<-'END'
		n = 0
		def forward(self, x, y):
		    self.n += 1
		    return x * self.n
	END
	workdir counts
	cat >m.py <<-'END'
		def forward(self, x, y):
		    return x + torch.randn(32, 33)
	END
	workdir draws
	cat >m.py <<-'END'
		def forward(self, x, y):
		    return x * 3 + y
	END
	workdir misses
	verify counts draws misses >out
	[ "$(statuses verify out)" = $'counts\tinvalid_reference\ndraws\tinvalid_reference\nmisses\twrong_value' ]
	jq -se '(.[0].verify.text | contains("from call to call: result 0")) and
		(.[1].verify.text | contains("with other random numbers"))' out
}

@test "--no-prov leaves out of attribution what differs from run to run" {
	run verify --no-prov "$fix/axpby"
	jq -e '.verify.attribution | keys == ["by", "calls"]' <<<"$output"
}

@test "--explain of a crash names the signal" {
	run verify --explain "$fix/bad-segfault"
	[ "$status" -eq 0 ]
	[[ ${lines[0]} == "bad-segfault: crashed"* ]]
	[[ $output == *"signal 11"* ]]
}

@test "--literal leaves the other distributions out" {
	build in "$fix/diag-matmul"
	verify in >all
	verify --literal in >literal
	jq -e '.verify.options.literal == true' literal
	jq -e '.verify.options.literal == false' all
	[ "$(jq .verify.iterations literal)" -lt "$(jq .verify.iterations all)" ]
}

@test "a candidate that is right on plain inputs only" {
	# The task's inputs are never negative; other distributions are.
	cp -r "$fix/matmul-sum" unsigned
	sed -i 's/s += x\[i \* m + j\]/s += __builtin_fabsf(x[i * m + j])/' \
		unsigned/kernels/matmul_sum.c
	grep -q fabsf unsigned/kernels/matmul_sum.c
	build in unsigned
	verify --literal in >literal
	verify in >all
	[ "$(statuses verify literal)" = $'unsigned\tok' ]
	[ "$(statuses verify all)" = $'unsigned\twrong_value' ]
}

@test "a reference that is killed once on large inputs gets them again" {
	# in a jail no process can kill itself so
	local once="not os.path.exists('$PWD/killed')"
	model | sed "/return 2/i\\        if x.abs().max() > 12 and $once: open('$PWD/killed', 'w').close() or os.kill(os.getpid(), 9)" |
		task large
	model | task good
	build in large good
	verify --no-jail in >out
	[ -e killed ]
	[ "$(statuses verify out)" = $'large\tok\ngood\tok' ]
	[ "$(jq .verify.iterations out | uniq | wc -l)" -eq 1 ]
}

@test "-n reads so many records" {
	build in "$fix/bad-compile" "$fix/diag-matmul" "$fix/bad-value"
	verify -n 1 in >out
	[ "$(wc -l <out)" -eq 1 ]
	[ "$(statuses verify out)" = $'bad-compile\tcompile_error' ]
}

@test "records of other kinds pass as they are" {
	cat >in <<-'END'
		{"kind":"task","v":1,"id":"7","code":"x = 1","own": 1.50}
		{"kind":"metric","v":1,"step":3}
		{"kind":"something","v":1,"a":[1,  2]}
	END
	verify in >out
	cmp in out
}

@test "other fields of a candidate stay" {
	build in "$fix/bad-compile"
	sed 's/^{/{"mine":{"deep":[1.50,"é"]},/' in >more
	verify more >out
	grep -qF '"mine":{"deep":[1.50,"é"]}' out
	[ "$(statuses verify out)" = $'bad-compile\tcompile_error' ]
}

@test "a signed verdict is believed, a changed one is not" {
	build in "$fix/diag-matmul" "$fix/bad-value"
	verify in >once
	verify once >twice
	cmp once twice
	sed 's/"verify":{"status":"wrong_value"/"verify":{"status":"ok"/' once >forged
	run ! cmp -s once forged
	verify forged >judged
	[ "$(statuses verify judged | tail -1)" = $'bad-value\twrong_value' ]
}

@test "a verdict moved over from another candidate is judged again" {
	build in "$fix/diag-matmul" "$fix/bad-value"
	verify in >out
	good=$(jq -c 'select(.name == "diag-matmul").verify' out)
	jq -c --argjson v "$good" '.verify = $v' out >moved
	verify moved >judged
	[ "$(statuses verify judged)" = \
		$'diag-matmul\tok\nbad-value\twrong_value' ]
}

@test "a laxer verdict is judged again, a stricter one is believed" {
	build in "$fix/diag-matmul"
	verify --literal in >lax
	verify lax >strict
	[ "$(jq .verify.options.literal strict)" = false ]
	verify --literal strict >again
	cmp strict again
}

@test "--seed replays, and the record says so" {
	build in "$fix/bad-value"
	verify --seed 7 --no-prov in >a
	verify --seed 7 --no-prov in >b
	cmp a b
	[ "$(jq -r .verify.options.seed a)" = 7 ]
}

@test "tasks that cannot be judged" {
	model | sed 's/class Model(/class Other(/' | task no-model
	model | sed 's/return 2 \* x/raise ValueError("no")/' | task raises
	model 'raise KeyError(1)' | task inputs-raise
	model | sed 's/^def get_init_inputs.*/def (/' | task syntax
	model 'os._exit(0)' | task exits
	model 'import ctypes; ctypes.string_at(0)' | task segfault
	model 'time.sleep(1000)' | task sleeps
	model 'while True: pass' | task spins
	model 'return "text"' | task no-list
	model | sed 's/return 2 \* x/return 0 * x/' | task all-zeros
	model | task good
	build in no-model raises inputs-raise syntax exits segfault sleeps \
		spins no-list all-zeros good
	verify --task-timeout 4s in >out
	statuses verify out
	[ "$(statuses verify out)" = "$(printf '%s\tinvalid_reference\n' \
		no-model raises inputs-raise syntax exits segfault sleeps \
		spins no-list all-zeros; printf 'good\tok')" ]
	jq -e -s 'map(select(.name != "good") | .verify.text | length > 0) |
		all' out
	jq -e -s 'map(select(.name == "sleeps" or .name == "spins" or
		.name == "exits") | .verify.phase | type == "string") | all' out
}

@test "a task that prints a gigabyte" {
	model 'for i in range(1024):' '    os.write(1, b"y" * 1048576)' | task out
	model 'for i in range(1024):' '    os.write(2, b"y" * 1048576)' | task err
	model | task good
	build in out err good
	verify --task-timeout 20s in >result 2>messages
	[ "$(wc -l <result)" -eq 3 ]
	[ "$(stat -c %s messages)" -lt 1000000 ]
	statuses verify result
	[[ $(statuses verify result) == \
		out$'\t'@(ok|invalid_reference)$'\n'err$'\t'@(ok|invalid_reference)$'\n'good$'\tok' ]]
}

@test "a task and a candidate that allocate without end" {
	# What they get is hardly touched, so the limit is met at once.
	model 'hold = []' 'while True:' \
		'    hold.append(torch.empty(16 << 20))' | task greedy-task
	model | task greedy
	cat >greedy/kernels/twice.c <<-'END'
		#include <stdint.h>
		#include <stdlib.h>
		void twice(const float *x, float *out, int64_t n)
		{
			(void)x; (void)n;
			for (;;) {
				volatile char *p = malloc(64 << 20);
				p[0] = 1;
				out[0] = p[0];
			}
		}
	END
	model | task good
	build in greedy-task greedy good
	verify --task-timeout 60s in >out
	statuses verify out
	[[ $(statuses verify out) == greedy-task$'\t'invalid_reference$'\n'greedy$'\t'@(oom|crashed|killed)$'\n'good$'\t'ok ]]
}

@test "candidates that misbehave as processes" {
	model | task forks
	sed -i '1i import os' forks/model_new.py
	sed -i 's/    def forward/    def __init__(self):\n        super().__init__()\n        [os.fork() for i in range(9)]\n&/' \
		forks/model_new.py
	model | task stops
	sed -i '1i import os, signal' stops/model_new.py
	sed -i 's/        return out/        os.kill(os.getpid(), signal.SIGSTOP)\n&/' \
		stops/model_new.py
	model | task prints
	sed -i '1i import os' prints/model_new.py
	sed -i 's/        return out/        print("{\\"verify\\": \\"ok\\"}")\n        os.write(1, b"x" * 9999999)\n&/' \
		prints/model_new.py
	model | task raises
	sed -i 's/        return out/        raise SystemExit(0)/' raises/model_new.py
	model | task good
	build in forks stops prints raises good
	verify --timeout 4s --first-timeout 4s in >out 2>messages
	statuses verify out
	[ "$(wc -l <out)" -eq 5 ]
	[ "$(stat -c %s messages)" -lt 1000000 ]
	[[ $(statuses verify out) == forks$'\t'@(crashed|killed|tampered)$'\n'stops$'\t'@(timeout|crashed|ok)$'\n'prints$'\t'ok$'\n'raises$'\t'crashed$'\n'good$'\tok' ]]
}

@test "the host is killed in mid-job: the record is judged again" {
	own_hosts
	model | task good
	build one good
	for _ in {1..12}; do cat one; done >in
	"$bin/ca-verify" --device cpu in >out &
	judge=$!
	wait_for [ -s out ]
	hosts=$(pgrep -P "$judge" -f host.py)
	[ -n "$hosts" ]
	# shellcheck disable=SC2086
	kill -9 $hosts
	wait "$judge"
	[ "$(statuses verify out | sort -u)" = $'good\tok' ]
	[ "$(wc -l <out)" -eq 12 ]
}

@test "hosts and workers are killed at random moments" {
	CA_KILL_ANY=1 "$BATS_TEST_DIRNAME/../kill.sh" 1 10 4
}

@test "an interrupt ends it, and leaves nothing running" {
	own_hosts
	build in "$fix/bad-hang" "$fix/bad-hang"
	# A shell's background jobs ignore SIGINT; env undoes that.
	env --default-signal=INT "$bin/ca-verify" --device cpu in >out &
	judge=$!
	wait_for at_work 2
	sleep 1
	kill -INT "$judge"
	status=0
	wait "$judge" || status=$?
	[ "$status" -eq 130 ]
	[ "$(wc -l <out)" -le 1 ]
}

@test "killed itself, it leaves nothing running" {
	own_hosts
	build in "$fix/bad-hang"
	"$bin/ca-verify" --device cpu in >out &
	judge=$!
	wait_for at_work 2
	kill -9 "$judge"
	wait "$judge" || :
	wait_for nothing_left
}

@test "two at once on one device both finish" {
	model | task good
	build in good
	verify in >a &
	one=$!
	verify in >b
	wait "$one"
	[ "$(statuses verify a)$(statuses verify b)" = $'good\tokgood\tok' ]
}

@test "what is missing is said, with the documented exit status" {
	build in "$fix/diag-matmul"
	run verify --device cuda:99 in
	[ "$status" -eq 69 ]
	run verify --device toaster in
	[ "$status" -eq 64 ]
	run verify --rules lax in
	[ "$status" -eq 64 ]
	run verify no-such-file
	[ "$status" -eq 66 ]
	printf '#!/bin/sh\nexit 1\n' >no-torch
	chmod +x no-torch
	CA_PYTHON=$PWD/no-torch run verify in
	[ "$status" -eq 69 ]
	[[ $output == *"torch host"* ]]
	CA_PYTHON=$PWD/no-python run verify in
	[ "$status" -eq 69 ]
	[[ $output == *no-python* ]]
}

@test "a task whose results no machine holds costs none" {
	# a view of one number is told by its shape, 4 TiB
	model | sed 's/return 2 \* x/return x[:1, :1].expand(1 << 20, 1 << 20)/' |
		task huge
	model | task good
	build in huge good
	verify in >out
	statuses verify out
	[ "$(statuses verify out)" = $'huge\tinvalid_reference\ngood\tok' ]
	[[ $(jq -rs '.[0].verify.text' out) = *'no memory for 4398046511104 bytes'* ]]
}

@test "an edited record leaves with the ids of what it holds" {
	model | task good
	build one good
	jq -c '.task.code += "# edited\n" | .task.more = [1, "x"]' one >in
	verify in >out
	statuses verify out
	[ "$(statuses verify out)" = $'good\tok' ]
	[ "$(jq -r .task.id out)" = \
		"$(jq -j .task.code out | sha256sum | head -c 32)" ]
	[ "$(jq -r .id out)" != "$(jq -r .id one)" ]
	jq -e '.task.more == [1, "x"]' out
	# also where the verdict is believed
	jq -c '.task.id = "other" | .id = 3' out >in
	verify in >again
	cmp out again
}

@test "--explain tells errors only of what was compared, and integers' rule" {
	model | task shape
	sed -i 's/return out/return out.unsqueeze(0)/' shape/model_new.py
	build in shape "$fix/argmax"
	run verify --explain in
	echo "$output"
	[[ ${lines[0]} == "shape: wrong_shape"* ]]
	[[ ${lines[1]} == *"has shape "* ]]
	[[ ${lines[2]} == "argmax: ok"* ]]
	[[ ${lines[3]} == *"it has to be equal" ]]
	[ "${#lines[@]}" -eq 4 ]
}

@test "a candidate without files or task is a bad record" {
	build one "$fix/diag-matmul"
	jq -c 'del(.files)' one >in
	jq -c 'del(.task)' one >>in
	jq -c '.rules = 3' one >>in
	cat one >>in
	verify in >out
	[ "$(jq -r .verify.status out | tr '\n' ' ')" = 'bad_record bad_record bad_record ok ' ]
}

@test "a misspelt launcher is told which there are" {
	model | task typo
	sed -i 's/cuda_extension.twice/cuda_extension.twise/' typo/model_new.py
	"$bin/ca-verify" --device cpu typo >out
	[ "$(statuses verify out)" = $'typo\tcrashed' ]
	[ "$("$bin/ca-verify" -e </dev/null; echo $?)" = 1 ]
	[[ $(jq -r .verify.text out) = *"no launcher 'twise' (there are: twice)"* ]]
}

@test "a byte order mark, and a task by its id" {
	model | task marked
	sed -i '1s/^/\xef\xbb\xbf/' marked/model_new.py marked/model.py \
		marked/kernels/twice.c
	build whole marked
	jq -c '.task |= {id}' whole >short
	jq -c '{kind: "task", v: 1, code: .task.code}' whole >tasks
	"$bin/ca-verify" --tasks tasks short >out
	[ "$(statuses verify out)" = $'marked\tok' ]
	[ "$(jq -r .task.code out)" = "$(jq -r .task.code whole)" ]
	"$bin/ca-verify" out | cmp - out
	run "$bin/ca-verify" --tasks missing short
	[ "$status" -eq 66 ]
	run "$bin/ca-verify" --device tpu short
	[ "$status" -eq 64 ]
	[[ "$output" == *"no device: 'tpu'"* ]]
}

@test "who waits for more records holds the device for nobody" {
	local jobs cache=${CA_CACHE:-/var/cache/cuda-agent}
	[ "$(id -u)" = 0 ] || cache=${CA_CACHE:-$HOME/.cache/cuda-agent}
	build good "$fix/diag-matmul"
	for jobs in 1 2; do
		rm -f in back
		mkfifo in back
		verify -j "$jobs" <in >back 2>err 3>&- &
		exec 7>in 8<back
		cat good >&7
		IFS= read -r -u 8 line
		[ "$(jq -r .verify.status <<<"$line")" = ok ]
		# What has been ended for it may take a moment yet.
		flock -w 60 "$cache/lease/cpu" true
		exec 7>&- 8<&-
		wait $!
	done
}

@test "who cannot write yet holds the device for nobody" {
	build built "$fix/axpby"
	for name in a b c; do
		jq -c --arg n $name '.name = $n | .pad = "x" * 100000' built
	done >many
	"$bin/ca-verify" --device cpu --lease-timeout 100 many |
		"$bin/ca-profile" --device cpu --lease-timeout 100 --quick >out
	jq -es 'length == 3 and
		all(.[].profile.status; . and . != "infra_error")' out
}
