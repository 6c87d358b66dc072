#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-compile on the CPU and, where nvcc is found, for CUDA without a GPU.

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
	compile=${CA_BIN:-$root/bin}/ca-compile
	cd "$BATS_TEST_TMPDIR" || exit
}

teardown() {
	! mountpoint -q small 2>/dev/null || umount small
}

# workdir NAME [FILE]: a workdir whose kernels/FILE is stdin
workdir() {
	mkdir -p "$1/kernels"
	echo 'class Model: pass' >"$1/model.py"
	echo 'import cuda_extension' >"$1/model_new.py"
	[ $# -lt 2 ] || cat >"$1/kernels/$2"
}

# got EXPECTED JQ: what the last output says
got() {
	run jq -r "$2" out
	echo "$output"
	[ "$output" = "$1" ]
}

build() { # status of the build that out must hold, arguments
	local want=$1
	shift
	"$compile" "$@" >out
	got "$want" .build.status
}

need_nvcc() {
	command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
		skip 'no nvcc'
}

@test "a C candidate builds in the jail" {
	build ok --device cpu "$workdirs/cpu/axpby"
	got light .build.form
	got cpu .build.device
	got axpby .name
	got paper .rules
	got '["axpby",6,"ptr","f32"]' \
		'.build.launchers[0]|[.name,(.args|length),.args[0].type,.args[5].type]|tojson'
	# as a user or in a container the jail may be weaker, but never none
	run jq -r .build.jail out
	[ "$output" = full ] || [ "$output" = uid ]
	[ -s "$CA_CACHE/obj/$(jq -r .build.object out).so" ]
}

@test "the second time the object comes from the cache, damage is noticed" {
	build ok --device cpu "$workdirs/cpu/axpby"
	build ok --device cpu "$workdirs/cpu/axpby"
	got true .build.prov.cached
	object=$CA_CACHE/obj/$(jq -r .build.object out).so
	printf x >>"$object"
	build ok -v --device cpu "$workdirs/cpu/axpby" 2>told
	got false .build.prov.cached
	grep -q "cached object '$object' is damaged" told
	rm "$object"
	build ok --device cpu "$workdirs/cpu/axpby"
	got false .build.prov.cached
	[ -s "$object" ]
}

@test "a compiler that changes under the cache builds anew" {
	mkdir -p tool/bin
	chmod -R a+rx .
	printf '#!/bin/sh\nexec gcc "$@"\n' >tool/bin/cc
	chmod 755 tool/bin/cc
	export CA_CC=$PWD/tool/bin/cc
	build ok --device cpu "$workdirs/cpu/axpby"
	build ok --device cpu "$workdirs/cpu/axpby"
	got true .build.prov.cached
	cp out before
	echo '# upgraded' >>tool/bin/cc
	build ok --device cpu "$workdirs/cpu/axpby"
	got false .build.prov.cached
	# what came with a record is of the other compiler, too
	build ok --device cpu before
	[ "$(jq .build.object before)" != "$(jq .build.object out)" ]
}

@test "the same input gives the same bytes and the same object" {
	"$compile" --device cpu --no-prov "$workdirs/cpu/matmul-sum" >one
	sum=$(sha256sum <"$CA_CACHE/obj/$(jq -r .build.object one).so")
	rm -r "$CA_CACHE/obj"
	"$compile" --device cpu --no-prov "$workdirs/cpu/matmul-sum" >two
	cmp one two
	[ "$sum" = "$(sha256sum <"$CA_CACHE/obj/$(jq -r .build.object two).so")" ]
}

@test "a build with a right mac is kept, one without is made anew" {
	"$compile" --device cpu "$workdirs/cpu/axpby" >one
	"$compile" --device cpu one >out
	cmp one out
	jq -c '.build.launchers[0].name = "forged"' one >forged
	"$compile" --device cpu forged >out
	got axpby '.build.launchers[0].name'
	# made under other options
	"$compile" --device cpu --timeout 7 one >out
	got 7 .build.options.timeout
	# made for other files
	jq -c '.files["kernels/axpby.c"] = "void axpby(int n) {}"' one >other
	"$compile" --device cpu other >out
	got 1 '.build.launchers[0].args|length'
	# a lost object is built again, the record stays
	rm -r "$CA_CACHE/obj"
	"$compile" --device cpu one >out
	cmp one out
	[ -s "$CA_CACHE/obj/$(jq -r .build.object out).so" ]
}

@test "a kept compile_error needs no compiler run" {
	"$compile" --device cpu "$workdirs/cpu/bad-compile" >one
	"$compile" --device cpu one >out
	cmp one out
}

@test "compiler errors name file and line" {
	workdir bad x.cpp <<-'END'
		#define N 3

		extern "C" void f(int n) { undeclared(n); }
	END
	build compile_error --device cpu bad
	got 'kernels/x.cpp:3' '.build.error|"\(.file):\(.line)"'
	[[ $(jq -r .build.error.message out) = *undeclared* ]]
	[[ $(jq -r .build.log out) = *kernels/x.cpp:3* ]]
	workdir bad x.cpp <<-'END'
		void elsewhere(int n);
		extern "C" void f(int n) { elsewhere(n); }
	END
	build compile_error --device cpu bad
	[[ $(jq -r .build.error.message out) = *undefined\ reference*elsewhere* ]]
}

@test "launchers that cannot be called are refused with their place" {
	workdir bad x.cpp <<-'END'
		#include <string>
		extern "C" void f(int n, std::string s) { }
	END
	build compile_error --device cpu bad
	got 'kernels/x.cpp:2' '.build.error|"\(.file):\(.line)"'
	[[ $(jq -r .build.error.message out) = *std::string* ]]
	workdir bad x.cpp <<<'void f(int n) { }'
	build compile_error --device cpu bad
	[[ $(jq -r .build.error.message out) = no\ launcher* ]]
	workdir bad x.c <<<'void f(float **x) { }'
	build compile_error --device cpu bad
	got kernels/x.c:1 '.build.error|"\(.file):\(.line)"'
	[[ $(jq -r .build.error.message out) = "no launcher: launcher 'f': parameter 1"* ]]
}

@test "several files, the same stem, headers and included sources" {
	workdir many a.c <<<'int half(int n) { return n / 2; }'
	cat >many/kernels/a.cpp <<-'END'
		#include "a.hpp"
		#include "part.cc"
		extern "C" int half(int n);
		extern "C" void f(float *x, int n) { x[0] = twice(half(n)) + part(); }
	END
	echo 'static inline int twice(int n) { return 2 * n; }' >many/kernels/a.hpp
	echo 'int part() { return 1; }' >many/kernels/part.cc
	mkdir many/kernels/deep
	echo '#error not compiled by itself' >many/kernels/deep/x.c
	build ok --device cpu many
	got f,half '[.build.launchers[].name]|sort|join(",")'
}

@test "OpenMP and OpenBLAS" {
	workdir blas x.c <<-'END'
		#include <cblas.h>
		#include <omp.h>
		float f(const float *a, const float *b, int n)
		{
			return omp_get_max_threads() + cblas_sdot(n, a, 1, b, 1);
		}
	END
	build ok --device cpu blas
	got f32 '.build.launchers[0].ret'
}

@test "nothing outside of tree and toolkit can be included" {
	workdir spy x.c <<<'#include "/etc/passwd"'
	build compile_error --device cpu spy
	[[ $(jq -r .build.log out) != *root:* ]]
	workdir spy x.c <<<'#include "../../../../../../etc/passwd"'
	build compile_error --device cpu spy
	[[ $(jq -r .build.log out) != *root:* ]]
	workdir spy x.c <<-'END'
		__asm__(".incbin \"/etc/passwd\"");
		void f(int n) { }
	END
	build compile_error --device cpu spy
	echo secret >"$BATS_FILE_TMPDIR/secret"
	workdir spy x.c <<-END
		__asm__(".incbin \"$BATS_FILE_TMPDIR/secret\"");
		void f(int n) { }
	END
	build compile_error --device cpu spy
	# and model_new.py is not there for compilers
	workdir spy x.c <<<'#include "../model_new.py"'
	build compile_error --device cpu spy
	[[ $(jq -r .build.error.message out) = *'No such file'* ]]
}

@test "a compiler that does not end is a build_timeout and leaves nothing" {
	workdir slow x.cpp <<-'END'
		#if __INCLUDE_LEVEL__ < 60
		#include "x.cpp"
		#include "x.cpp"
		#endif
	END
	mkdir tmp
	chmod 755 tmp
	TMPDIR=$PWD/tmp build build_timeout --device cpu --timeout 1s slow
	[ -z "$(ls -A tmp)" ]
	run pgrep -f "$PWD/tmp"
	[ "$status" -eq 1 ]
}

@test "no compiler runs while a clock does" {
	mkdir -p "$CA_CACHE/lease"
	touch "$CA_CACHE/lease/cpu"
	workdir w x.c <<<'void f(int n) { } /* lease */'
	(
		exec 9>"$CA_CACHE/lease/cpu"
		flock 9
		exec sleep 30
	) 3>&- &
	clock=$!
	until ! flock -n "$CA_CACHE/lease/cpu" true; do sleep 0.05; done
	timeout 2 "$compile" --device cpu w >out 2>/dev/null && false
	[ ! -s out ]
	kill "$clock"
	wait "$clock" || true
	build ok --device cpu w
}

@test "an interrupt ends it and leaves nothing; what kill -9 left goes later" {
	workdir slow x.cpp <<-'END'
		#if __INCLUDE_LEVEL__ < 60
		#include "x.cpp"
		#include "x.cpp"
		#endif
	END
	mkdir tmp
	chmod 755 tmp
	export TMPDIR=$PWD/tmp
	for signal in TERM KILL; do
		"$compile" --device cpu slow >out 3>&- &
		until [ -n "$(ls -A tmp)" ] && pgrep -f 'cc1plus.*kernels/x.cpp' >/dev/null; do
			sleep 0.1
		done
		kill -$signal $!
		wait $! && false
		[ ! -s out ]
		[ $signal = KILL ] || [ -z "$(ls -A tmp)" ]
	done
	touch -d '2 minutes ago' tmp/ca-build.*
	workdir w x.c <<<'void f(int n) { }'
	build ok --device cpu w
	[ -z "$(ls -A tmp)" ]
}

@test "a compiler that talks without end is stopped" {
	workdir loud x.cpp <<-'END'
		#if __INCLUDE_LEVEL__ < 60
		#error aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
		#include "x.cpp"
		#include "x.cpp"
		#endif
	END
	build compile_error --device cpu --timeout 60s loud
	[ "$(jq -r '.build.log|length' out)" -le 16384 ]
}

@test "what is not a source is ignored; what might be meant as one is named" {
	workdir odd x.c <<<'void f(int n) { }'
	ln -s /etc/passwd odd/kernels/link.c
	mkfifo odd/kernels/fifo.c
	ln -s / odd/kernels/rootdir
	printf '\177ELF' >odd/cuda_extension.so
	printf '\0' >odd/kernels/x.o
	touch "odd/kernels/my x.c" odd/kernels/größe.c odd/kernels/x.hh
	"$compile" -v --device cpu odd >out 2>said
	got ok .build.status
	got kernels/x.c,model_new.py '.files|keys|join(",")'
	grep -q 'kernels/link.c: ignored: symbolic link' said
	grep -q 'kernels/fifo.c: ignored: FIFO' said
	grep -q 'cuda_extension.so: ignored' said
	"$compile" --device cpu odd >out 2>said
	[ "$(wc -l <said)" -eq 5 ]
	grep -q 'kernels/link.c: ignored: symbolic link' said
	grep -q 'kernels/fifo.c: ignored: FIFO' said
	grep -q 'kernels/my x.c: ignored: no name of a source file that is taken' said
	rm -r odd/kernels && ln -s / odd/kernels
	"$compile" --device cpu odd >out 2>said
	got no_source .build.status
	grep -q 'odd/kernels: ignored: symbolic link' said
}

fails() { # exit code, text, arguments
	local code=$1 text=$2
	shift 2
	run timeout 20 "$compile" --device cpu "$@"
	echo "$output"
	[ "$status" -eq "$code" ]
	[[ $output = *"$text"* ]]
}

@test "workdirs that cannot be read are clear errors" {
	fails 66 'No such file' missing
	mkdir empty
	fails 66 'model.py' empty
	workdir fifo
	rm fifo/model.py
	mkfifo fifo/model.py
	fails 66 'not a regular file' fifo
	workdir link
	ln -sf ../fifo/model_new.py link/model.py
	fails 66 'model.py' link
	workdir nul a.c < <(printf 'int a;\n\0')
	fails 65 "kernels/a.c': NUL byte at line 2" nul
	workdir latin a.c < <(printf '// caf\351\n')
	fails 65 "kernels/a.c': not UTF-8 at line 1 (byte 7)" latin
	run "$compile" --device cpu latin empty
	[ "$status" -eq 65 ]
	[ "$(grep -c '^ca-compile: ' <<<"$output")" -eq 2 ]
	[ "$(grep '^{' <<<"$output" | jq -r '[.kind, .file] | @tsv')" = \
		$'error\tlatin\nerror\tempty' ]
	workdir big a.c < <(head -c 1100000 /dev/zero | tr '\0' ' ')
	fails 65 "'big/kernels/': 'a.c' is longer" big
	workdir many
	(cd many/kernels && seq 300 | sed 's/$/.c/' | xargs touch)
	fails 65 'more than 256' many
	workdir deep
	mkdir -p deep/kernels/a/b/c/d/e/f
	touch deep/kernels/a/b/c/d/e/f/x.c
	build no_source --device cpu deep
}

@test "a directory that root's files hide is a clear error" {
	[ "$(id -u)" -ne 0 ] || skip 'root reads everything'
	workdir closed
	chmod 0 closed/kernels
	fails 66 'closed/kernels' closed
}

@test "records without usable files get bad_record or no_source" {
	cat >in <<'END'
{"kind":"candidate","v":1,"id":"a"}
{"kind":"candidate","v":1,"id":"c","files":{"model_new.py":1}}
{"kind":"candidate","v":1,"id":"d","files":{"../x.c":"","kernels/../x.c":""}}
{"kind":"candidate","v":1,"id":"e","files":{"kernels/x.c":"void f(int n) { }"}}
{"kind":"candidate","v":1,"id":"f","files":{"model_new.py":""},"z":[1.50]}
{"kind":"candidate","v":1,"id":"g","files":{"model_new.py":"m = load_inline()"}}
{"kind":"candidate","v":1,"id":"h","files":{"model_new.py":"","kernels/x.cu":""}}
{"kind":"candidate","v":1,"id":"i","files":{"model_new.py":"","kernels/_binding.cpp":""}}
{"kind":"candidate","v":1,"id":"k","files":null}
{"kind":"candidate","v":1,"id":"l","files":[]}
{"kind":"candidate","v":1,"id":"m","files":{"model_new.py":"","kernels/x.c/y.h":"","kernels/x.c":"void f(int n) { }"}}
{"kind":"task","v":1,"id":"j","code":""}
END
	"$compile" --device cpu in >out
	run jq -r '[.id,.build.status]|join(" ")' out
	[ "$output" = "a bad_record
c bad_record
d bad_record
e no_source
f no_source
g compile_error
h no_source
i compile_error
k bad_record
l bad_record
m bad_record
j " ]
	grep -q '"z":\[1.50\]' out
	[[ $(jq -r 'select(.id == "h").build.error.message' out) = *'--device cuda'* ]]
	[[ $(jq -r 'select(.id == "m").build.error.message' out) = *"below 'kernels/x.c'"* ]]
	# signed like any other result, so that it is kept
	jq -e -s 'map(select(.id == "k").build.mac | type == "string") | all' out
}

@test "what is wrong with a record is said, though it is no pair" {
	cat >in <<'END'
{"kind":"candidate","v":2,"id":"a"}
{"kind":3,"v":1,"id":"b"}
{"kind":"candidate","id":"c"}
END
	run "$compile" --device cpu -o out in
	[ "$status" -eq 65 ]
	[[ ${lines[0]} = *'schema version 2 is newer'* ]]
	got "schema version 2 is newer than this program's, 1
'kind' is not a string
no member 'v'" .message
}

@test "-e asks for ok" {
	run "$compile" -e --device cpu "$workdirs/cpu/bad-compile"
	[ "$status" -eq 1 ]
	run "$compile" -e --device cpu "$workdirs/cpu/axpby"
	[ "$status" -eq 0 ]
}

@test "no compiler, no such device, no such architecture" {
	mkdir none
	PATH=$PWD/none run "$compile" --device cpu "$workdirs/cpu/axpby"
	[ "$status" -eq 69 ]
	[[ $output = *"cannot find 'gcc'"* ]]
	run "$compile" --device gpu "$workdirs/cpu/axpby"
	[ "$status" -eq 64 ]
	run "$compile" --device cuda --arch 90 "$workdirs/cpu/axpby"
	[ "$status" -eq 64 ]
}

@test "a full disk is this machine's failure, not the candidate's" {
	[ "$(id -u)" -eq 0 ] || skip 'needs a file system of its own'
	mkdir small
	mount -t tmpfs -o size=16k,mode=755 none small 2>/dev/null ||
		skip 'cannot mount'
	head -c 100000 /dev/zero >small/fill 2>/dev/null || true
	CA_CACHE=$PWD/small run "$compile" --device cpu "$workdirs/cpu/argmax"
	echo "$output"
	[ "$status" -eq 73 ] || [ "$status" -eq 74 ]
	[[ ${lines[0]} = *'No space left'* ]]
	rm -r small/*
	TMPDIR=$PWD/small run "$compile" --device cpu "$workdirs/cpu/huber-loss"
	echo "$output"
	[ "$status" -eq 74 ] || [ "$status" -eq 73 ]
	[[ $output != *'"status"'* ]]
	[ -z "$(ls -A small)" ]
}

@test "the cache keeps to its size" {
	export CA_CACHE=$PWD/own CA_OBJ_MAX=40K
	chmod 755 .
	for n in 1 2 3 4 5; do
		workdir w x.c <<<"void f$n(int n) { }"
		build ok --device cpu w
		first=${first:-$(jq -r .build.object out)}
		last=$(jq -r .build.object out)
		# used when the clock was ahead
		[ "$n" != 3 ] || touch -d 2099-01-01 own/obj/*.json
	done
	[ ! -e "own/obj/$first.so" ]
	[ -e "own/obj/$last.so" ]
	[ "$(du -sb own/obj | cut -f1)" -lt 60000 ]
}

@test "the cache bears 32 builders at once, half of them killed" {
	export CA_CACHE=$PWD/own
	chmod 755 .
	local n pids=()
	for n in $(seq 32); do
		workdir w$n x.c <<<"void f$((n % 8))(int n) { }"
		"$compile" --device cpu w$n >out$n 2>/dev/null &
		pids+=($!)
	done
	sleep 1
	for n in $(seq 0 2 31); do
		kill -9 "${pids[n]}" 2>/dev/null || true
	done
	for n in $(seq 1 2 31); do
		wait "${pids[n]}"
		[ "$(jq -r .build.status out$((n + 1)))" = ok ]
	done
	for n in $(seq 0 2 31); do	# bare, it would wait for bats's own clock
		wait "${pids[n]}" || true
	done
	# whoever was killed while writing: it is gone with the next entry
	touch own/obj/.tmp-of-another "own/obj/$(printf '0%.0s' {1..64}).so"
	workdir last x.c <<<'void last(int n) { }'
	build ok --device cpu last
	run find own/obj -type f ! -name .lock ! -name "$(printf '?%.0s' {1..64}).*"
	[ -z "$output" ]
	[ ! -e "own/obj/$(printf '0%.0s' {1..64}).so" ]
	for n in own/obj/*.so; do
		[ "$(sha256sum <"$n" | cut -d' ' -f1)" = "$(jq -r .sha256 "${n%.so}.json")" ]
	done
	[ "$(ls own/obj/*.so | wc -l)" -eq "$(ls own/obj/*.json | wc -l)" ]
}

@test "another compiler under the same name is another object" {
	printf '#!/bin/sh\nexec gcc "$@"\n' >cc
	chmod 755 . cc
	workdir w x.c <<<'void f(int n) { }'
	CA_CC=$PWD/cc build ok --device cpu w
	first=$(jq -r .build.object out)
	CA_CC=$PWD/cc build ok --device cpu w
	[ "$(jq -r .build.prov.cached out)" = true ]
	printf '#!/bin/sh\nexec gcc -g0 "$@"\n' >cc
	CA_CC=$PWD/cc "$compile" --device cpu out >two
	[ "$(jq -r '.build|[.status,.prov.cached,.object != "'"$first"'"]|@csv' two)" = \
		'"ok",false,true' ]
}

@test "--no-jail is said in the record and not believed without it" {
	workdir w x.c <<<'void f(int n) { }'
	build ok --device cpu --no-jail w 2>/dev/null
	got none .build.jail
	cp out one
	"$compile" --device cpu one >out
	[ "$(jq -r .build.jail out)" != none ]
}

@test "records keep their order however many compile at once" {
	for n in 1 2 3 4 5 6 7 8; do
		workdir "w$n" x.c <<<"void f(int n) { } /* $n */"
	done
	"$compile" -j 8 --device cpu w? >out
	run jq -r .name out
	[ "$(tr '\n' ' ' <<<"$output")" = 'w1 w2 w3 w4 w5 w6 w7 w8 ' ]
}

@test "CUDA without a GPU: light and kernel forms" {
	need_nvcc
	build ok --device cuda --arch sm_90 "$workdirs/cuda/axpby-kernel"
	got kernel .build.form
	got sm_90 .build.arch
	got axpby '.build.launchers[0].name'
	build ok --device cuda "$workdirs/cuda/axpby"
	got light .build.form
	got stream '.build.launchers[0].args[-1].type'
	build compile_error --device cuda "$workdirs/cuda/bad-compile"
	[[ $(jq -r .build.error.file out) = kernels/*.cu ]]
	[[ $(jq -r .build.error.line out) -gt 1 ]]
}

@test "the kernel form: several files, C headers, errors, nothing from outside" {
	need_nvcc
	workdir many b.cu <<-'END'
		#include <cstdint>
		#include <cmath>
		#include <cuda_fp16.h>
		#include "c.cuh"
		extern "C" __global__ void b(std::int64_t *x, const half *y)
		{
			x[0] = twice(3) + isfinite(__half2float(y[0]) * INFINITY);
		}
	END
	echo '__device__ inline int twice(int n) { return 2 * n; }' >many/kernels/c.cuh
	echo 'extern "C" __global__ void a(float *x) { x[0] = 1; }' >many/kernels/a.cu
	build ok --device cuda many
	got kernel .build.form
	got a,b '[.build.launchers[].name]|join(",")'
	[[ $(jq -r .build.compiler out) = nvrtc* ]]
	workdir bad a.cu <<-'END'

		extern "C" __global__ void a(float *x) { x[0] = undeclared; }
	END
	build compile_error --device cuda bad
	got 'kernels/a.cu:2' '.build.error|"\(.file):\(.line)"'
	workdir bad a.cu <<-'END'
		extern "C" __global__ void a(float *x) { }
		#include "/etc/passwd"
	END
	build compile_error --device cuda bad
	[[ $(jq -r .build.log out) != *root:* ]]
}

# NVRTC's own libraries lie beside it, where the loader does not look.
@test "the kernel form with the NVRTC of a wheel, and no toolkit" {
	local hide=() dir
	compgen -G "${CA_PYTHON%/bin/*}/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so*" ||
		skip 'no NVRTC in the virtual environment'
	bwrap --dev-bind / / true || skip 'no bubblewrap here'
	for dir in /usr/local/cuda*/; do
		[ ! -d "$dir" ] || hide+=(--tmpfs "$(realpath "$dir")")
	done
	bwrap --dev-bind / / "${hide[@]}" --ro-bind /dev/null /etc/ld.so.cache \
		"$compile" --device cuda "$workdirs/cuda/axpby-kernel" >out
	got ok .build.status
	[[ $(jq -r .build.compiler out) = nvrtc* ]]
}

@test "tasks by their ids" {
	"$compile" --device cpu "$workdirs/cpu/axpby" >whole
	jq -c 'del(.build) | .task |= {id, note: 1.5}' whole >short
	jq -c '{kind: "task", v: 1, id: "any", code: .task.code}' whole >tasks
	build ok --device cpu --tasks tasks short
	[ "$(jq -r .task.code out)" = "$(jq -r .task.code whole)" ]
	grep -q '"note":1.5,"code":' out
	[ "$(jq -r .build.object out)" = "$(jq -r .build.object whole)" ]
	# what is not there stays as it is
	echo '{"kind":"task","v":1,"code":"x"}' >others
	run "$compile" --device cpu --tasks others short
	[[ "$output" != *'"code":"x"'* ]]
	printf '{"kind":"task","v":1,"code":"x"}' >cut
	echo '{"kind":"task","v":1}' >bad
	for file in cut bad; do
		run "$compile" --device cpu --tasks $file short
		[ "$status" -eq 65 ]
		[[ "$output" == *"$file:1"* ]]
	done
	run "$compile" --device cpu --tasks missing short
	[ "$status" -eq 66 ]
}

@test "sources that are links are missed aloud" {
	workdir linked x.c <<<'void x(int n) { }'
	mv linked/kernels/x.c linked/y
	ln -s ../y linked/kernels/x.c
	"$compile" --device cpu linked >out 2>err
	got no_source .build.status
	grep -q 'kernels/x.c: ignored: symbolic link' err
	mv linked/model.py linked/m
	ln -s m linked/model.py
	run "$compile" --device cpu linked
	[ "$status" -eq 66 ]
	[[ "$output" == *"'model.py' is a symbolic link"* ]]
}

@test "settings that make no sense" {
	CA_OBJ_MAX=some run "$compile" --device cpu "$workdirs/cpu/axpby"
	[ "$status" -eq 78 ]
	[[ "$output" == *"CA_OBJ_MAX: 'some' is not a size"* ]]
	run env -u CA_CACHE -u CA_CONFIG -u XDG_CONFIG_HOME HOME=/nonexistent \
		"$compile" --device cpu "$workdirs/cpu/axpby"
	[ "$status" -eq 78 ]
	[[ "$output" == *"no home directory '/nonexistent'"* ]]
	[ ! -e /nonexistent ]
}

@test "CUDA without a GPU: the released layout" {
	need_nvcc
	build ok --device cuda "$workdirs/cuda/axpby-paper"
	got paper .build.form
	build ok --device cuda "${CUDA_AGENT_WORKDIR:-$workdirs/cuda/axpby-paper}"
	workdir empty a_binding.cpp <<<'int x;'
	build compile_error --device cuda empty
	[[ $(jq -r .build.error.message out) = *PYBIND11_MODULE* ]]
}
