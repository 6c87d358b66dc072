#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-combine --llm against a scripted model: good answers become tasks, bad
# ones cost themselves.

bats_require_minimum_version 1.5.0

load agent

setup() {
	command -v jq >/dev/null || skip 'no jq'
	command -v python3 >/dev/null || skip 'no python3'
	"$bin/ca-torch" >/dev/null 2>&1 || skip 'no PyTorch'
	dir=$BATS_TEST_TMPDIR
	cd "$dir" || return
	unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY OPENAI_API_KEY
	for name in tanh sigmoid sin; do
		jq -cn --arg n "torch.$name" '{kind: "task", v: 1, code: $n,
			source: {name: "torch"}, parts: [$n], pieces: [{name: $n,
			init: null, call: "\($n)({0})", chain: 0,
			inputs: [{kind: "randn", shape: [16, 48]}]}]}'
	done >ops
}

teardown() {
	agent_teardown
}

# model FORWARD [INPUTS [TOP [INIT]]]: a task file
model() {
	printf '%s\n' 'import torch' 'import torch.nn as nn' "${3-}" '' \
		'class Model(nn.Module):' '    def __init__(self):' \
		'        super().__init__()' "        ${4-pass}" '' \
		'    def forward(self, x):' "        $1" '' 'def get_inputs():' \
		"    return [${2-torch.randn(32, 64)}]" '' \
		'def get_init_inputs():' '    return []'
}

# say [TEXT...]: a turn; - stands for the file on stdin as a block of code
say() {
	local text=''
	for part; do
		[ "$part" != - ] || part=$(printf '```python\n%s\n```\n' "$(cat)")
		text+=$part$'\n'
	done
	jq -cn --arg t "$text" '{content: $t}'
}

# turns SEED: of stdin, a script by seeds
turns() {
	jq -cs --argjson seed "$1" '{seed: $seed, turns: .}' >script
}

compose() {
	"$bin/ca-combine" --device cpu --llm "$url" --model scripted --seed 7 \
		--mix x2=1 "$@" ops >out
}

bad_turns() {
	say 'Here is an idea: tanh of a sigmoid.'
	printf '```python\nimport torch\n\nclass Model(' |
		jq -cRs '{content: .}'
	sed -n '/^```python/,/^```$/p' "$root/skills/combine/prompt.md" |
		jq -cRs '{content: .}'
	say 'One:' "$(model 'return x' | jq -Rsr '"```python\n\(.)```"')" 'Two:' - \
		< <(model 'return x.tanh()')
	model 'return x.relu().relu()' | say -
	model 'return x.tanh().sin()' '' '__import__("os")._exit(0)' | say -
	model 'return x.tanh().sin()' '' '[__import__("os").fork() for i in range(99)]' |
		say -
	model 'return x.tanh().sin()' | say - | jq -c '.finish = "length"'
}

@test "good answers become tasks; each bad one costs itself, and says why" {
	{
		bad_turns
		model 'return torch.tanh(self.l(x))' 'torch.randn(64, 24)' '' \
			'self.l = nn.Linear(24, 40)' | say 'Thus:' - 'Enjoy.'
		model 'return self.layer(x).tanh()' 'torch.randn(64, 24)' '' \
			'self.layer = nn.Linear(24, 40)' | say -
		model 'return torch.softmax(x, -1).sqrt()' |
			jq -cRs '{content: "<think>```python\n</think>\(.)"}'
		model 'return torch.sin(x).amax(1)' | say -
	} | turns 7
	serve
	compose --count 3 -j 3 --summary summary 2>err || {
		cat err
		false
	}
	[ "$(jq -c '[.source.name, .source.model, .parts, .ops]' out)" = \
'["x2","scripted",["torch.nn.Linear","torch.tanh"],["addmm","tanh"]]
["x2","scripted",["torch.softmax","torch.Tensor.sqrt"],["_softmax","sqrt"]]
["x2","scripted",["torch.sin","torch.Tensor.amax"],["sin","amax"]]' ]
	[ "$(jq -r '.reasons[] | "\(.n) \(.why)"' summary | sort)" = \
		"$(sort <<-'END'
		1 prose: no block of code
		1 half a file: its block does not end
		1 copies the prompt, or another answer
		1 several blocks of code with a model
		1 an operator changes nothing
		1 it ends the process, or takes too long
		1 raises PermissionError before it is called
		1 cut off: more tokens than allowed
		1 has another's graph
		END
		)" ] || {
		cat summary
		false
	}
	jq -e '.made == 3 and .skipped == 9' summary || {
		cat err summary
		false
	}
	# What was made is what ca-filter finds.
	"$bin/ca-filter" --device cpu --min-ms 0 --checks contract,trace,eager out >judged
	[ "$(jq -c .keep judged | sort -u)" = true ]
	cmp <(jq -c .ops out) <(jq -c .ops judged)
}

@test "what is no stack is told by its reason, without a server" {
	cat >check.py <<-'END'
		import sys, types
		package = types.ModuleType("catorch")
		package.__path__ = [sys.argv[1] + "/lib/torch"]
		sys.modules["catorch"] = package
		import torch
		from catorch import compose

		def why(forward, inputs="torch.randn(32, 64)", top=""):
		    code = (f"import torch\nimport torch.nn as nn\n{top}\nclass Model(nn.Module):\n"
		            f"    def forward(self, x):\n        return {forward}\n"
		            f"def get_inputs():\n    return [{inputs}]\n")
		    try:
		        with torch.no_grad():
		            return compose.check(code, 2, 1 << 29, torch.device("cpu"))["parts"]
		    except compose.No as exc:
		        return str(exc)

		good = "x.tanh().sin()"
		for want, *args in (
		        (["torch.Tensor.tanh", "torch.Tensor.sin"], good),
		        (["torch.nn.functional.gelu", "torch.mul"], "2 * nn.functional.gelu(x)"),
		        ("imports what is not torch's", good, "x", "import numpy"),
		        ("is no Python", "x tanh"),
		        ("defines not one Model and one get_inputs", good, "x", "class Model: pass"),
		        ("raises ZeroDivisionError before it is called", good, "x", "1 / 0"),
		        ("decides by values, or cannot be traced", "x.tanh() if x.sum() > 0 else x"),
		        ("gives inputs that are no list of tensors", good, "3"),
		        ("a result is too large", good, "torch.randn(1 << 20, 1 << 20)"),
		        ("shapes do not fit", "x.t() @ x.tanh().t()"),
		        ("has another number of operators than asked for", "x.tanh().sin().cos()"),
		        ("it changes its inputs", "x.mul_(2).tanh()"),
		        ("two calls on the same inputs differ", "nn.functional.dropout(x.tanh(), 0.5, True)"),
		        ("the result hardly depends on the inputs", "x.sigmoid().clamp(2, 3)"),
		        ("rounding changes the result", "(x * 1e4).remainder(1)")):
		    got = why(*args)
		    assert got == want, (args, got)
	END
	"$("$bin/ca-torch" | jq -r .python)" check.py "$root" 2>err || {
		tail -n 3 err
		false
	}
}

@test "the model is asked as it should be, and asked again when it is busy" {
	model 'return torch.tanh(torch.sin(x))' | say - |
		jq -c '.faults = [{status: 429, headers: {"Retry-After": "0"}},
			{status: 503}]' | turns 7
	serve
	printf 'Make %s of:\n{{operators}}(not {{this}})\n' '{{count}}' >prompt
	compose --count 1 --prompt prompt --max-tokens 99 --temperature 0.5 \
		--body '{"top_k": 3}' -v 2>err
	[ "$(jq -c .parts out)" = '["torch.sin","torch.tanh"]' ]
	grep -q 'status 429; asking again' err
	grep -q 'status 503; asking again' err
	cp out first
	compose --count 1 --prompt prompt -q
	cmp first out
	# One request, seen by a server that writes it down.
	cat >tell.py <<-'END'
		import http.server
		class Handler(http.server.BaseHTTPRequestHandler):
		    def do_POST(self):
		        body = self.rfile.read(int(self.headers["Content-Length"]))
		        open("asked", "wb").write(body)
		        open("key", "w").write(self.headers.get("Authorization", ""))
		        self.send_error(401)
		server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
		print(server.server_port, flush=True)
		server.serve_forever()
	END
	endpoint=tell.py serve
	status=0
	OPENAI_API_KEY=secret compose --count 1 --prompt prompt --max-tokens 99 \
		--temperature 0.5 --body '{"top_k": 3}' 2>err || status=$?
	[ "$status" = 69 ]
	grep -q "'scripted' cannot be asked: status 401" err
	[ "$(cat key)" = 'Bearer secret' ]
	[ "$(jq -c '[.model, .max_tokens, .temperature, .seed, .top_k]' asked)" = \
		'["scripted",99,0.5,7,3]' ]
	jq -r '.messages[0].content' asked >text
	head -n 1 text | grep -qx 'Make 2 of:'
	[ "$(grep -cE '^- torch\.(tanh|sigmoid|sin), as in `torch\.[a-z]+\(x0\)`$' text)" = 2 ]
	grep -qF '(not {{this}})' text
}

@test "a server that fails now and then costs answers, one that goes on failing ends it" {
	model 'return torch.tanh(torch.sin(x))' | say - >a
	model 'return torch.sin(torch.sigmoid(x))' | say - >b
	cat >tell.py <<-'END'
		import http.server, json
		good = [json.dumps({"choices": [{"message": json.load(open(n)), "finish_reason": "stop"}]})
		        for n in "ab"]
		bad = ['{"choices": []}', '<html>', '{"choices":' + "[" * 5000]
		script = [good[0], *bad, good[1]] + bad * 9
		class Handler(http.server.BaseHTTPRequestHandler):
		    def do_POST(self):
		        self.rfile.read(int(self.headers["Content-Length"]))
		        self.send_response(200)
		        self.end_headers()
		        self.wfile.write(script.pop(0).encode())
		server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
		print(server.server_port, flush=True)
		server.serve_forever()
	END
	endpoint=tell.py serve
	status=0
	compose --count 3 --retries 0 --summary sum 2>err || status=$?
	cat err
	[ "$status" = 69 ]
	grep -q 'cannot be asked: the answer' err
	[ "$(wc -l <out)" = 2 ]
	jq -e '.made == 2 and (.reasons | map(select(.why | startswith("lost")).n) == [7])' sum
}

@test "answers end; what cannot be asked is an error at once" {
	say 'I would rather not.' | turns 1
	serve
	run -65 --separate-stderr "$bin/ca-combine" --device cpu --llm "$url" \
		--model m --count 2 --answers 5 -j 2 ops
	echo "$stderr"
	[[ $stderr == *'5 prose: no block of code'*'used up; 2 tasks are missing'* ]]
	model 'return x.tanh().sin()' 'x' 'while True: pass' | say - | turns 1
	serve
	run -65 --separate-stderr "$bin/ca-combine" --device cpu --llm "$url" \
		--model m --count 1 --answers 1 --task-timeout 2s ops
	[[ $stderr == *'1 it ends the process, or takes too long'* ]]
	run -69 "$bin/ca-combine" --device cpu --llm http://127.0.0.1:9/v1 --model m \
		--retries 0 ops
	for words in '--llm http://a' '--model m' '--prompt x' '-j 2' \
		'--llm file:///x --model m' '--llm http://a --model m --body [1]'; do
		# shellcheck disable=SC2086
		run -64 "$bin/ca-combine" $words ops
	done
	echo 'no operators' >prompt
	run -78 "$bin/ca-combine" --llm "$url" --model m --prompt prompt ops
	[[ $output == *'has no {{operators}}'* ]]
	run -66 "$bin/ca-combine" --llm "$url" --model m --prompt nowhere ops
}
