#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-serve --generate on a small model without sense.  That the numbers are
# right is for test/models to show.

bats_require_minimum_version 1.5.0

load serve

serve() {
	"$bin/ca-serve" --generate --device cpu --model model --no-prov "$@"
}

prompts() {
	for n in {1..12}; do
		echo "{\"kind\":\"prompt\",\"v\":1,\"text\":\"the same beginning" \
			"of every line, then $n\",\"n\":$n}"
	done
}

@test "prompts become completions, other records pass" {
	{
		echo '{"kind":"note","v":1}'
		echo '{ "kind":"prompt","v":1,"text":"in the","x":1.50}'
	} >in
	serve --max-tokens 5 --temperature 0 in >out
	[ "$(head -n 1 out)" = '{"kind":"note","v":1}' ]
	tail -n 1 out | grep -q '^{ "kind":"completion","v":1,"text":"in the","x":1.50,"completion":{'
	tail -n 1 out | jq -e '.completion | .prompt_tokens == 4 and
		(.tokens | length) <= 5 and (.tokens | length) == (.logprobs | length)
		and all(.logprobs[]; . <= 0) and .sampling.temperature == 0' >/dev/null
}

@test "text, ids and messages of the same prompt complete alike" {
	{
		echo '{"kind":"prompt","v":1,"text":"user: in<e>\n<s>assistant: "}'
		echo '{"kind":"prompt","v":1,"messages":[{"role":"user","content":"in"}]}'
		# Bytes, but for "in" (257), <s> (260) and <e> (261).
		echo '{"kind":"prompt","v":1,"tokens":[260,117,115,101,114,58,32,257,261,10,' \
			'260,97,115,115,105,115,116,97,110,116,58,32]}'
	} >in
	serve --max-tokens 20 --temperature 0 in >out
	[ "$(jq -c .completion.tokens out | uniq | wc -l)" = 1 ]
	[ "$(jq -c .completion.prompt_tokens out | uniq)" = 22 ]
}

@test "a seed gives the same bytes for any number of sequences at once" {
	prompts >in
	serve --seed 7 --max-tokens 30 -j1 in >one
	serve --seed 7 --max-tokens 30 -j5 in >five
	cmp one five
	# A cache for two of them.
	serve --seed 7 --max-tokens 30 -j12 --ctx 90 --cache 180 in >tight
	cmp one tight
	serve --seed 8 --max-tokens 30 in >other
	cmp -s one other && return 1
	[ "$(jq .n one | tr '\n' ' ')" = '1 2 3 4 5 6 7 8 9 10 11 12 ' ]
}

@test "beginnings that are the same are computed once" {
	prompts >in
	serve --seed 7 --max-tokens 3 -v -j1 in 2>err >/dev/null
	shared=$(sed -n 's/.*tokens of prompts (\([0-9]*\) shared).*/\1/p' err)
	[ "$shared" -ge 300 ]
}

@test "log-probabilities of a prompt are those of its generation, bit for bit" {
	echo '{"kind":"prompt","v":1,"text":"the in","seed":"5","ignore_eos":true}' >in
	serve --max-tokens 200 --temperature 0.8 in >out
	jq -c '{kind:"prompt", v:1, temperature:0.8, max_tokens:0, prompt_logprobs:true,
		tokens:([260, 258, 32, 257] + .completion.tokens)}' out >again
	serve again >scored
	jq -c '.completion.logprobs' out >a
	jq -c '.completion.prompt_logprobs[4:]' scored >b
	[ "$(jq length a)" = 200 ]
	cmp a b
}

@test "stop texts, end tokens and limits end a completion" {
	echo '{"kind":"prompt","v":1,"text":"a","ignore_eos":true,"seed":"1"}' >in
	serve --max-tokens 60 in >out
	[ "$(jq -r .completion.finish_reason out)" = length ]
	word=$(jq -r '.completion.text | match("[ -~]{2}").string' out)
	jq -c --arg w "$word" '{kind:"prompt",v:1,text,ignore_eos,seed,stop:[$w]}' out >in
	serve --max-tokens 60 in >cut
	[ "$(jq -r .completion.finish_reason cut)" = stop ]
	jq -e --arg w "$word" '.completion.text | contains($w) | not' cut
	jq -s -e '.[0].completion.text as $all | .[1].completion.text as $part |
		$all | startswith($part)' out cut
}

@test "temperature, top_k and top_p cut what can be drawn" {
	for n in {1..20}; do
		echo '{"kind":"prompt","v":1,"text":"a"}'
	done >in
	serve --seed 1 --max-tokens 1 in >free
	[ "$(jq -c .completion.tokens free | sort -u | wc -l)" -gt 2 ]
	# With many sequences there are as many of each of these numbers.
	for flags in '--temperature 0' '--top-k 1' '--top-p 0.000001' '-j 128 --top-k 1'; do
		# shellcheck disable=SC2086
		serve --seed 1 --max-tokens 1 $flags in >cut
		[ "$(jq -c .completion.tokens cut | sort -u | wc -l)" = 1 ]
	done
}

@test "prompts that cannot be leave as they came" {
	cat >in <<-'END'
	{"kind":"prompt","v":1}
	{"kind":"prompt","v":1,"text":"a","tokens":[1]}
	{"kind":"prompt","v":1,"text":7}
	{"kind":"prompt","v":1,"tokens":[]}
	{"kind":"prompt","v":1,"tokens":[1,262]}
	{"kind":"prompt","v":1,"tokens":[1,-1]}
	{"kind":"prompt","v":1,"text":"a","temperature":-1}
	{"kind":"prompt","v":1,"text":"a","top_p":0}
	{"kind":"prompt","v":1,"text":"a","seed":7}
	{"kind":"prompt","v":1,"text":"a","max_tokens":1000}
	{"kind":"prompt","v":1,"messages":[{"role":"bad","content":""}]}
	END
	status=0
	serve in >out 2>err || status=$?
	[ "$status" = 65 ]
	cmp in out
	for why in "one of 'text'" "'text' is of the wrong type" 'prompt is empty' \
		'token 262 is not in the vocabulary' 'no token id' \
		"'temperature' has to be" "'top_p' has to be" "'seed' has to be" \
		'more than the context of 256' 'no such role'; do
		grep -qF "$why" err
	done
}

@test "tools reach the chat template, which runs in a sandbox" {
	echo '{"kind":"prompt","v":1,"messages":[],"tools":[{"name":"x"}],"max_tokens":0}' >in
	serve in >out
	[ "$(jq .completion.prompt_tokens out)" -gt 20 ]
	printf '{{ messages.__class__.__mro__[1].__subclasses__() }}' >model/chat_template.jinja
	status=0
	serve in >out 2>err || status=$?
	[ "$status" = 65 ]
	grep -q SecurityError err
}

@test "chat needs no Python where the template is understood" {
	echo '{"kind":"prompt","v":1,"messages":[{"role":"user","content":"in <e> the"}],"max_tokens":1}' >in
	serve in >with
	CA_PYTHON=/nowhere PATH=$PATH serve -v in >without 2>said
	jq -e .completion without
	[ "$(jq -c .completion.prompt_tokens with)" = "$(jq -c .completion.prompt_tokens without)" ]
	run ! grep -q Python said
	CA_PYTHON=/nowhere run -65 serve - <<<'{"kind":"prompt","v":1,"messages":[{"role":"bad"}]}'
	[[ $output == *'TemplateError: no such role'* ]]
	# What is not understood is told from the start.
	printf '{%% macro m() %%}x{%% endmacro %%}{{ m() }}' >model/chat_template.jinja
	CA_PYTHON=/nowhere run -69 serve in
	serve -v in 2>said >out
	jq -e .completion out
	grep -q "chat template: Python renders it (line 1: .*'macro'" said
	# What only some conversations need, when they come.
	printf '{{ messages[0].content[1] }}' >model/chat_template.jinja
	serve in >out
	[ "$(jq .completion.prompt_tokens out)" = 1 ]
	CA_PYTHON=/nowhere run -69 serve in
	[[ $output == *'chat template: line 1'*nowhere* ]]
}

@test "models that lie are refused by name" {
	refused() { # exit status, text
		status=0
		serve </dev/null 2>err || status=$?
		[ "$status" = "$1" ] && grep -qF "$2" err
	}
	change() {
		jq -c "$1" "$BATS_FILE_TMPDIR/model/config.json" >model/config.json
	}
	change '.intermediate_size = 64'
	refused 65 "tensor 'model.layers.0.mlp.gate_proj.weight' is not 64 x 32"
	change '.num_hidden_layers = 3'
	refused 65 "tensor 'model.layers.2.input_layernorm.weight' is missing"
	change '.model_type = "mixtral"'
	refused 78 'mixture of experts'
	change '.num_hidden_layers = 100 | .num_attention_heads = 1024 | .hidden_size = 65536 | .vocab_size = 2000000'
	refused 69 'MiB are needed'
	change .
	mv model/tokenizer.json kept
	refused 66 tokenizer.json
	mv kept model/tokenizer.json
	head -c 60000 "$BATS_FILE_TMPDIR/model/model.safetensors" >model/model.safetensors
	refused 65 'lies outside of the file'
	rm model/model.safetensors
	refused 66 'has no model.safetensors'
}

@test "usage" {
	for args in '' '--generate' '--model model file'; do
		status=0
		# shellcheck disable=SC2086
		"$bin/ca-serve" $args </dev/null 2>err || status=$?
		[ "$status" = 64 ]
	done
	status=0
	serve --device tpu </dev/null 2>err || status=$?
	[ "$status" = 64 ] && grep -q "'tpu'" err
}
