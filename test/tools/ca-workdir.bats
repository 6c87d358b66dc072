#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-workdir: init, unpack, export.

setup_file() {
	umask 022
	# the cache of this test holds no virtual environment
	local venv=${CA_CACHE:-/var/cache/cuda-agent}/venv/bin/python3
	[ -x "$venv" ] || venv=$HOME/.cache/cuda-agent/venv/bin/python3
	[ -n "${CA_PYTHON:-}" ] || [ ! -x "$venv" ] || export CA_PYTHON=$venv
	export CA_CACHE=$BATS_FILE_TMPDIR/cache CA_CONFIG=$BATS_FILE_TMPDIR/config
	chmod 755 "$BATS_RUN_TMPDIR" "${BATS_FILE_TMPDIR%/*}" "$BATS_FILE_TMPDIR"
	root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	export root
	export workdirs=$root/fixtures/workdirs
}

setup() {
	bin=${CA_BIN:-$root/bin}
	cd "$BATS_TEST_TMPDIR" || exit
}

fails() { # exit code, text, arguments
	local code=$1 text=$2
	shift 2
	run "$bin/ca-workdir" "$@" </dev/null
	echo "$output"
	[ "$status" -eq "$code" ]
	[[ $output = *"$text"* ]]
}

python() {
	"${CA_PYTHON:-python3}" -B "$@"
}

@test "a directory that another process fills is left to it" {
	model=$workdirs/cpu/batchnorm-relu/model.py
	mkdir taken
	flock taken sleep 30 3>&- &
	until ! flock -n taken true; do sleep 0.05; done
	fails 73 "'taken' is being filled by another process" init "$model" taken
	[ -d taken ]
	kill $!
}

@test "init makes a workdir whose ModelNew runs" {
	model=$workdirs/cpu/batchnorm-relu/model.py
	"$bin/ca-workdir" init "$model" new
	cmp "$model" new/model.py
	[ -z "$(ls -A new/kernels)" ]
	grep -q ca-compile new/README.md
	cd new
	python - <<-'END'
		import torch, model, model_new
		init = model.get_init_inputs()
		want, got = model.Model(*init).eval(), model_new.ModelNew(*init).eval()
		got.load_state_dict(want.state_dict())
		x = torch.randn(2, 128, 4, 4)
		assert torch.equal(want(x), got(x))
	END
	"$bin/ca-compile" --device cpu . >out
	[ "$(jq -r .build.status out)" = no_source ]
	[ "$(jq -r .name out)" = new ]
}

@test "init renames the class and nothing else" {
	cat >m.py <<-'END'
		# Model in a comment
		class Model(Base):
		    """Model in a string"""
		    def f(self):
		        super(Model, self).f(x.Model, "Model", 'a\'Model', SubModel, Model_)
	END
	"$bin/ca-workdir" init m.py d
	tail -n 5 d/model_new.py >got
	sed 's/class Model/class ModelNew/; s/(Model, self/(ModelNew, self/' m.py >want
	diff want got
}

@test "init refuses what it cannot do" {
	fails 66 'No such file' init missing.py d
	echo 'class Other: pass' >other.py
	fails 65 'no class Model' init other.py d
	[ ! -e d ]
	mkdir full
	touch full/x
	echo 'class Model: pass' >m.py
	fails 73 'not empty' init m.py full
	fails 73 'cannot create' init m.py no/such/parent
	fails 64 'init takes' init m.py
	fails 64 "'make' is not" make a b
	mkfifo fifo
	fails 66 'regular' init fifo d
}

@test "unpack gives back what ca-compile took" {
	"$bin/ca-compile" --device cpu "$workdirs/cpu/axpby" "$workdirs/cpu/bad-compile" >in
	"$bin/ca-workdir" unpack out in
	diff -r -x expect.json "$workdirs/cpu/axpby" out/axpby
	diff -r -x expect.json "$workdirs/cpu/bad-compile" out/bad-compile
	"$bin/ca-compile" --device cpu --no-prov out/axpby >again
	[ "$(jq -r .id again)" = "$(jq -r .id in | head -n 1)" ]
}

@test "unpack never leaves its directory" {
	cat >in <<'END'
{"kind":"candidate","v":1,"id":"a1","name":"../../evil","task":{"code":"x"},"files":{}}
{"kind":"candidate","v":1,"id":"a2","name":"..","task":{"code":"x"},"files":{"../up.c":"no"}}
{"kind":"candidate","v":1,"id":"a3","name":"/etc/x","task":{"code":"x"},"files":{"/tmp/abs":"no"}}
{"kind":"candidate","v":1,"id":"a4","name":"a b\n","task":{"code":"x"},"files":{"kernels/../u":""}}
{"kind":"candidate","v":1,"id":"../id","task":{"code":"x"},"files":{"kernels/a.c":"yes"}}
END
	"$bin/ca-workdir" unpack out in
	run find out -mindepth 1 -maxdepth 1 -printf '%f '
	echo "$output"
	[ "$(wc -w <<<"$output")" -eq 5 ]
	for name in _._.._evil _. _._id _etc_x a_b_; do
		[[ " $output" = *" $name "* ]]
	done
	[ "$(find . -type f | grep -vc '/model.py$')" -eq 2 ]
	[ "$(cat out/*/kernels/a.c)" = yes ]
	[ ! -e up.c ] && [ ! -e ../up.c ] && [ ! -e u ]
}

@test "unpack tells records of one name apart" {
	cat >in <<'END'
{"kind":"candidate","v":1,"id":"1111111111111111","name":"x","task":{"code":"one"},"files":{}}
{"kind":"candidate","v":1,"id":"2222222222222222","name":"x","task":{"code":"two"},"files":{}}
{"kind":"candidate","v":1,"id":"2222222222222222","name":"x","task":{"code":"three"},"files":{}}
{"kind":"task","v":1,"id":"33","code":"four"}
END
	"$bin/ca-workdir" unpack out in
	[ "$(cat out/x/model.py)" = one ]
	[ "$(cat out/x-22222222/model.py)" = two ]
	[ "$(cat out/x-22222222-2/model.py)" = three ]
	[ "$(cat out/33/model.py)" = four ]
	fails 73 'not empty' unpack out in
}

@test "unpack takes the selected candidate of a trajectory" {
	local tried='"evaluations":[{"candidate":{"id":"a","files":{"kernels/a.c":"A"}}},'
	tried=$tried'{"candidate":{"id":"b","files":{"kernels/a.c":"B"}}}]'
	local head='"kind":"trajectory","v":1,"task":{"code":"x"}'
	cat >in <<END
{$head,"id":"t1",$tried,"outcome":{"best":{"selected":"a"}}}
{$head,"id":"t2",$tried}
{$head,"id":"t3","evaluations":[]}
{"kind":"metric","v":1,"step":3}
END
	"$bin/ca-workdir" unpack out in
	[ "$(cat out/t1/kernels/a.c)" = A ]
	[ "$(cat out/t2/kernels/a.c)" = B ]
	[ -z "$(ls -A out/t3/kernels)" ]
	[ ! -e out/record ]
}

@test "unpack goes on after bad lines and says 65" {
	cat >in <<'END'
no json
{"kind":"task","v":1,"id":"a","code":"x"}
{"kind":"candidate","v":1,"id":"b","task":{"id":"b"}}
{"kind":"candidate","v":1,"id":"c","task":{"code":"x"},"files":{"kernels/x.c":"","kernels/x.c/y.h":""}}
{"kind":"candidate","v":1,"id":"d","task":{"code":"x"},"files":{"kernels/x.c/y.h":"","kernels/x.c":""}}
END
	fails 65 'no task code' unpack out in
	[ -f out/a/model.py ]
	[ ! -e out/c ] && [ ! -e out/d ]
}

@test "an exported package needs torch only and computes the right result" {
	"$bin/ca-workdir" export --device cpu axpby_pkg "$workdirs/cpu/axpby"
	"$bin/ca-compile" --device cpu "$workdirs/cpu/argmax" >in
	"$bin/ca-workdir" export --device cpu argmax_pkg <in
	"$bin/ca-workdir" export --device cpu inline_pkg "$workdirs/cpu/axpby-inline"
	mkdir elsewhere
	mv axpby_pkg argmax_pkg inline_pkg elsewhere
	cd elsewhere
	env -u CA_CACHE -u CA_LIBDIR "${CA_PYTHON:-python3}" -B - <<-'END'
		import sys
		sys.modules["cuda_extension"] = before = object()
		import axpby_pkg, argmax_pkg, inline_pkg, torch
		assert sys.modules["cuda_extension"] is before
		a, b = torch.randn(1000), torch.randn(1000)
		got = axpby_pkg.ModelNew(2.0, beta=3.0)(a, b)
		assert torch.allclose(got, 2 * a + 3 * b)
		assert torch.equal(inline_pkg.ModelNew(2.0, beta=3.0)(a, b), got)
		from torch.utils.cpp_extension import CUDAExtension, load_inline
		assert load_inline.__module__ == "torch.utils.cpp_extension"
		x = torch.randn(7, 4096)
		assert torch.equal(argmax_pkg.ModelNew()(x), x.argmax(-1))
		try:
		    axpby_pkg.ModelNew(2.0)(a.double(), b)
		except TypeError as e:
		    assert "float32" in str(e), e
		else:
		    raise SystemExit("a wrong dtype was accepted")
	END
	# it is a workdir too
	"$bin/ca-workdir" export --device cpu again axpby_pkg
	diff axpby_pkg/build.json again/build.json
}

@test "export refuses what it cannot do" {
	fails 65 'does not build: compile_error' export --device cpu p "$workdirs/cpu/bad-compile"
	[ ! -e p ]
	fails 64 "no package can be called 'class'" export --device cpu class \
		"$workdirs/cpu/axpby"
	fails 64 'no name of a Python package' export --device cpu my-pkg "$workdirs/cpu/axpby"
	fails 65 'no candidate' export --device cpu p
	"$bin/ca-compile" --device cpu "$workdirs"/cpu/{axpby,argmax} >two
	fails 65 'takes one candidate' export --device cpu p two
	fails 66 'No such file' export --device cpu q missing
	mkdir full
	touch full/x
	fails 73 'not empty' export --device cpu full "$workdirs/cpu/axpby"
}

@test "packages of all CUDA forms are complete" {
	command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || skip 'no nvcc'
	for name in axpby axpby-kernel; do
		"$bin/ca-workdir" export --device cuda "${name//-/_}" "$workdirs/cuda/$name"
		[ "$(head -c 4 "${name//-/_}/kernels.so")" = $'\177ELF' ]
	done
	[ "$(jq -r .form axpby_kernel/build.json)" = kernel ]
}
