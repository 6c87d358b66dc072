#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# What the sets of rules catch, and what they let pass.

bats_require_minimum_version 1.5.0
load judge

# by RULES DIR...: name and status of each
by() {
	local rules=$1
	shift
	"$bin/ca-verify" --device cpu --rules "$rules" "$@" >"out.$rules"
	statuses verify "out.$rules"
}

# linear DIR BITS SKIP: x (256, 512) times a weight, by a loop over rows of
# both, where so many bits of a number and the last columns are left out
linear() {
	mkdir -p "$1/kernels"
	cat >"$1/model.py" <<-'END'
		import torch
		class Model(torch.nn.Module):
		    def __init__(self, k, n):
		        super().__init__()
		        self.weight = torch.nn.Parameter(torch.randn(n, k))
		    def forward(self, x):
		        return torch.nn.functional.linear(x, self.weight)
		def get_inputs():
		    return [torch.randn(256, 512)]
		def get_init_inputs():
		    return [512, 64]
	END
	cat >"$1/model_new.py" <<-'END'
		import cuda_extension
		import torch
		class ModelNew(torch.nn.Module):
		    def __init__(self, k, n):
		        super().__init__()
		        self.weight = torch.nn.Parameter(torch.empty(n, k))
		    def forward(self, x):
		        y = torch.empty(x.shape[0], self.weight.shape[0])
		        cuda_extension.linear(x, self.weight, y, *y.shape, x.shape[1])
		        return y
	END
	cat >"$1/kernels/linear.c" <<-'END'
		#include <stdint.h>
		#include <string.h>
		static float cut(float x)
		{
			uint32_t b;
			memcpy(&b, &x, 4);
			b = (b + (1u << BITS >> 1)) >> BITS << BITS;
			memcpy(&x, &b, 4);
			return x;
		}
		void linear(const float *x, const float *w, float *y, int64_t m,
			    int64_t n, int64_t k)
		{
			for (int64_t i = 0; i < m * n; i++) {
				const float *a = x + i / n * k, *b = w + i % n * k;
				float s = 0;
				for (int64_t j = 0; j < k - SKIP; j++)
					s += cut(a[j]) * cut(b[j]);
				y[i] = s;
			}
		}
	END
	sed -i "1i #define BITS $2\n#define SKIP $3" "$1/kernels/linear.c"
}

@test "strict: looser arithmetic than the task's own and a cut sum are wrong" {
	linear honest 0 0
	linear bf16 16 0
	linear short 0 1
	[ "$(by strict honest bf16 short)" = "$(printf '%s\n' \
		$'honest\tok' $'bf16\twrong_value' $'short\twrong_value')" ]
	jq -es 'map(.verify.tensors[0].fp64_error) |
		.[0] < 3 and .[1] > 100 and .[2] > 100' out.strict
	jq -es '.[1].verify.text | contains("double precision")' out.strict
}

@test "strict: memory that the reference lacks is the task's fault or the candidate's" {
	for dir in lacks takes; do
		linear "$dir" 0 0
		cat >>"$dir/model.py" <<-END
			lacking = "$dir"
			plain = Model.forward
			def forward(self, x):
			    global lacking
			    if x.dtype == torch.float64 and lacking:
			        if lacking == "takes":
			            lacking = ""
			        raise torch.OutOfMemoryError("out of memory")
			    return plain(self, x)
			Model.forward = forward
		END
	done
	[ "$(by strict lacks takes)" = $'lacks\tinvalid_reference\ntakes\toom' ]
	jq -es '.[0].verify.text | contains("there is no memory")' out.strict
	jq -es '.[1].verify.text | contains("without the candidate")' out.strict
}

@test "strict: what is folded at the first call is wrong; paper says so" {
	linear folded 0 0
	cat >>folded/model_new.py <<-'END'
		    def forward(self, x):
		        if not hasattr(self, "kept"):
		            self.kept = self.weight * 1
		        y = torch.empty(x.shape[0], self.weight.shape[0])
		        cuda_extension.linear(x, self.kept, y, *y.shape, x.shape[1])
		        return y
	END
	[ "$(by paper folded)" = $'folded\tok' ]
	jq -e '.verify.folded' out.paper
	[ "$(by strict folded)" = $'folded\twrong_value' ]
	jq -e '.verify.folded == false' out.strict
	"$bin/ca-verify" --device cpu "$fix/matmul-sum" >honest
	jq -e '.verify | .status == "ok" and .folded == false' honest
}

@test "strict: the reference's own fp64 is had where forward names float32" {
	[ "$(by strict "$fix/rmsnorm-bf16" "$fix/moments-tuple")" = \
		$'rmsnorm-bf16\tok\nmoments-tuple\tok' ]
	jq -es 'all(.[].verify.tensors[].fp64_error; type == "number" and . < 3)' \
		out.strict
}

# own DIR: a model whose weights, dropout and statistics are its own, and a
# candidate that is the same in PyTorch
own() {
	mkdir "$1"
	cat >"$1/model.py" <<-'END'
		import torch
		class Model(torch.nn.Module):
		    def __init__(self, n):
		        super().__init__()
		        self.linear = torch.nn.Linear(n, n)
		        self.norm = torch.nn.BatchNorm1d(n)
		        self.drop = torch.nn.Dropout(0.5)
		    def forward(self, x):
		        return self.drop(self.norm(self.linear(x)))
		def get_inputs():
		    return [torch.randn(32, 64)]
		def get_init_inputs():
		    return [64]
	END
	sed 's/class Model/class ModelNew/' "$1/model.py" >"$1/model_new.py"
}

@test "kernelbench: PyTorch may compute, and is counted; paper wants a kernel" {
	own same
	own other
	sed -i 's/return self.drop(\(.*\))/return self.drop(\1) * 1.0007/' \
		other/model_new.py
	[ "$(by kernelbench same other)" = $'same\tok\nother\twrong_value' ]
	jq -es '.[0].verify | .aten.compute > 0 and .rules == "kernelbench"' \
		out.kernelbench
	[ "$(by paper same)" = $'same\tno_source' ]
	[ "$(by strict same)" = $'same\tno_source' ]
}

@test "paper: PyTorch that computes beside a kernel is named" {
	linear beside 0 0
	sed -i 's/return y/return y.neg_().neg_()/' \
		beside/model_new.py
	[ "$(by paper beside)" = $'beside\trules_fallback' ]
	jq -e '.verify.text | test("^2 .* first aten::neg_$")' out.paper
}

@test "kernelbench: nothing is randomised, no task is refused" {
	own same
	sed -i 's/return self.drop(.*/return torch.relu(x * 0) + 1/' \
		same/model.py same/model_new.py
	[ "$(by kernelbench same)" = $'same\tok' ]
	jq -e '.verify.iterations == 5' out.kernelbench
}

@test "a verdict by other rules is not believed, and rules travel on" {
	"$bin/ca-verify" --device cpu "$fix/diag-matmul" >one
	"$bin/ca-verify" --device cpu --rules strict one >two
	jq -e '.rules == "strict" and .verify.rules == "strict"' two
	"$bin/ca-verify" --device cpu two >three
	[ "$(jq .verify.mac two)" = "$(jq .verify.mac three)" ]
	jq -c '.rules = "mine"' one | "$bin/ca-verify" --device cpu >four
	jq -e '.verify | .status == "bad_record" and
		(.text | contains("paper|strict|kernelbench"))' four
}
