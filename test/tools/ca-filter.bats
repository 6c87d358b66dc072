#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-filter on the CPU: good tasks, one task for each check that rejects, and
# tasks that attack whoever runs them.  Times are never asserted.

bats_require_minimum_version 1.5.0

load host
root=$BATS_TEST_DIRNAME/../..

setup_file() {
	command -v jq >/dev/null || skip 'no jq'
	bin=${CA_BIN:-$root/bin}
	export bin
	share_host
}

setup() {
	use_host
	"$bin/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
}

# task NAME FORWARD [INPUTS [INIT [TOP]]]: a record; inputs are x and y
task() {
	jq -cn --arg name "$1" --arg code "import torch
import torch.nn as nn
${5-}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        ${4-pass}
    def forward(self, x, y):
        $2
def get_inputs():
    return [${3-torch.randn(64, 256), torch.randn(64, 256)}]
def get_init_inputs():
    return []
" '{kind: "task", v: 1, name: $name, code: $code}'
}

# filter OPTION... RECORDS: into `out`
filter() {
	cd "$BATS_TEST_TMPDIR" || return
	"$bin/ca-filter" --device cpu --no-prov --min-ms 0 --max-ms 10000 \
		"$@" >out
}

# NAME reason, a line for each
reasons() {
	jq -r '[.name, .filter.reason // "kept"] | join(" ")' out
}

@test "what can be verified is kept; what cannot is not, and the check is named" {
	in=$BATS_TEST_TMPDIR/in
	{
		task softmax 'return torch.softmax(x * 3, -1) * y'
		task linear 'return self.l(x) + y' \
			'torch.randn(32, 64), torch.randn(32, 16)' \
			'self.l = nn.Linear(64, 16)'
		task symmetric 'return x * y + x + y'
		task scale-free 'return torch.sign(x) * y / y.norm()'
		task mutation 'x.mul_(2); return x + y'
		task finite 'return (x - 100).sqrt() * y'
		task empty 'return x[:0] + y[:0]'
		task grows 'return x + y' 'torch.ones(shapes()), torch.ones(4)' pass \
'import itertools
count = itertools.count()
def shapes():
    return (4 + next(count) // 3 * 4, 4)'
		task random 'return x + torch.rand_like(y)'
		task zeros 'return torch.relu(x - 100) * y'
		task constant 'return torch.tanh(x + 100) + 0 * y'
		task copy 'return torch.relu(x) + 0 * y' \
			'torch.rand(64, 256), torch.rand(64, 256)'
		task multiple 'return x * 0.37 + 0 * y'
		task other 'return (x.sigmoid() + y.sigmoid()).mean(0) + 1' \
			'torch.rand(65536, 8), torch.rand(65536, 8)'
		task two 'return (x[0, 0] > 0) + 1.0 + 0 * y.sum()'
		task weights 'return x + y + 1e-4 * self.l(x)' \
			'torch.randn(32, 16), torch.randn(32, 16)' \
			'self.l = nn.Linear(16, 16)'
		task swapped 'return 3 * x + 3 * y + 4e-4 * x * x'
	} >"$in"
	filter --checks \
contract,trace,eager,time,memory,mutation,finite,random,trivial "$in"
	diff - <(reasons) <<-'END'
	softmax kept
	linear kept
	symmetric kept
	scale-free kept
	mutation mutation
	finite finite
	empty finite
	grows finite
	random random
	zeros trivial
	constant trivial
	copy trivial
	multiple trivial
	other trivial
	two trivial
	weights trivial
	swapped trivial
	END
	[ "$(jq -c '[.keep, .filter.reason == null] | unique | length' out |
		sort -u)" = 1 ]
	jq -r 'select(.filter.reason == "trivial") |
		.filter.checks.trivial.accepted' out >accepted
	for word in zeros mean copy:0 multiple:0 other_input other_weights \
		swapped; do
		grep -qw "$word" accepted
	done
	[ "$(jq -c 'select(.name == "linear") | .ops' out)" = \
		'["addmm","add"]' ]
}

@test "what indices name is written to once, or added up" {
	# write NAME STATEMENT [INDEX]: to z, at i
	write() {
		task "$1" "pool = lambda x: nn.functional.max_pool2d(x, 3, 1, return_indices=True)
        z = x.clone(); i = self.i; w = i[:, None].expand(3, 256)
        $2
        return z * 2" 'torch.randn(64, 256), torch.randn(64, 256)' \
			"self.i = torch.tensor(${3:-[3, 1, 3]})"
	}
	{
		write copy 'z = z.index_copy(0, i, y[:3])'
		write apart 'z = z.index_copy(0, i, y[:3])' '[3, 1, 2]'
		write put 'z = z.index_put((i,), y[:3])'
		write pairs 'z.index_put_((i, i), y[0, :3])'
		write set 'z[i] = y[:3]'
		write mask 'z[z > 0] = y[z > 0]'
		write added 'z = z.index_put((i,), y[:3], accumulate=True)'
		write same 'z[i] = 5.0'
		write scatter 'z = z.scatter(0, w, y)'
		write value 'z = z.scatter(0, w, 5.0)'
		write reduced 'z = z.scatter_reduce(0, w, y, "sum")'
		write place 'z = z.put(i, y[0, :3])'
		write unpool 'p = pool(z[None])
        z = nn.functional.max_unpool2d(*p, 3, 1)'
		write mixed 'p, j = pool(z[None])
        z = nn.functional.max_unpool2d(p + y[:62, :254], j, 3, 1)'
	} >"$BATS_TEST_TMPDIR/in"
	filter --checks random "$BATS_TEST_TMPDIR/in"
	diff - <(reasons) <<-'END'
	copy random
	apart kept
	put random
	pairs random
	set random
	mask kept
	added kept
	same kept
	scatter random
	value kept
	reduced kept
	place random
	unpool kept
	mixed random
	END
}

@test "torch.compile has to take it and to agree; the guard has its say" {
	{
		task good 'return torch.softmax(x, -1) * y'
		task differs 'return x * y + torch.compiler.is_compiling()'
	} >"$BATS_TEST_TMPDIR/in"
	filter "$BATS_TEST_TMPDIR/in"
	reasons >got
	grep -qx 'good kept' got
	grep -qx 'differs compile' got
	[ "$(jq -s '.[0].filter.checks.guard.ok' out)" = true ]
	jq -se '.[0].filter.checks | .compile.ms > 0 and .time.ms > 0' out
}

@test "equal graphs have equal hashes, whatever things are called; -j keeps order" {
	{
		task a 'return torch.relu(x) + y'
		task b 'z = x.relu(); return torch.add(z, y)'
		task c 'return torch.tanh(x) + y'
		task d 'return torch.relu(x) + y' \
			'torch.randn(64, 128), torch.randn(64, 128)'
		task e 'return torch.relu(x) + 2 * y'
	} >"$BATS_TEST_TMPDIR/in"
	filter -j 2 --checks trace "$BATS_TEST_TMPDIR/in"
	[ "$(jq -r .name out | tr '\n' ' ')" = 'a b c d e ' ]
	jq -r .filter.checks.trace.graph out >hash
	[ "$(sed -n 1p hash)" = "$(sed -n 2p hash)" ]
	[ "$(sort -u hash | wc -l)" = 4 ]
	[ "$(jq -c .ops out | tail -n 1)" = '["relu","mul","add"]' ]
}

@test "prov and -v tell what time went into" {
	task softmax 'return torch.softmax(x * 3, -1) * y' >"$BATS_TEST_TMPDIR/in"
	"$bin/ca-filter" -v --device cpu --min-ms 0 --checks contract,eager,time \
		"$BATS_TEST_TMPDIR/in" >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/told"
	jq -es 'map(.filter.prov) | all(.attempts >= 1 and .asked > 0 and .spent.contract > 0 and
		(.waited | keys) == ["alone", "room", "shared"])' "$BATS_TEST_TMPDIR/out"
	grep -q 'seconds of all tasks: contract .*eager .*alone' "$BATS_TEST_TMPDIR/told"
}

@test "words that would keep all or nothing are usage" {
	for words in '--checks nonsense' '--checks=' '--checks eager,' '--checks ,eager' \
		'--min-ms 5 --max-ms 1'; do
		# shellcheck disable=SC2086
		run -64 "$bin/ca-filter" --device cpu $words /dev/null
	done
	run -0 "$bin/ca-filter" --device cpu --checks eager,time --min-ms 2 --max-ms 2 /dev/null
}

@test "limits of time and memory; --exhaustive goes on" {
	{
		task small 'return x * y + x'
		task large 'return (x * y + x).repeat(1, 1000).sum(1)' \
			'torch.randn(4096, 64), torch.randn(4096, 64)'
	} >"$BATS_TEST_TMPDIR/in"
	filter --checks time,memory --max-mem 200M --min-ms 5000 \
		--exhaustive "$BATS_TEST_TMPDIR/in"
	[ "$(jq -c '[.name, .filter.reason, .filter.checks.memory.ok]' out |
		tr '\n' ' ')" = \
		'["small","time",true] ["large","time",false] ' ]
	filter --checks time --min-ms 5000 --drop "$BATS_TEST_TMPDIR/in"
	[ ! -s out ]
	run -64 filter --checks time,nonsense "$BATS_TEST_TMPDIR/in"
	[[ $output == *"unknown check 'nonsense'"* ]]
}

@test "tasks that attack cost their own record only" {
	canary=$BATS_TEST_TMPDIR/canary
	xy='torch.randn(64, 256), torch.randn(64, 256)'
	{
		task syntax 'return ('
		task raises 'raise ValueError("no")'
		task hangs 'return x' 'x, y' pass 'while True: pass'
		task dies 'import ctypes; ctypes.string_at(0)'
		task aborts 'import os; os.abort()'
		task exits 'raise SystemExit(0)'
		task leaves 'import os; os._exit(0)'
		task recurses 'return self.forward(x, y)'
		task huge 'return torch.zeros(1 << 40) + x.sum()'
		task writes "open('$canary', 'w').write('x'); return x + y"
		task sockets 'import socket; socket.create_connection((
            "127.0.0.1", 9)); return x + y'
		task forks 'import os
        while True: os.fork()'
		task floods 'import sys
        sys.stdout.write("x" * 1000000); return x + y'
		task twice 'return x - y' "$xy" pass 'class Model: pass'
		task slow 'return x + y' "$xy" pass 'import time; time.sleep(600)'
		task odd 'return x + y' '{1: 2}'
		jq -cn '{kind: "task", v: 1, name: "long", code: ("#" * 5000000)}'
		task good 'return torch.softmax(x, -1) * y'
	} >"$BATS_TEST_TMPDIR/in"
	filter --checks contract,eager,finite --task-timeout 6 -j 2 \
		"$BATS_TEST_TMPDIR/in"
	[ ! -e "$canary" ]
	diff - <(reasons) <<-'END'
	syntax contract
	raises eager
	hangs contract
	dies eager
	aborts eager
	exits eager
	leaves eager
	recurses eager
	huge eager
	writes eager
	sockets eager
	forks eager
	floods kept
	twice kept
	slow contract
	odd contract
	long contract
	good kept
	END
	[ "$(jq -c .filter.status out | sort -u | tr '\n' ' ')" = \
		'"ok" "rejected" ' ]
}

@test "a task that is not UTF-8 is answered by an error, and the next one judged" {
	{
		task one 'return x + y'
		task two 'return x - y' | sed 's/nn/\xe9/'
		task three 'return x * y' 'torch.randn(4), torch.randn(4)' pass '# -*- coding: latin-1 -*-'
		task four 'return torch.softmax(x, -1) * y'
	} >"$BATS_TEST_TMPDIR/in"
	run -65 filter --checks contract "$BATS_TEST_TMPDIR/in"
	[ "$(jq -c '[.kind, .line, .keep]' "$BATS_TEST_TMPDIR/out" | tr '\n' ' ')" = \
'["task",null,true] ["error",2,null] ["task",null,true] ["task",null,true] ' ]
}
