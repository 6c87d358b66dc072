#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-crawl: files, folders, rows, and a few of torch's operators.

bats_require_minimum_version 1.5.0

load host
root=$BATS_TEST_DIRNAME/../..

setup() {
	use_host
	command -v jq >/dev/null || skip 'no jq'
	bin=${CA_BIN:-$root/bin}
	cd "$BATS_TEST_TMPDIR" || return
}

model() { # a word that makes it another one
	printf 'class Model:\n    word = "%s"\n\ndef get_inputs():\n    pass\n' \
		"$1"
}

@test "folders as KernelBench's: every task once, in order, the rest is told" {
	mkdir -p kb/level1 kb/level2 kb/.git kb/empty
	model a >kb/level1/1_a.py
	model b >kb/level1/10_b.py
	model c >kb/level1/2_c.py
	model a >kb/level2/1_again.py
	model hidden >kb/.git/x.py
	echo 'x = 1' >kb/level2/2_helper.py
	printf 'class Model: \xff\n' >kb/level2/3_bytes.py
	head -c 2000000 /dev/zero | tr '\0' '#' >kb/level2/4_long.py
	: >kb/level2/5_empty.py
	ln -s ../level1/1_a.py kb/level2/6_link.py
	echo text >kb/README
	run -0 --separate-stderr "$bin/ca-crawl" -v kb
	[ "$(jq -r .source.ref <<<"$output" | tr '\n' ' ')" = \
		'kb/level1/1_a.py kb/level1/2_c.py kb/level1/10_b.py ' ]
	[ "$(jq -r .code <<<"$output" | head -n 2)" = \
		"$(model a | head -n 2)" ]
	[ "$(jq -r .id <<<"$output" | head -n 1)" = \
		"$(sha256sum <kb/level1/1_a.py | cut -c-32)" ]
	for word in '3 tasks, 5 skipped' 'byte for byte' 'is not UTF-8' \
		'no class Model' 'is empty' 'too long' \
		"skipped 'kb/level2/2_helper.py'"; do
		[[ $stderr == *"$word"* ]]
	done
}

@test "of a checkout of KernelBench its tasks are taken, not its examples" {
	mkdir -p kb/KernelBench/level1 kb/src/prompts
	model a >kb/KernelBench/level1/1_a.py
	model example >kb/src/prompts/example.py
	run -0 --separate-stderr "$bin/ca-crawl" kb
	[ "$(jq -r .source.ref <<<"$output")" = kb/KernelBench/level1/1_a.py ]
	run -0 --separate-stderr "$bin/ca-crawl" kb/src
	[ "$(wc -l <<<"$output")" = 1 ]
}

@test "rows as JSON lines and as an array" {
	model a | jq -cRs '{ops: "[\"wrong\"]", data_source: "set#x2", code: .}' \
		>rows.jsonl
	model b | jq -cRs '{ops: [], data_source: "set#x3", code: .}' \
		>>rows.jsonl
	echo '{"no":"code"}' >>rows.jsonl
	echo 'nonsense' >>rows.jsonl
	jq -cs . <(head -n 2 rows.jsonl) >rows.json
	for file in rows.jsonl rows.json; do
		run -0 --separate-stderr "$bin/ca-crawl" "$file"
		[ "$(jq -c '[.source.name, .source.ref, .ops]' \
			<<<"$output" | tr '\n' ' ')" = \
"[\"set#x2\",\"$file:1\",null] [\"set#x3\",\"$file:2\",null] " ]
	done
	run -0 --separate-stderr "$bin/ca-crawl" -n 1 rows.jsonl
	[ "$(wc -l <<<"$output")" = 1 ]
	echo '[1,' >bad.json
	run -65 "$bin/ca-crawl" bad.json
}

@test "a source that yields too little is an error, after what it yields" {
	model a >a.py
	run -65 --separate-stderr "$bin/ca-crawl" --min-yield 2 a.py
	[ "$(wc -l <<<"$output")" = 1 ]
	[[ $stderr == *"yields 1 tasks, fewer than 2"* ]]
	mkdir none
	run -65 "$bin/ca-crawl" none
	run -66 "$bin/ca-crawl" nowhere
	run -73 --separate-stderr "$bin/ca-crawl" --summary none/no/sum a.py
	[ "$output" = '' ]
	run -64 "$bin/ca-crawl"
}

@test "Parquet and transformers need what has them; without, that is said" {
	"$bin/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
	py=$("$bin/ca-torch" 2>/dev/null | jq -r .python)
	{
		printf PAR1
		head -c 100 /dev/zero
	} >rows.parquet
	if "$py" -c 'import pyarrow' 2>/dev/null; then
		"$py" -c 'import pyarrow, pyarrow.parquet
pyarrow.parquet.write_table(pyarrow.table({"ops": ["[]"], "data_source": ["set#x2"],
    "code": ["class Model: pass\ndef get_inputs(): pass\n"]}), "good.parquet")'
		[ "$("$bin/ca-crawl" -q good.parquet | jq -r .source.name)" = 'set#x2' ]
		run -65 "$bin/ca-crawl" rows.parquet
	else
		run -69 "$bin/ca-crawl" rows.parquet
		[[ $output == *'pip install pyarrow'* ]]
	fi
	! "$py" -c 'import transformers' 2>/dev/null || return 0
	run -69 "$bin/ca-crawl" --device cpu transformers
	[[ $output == *'has no transformers'*CA_PYTHON* ]]
}

@test "torch's operators become files that run alone" {
	"$bin/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
	run --separate-stderr "$bin/ca-crawl" --device cpu --ms 0.02 \
		--only addmv torch
	[[ $stderr != *"No module named 'numpy'"* ]] || skip 'no NumPy'
	[ "$status" = 0 ]
	[ "$(jq -c '[.parts, .source.name]' <<<"$output")" = \
		'[["torch.addmv"],"torch"]' ]
	jq -r .code <<<"$output" >model.py
	grep -q 'torch.addmv(x0, x1, x2' model.py
	"$bin/ca-crawl" -q --device cpu --ms 0.02 --only nn.GroupNorm torch \
		>norm
	[ "$(jq -r '.pieces[0].init' norm)" = 'nn.GroupNorm(8, 72)' ]
	jq -c . <<<"$output" >>norm
	"$bin/ca-filter" --device cpu --checks contract,eager,random \
		--min-ms 0 norm >judged
	[ "$(jq -c .keep judged | tr '\n' ' ')" = 'true true ' ]
	run -65 "$bin/ca-crawl" --device cpu --only no-such-thing torch
}

@test "torch's operators get arguments that mean something" {
	"$bin/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
	run --separate-stderr "$bin/ca-crawl" --device cpu --ms 0.001 -v \
		--only index_copy --only index_put \
		--only poisson_nll --only PoissonNLL --only KLDiv \
		--only multilabel_soft_margin --only hermite_polynomial_he \
		--only repeat --only tile --only clone --only BatchNorm1d \
		--only bitwise_xor --only nll_loss --only embedding \
		--only mode --only histc --only floor --only argmax --only lu_factor torch
	[[ $stderr != *"No module named 'numpy'"* ]] || skip 'no NumPy'
	[ "$status" = 0 ]
	echo "$output" >out
	# NAME: the kinds of its inputs, and its call
	kinds() {
		jq -r --arg n "$1" 'select(.parts == [$n]) | .pieces[0] |
			([.inputs[].kind] | join(" ")) + " " + .call' out
	}
	[[ $(kinds torch.index_copy) = 'randn perm randn '* ]]
	[[ $(kinds torch.index_put) = *'perm randn '*'accumulate=False)' ]]
	[[ $(kinds torch.nn.functional.poisson_nll_loss) = 'randn count '* ]]
	[[ $(kinds torch.nn.PoissonNLLLoss) = 'randn count '* ]]
	[[ $(kinds torch.nn.KLDivLoss) = 'logprob prob '* ]]
	[[ $(kinds torch.nn.functional.multilabel_soft_margin_loss) = 'randn label '* ]]
	[[ $(kinds torch.mode) = 'count '* ]]
	[[ $(kinds torch.special.hermite_polynomial_he) = 'randn '*'({0}, 5)' ]]
	[[ $(kinds torch.bitwise_xor) = 'randint randint '* ]]
	[[ $(kinds torch.nn.functional.embedding) = 'randn randint '*'({1}, {0})' ]]
	[[ $(kinds torch.Tensor.repeat) = *'repeat(('*[2-9]* ]]
	jq -se 'any(.[].pieces[0].init; . == "nn.BatchNorm1d(200, track_running_stats=False)")' out
	# Classes are all those that there are.
	jq -se 'map(select(.parts == ["torch.nn.functional.nll_loss"]))[0].pieces[0].inputs |
		.[1].hi == .[0].shape[1]' out
	# Sizes are no bounds of numbers that are no indices.
	jq -se 'map(select(.parts == ["torch.bitwise_xor"]))[0].pieces[0].inputs |
		all(.[]; .index == null and .hi < 32)' out
	# What makes steps is no second operator; pivots hang on last digits.
	for name in histc floor argmax; do
		[ "$(jq -r --arg n "torch.$name" 'select(.parts == [$n]) | .pieces[0].chain' out)" = null ]
	done
	[ "$(grep -c lu_factor out)" = 0 ]
	for name in tile clone; do
		[[ $stderr == *"skipped '$name': an operator changes nothing"* ]]
	done
	jq -c 'select(any(.pieces[0].inputs[]; .kind == "perm"))' out |
		"$bin/ca-filter" --device cpu --checks random --min-ms 0 >judged
	[ "$(jq -c .keep judged | sort | uniq -c | tr -s ' ')" = ' 2 true' ]
}

@test "what is made, and in which order, does not hang on -j; a signal is no deadline" {
	"$bin/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
	run --separate-stderr "$bin/ca-crawl" --device cpu --ms 0.001 --seed 5 \
		--summary sum --only nn.functional.l --only fft.fft torch
	[[ $stderr != *"No module named 'numpy'"* ]] || skip 'no NumPy'
	[ "$status" = 0 ]
	jq -r .source.ref <<<"$output" >one
	[ "$(wc -l <one)" -gt 8 ]
	"$bin/ca-crawl" -q --device cpu --ms 0.001 --seed 5 -j 3 \
		--only nn.functional.l --only fft.fft torch | jq -r .source.ref >three
	cmp one three
	[ "$(jq -r '.seconds | keys | join(" ")' sum)" = 'alone idle prepare shared wait' ]
	[ "$(jq '.seconds | .prepare > 0 and .alone > 0' sum)" = true ]
	# -n ends it, though others are prepared.
	run -0 "$bin/ca-crawl" -q --device cpu --ms 0.001 --seed 5 -j 2 -n 2 \
		--only nn.functional.l --only fft.fft torch
	[ "$(jq -r .source.ref <<<"$output")" = "$(head -n 2 one)" ]
	# Interrupted when the first one is there.
	"$bin/ca-crawl" -v --device cpu --ms 0.001 torch >first 2>said 3>&- &
	pid=$!
	until [ -s first ]; do
		kill -0 $pid
		sleep 0.1
	done
	kill -TERM $pid
	status=0
	wait $pid || status=$?
	[ "$status" = 143 ]
	[ "$(grep -c 'did not answer' said)" = 0 ]
}

@test "sizes are found in few tries" {
	"$bin/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
	cat >check.py <<-'END'
		import sys, types
		package = types.ModuleType("catorch")
		package.__path__ = [sys.argv[1] + "/lib/torch"]
		sys.modules["catorch"] = package
		import torch
		from catorch import grow

		def found(ms, law, most=32 << 30, fails=None):
		    grower = grow.Grower(torch.device("cpu"), ms)
		    tried = []
		    def time(rung, calls=grow.CALLS):
		        tried.append(rung.nbytes)
		        if fails and rung.nbytes >= fails:
		            raise MemoryError
		        return law(rung.nbytes)
		    grower.time = time
		    rungs = [grow.Rung(1000 << i, "") for i in range(40) if 1000 << i <= most]
		    at, took = grower.grow(rungs)
		    return rungs[at].nbytes, took, len(tried)

		# As time goes with bytes: alike, with a start of its own, steeper, less.
		for law in (lambda n: n * 1e-9, lambda n: 0.02 + n * 5e-10, lambda n: n ** 1.5 * 1e-12,
		            lambda n: n ** 2 * 1e-16, lambda n: n ** 0.5 * 1e-4):
		    for ms in 1.05, 3:
		        n, took, tries = found(ms, law)
		        assert ms <= took < 4 * ms and tries <= 7, (n, took, tries)
		# What takes long when small stays so.
		n, took, tries = found(1, lambda n: n * 1e-4)
		assert n <= 64000 and took < 4, (n, took)
		# Sizes that do not work end the growth, whatever they were to take.
		n, took, tries = found(1, lambda n: n * 1e-9, fails=1 << 29)
		assert n < 1 << 29 and 0.4 < took < 1 and tries < 9, (n, took, tries)
		try:
		    found(100, lambda n: n * 1e-9, most=1 << 28)
		except grow.No as exc:
		    assert "with the largest inputs" in str(exc)
		else:
		    raise AssertionError
		try:
		    found(1, lambda n: n * 1e-9, fails=1)
		except MemoryError:
		    pass
		else:
		    raise AssertionError
	END
	"$("$bin/ca-torch" | jq -r .python)" check.py "$root"
}

@test "an operator that reads only a part of what it gets is none" {
	"$bin/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
	cat >check.py <<-'END'
		import sys, types
		package = types.ModuleType("catorch")
		package.__path__ = [sys.argv[1] + "/lib/torch"]
		sys.modules["catorch"] = package
		import torch
		from catorch import live

		def why(call):
		    piece = {"name": "x", "init": None, "call": call, "chain": 0,
		             "inputs": [{"kind": "randn", "shape": [96, 96]}]}
		    try:
		        live.check_alone(piece, torch.device("cpu"), True)
		    except live.No as exc:
		        return str(exc)

		part = "a part of an input changes nothing"
		assert why("torch.narrow_copy({0}, 1, 2, 2)") == part
		assert why("torch.select({0}, 0, 3)") == part
		assert why("torch.reshape({0}, (48, 192)).clone()") == "it gives back an input"
		assert why("nn.functional.interpolate({0}[None], (3,))") == part
		for call in "torch.sin({0})", "torch.amax({0}, 1)", "torch.tril({0})", "{0}.diagonal()":
		    assert why(call) is None, call

		# Nor one whose result is chance, goes nowhere, or hangs on last digits.
		def small(call, init=None):
		    piece = {"name": "x", "init": init, "call": call, "chain": 0,
		             "inputs": [{"kind": "randn", "shape": [4, 16, 96]}]}
		    try:
		        live.check_small(piece)
		    except live.No as exc:
		        return str(exc)

		assert small("nn.functional.dropout({0}, 0.5)") == "two calls on the same inputs differ"
		assert small("torch.gradient({0}, dim=(0, 1))") == "much of what it computes is not in its first result"
		for call in "torch.gradient({0}, dim=(0,))", "torch.std_mean({0}, dim=1)", "torch.median({0}, 1)":
		    assert small(call) is None, call
		assert small("{m}({0})", "nn.LSTM(96, 64)") is None
		assert why("torch.linalg.inv({0} @ {0}.mT @ {0} @ {0}.mT)") == "rounding of its inputs changes the result"
		for call in "torch.floor({0})", "torch.remainder({0}, 0.37)", "torch.argsort({0})":
		    assert why(call) is None, call
	END
	"$("$bin/ca-torch" | jq -r .python)" check.py "$root"
}
