#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-dedup-ast: repeats, similarities (those of the paper against the package
# that defines them), and files that want to break the parser.

bats_require_minimum_version 1.5.0

root=$BATS_TEST_DIRNAME/../..

setup() {
	command -v jq >/dev/null || skip 'no jq'
	bin=${CA_BIN:-$root/bin}
	cd "$BATS_TEST_TMPDIR" || return
}

# task FILE...: a record for each
task() {
	local f
	for f; do
		jq -cRs --arg name "$f" \
			'{kind: "task", v: 1, name: $name, code: .}' "$f"
	done
}

dedup() {
	"$bin/ca-dedup-ast" --no-prov "$@" >out
}

# of LINE FILTER: what dedup said
of() {
	sed -n "$1p" out | jq -c "$2"
}

model() { # body of forward
	cat <<-END
	"""A model."""
	import torch
	import torch.nn as nn

	class Model(nn.Module):
	    """It has a docstring."""
	    def __init__(self, n: int):
	        super().__init__()
	        self.lin = nn.Linear(n, n)

	    def forward(self, x: torch.Tensor) -> torch.Tensor:
	        """So has this."""
	        x = self.lin(x)
	        $1

	def get_inputs():
	    return [torch.rand(4, 8)]

	def get_init_inputs():
	    return [8]
	END
}

@test "the first of equal sources stays" {
	model 'return torch.relu(x)' >a.py
	model 'return torch.tanh(x)' >b.py
	task a.py b.py a.py >in
	dedup in
	[ "$(jq -c '[.keep, .dedup.reason]' out | tr '\n' ' ')" = \
		'[true,null] [true,null] [false,"source"] ' ]
	[ "$(of 3 .dedup.duplicate.by)" = '"source"' ]
	dedup --drop in
	[ "$(wc -l <out)" = 2 ]
}

@test "the first of equal graphs stays, unless it was out already" {
	model 'return torch.relu(x)' >a.py
	model 'return x.relu()' >b.py
	model 'return torch.nn.functional.relu(x)' >c.py
	task a.py b.py c.py |
		jq -c '.filter.checks.trace.graph = "g"' >in
	dedup in
	[ "$(jq -c .dedup.reason out | tr '\n' ' ')" = \
		'null "graph" "graph" ' ]
	[ "$(of 2 .dedup.duplicate.of)" = "\"$(sha256sum <a.py | cut -c-32)\"" ]
	head -n 1 in | jq -c '.keep = false' >in2
	tail -n 2 in >>in2
	dedup in2
	[ "$(jq -c '[.keep, .dedup.reason]' out | tr '\n' ' ')" = \
		'[false,null] [true,null] [false,"graph"] ' ]
}

@test "copies are found: verbatim, renamed, retuned, stripped, padded" {
	model 'return torch.relu(x)' >ref.py
	model 'return torch.tanh(x)' >tanh.py
	sed 's/lin/fc/g; s/\bn\b/width/g' ref.py >renamed.py
	sed 's/rand(4, 8)/rand(64, 1024)/' ref.py >retuned.py
	sed '/"""/d; s/: int//; s/: torch.Tensor//; s/ -> torch.Tensor//' \
		ref.py >stripped.py
	sed 's/^\( *\)x = self.*/&\n\1x = x\n\1pass/' ref.py >padded.py
	task ref.py >refs
	task ref.py renamed.py retuned.py stripped.py padded.py tanh.py >in
	dedup --against refs in
	[ "$(jq .dedup.sim_paper out | head -n 3 | tr '\n' ' ')" = '1 1 1 ' ]
	[ "$(of 6 .dedup.sim_paper)" = 1 ]
	[ "$(of 6 '.dedup.sim_norm < 1')" = true ]
	[ "$(jq .dedup.sim_norm out | head -n 5 | tr '\n' ' ')" = \
		'1 1 1 1 1 ' ]
	[ "$(of 4 '.dedup.sim_paper < 0.9')" = true ]
	[ "$(jq -c .keep out | tr '\n' ' ')" = \
		'false false false true true false ' ]
	dedup --against refs --reject sim_norm --limit 0.99 in
	[ "$(jq -c .keep out | tr '\n' ' ')" = \
		'false false false false false true ' ]
	dedup --against refs --verdict-only in
	[ "$(jq -c .dedup.exceeds out | tr '\n' ' ')" = \
		'true true true false false true ' ]
}

@test "references with the same operators are named" {
	model 'return torch.relu(x)' >a.py
	model 'return torch.tanh(x) + 1' >b.py
	task a.py | jq -c '.ops = ["addmm", "relu"]' >refs
	{
		task b.py | jq -c '.ops = ["addmm", "relu"]'
		task b.py | jq -c '.x = 1 | .ops = ["relu", "addmm"]'
		task b.py
	} >in
	dedup --against refs in
	[ "$(jq -c .dedup.ops_equal out | tr '\n' ' ')" = 'true false null ' ]
	[ "$(of 1 .dedup.ops_twin)" = "\"$(sha256sum <a.py | cut -c-32)\"" ]
}

@test "the histogram counts every task that was compared" {
	model 'return torch.relu(x)' >a.py
	printf 'x = 1\n' >b.py
	printf 'x = (\n' >c.py
	task a.py >refs
	task a.py b.py c.py >in
	"$bin/ca-dedup-ast" --against refs --histogram in >out 2>err
	grep -q 'largest sim_paper to a reference, 2 tasks' err
	grep -Eq '^     1\.00 +1 #' err
	grep -Eq '^0\.00-0\.05 +1 #' err
	run -64 "$bin/ca-dedup-ast" --histogram in
	run -64 "$bin/ca-dedup-ast" --verdict-only in
}

@test "files that cannot be parsed cost their own record only" {
	good=$(model 'return torch.relu(x)')
	{
		jq -cn '{kind: "task", v: 1, code: "def f(:\n"}'
		jq -cn '{kind: "task", v: 1, code: ("(" * 100000)}'
		jq -cn '{kind: "task", v: 1, code: ("-" * 100000 + "1")}'
		jq -cn '{kind: "task", v: 1, code: ("x" + ".a" * 50000)}'
		jq -cn '{kind: "task", v: 1, code: ("f(" * 89 + ")" * 89)}'
		jq -cn '{kind: "task", v: 1, code: ("x = 1\n" * 1000000)}'
		jq -cn '{kind: "task", v: 1, code: ("x = 1\n" * 100000)}'
		jq -cn '{kind: "task", v: 1, code: "\ud7ff\uffff = 1"}'
		jq -cn '{kind: "task", v: 1, code: 7}'
		jq -cn '{kind: "task", v: 1}'
		jq -cn --arg c "$good" '{kind: "task", v: 1, code: $c}'
	} >in
	jq -cn --arg c "$good" '{kind: "task", v: 1, code: $c}' >refs
	dedup --against refs in
	[ "$(wc -l <out)" = 11 ]
	[ "$(jq -c '[.keep, .dedup.status]' out | sort | uniq -c |
		tr -s ' \n' ' ')" = \
		' 1 [false,"ok"] 9 [false,"unparsable"] 1 [true,"ok"] ' ]
	[ "$(of 11 .dedup.sim_paper)" = 1 ]
	[ "$(of 1 .dedup.text | grep -c 'line 1')" = 1 ]
}

@test "references that cannot be read end it" {
	model 'return torch.relu(x)' >a.py
	task a.py >in
	run -66 --separate-stderr dedup --against nowhere in
	[ ! -s out ]
	echo '{"kind":"task","v":1,"code":"def f(:"}' >bad
	run -65 dedup --against bad in
	[[ $output == *bad:1:*'cannot parse a reference task'* ]]
	echo '{"kind":"note","v":1}' >none
	run -65 dedup --against none in
	[[ $output == *'holds no task'* ]]
	printf '{"kind":"task"' >cut
	run -65 dedup --against cut in
}

# The package that the paper used, in an environment of its own.
reference_python() {
	local cache=${CA_CACHE:-/var/cache/cuda-agent} dir
	[ "$(id -u)" = 0 ] || cache=${CA_CACHE:-$HOME/.cache/cuda-agent}
	dir=$cache/continuous-eval
	python=$dir/bin/python3
	"$python" -c 'import sys' 2>/dev/null && [ -e "$dir/complete" ] &&
		return
	rm -rf "$dir"
	python3 -m venv "$dir" && timeout 100 "$dir/bin/pip" -q install \
		--no-deps continuous-eval==0.3.14.post2 'munkres<2' thefuzz \
		python-dotenv rapidfuzz tqdm appdirs jinja2 markupsafe \
		json_repair && timeout 60 "$dir/bin/pip" -q install \
		pydantic 'posthog<4' && touch "$dir/complete"
}

@test "sim_paper is the package's, on all pairs of some files" {
	reference_python >pip.log 2>&1 ||
		skip 'continuous-eval cannot be installed here'
	sources=$(python3 -c 'import json, os; print(os.path.dirname(
		os.path.dirname(json.__file__)))')
	for f in bisect colorsys keyword abc stat copyreg; do
		task "$sources/$f.py"
	done >in
	task "$root"/fixtures/workdirs/c*/*/model.py | head -n 30 >>in
	awk 'NR % 4 == 1' in >refs
	while IFS= read -r ref; do
		echo "$ref" >one
		dedup --against one in
		jq -r .dedup.sim_paper out
	done <refs >got
	"$python" - in refs >want <<-'END'
	import json, sys
	from continuous_eval.metrics.code.python.code_deterministic_metrics \
	    import PythonASTSimilarity
	a, b = ([json.loads(x)["code"] for x in open(f)] for f in sys.argv[1:])
	def sim(x, y):
	    try:
	        return metric.compute(x, y)["Python_AST_Similarity"]
	    except ZeroDivisionError:   # neither has a part that counts
	        return 0.0
	metric = PythonASTSimilarity()
	for y in b:
	    for x in a:
	        print("%g" % sim(x, y))
	END
	[ "$(wc -l <want)" -ge 300 ]
	diff want got
}
