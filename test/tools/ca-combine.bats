#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-combine on pieces that stand here, so that crawling costs nothing.

bats_require_minimum_version 1.5.0

load host
root=$BATS_TEST_DIRNAME/../..

setup() {
	use_host
	command -v jq >/dev/null || skip 'no jq'
	bin=${CA_BIN:-$root/bin}
	"$bin/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
	cd "$BATS_TEST_TMPDIR" || return
}

# op NAME CALL INIT SHAPE...: a task with its piece
op() {
	local name=$1 call=$2 init=$3
	shift 3
	printf '[%s]\n' "$@" | jq -cs --arg name "$name" --arg call "$call" \
		--arg init "$init" '{kind: "task", v: 1, code: $name,
		source: {name: "torch"}, parts: [$name], pieces: [{
		name: $name, call: $call, chain: 0,
		init: (if $init == "" then null else $init end),
		inputs: map({kind: "randn", shape: .})}]}'
}

ops() {
	op tanh 'torch.tanh({0})' '' 16,48
	op softmax 'torch.softmax({0}, dim=-1)' '' 32,64
	op linear '{m}({0})' 'nn.Linear(96, 80)' 8,96
	op add 'torch.add({0}, {1})' '' 24,40 24,40
	op sort 'torch.sort({0}, 1)' '' 12,72
	op relu 'torch.relu({0})' '' 64,64
}

combine() {
	"$bin/ca-combine" --device cpu "$@"
}

@test "stacks run, hold what was drawn, and are the same for the same seed" {
	ops >in
	combine --count 12 --mix x2=8,x3=4 --seed 5 in >out 2>err
	[ "$(jq -c '.parts | length' out | sort | uniq -c | tr -s ' \n' ' ')" = \
		' 8 2 4 3 ' ]
	[ "$(jq -r .id out | sort -u | wc -l)" = 12 ]
	jq -e '.source.name == "x\(.parts | length)" and .kind == "task" and
		(.code | contains("class Model"))' out >/dev/null
	combine -q --count 12 --mix x2=8,x3=4 --seed 5 in >again
	cmp out again
	"$bin/ca-filter" --device cpu --min-ms 0 --checks contract,eager,trivial \
		-n 4 out >judged
	[ "$(jq -c .keep judged | sort -u)" = true ]
	# What a tuple holds goes on as its first tensor; sizes were fitted.
	[ "$(jq -r .code out | grep -c 'torch.sort(x, 1)$')" = 0 ]
	combine -q --count 5 --mix x2=1 --seed 5 --not-in out in >more
	[ "$(cat out more | jq -r .id | sort -u | wc -l)" = 17 ]
}

@test "dead patterns are not made" {
	{
		op relu 'torch.relu({0})' '' 64,64
		op abs 'torch.abs({0})' '' 64,64
	} >in
	run -65 --separate-stderr combine --count 2 --mix x2=1 in
	[[ $stderr == *'an operator changes nothing'* ]]
	{
		op softmax 'torch.softmax({0}, dim=1)' '' 64,64
		op sum 'torch.sum({0}, dim=1)' '' 64,64
	} >in
	run -65 --separate-stderr combine --count 2 --mix x2=1 in
	[[ $stderr == *'hardly depends on the inputs'* ]]
	# The least of a permutation's rows is 0, whatever was permuted.
	{
		op lu 'torch.linalg.lu({0})' '' 8,32,32
		op min 'torch.min({0}, 1)' '' 8,32,32
	} >in
	run -65 --separate-stderr combine --count 40 --mix x2=1 in
	[ "$(jq -c .parts <<<"$output" | grep -c '"lu","min"')" = 0 ]
	# A step where the last digits of what came before decide.
	{
		op scale 'torch.mul({0}, 10000.0)' '' 64,64
		op remainder 'torch.remainder({0}, 1.0)' '' 64,64
	} >in
	run -65 --separate-stderr combine --count 40 --mix x2=1 in
	[[ $stderr == *'rounding changes the result'* ]]
	# Small differences of large terms are rounded as the terms are.
	cat >check.py <<-'END'
		import sys, types
		package = types.ModuleType("catorch")
		package.__path__ = [sys.argv[1] + "/lib/torch"]
		sys.modules["catorch"] = package
		import torch
		from catorch import live

		x = torch.zeros(live.PART * 2 + 5)
		x[1::2] = 1.0
		x[3] = 1e-9
		moved = (live.shake(x) - x).abs()
		assert moved[3] > 1e-9 and moved[1::2].max() < 1e-4
		assert not moved[::2].any()
		assert live.shake(x.view(1, -1).t()).shape == (x.numel(), 1)
		assert (live.shake(x[:7]) - x[:7]).abs().max() > 0
	END
	py=$("$bin/ca-torch" 2>/dev/null | jq -r .python)
	"$py" check.py "$root"
	[ "$(jq -c .parts <<<"$output" | grep -c '"scale","remainder"')" = 0 ]
	# An input that is not used, one that is changed, one place for two values.
	{
		op tanh 'torch.tanh({0})' '' 32,64
		op ignores 'torch.sin({0}) + 0 * {1}' '' 32,64 32,64
		op changes '{0}.mul_(2)' '' 32,64
		op writes '{0}.index_put((torch.zeros(32, dtype=torch.long),), {0})' '' 32,64
	} >in
	run -65 --separate-stderr combine --count 3 --mix x2=1 in
	for why in 'an input changes nothing' 'it changes its inputs' \
		'it writes to one place twice'; do
		[[ $stderr == *"$why"* ]]
	done
}

@test "single tasks pass as they came; what cannot be had goes to others" {
	ops >in
	jq -c '.keep = false' <(op other 'torch.exp({0})' '' 8,8) >>in
	echo '{"kind":"task","v":1,"code":"no pieces"}' >>in
	combine --count 4 --mix x1=1 --seed 2 in >out 2>err
	[ "$(jq -r .code out | sort -u | wc -l)" = 4 ]
	[ "$(grep -c -e other -e 'no pieces' out)" = 0 ]
	grep -q '1 records without pieces' err
	combine -q --count 3 --mix x1=1,transformers=9 in >out
	[ "$(wc -l <out)" = 3 ]
	run -65 combine --count 7 --mix x1=1 in
	run -65 combine --count 1 --mix transformers=1 in
	for mix in x6=1 x2 x2=a y2=1 'x2=1,,' '' x2=0; do
		run -64 combine --mix "$mix" in
	done
	for words in '--answers 3' '--retries 1' '--temperature 0' '--max-tokens 9' \
		'--answer-timeout 3s' '-j 2' '--llm http://localhost:1/v1'; do
		# shellcheck disable=SC2086
		run -64 combine $words in
	done
	run -73 --separate-stderr combine --count 1 --summary nowhere/sum in
	[ "$output" = '' ]
}

@test "pieces that attack cost a draw" {
	{
		op tanh 'torch.tanh({0})' '' 16,48
		op exit '__import__("os")._exit(3) or {0}' '' 16,48
		op raise '1 / 0 + {0}' '' 16,48
		op write "open('$BATS_TEST_TMPDIR/canary', 'w') and {0}" '' 16,48
		op sin 'torch.sin({0})' '' 16,48
	} >in
	combine --count 2 --mix x2=1 --seed 3 in >out 2>err
	[ "$(wc -l <out)" = 2 ]
	[ ! -e canary ]
	[ "$(jq -r '.parts[]' out | grep -cv -e tanh -e sin)" = 0 ]
}
