#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Candidates that call load_inline and load, and the headers that they and the
# paper form are built against.

load judge.bash

setup_file() {
	share_host
	umask 022
	local venv=${CA_CACHE:-/var/cache/cuda-agent}/venv/bin/python3
	[ -x "$venv" ] || venv=$HOME/.cache/cuda-agent/venv/bin/python3
	[ -n "${CA_PYTHON:-}" ] || [ ! -x "$venv" ] || export CA_PYTHON=$venv
}

# candidate DIR: a workdir for doubling with model_new.py from stdin
candidate() {
	mkdir -p "$1/kernels"
	model >"$1/model.py"
	cat >"$1/model_new.py"
}

# doubles ARGUMENTS: a model_new.py that calls load_inline with these; what is
# before it is already on stdin
doubles() {
	cat
	cat <<-END
		import torch
		from torch.utils.cpp_extension import load, load_inline
		SOURCE = """
		torch::Tensor twice(torch::Tensor x) {
		    auto out = torch::empty_like(x);
		    auto *a = x.data_ptr<float>();
		    auto *b = out.data_ptr<float>();
		    for (int64_t i = 0; i < x.numel(); i++)
		        b[i] = FACTOR * a[i];
		    return out;
		}
		"""
		def make():
		    return $1
		class ModelNew(torch.nn.Module):
		    ext = None
		    def forward(self, x):
		        if self.ext is None:
		            self.ext = make()
		        return self.ext.twice(x)
	END
}

inline='load_inline(name="two", cpp_sources=[SOURCE], functions=["twice"]'

compile() { # status that the build must have, workdir, options
	local want=$1 dir=$2
	shift 2
	"$bin/ca-compile" --device cpu "$@" "$dir" >out
	run jq -r '"\(.build.status) \(.build.error.message)"' out
	echo "$output"
	[ "${output%% *}" = "$want" ]
}

says() { # what the last error's message holds
	[[ $output == *"$1"* ]]
}

verified() { # status of the candidate that was built last
	"$bin/ca-verify" --device cpu -q <out >verified
	run jq -r '"\(.verify.status) \(.verify.text)"' verified
	echo "$output"
	[ "${output%% *}" = "$1" ]
}

@test "an extension that is made at the first call is found, built and judged" {
	candidate one < <(doubles "$inline"', extra_cflags=["-DFACTOR=2"])' </dev/null)
	compile ok one
	[ "$(jq -c '.build|[.form,.headers,.launchers[].name]' out)" = \
		'["inline","slim","two"]' ]
	verified ok
	compile ok one
	[ "$(jq .build.prov.cached out)" = true ]
}

@test "nothing of the working directory is imported" {
	cp -r "$fix/axpby-inline" here
	cd here
	# Jailed compilers read this cache.
	chmod a+x "$BATS_RUN_TMPDIR" "$BATS_TEST_TMPDIR/.." "$BATS_TEST_TMPDIR"
	for m in importlib torch sysconfig re; do
		echo "open('$PWD/ran', 'w')" >$m.py
	done
	CA_CACHE=$PWD/cache "$bin/ca-compile" -d cpu . | jq -e '.build.status == "ok"'
	[ ! -e ran ]
}

@test "a wrong extension is judged wrong" {
	candidate one < <(doubles "$inline"', extra_cflags=["-D", "FACTOR=3"])' </dev/null)
	compile ok one
	verified wrong_value
}

@test "a call that the dry run did not make is an error, caught or not" {
	candidate one < <(doubles "$inline"', extra_cflags=["-DFACTOR=2"])' <<-'END'
		import os
		COUNT = len(os.listdir("/proc/self/fd"))
	END
	)
	compile ok one
	sed -i 's/^SOURCE = """/import time\nSOURCE = f"\/\/ {time.time_ns()}" + """/' \
		one/model_new.py
	compile ok one
	verified crashed
	says 'was not built'
	sed -i 's/^    return load_inline/    try: return load_inline/
		s/^class/    except Exception: return Fallback\nclass Fallback:\n    twice = lambda x: 2 * x\nclass/' \
		one/model_new.py
	compile ok one
	verified crashed
	says 'was not built'
}

@test "several extensions may define the same names" {
	candidate one <<-'END'
		import torch
		from torch.utils.cpp_extension import load_inline
		def make(n):
		    return load_inline(name=f"times{n}", functions=["twice"], cpp_sources=f"""
		        static int calls = 0;
		        int factor() {{ return ++calls ? {n} : 0; }}
		        torch::Tensor twice(torch::Tensor x) {{
		            auto out = torch::empty_like(x);
		            for (int64_t i = 0; i < x.numel(); i++)
		                out.data_ptr<float>()[i] = x.data_ptr<float>()[i] * factor() / 2;
		            return out; }}""")
		two, four, one = make(2), make(4), make(1)
		class ModelNew(torch.nn.Module):
		    def forward(self, x):
		        return two.twice(four.twice(x))
	END
	compile ok one
	[ "$(jq -c '[.build.launchers[].name]' out)" = '["times2","times4","times1"]' ]
	verified ok
	sed -i 's/times{n}/times/' one/model_new.py
	compile compile_error one
	says "two extensions are named 'times'"
}

@test "load takes files of kernels/ and files that the candidate wrote" {
	candidate one < <(doubles 'load("two", ["kernels/bind.cpp", path])' <<-'END'
		import os, tempfile
		path = os.path.join(tempfile.mkdtemp(), "factor.cpp")
		open(path, "w").write("int factor() { return 2; }")
	END
	)
	cat >one/kernels/bind.cpp <<-'END'
		#include <torch/extension.h>
		#include "names.h"
		torch::Tensor twice(const torch::Tensor &x) {
		    auto out = torch::empty_like(x);
		    for (int64_t i = 0; i < x.numel(); i++)
		        out.data_ptr<float>()[i] = factor() * x.data_ptr<float>()[i];
		    return out;
		}
		PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
	END
	echo 'int factor();' >one/kernels/names.h
	compile ok one
	verified ok
	sed -i 's,kernels/bind,../../etc/bind,' one/model_new.py
	compile compile_error one
	says 'no source file'
}

@test "flags: what changes arithmetic counts, what reaches out is refused" {
	local flag
	candidate one < <(doubles "$inline"', extra_cflags=FLAGS)' <<<'FLAGS = []')
	sed -i 's/^FLAGS.*/FLAGS = ["-DFACTOR=2", "-march=haswell -O1 -Wall", "-std=c++20"]/' \
		one/model_new.py
	compile ok one
	for flag in -I/etc -include/etc/passwd -fplugin=x.so @file -specs=x \
		-Wl,-rpath,/tmp -save-temps '-o x' -B/tmp -x -fdump-tree-all; do
		sed -i "s|^FLAGS.*|FLAGS = ['-DFACTOR=2', '$flag']|" one/model_new.py
		compile compile_error one
		says "flag '${flag%% *}'"
	done
}

@test "errors of the candidate name its lines and try no other headers" {
	candidate one < <(doubles "$inline"')' </dev/null)
	compile compile_error one
	says "'FACTOR' was not declared"
	[ "$(jq -r .build.headers out)" = slim ]
	[ "$(jq -r .build.error.file out)" = inline/0/main.cpp ]
	candidate one <<<'def f(:'
	echo 'load_inline()' >>one/model_new.py
	compile compile_error one
	says SyntaxError
	candidate one < <(doubles 'load_inline(name="two", sources=[])' </dev/null)
	compile compile_error one
	says 'load_inline() got an unexpected keyword'
	candidate one < <(doubles 'None and load_inline("x", "")' </dev/null)
	compile no_source one
	says "no attribute 'twice'"
}

@test "a dry run that never ends, dies or floods is the candidate's fault" {
	local code
	while read -r code; do
		candidate one < <(doubles "$inline"')' <<-END
			import os
			from torch.utils.cpp_extension import load_inline
			${code#*: }
		END
		)
		"$bin/ca-compile" --device cpu --timeout "${code%%[!0-9]*}" one |
			jq -r '"\(.build.status) \(.build.error.message)"' >out
		echo "$code: $(<out)"
		code=${code#* }
		[[ $(<out) == *"${code%%: *}"* ]]
	done <<-'END'
		3 build_timeout the dry run takes longer than 3 s: while True: pass
		60 compile_error the dry run ended its process with status 0: os._exit(0)
		60 compile_error the dry run was ended by signal: os.abort()
		60 compile_error MemoryError: x = [bytearray(1 << 28) for _ in range(64)]
		60 than there is room: [load_inline(f"x{i}", "x" * (1 << 20)) for i in range(16)]
		60 compile_error more than 16 extensions: [load_inline(f"x{i}", "") for i in range(99)]
		60 compile_error what the dry run asked for cannot be read: load_inline("x", "\ud800")
		60 no kernel for \ud83d here: raise ValueError("no kernel for \ud83d here")
		60 compile_error 'int' object is not iterable: load_inline("x", 7)
		60 compile_error the name of an extension must be: load_inline("../x", "")
		60 compile_error what the dry run asked for cannot be read: load_inline("x", "\0")
		60 compile_error more than 64: load_inline("x", "", extra_cflags=["-O3"] * 65)
	END
}

# results FILE: what the functions of the built object give
results() {
	cp "${CA_CACHE:-/var/cache/cuda-agent}/obj/$(jq -r .build.object out).so" ./most.so
	"$CA_PYTHON" "$BATS_TEST_DIRNAME/inline/results.py" ./most.so >"$1"
}

@test "torch's own headers come in where slim ones lack something, with the same results" {
	[ -x "${CA_PYTHON:-}" ] || skip 'no python3 with torch is known'
	candidate one <"$BATS_TEST_DIRNAME/inline/model_new.py"
	compile ok one
	[ "$(jq -r .build.headers out)" = slim ]
	results slim.txt
	[ "$(wc -l <slim.txt)" -gt 150 ]
	sed -i 's/^using torch::Tensor;/&\nTensor other(Tensor x) { return at::hypot(x, x); }/' \
		one/model_new.py
	compile compile_error one --headers slim
	says hypot
	compile ok one
	[ "$(jq -r .build.headers out)" = real ]
	results real.txt
	diff slim.txt real.txt
	# found again at once, and no other headers tried first
	compile ok one
	[ "$(jq -c '.build|[.headers,.prov.cached]' out)" = '["real",true]' ]
}

@test "pairs become candidates, whole collections too" {
	"$bin/ca-compile" --device cpu --pairs - >out <<-'END'
		[{"level_id": 1, "task_id": 2, "ref_code": "x", "custom_code": null, "score": 1.50},
		 {"ref_code": "x", "custom_code": "None", "name": "add"},
		 {"ref_code": "y", "custom_code": "class ModelNew: pass"}]
	END
	[ "$(jq -c '[.name,.build.status,.rules,.pair,.task.code,(.files|keys)]' out)" = \
'["L1-2","no_source","kernelbench",{"level_id":1,"task_id":2,"score":1.5},"x",[]]
["add","no_source","kernelbench",{"name":"add"},"x",[]]
'"[$(jq -s '.[2].id' out)"',"no_source","kernelbench",{},"y",["model_new.py"]]' ]
	echo '{"a":[{"ref_code":"x","custom_code":""}],"b":[{"ref_code":"x","custom_code":""}]}' |
		"$bin/ca-compile" --device cpu --pairs >out
	[ "$(wc -l <out)" -eq 2 ]
	# lines, of which some are no pairs: one answer each, in order
	printf '%s\n' '{"ref_code":"x","custom_code":null}' '{"ref_code":1}' 'junk' '[]' \
		'{"kind":"task","v":1,"id":"t","code":""}' >rows
	run "$bin/ca-compile" --device cpu -q rows
	[ "$status" -eq 65 ]
	[ "$(jq -r .kind <<<"$output" | tr '\n' ' ')" = 'candidate error error error task ' ]
	run "$bin/ca-compile" --device cpu -q --pairs rows
	[ "$(jq -r .kind <<<"$output" | tr '\n' ' ')" = 'candidate error error error task ' ]
	run "$bin/ca-compile" --device cpu --pairs /dev/null nowhere
	[ "$status" -eq 66 ]
	# a collection of which some is no JSON, or is missing: likewise
	cat >rows <<-'END'
		[{"ref_code": "x]\"", "custom_code": null}, {"ref_code": "x", "custom_code": "a\u0000"},
		 {"ref_code": "y",
		  "custom_code": null}, {"ref_code": "\ud800", "custom_code": null},
	END
	run "$bin/ca-compile" --device cpu -q --pairs rows
	[ "$status" -eq 65 ]
	[ "$(jq -r .kind <<<"$output" | tr '\n' ' ')" = 'candidate error candidate error error ' ]
	echo '{"ref_code": "z", "custom_code": null}] [1]' >>rows
	run "$bin/ca-compile" --device cpu -q --pairs rows
	[ "$(jq -r .kind <<<"$output" | tr '\n' ' ')" = 'candidate error candidate error candidate error ' ]
	run "$bin/ca-compile" --device cpu --pairs .
	[[ $output == *"'.': cannot read"* ]]
	echo 'no rows' >text
	run "$bin/ca-compile" --device cpu --pairs text
	[ "$status" -eq 65 ]
	[[ $output == *"'text' holds no rows"* ]]
}

@test "a KernelBench pair on the CPU goes through the whole chain" {
	candidate one < <(doubles "$inline"', extra_cflags=["-DFACTOR=2"])' </dev/null)
	jq -nc --rawfile ref one/model.py --rawfile new one/model_new.py \
		'{ref_code: $ref, custom_code: $new}' >pair
	"$bin/ca-compile" --device cpu pair | jq -c '.rules = "paper"' |
		"$bin/ca-verify" --device cpu |
		"$bin/ca-profile" --device cpu --quick --baseline eager |
		"$bin/ca-reward" >out
	jq -c '[.build.status,.verify.status,.profile.status,.reward]' out
	[ "$(jq -c '[.build.status,.verify.status]' out)" = '["ok","ok"]' ]
	# so short a call has no time that would have to be good
	jq -e '.profile.status and (.reward | has("value"))' out
}

need_nvcc() {
	command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || skip 'no nvcc'
}

@test "CUDA extensions build without a GPU, in one source or several" {
	need_nvcc
	local fixtures=$BATS_TEST_DIRNAME/../../fixtures/workdirs/cuda
	"$bin/ca-compile" --device cuda "$fixtures/axpby-inline" >out
	[ "$(jq -c '.build|[.status,.form,.headers,.launchers[].name]' out)" = \
		'["ok","inline","slim","axpby_inline"]' ]
	# a second source, the module by hand, a library, and what a GPU tells
	candidate one <<-'END'
		import torch
		from torch.utils.cpp_extension import load_inline
		major, minor = torch.cuda.get_device_capability()
		class ModelNew(torch.nn.Module):
		    def __init__(self):
		        super().__init__()
		        self.stream = torch.cuda.Stream()
		    def forward(self, x):
		        if not x.is_cuda or x.device.type != "cuda":
		            return 2 * x.cuda()
		        ext = load_inline("two", cpp_sources="", cuda_sources=[
		            "#include <cublas_v2.h>\n__global__ void k(float *x) { *x *= FACTOR; }",
		            """#include <torch/extension.h>
		            torch::Tensor twice(torch::Tensor x) {
		                auto out = x.clone();
		                k<<<1, 1>>>(out.data_ptr<float>());
		                return out; }
		            PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }"""],
		            extra_cuda_cflags=[f"-DFACTOR={major * 10 + minor}", "-arch=sm_70", "-Xptxas -O3"],
		            extra_ldflags=["-lcublas"], with_cuda=True)
		        return ext.twice(x)
	END
	"$bin/ca-compile" --device cuda --arch sm_80 one >out
	jq -r .build.error.message out
	[ "$(jq -c '.build|[.status,.headers,.arch]' out)" = '["ok","slim","sm_80"]' ]
}

@test "the paper form takes slim headers" {
	need_nvcc
	local fixtures=$BATS_TEST_DIRNAME/../../fixtures/workdirs/cuda
	"$bin/ca-compile" --device cuda "${CUDA_AGENT_WORKDIR:-$fixtures/axpby-paper}" >out
	jq -r .build.error.message out
	[ "$(jq -c '.build|[.status,.form,.headers]' out)" = '["ok","paper","slim"]' ]
}

@test "a public collection: a record a pair, and none fails for slim headers" {
	need_nvcc
	[ -n "${CUDA_L1_PAIRS:-}" ] || skip 'CUDA_L1_PAIRS names no collection of pairs'
	local rows
	rows=$("$bin/ca-compile" --device cpu --pairs --headers slim "$CUDA_L1_PAIRS" -n 1000 |
		jq -c 'select(.build.form == "inline")' | tee inline | wc -l)
	[ "$rows" -gt 10 ]
	"$bin/ca-compile" --device cuda --headers slim <inline >out
	jq -r '[.name, .build.status, .build.error.message] | @tsv' out
	# those that torch's own headers would take: 9 of 10
	jq -c 'select(.build.status == "compile_error")' out |
		"$bin/ca-compile" --device cuda --headers real >real
	local slim real
	slim=$(jq -c 'select(.build.status == "ok")' out | wc -l)
	real=$(jq -c 'select(.build.status == "ok")' real | wc -l)
	echo "slim $slim, only real $real"
	[ $((10 * slim)) -ge $((9 * (slim + real))) ]
}
