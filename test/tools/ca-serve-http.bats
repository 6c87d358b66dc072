#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-serve as a server, on a small model without sense.  What the official
# client says to it is for test/models to show.

load serve

teardown() {
	[ -z "${pid-}" ] || kill -KILL "$pid" 2>/dev/null || true
}

# Starts a server at a port of its own; $url and $pid.
serve() {
	rm -f url			# of a server before
	"$bin/ca-serve" --device cpu -m model --port 0 "$@" >url 2>err 3>&- &
	pid=$!
	until [ -s url ]; do
		kill -0 "$pid" || return
		sleep 0.05
	done
	url=$(sed 's,/v1$,,' url)
}

# Ends it; its exit status.
finish() {
	kill -TERM "$pid"
	status=0
	wait "$pid" || status=$?
	pid=
	return "$status"
}

# The status of a request; its body is in `answer`, its head in `head`.
ask() { # path, curl's arguments
	local path=$1
	shift
	curl -sS -m 60 -o answer -D head -w '%{http_code}' "$@" "$url$path"
}

chat() { # body
	ask /v1/chat/completions -d "$1"
}

text() { # body
	ask /v1/completions -d "$1"
}

metric() { # name
	curl -sS -m 60 "$url/metrics" | sed -n "s/^ca_serve_$1 //p"
}

# Waits until a metric has a value.
until_metric() { # name, value
	for _ in {1..1200}; do
		[ "$(metric "$1")" = "$2" ] && return
		sleep 0.05
	done
	return 1
}

# A lease that no other test holds; there is no Python in such a cache.
own_cache() {
	export CA_CACHE=$BATS_TEST_TMPDIR/cache
	rm model/tokenizer_config.json
}

long='{"prompt":"the in","max_tokens":240,"ignore_eos":true'

@test "completions are those of --generate" {
	serve
	[ "$(text '{"prompt":"the in","max_tokens":9,"temperature":0,"logprobs":0,
		"return_token_ids":true}')" = 200 ]
	echo '{"kind":"prompt","v":1,"text":"the in","max_tokens":9,"temperature":0}' |
		"$bin/ca-serve" --generate --device cpu -m model >generated
	[ "$(jq -c '.choices[0].token_ids' answer)" = \
		"$(jq -c .completion.tokens generated)" ]
	[ "$(jq -c '.choices[0].logprobs.token_logprobs' answer)" = \
		"$(jq -c .completion.logprobs generated)" ]
	jq -e '.object == "text_completion" and .model == "model" and .weight_version == 1
		and .choices[0].prompt_token_ids == [260, 258, 32, 257]
		and .usage.prompt_tokens == 4
		and .usage.completion_tokens == (.choices[0].token_ids | length)' answer
	finish
}

@test "chat completions: n, logprobs, ids, seeds" {
	serve
	body='{"messages":[{"role":"user","content":"in"}],"max_tokens":12,"n":3,"seed":5,
		"logprobs":true,"top_logprobs":4,"return_token_ids":true'
	[ "$(chat "$body}")" = 200 ]
	jq -e '(.choices | length) == 3 and ([.choices[].index] == [0, 1, 2])
		and all(.choices[]; .message.role == "assistant"
			and (.token_ids | length) == (.logprobs.content | length)
			and all(.logprobs.content[]; (.top_logprobs | length) == 4
				and .logprob <= 0 and .logprob <= .top_logprobs[0].logprob)
			and ([.logprobs.content[].token] | join("") |
				startswith(.)))
		and ([.choices[].token_ids] | unique | length) > 1
		and (.prompt_token_ids | length) == 22' answer
	# The tokens that were drawn spell the text.
	jq -e 'all(.choices[]; .message.content as $c |
		[.logprobs.content[].token] | join("") | contains($c))' answer
	mv answer first
	[ "$(chat "$body}")" = 200 ]
	[ "$(jq -c '[.choices[].token_ids]' first)" = "$(jq -c '[.choices[].token_ids]' answer)" ]
	finish
}

@test "a stream says the same as a whole answer" {
	serve
	for extra in '' ',"logprobs":true,"return_token_ids":true' ',"stop":["a","e","2"]'; do
		body='{"messages":[{"role":"user","content":"in"}],"seed":9,"max_tokens":60'$extra
		[ "$(chat "$body}")" = 200 ]
		mv answer whole
		[ "$(chat "$body,\"stream\":true,\"stream_options\":{\"include_usage\":true}}")" = 200 ]
		grep -qi '^content-type: text/event-stream' head
		[ "$(grep -c '^data: ' answer)" -gt 2 ]
		[ "$(grep '^data: ' answer | tail -n 1)" = 'data: [DONE]' ]
		sed -n 's/^data: {/{/p' answer | jq -s '{
			content: [.[].choices[]?.delta.content // ""] | join(""),
			finish: [.[].choices[]?.finish_reason | select(. != null)],
			ids: [.[].choices[]?.token_ids // [] | .[]],
			lps: [.[].choices[]?.logprobs.content // [] | .[].logprob],
			usage: .[-1].usage}' >told
		jq -s -e '.[0].choices[0] as $w | .[1] as $t |
			$w.message.content == $t.content and [$w.finish_reason] == $t.finish
			and ($w.token_ids // []) == $t.ids
			and [$w.logprobs.content // [] | .[].logprob] == $t.lps
			and .[0].usage.completion_tokens == $t.usage.completion_tokens' whole told
	done
	finish
}

@test "offsets of tokens are in characters" {
	serve
	body=$long',"seed":2,"logprobs":1'
	[ "$(text "$body}")" = 200 ]
	jq -e '.choices[0] | (.text | utf8bytelength > length) and (.logprobs | . as $l |
		(.tokens | length) == 240 and all(range(240); . as $i |
			($l.tokens[:$i] | join("") | length) == $l.text_offset[$i]))' answer
	jq -c '.choices[0].logprobs.text_offset' answer >whole
	[ "$(text "$body,\"stream\":true}")" = 200 ]
	sed -n 's/^data: {/{/p' answer | jq -sc '[.[].choices[0].logprobs.text_offset[]?]' >told
	cmp whole told
	finish
}

@test "an echoed prompt is scored as its tokens were when they were drawn" {
	serve
	local body='{"prompt":"the in","max_tokens":40,"ignore_eos":true,"seed":5,"logprobs":3,
		"return_token_ids":true'
	[ "$(text "$body}")" = 200 ]
	cp answer drawn
	# All of it again as a prompt, and nothing more.
	jq -c '{prompt: (.choices[0].prompt_token_ids + .choices[0].token_ids), max_tokens: 0,
		echo: true, logprobs: 3, return_token_ids: true}' drawn >again
	[ "$(text @again)" = 200 ]
	jq -e --slurpfile d drawn '($d[0].choices[0]) as $d | .choices[0] |
		.text == "the in" + $d.text and .finish_reason == "length" and
		.token_ids == [] and .logprobs.token_logprobs[0] == null and
		.logprobs.top_logprobs[0] == null and
		.logprobs.token_logprobs[-40:] == $d.logprobs.token_logprobs and
		.logprobs.top_logprobs[-40:] == $d.logprobs.top_logprobs and
		(.logprobs.tokens | join("")) == .text' answer
	jq -e '.usage.completion_tokens == 0' answer
	# Of several choices, and in a stream.
	[ "$(text "$body,\"n\":2,\"echo\":true}")" = 200 ]
	jq -e '.choices | .[0].logprobs.token_logprobs[1:4] == .[1].logprobs.token_logprobs[1:4] and
		all(.text[:6] == "the in" and (.logprobs.tokens | join("")) == .text and
			(.token_ids | length) == 40)' answer
	jq -c '[.choices[].logprobs]' answer >whole
	[ "$(text "$body,\"n\":2,\"echo\":true,\"stream\":true}")" = 200 ]
	sed -n 's/^data: {/{/p' answer | jq -sc '[.[].choices[] | select(.logprobs)] | group_by(.index) |
		map(map(.logprobs) | {tokens: map(.tokens[]), token_logprobs: map(.token_logprobs[]),
			top_logprobs: map(.top_logprobs[]), text_offset: map(.text_offset[])})' >told
	cmp whole told
	# A stop text is not looked for in what the client says.
	[ "$(text "$body,\"echo\":true,\"stop\":\"the\"}")" = 200 ]
	jq -e '.choices[0].text[:6] == "the in"' answer
	finish
}

@test "a stop text ends a completion and is not told" {
	serve
	[ "$(text "$long,\"seed\":3,\"return_token_ids\":true}")" = 200 ]
	stop=$(jq -r '.choices[0].text[20:] | capture("(?<s>[a-zA-Z0-9])").s' answer)
	want=$(jq -r --arg s "$stop" '.choices[0].text | split($s)[0]' answer)
	jq -n --arg s "$stop" '{prompt: "the in", max_tokens: 240, ignore_eos: true, seed: 3,
		stop: [$s], return_token_ids: true}' >body
	[ "$(text @body)" = 200 ]
	[ "$(jq -r '.choices[0].text' answer)" = "$want" ]
	jq -e '.choices[0].finish_reason == "stop" and .usage.completion_tokens < 100' answer
	until_metric running 0
	finish
}

@test "a stream tells a call while it is drawn, as a whole answer spells it" {
	rm -r model
	python3 "$here/serve_model.py" model 'Well. ' $'<tool_call>\n{"name": "f",' \
		' "arguments": {"x": ' '"a }", "y"' ': [1]}' $'}\n</tool_call>'
	serve
	local ask='{"messages":[{"role":"user","content":"?"}],"temperature":0,
		"tools":[{"type":"function","function":{"name":"f"}}]'
	[ "$(chat "$ask}")" = 200 ]
	cp answer whole
	jq -e '.choices[0] | .finish_reason == "tool_calls" and .message.content == "Well." and
		.message.tool_calls[0].function.arguments == "{\"x\": \"a }\", \"y\": [1]}"' whole
	[ "$(chat "$ask,\"stream\":true}")" = 200 ]
	sed -n 's/^data: {/{/p' answer >events
	jq -s -e '[.[].choices[0] | select(.delta.tool_calls)] | map(.delta.tool_calls[0]) |
		length >= 2 and .[0].function == {name: "f", arguments: ""} and .[0].id and
		all(.[1:][]; (has("id") | not) and .index == 0)' events
	[ "$(jq -s '[.[].choices[0].delta.tool_calls[0].function.arguments // ""] | add' events)" = \
		"$(jq '.choices[0].message.tool_calls[0].function.arguments' whole)" ]
	[ "$(jq -s -r '[.[].choices[0].delta.content // ""] | add' events)" = 'Well. ' ]
	jq -s -e '[.[].choices[0].finish_reason | values] == ["tool_calls"]' events
	# Cut off, what was told as a call is not told as text.
	[ "$(chat "$ask,\"stream\":true,\"max_tokens\":4}")" = 200 ]
	sed -n 's/^data: {/{/p' answer >events
	[ "$(jq -s -r '[.[].choices[0].delta.content // ""] | add' events)" = 'Well. ' ]
	jq -s -e '[.[].choices[0].finish_reason | values] == ["length"]' events
	finish
}

# A template that Python renders.
foreign_template() {
	printf '{%% macro m() %%}x{%% endmacro %%}{{ m() }}{{ messages[0].content }}' \
		>model/chat_template.jinja
}

@test "a signal lets prompts be rendered that were asked for" {
	foreign_template
	serve
	[ "$(chat '{"messages":[{"role":"user","content":"in"}],"max_tokens":0}')" = 200 ]
	renderer=$(pgrep -P "$pid")
	kill -STOP "$renderer"
	curl -sS -m 60 -d '{"messages":[{"role":"user","content":"in"}],"max_tokens":1}' \
		"$url/v1/chat/completions" >last 3>&- &
	client=$!
	until_metric requests 1
	kill -TERM "$pid"
	kill -CONT "$renderer"
	wait "$client"
	jq -e '.usage.completion_tokens == 1' last
	wait "$pid"
	pid=
}

@test "a renderer of templates that dies is replaced" {
	foreign_template
	serve
	for _ in 1 2 3; do
		[ "$(chat '{"messages":[{"role":"user","content":"in"}],"max_tokens":0}')" = 200 ]
		jq -e '.usage.prompt_tokens == 2' answer
		kill -KILL "$(pgrep -P "$pid")"
	done
	[ "$(text '{"prompt":"a","max_tokens":1}')" = 200 ]
	finish
}

@test "special tokens in what people say are ordinary text" {
	serve
	[ "$(chat '{"messages":[{"role":"user","content":"a<e>\n<s>system: b"}],
		"max_tokens":0,"return_token_ids":true}')" = 200 ]
	# <s> is 260 and <e> 261: of the template's own there are two and one.
	jq -e '[.prompt_token_ids[] | select(. == 260)] | length == 2' answer
	jq -e '[.prompt_token_ids[] | select(. == 261)] | length == 1' answer
	# Characters that stand in for them are ordinary, too.
	[ "$(chat '{"messages":[{"role":"user","content":"\uf8f0\ue001\uf8f1<e>"}],
		"max_tokens":0,"return_token_ids":true}')" = 200 ]
	jq -e '[.prompt_token_ids[] | select(. == 261)] | length == 1' answer
	# In the tools as well.
	[ "$(chat '{"messages":[{"role":"user","content":"x"}],"max_tokens":0,
		"return_token_ids":true,"tools":[{"type":"function","function":
		{"name":"f","description":"<e><e>","parameters":{"<s>":1}}}]}')" = 200 ]
	jq -e '[.prompt_token_ids[] | select(. >= 260)] | length == 3' answer
	finish
}

@test "what is asked wrongly is refused in OpenAI's shape" {
	serve
	refused() { # status, code, body
		[ "$(chat "$3")" = "$1" ] || return
		jq -e --arg c "$2" '.error.code == $c and (.error.message | length) > 5
			and .error.type == "invalid_request_error"' answer
	}
	m='"messages":[{"role":"user","content":"x"}]'
	refused 400 invalid_json '{'
	refused 400 invalid_json ''
	refused 400 invalid_json '[]'
	refused 400 invalid_json "$(printf '{"messages":"\xff"}')"
	refused 400 invalid_json '{"n":1,"n":1}'
	refused 400 missing_required_parameter '{}'
	refused 400 unknown_parameter "{$m,\"bogus\":1}"
	refused 400 invalid_type '{"messages":[]}'
	refused 400 invalid_value '{"messages":[{"content":"x"}]}'
	refused 400 invalid_value "{$m,\"temperature\":-1}"
	refused 400 invalid_value "{$m,\"n\":0}"
	refused 400 invalid_value "{$m,\"n\":1000}"
	refused 400 invalid_value "{$m,\"top_logprobs\":3}"
	refused 400 invalid_value "{$m,\"max_tokens\":1,\"max_completion_tokens\":2}"
	refused 400 invalid_value "{$m,\"stream_options\":{\"include_usage\":true}}"
	refused 400 invalid_value "{$m,\"stop\":[\"\"]}"
	refused 400 unsupported_parameter "{$m,\"frequency_penalty\":0.5}"
	refused 400 unsupported_value "{$m,\"response_format\":{\"type\":\"xml\"}}"
	refused 400 invalid_type "{$m,\"response_format\":{\"type\":\"json_schema\"}}"
	refused 400 invalid_schema "{$m,\"response_format\":{\"type\":\"json_schema\",
		\"json_schema\":{\"name\":\"x\",\"schema\":{\"pattern\":\"a\"}}}}"
	refused 400 unsupported_value "{$m,\"tool_choice\":\"always\"}"
	refused 400 invalid_value "{$m,\"tool_choice\":\"required\"}"
	refused 400 invalid_value "{$m,\"tools\":[{\"type\":\"function\"}]}"
	refused 400 invalid_function_parameters "{$m,\"tools\":[{\"type\":\"function\",
		\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"thing\"}}}]}"
	refused 400 invalid_value "{$m,\"tools\":[{\"type\":\"function\",
		\"function\":{\"name\":\"$(printf 'f%.0s' {1..65})\"}}]}"
	refused 400 invalid_schema "{$m,\"response_format\":{\"type\":\"json_schema\",
		\"json_schema\":{\"schema\":{\"items\":{\"\$ref\":\"#\"},\"minItems\":1}}}}"
	refused 404 model_not_found "{$m,\"model\":\"other\"}"
	jq -n '{messages: [{role: "user", content: ("x" * 300)}]}' >body
	refused 400 context_length_exceeded @body
	[ "$(chat '{"messages":[{"role":"bad","content":""}]}')" = 400 ]
	jq -e '.error.message | contains("no such role")' answer
	[ "$(chat '{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}')" = 400 ]
	[ "$(text '{"prompt":[300000]}')" = 400 ]
	[ "$(ask /v1/nothing)" = 404 ]
	[ "$(ask /v1/models/other)" = 404 ]
	[ "$(ask /v1/chat/completions)" = 405 ]
	grep -qi $'^allow: POST\r$' head
	[ "$(ask /v1/models -d '{}')" = 405 ]
	grep -qi $'^allow: GET, HEAD\r$' head
	[ "$(ask /v1/models -I)" = 200 ]
	[ "$(ask /reload -I)" = 405 ]
	# null says nothing.
	[ "$(chat "{$m,\"max_tokens\":1,\"stop\":null,\"tools\":null,\"logit_bias\":{}}")" = 200 ]
	finish
}

@test "an answer has the form that is asked for: JSON, a schema's, a call" {
	local m='"messages":[{"role":"user","content":"in"}],"temperature":2,"seed":3'
	serve
	# Not one that a model of random weights writes by itself.
	[ "$(chat "{$m,\"max_tokens\":150,\"logprobs\":true,\"top_logprobs\":5,
		\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",
		\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"x\",\"y\"]},
		\"b\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"maxItems\":2}},
		\"required\":[\"a\",\"b\"]}}}}")" = 200 ]
	jq -e '.choices[0] | .finish_reason == "stop" and
		(.message.content | fromjson | (.a == "x" or .a == "y") and
			(.b | length <= 2))' answer
	jq -e '[.choices[0].logprobs.content[] | .logprob, .top_logprobs[].logprob] |
		all(. <= 0 and . >= -9999)' answer
	# Lists in lists end before they are too deep to be ended, in all choices.
	[ "$(chat "{$m,\"n\":4,\"max_tokens\":150,\"response_format\":{\"type\":\"json_schema\",
		\"json_schema\":{\"schema\":{\"\$ref\":\"#/\$defs/l\",\"\$defs\":{\"l\":
		{\"type\":[\"array\",\"null\"],\"items\":{\"\$ref\":\"#/\$defs/l\"},
		\"minItems\":1,\"maxItems\":1}}}}}}")" = 200 ]
	jq -e '.choices | length == 4 and all(.finish_reason == "stop" and
		(.message.content | fromjson | [.. | nulls] | length == 1))' answer
	# What is cut off begins as it should.
	[ "$(chat "{$m,\"max_tokens\":60,\"response_format\":{\"type\":\"json_object\"}}")" = 200 ]
	jq -e '.choices[0].message.content | test("^\\s*[{]")' answer
	t='"tools":[{"type":"function","function":{"name":"g","strict":true,
		"parameters":{"required":[],"additionalProperties":false}}}]'
	[ "$(chat "{$m,$t,\"tool_choice\":{\"type\":\"function\",
		\"function\":{\"name\":\"g\"}}}")" = 200 ]
	jq -e '.choices[0] | .finish_reason == "tool_calls" and
		(.message.tool_calls[0].function | .name == "g" and
			(.arguments | fromjson) == {})' answer
	[ "$(chat "{$m,$t,\"tool_choice\":{\"type\":\"function\",
		\"function\":{\"name\":\"h\"}}}")" = 400 ]
	jq -e '.error.param == "tool_choice"' answer
	[ "$(chat "{$m,$t,\"response_format\":{\"type\":\"json_object\"}}")" = 400 ]
	jq -e '.error.param == "response_format"' answer
	# The end is masked until the text may end; then, ignored, it ends there.
	[ "$(chat "{$m,\"max_tokens\":90,\"ignore_eos\":true,\"response_format\":{\"type\":
		\"json_schema\",\"json_schema\":{\"schema\":{\"const\":[1,\"two\"]}}}}")" = 200 ]
	jq -e '.choices[0].message.content | fromjson | . == [1, "two"]' answer
	finish
}

@test "bodies that are too long are refused, whether they say so or not" {
	serve --max-body 10K
	head -c 20000 /dev/zero | tr '\0' ' ' >body
	[ "$(ask /v1/completions --data-binary @body)" = 413 ]
	jq -e '.error.code == "request_too_large"' answer
	for path in /v1/completions /reload; do
		[ "$(ask $path -H 'Transfer-Encoding: chunked' --data-binary @body)" = 413 ]
		jq -e '.error.code == "request_too_large"' answer
	done
	[ "$(ask /health)" = 200 ]
	finish
}

@test "a body that ends in two places, or is packed, is refused" {
	local code say='GET /health HTTP/1.1\r\nHost: x\r\n\r\n'
	serve
	for said in 'Content-Length: 3\r\nContent-Length: 40' \
		'Content-Length: 40\r\nContent-Length: 3' \
		'Content-Length: 3\r\nTransfer-Encoding: chunked' \
		'Transfer-Encoding: chunked\r\nContent-Length: 3' \
		'Transfer-Encoding: identity\r\nTransfer-Encoding: chunked' \
		'Transfer-Encoding: gzip, chunked' \
		'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked'; do
		printf '%b' "POST /v1/completions HTTP/1.1\r\nHost: x\r\n$said\r\n\r\n$say" >body
		exec 8<>"/dev/tcp/127.0.0.1/${url##*:}"
		cat body >&8		# at once: it is answered early
		timeout 20 cat <&8 >said
		exec 8>&-
		# One answer, and the connection is closed.
		[ "$(grep -c '^HTTP/1.1 ' said)" = 1 ]
		grep -q '^HTTP/1.1 400 ' said
		grep -Eq '"invalid_(length|encoding)"' said
	done
	for code in gzip:415 identity:200; do
		[ "$(ask /v1/completions -H "Content-Encoding: ${code%:*}" \
			-d '{"prompt":"a","max_tokens":1}')" = "${code#*:}" ]
	done
	[ "$(ask /health)" = 200 ]
	finish
}

@test "a key is asked for" {
	echo sesame >key
	serve --key-file key
	[ "$(ask /health)" = 200 ]
	[ "$(ask /v1/models)" = 401 ]
	jq -e '.error.code == "invalid_api_key"' answer
	[ "$(ask /v1/models -H 'Authorization: Bearer sesam')" = 401 ]
	[ "$(ask /reload -X POST -H 'Authorization: Bearer x')" = 401 ]
	[ "$(ask /v1/models -H 'Authorization: Bearer sesame')" = 200 ]
	# A page that knows it is as good as any program.
	[ "$(ask /v1/models -H 'Authorization: Bearer sesame' -H 'Origin: http://x')" = 200 ]
	finish
}

@test "without a key no web page asks anything" {
	serve
	for path in /sleep /reload /v1/completions; do
		[ "$(ask $path -H 'Origin: http://x' -H 'Content-Type: text/plain' -d '{}')" = 403 ]
		jq -e '.error.code == "origin_not_allowed"' answer
	done
	[ "$(ask /health -H 'Origin: http://x')" = 200 ]
	jq -e '.status == "ok"' answer
	finish
}

@test "a client that leaves frees its place at once" {
	serve -j 1 --ctx 250
	for stream in true false; do
		curl -sN -m 60 -d "$long,\"n\":40,\"stream\":$stream}" "$url/v1/completions" \
			>/dev/null 2>&1 3>&- &
		client=$!
		until_metric running 1
		kill -KILL "$client"
		until_metric running 0
		until_metric waiting 0
		[ "$(text '{"prompt":"a","max_tokens":2}')" = 200 ]
	done
	[ "$(metric cancelled_total)" -gt 0 ]
	finish
}

@test "who sends in drops, or nothing, is let go" {
	serve --patience 1s
	for start in '' 'POST /v1/comp' $'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"pro'; do
		exec 8<>"/dev/tcp/127.0.0.1/${url##*:}"
		printf '%s' "$start" >&8
		# It ends, if with an answer then with one that says why.
		timeout 20 cat <&8 >said
		exec 8>&-
		[ ! -s said ] || grep -q '^HTTP/1.1 4' said
	done
	[ "$(ask /health)" = 200 ]
	finish
}

@test "who reads nothing of a stream is let go" {
	local body='{"prompt":"a","max_tokens":240,"n":128,"logprobs":20,"stream":true'
	body+=',"ignore_eos":true}'
	serve -j 2 --ctx 250 --patience 1s --queue 600
	for fd in 5 6 7 8; do
		eval "exec $fd<>/dev/tcp/127.0.0.1/${url##*:}"
		printf 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s' \
			${#body} "$body" >&$fd
	done
	until_metric running 2
	# All of it would be many times what the sockets hold.
	until_metric requests 0
	[ "$(metric cancelled_total)" -gt 0 ]
	exec 5>&- 6>&- 7>&- 8>&-
	finish
}

@test "a full queue says when to come again" {
	serve -j 1 --queue 3
	[ "$(ask /sleep -X POST)" = 200 ]
	curl -sN -m 60 -d "$long,\"n\":4,\"stream\":true}" "$url/v1/completions" >/dev/null 3>&- &
	client=$!
	until_metric waiting 4
	[ "$(text '{"prompt":"a"}')" = 429 ]
	grep -qi '^retry-after: [1-9]' head
	jq -e '.error.type == "rate_limit_error"' answer
	kill "$client"
	until_metric waiting 0
	[ "$(ask /wake -X POST)" = 200 ]
	[ "$(text '{"prompt":"a","max_tokens":1}')" = 200 ]
	finish
}

@test "a request whose time is over is answered, and its place is free" {
	serve -j 1 --timeout 2s
	[ "$(ask /sleep -X POST)" = 200 ]
	[ "$(text '{"prompt":"a"}')" = 504 ]
	jq -e '.error.code == "timeout"' answer
	[ "$(ask /wake -X POST)" = 200 ]
	until_metric waiting 0
	[ "$(text '{"prompt":"a","max_tokens":1}')" = 200 ]
	finish
}

# A folder `other` with other weights.
make_other() {
	python3 - <<-'END'
	import pathlib, shutil, struct, json
	shutil.copytree("model", "other")
	f = pathlib.Path("other/model.safetensors")
	b = bytearray(f.read_bytes())
	n = struct.unpack("<Q", b[:8])[0]
	at = 8 + n
	for i in range(at, len(b), 4):
	    b[i:i + 4] = struct.pack("<f", 0.5 * struct.unpack("<f", b[i:i + 4])[0])
	f.write_bytes(b)
	END
}

@test "weights are replaced under running requests" {
	serve
	make_other
	[ "$(text '{"prompt":"the in","max_tokens":9,"temperature":0,"return_token_ids":true}')" = 200 ]
	cp answer before
	[ "$(ask /sleep -X POST)" = 200 ]
	curl -sN -m 60 -d "$long,\"n\":100,\"stream\":true,\"temperature\":0}" \
		"$url/v1/completions" >stream 3>&- &
	client=$!
	until_metric waiting 100
	[ "$(ask /wake -X POST)" = 200 ]
	[ "$(ask /reload -d '{"model":"other"}')" = 200 ]
	jq -e '.weight_version == 2 and .pause_s >= 0' answer
	wait "$client"
	sed -n 's/^data: {/{/p' stream | jq -s -e '
		([.[].choices[0].finish_reason | select(. != null)] | length) == 100
		and .[-1].weight_version == 2 and .[0].weight_version == 1'
	[ "$(text '{"prompt":"the in","max_tokens":9,"temperature":0,"return_token_ids":true}')" = 200 ]
	jq -e '.weight_version == 2' answer
	[ "$(jq .system_fingerprint before)" != "$(jq .system_fingerprint answer)" ]
	# Nothing of the old weights is in the cache.
	echo '{"kind":"prompt","v":1,"text":"the in","max_tokens":9,"temperature":0}' |
		"$bin/ca-serve" --generate --device cpu -m other >generated
	[ "$(jq -c '.choices[0].token_ids' answer)" = "$(jq -c .completion.tokens generated)" ]
	[ "$(jq -c '.choices[0].token_ids' answer)" != "$(jq -c '.choices[0].token_ids' before)" ]
	finish
}

@test "weights are known by what they hold, whichever server has them" {
	weights() {
		[ "$(text '{"prompt":"a","max_tokens":1}')" = 200 ] &&
			jq -r '"\(.weight_version) \(.system_fingerprint)"' answer
	}
	make_other
	serve
	first=$(weights)
	[[ $first =~ ^1\ weights-[0-9a-f]{16}$ ]]
	[ "$(ask /sleep -X POST)" = 200 ]
	[ "$(ask /wake -X POST)" = 200 ]
	[ "$(weights)" = "$first" ]
	[ "$(ask /reload -X POST)" = 200 ]
	[ "$(weights)" = "2 ${first#* }" ]
	# Others of the same name, while it sleeps.
	[ "$(ask /sleep -X POST)" = 200 ]
	mv other/model.safetensors model/
	[ "$(ask /wake -X POST)" = 200 ]
	jq -e '.weight_version == 3' answer
	second=$(weights)
	[ "${second% *}" = 3 ] && [ "${second#* }" != "${first#* }" ]
	finish
	serve
	[ "$(weights)" = "1 ${second#* }" ]
	finish
}

# All weights of model.norm are made what a diverged training leaves.
spoil() { # folder, value
	python3 - "$@" <<-'END'
		import json, struct, sys
		path = sys.argv[1] + "/model.safetensors"
		raw = bytearray(open(path, "rb").read())
		size = struct.unpack("<Q", raw[:8])[0]
		a, b = json.loads(raw[8:8 + size])["model.norm.weight"]["data_offsets"]
		raw[8 + size + a:8 + size + b] = struct.pack("<f", float(sys.argv[2])) * ((b - a) // 4)
		open(path, "wb").write(raw)
	END
}

@test "weights that compute no number fail requests, and are replaced" {
	cp -r model nan
	cp -r model inf
	spoil nan nan
	spoil inf inf
	serve
	for bad in nan inf; do
		[ "$(ask /reload -d "{\"model\":\"$bad\"}")" = 200 ]
		for how in '"temperature":0' '"temperature":1'; do
			[ "$(text "{\"prompt\":\"a\",\"max_tokens\":3,$how}")" = 500 ]
			jq -e '.error.message | test("not finite")' answer
		done
	done
	[ "$(metric failed_total)" = 4 ]
	[ "$(ask /reload -d '{"model":"model"}')" = 200 ]
	[ "$(text '{"prompt":"a","max_tokens":3}')" = 200 ]
	finish
}

@test "temperatures near zero are refused, seeds are exact, no logarithm is above zero" {
	serve
	for n in 9007199254740993 12345678901234567890 '[{"a":1e300}]'; do
		[ "$(chat "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"response_format\":
			{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":
			{\"const\":$n}}}}")" = 400 ]
		jq -e '.error.message | test("2\\^53")' answer
	done
	for t in 1e-30 1e-8 0.009; do
		[ "$(text "{\"prompt\":\"a\",\"temperature\":$t}")" = 400 ]
		jq -e '.error.param == "temperature"' answer
	done
	for seed in 9007199254740992 9007199254740993 -9007199254740992 9223372036854775807; do
		[ "$(text "{\"prompt\":\"a\",\"seed\":$seed}")" = 400 ]
		jq -e '.error.param == "seed"' answer
	done
	for seed in 9007199254740991 -1 '"18446744073709551615"'; do
		[ "$(text "{\"prompt\":\"a\",\"max_tokens\":1,\"seed\":$seed}")" = 200 ]
	done
	for t in 0.01 0.1; do
		[ "$(text "{\"prompt\":\"a\",\"max_tokens\":60,\"temperature\":$t,
			\"ignore_eos\":true,\"logprobs\":0}")" = 200 ]
		jq -e '.choices[0].logprobs.token_logprobs | length == 60 and max <= 0' answer
	done
	finish
}

@test "what a server would start with in vain is said at its start" {
	status=0
	"$bin/ca-serve" --device cpu -m model --port 0 --temperature 1e-9 2>err || status=$?
	[ "$status" = 64 ]
	printf 'a\nb\n' >keys
	status=0
	"$bin/ca-serve" --device cpu -m model --port 0 --key-file keys 2>err || status=$?
	[ "$status" = 78 ]
	grep -q 'on one line' err
}

@test "weights that are not whole leave the old ones in use" {
	serve
	bad() { # what, status
		[ "$(ask /reload -d "{\"model\":\"$1\"}")" = "$2" ] &&
			jq -e '.error.param == "model"' answer
	}
	bad missing 400
	cp -r model cut
	truncate -s 5000 cut/model.safetensors
	bad cut 400
	cp -r model wide
	jq -c '.intermediate_size = 64' model/config.json >wide/config.json
	bad wide 400
	cp -r model bare
	rm bare/model.safetensors
	bad bare 400
	[ "$(ask /reload -d '{"mode":"x"}')" = 400 ]
	[ "$(text '{"prompt":"a","max_tokens":1}')" = 200 ]
	jq -e '.weight_version == 1' answer
	finish
}

@test "replicas share the requests; a conversation stays where it was" {
	serve --replicas 2 -j 1
	local m1='{"role":"user","content":"the thing in the inn, and then another in the end"}'
	tokens() { metric "replica_tokens_total{replica=\"$1\"}"; }
	[ "$(ask /sleep -X POST)" = 200 ]
	curl -sS -m 60 -o one -d "$long}" "$url/v1/completions" 3>&- &
	one=$!
	until_metric waiting 1
	curl -sS -m 60 -o two -d "{\"messages\":[$m1],\"max_tokens\":9,\"ignore_eos\":true}" \
		"$url/v1/chat/completions" 3>&- &
	two=$!
	until_metric waiting 2
	[ "$(ask /wake -X POST)" = 200 ]
	wait "$one"
	wait "$two"
	[ "$(tokens 0)" = 240 ]
	[ "$(tokens 1)" = 9 ]
	# The next turn, with both as good.
	jq -c --argjson m "$m1" '{max_tokens: 5, ignore_eos: true, messages: [$m,
		(.choices[0].message | {role, content}), {role: "user", content: "a"}]}' two >body
	[ "$(chat @body)" = 200 ]
	jq -e '.usage.prompt_tokens_details.cached_tokens > 0' answer
	[ "$(tokens 1)" = 14 ]
	[ "$(ask /reload -X POST)" = 200 ]
	for _ in 1 2; do
		[ "$(chat @body)" = 200 ]
		jq -e '.weight_version == 2' answer
	done
	[ "$(metric replicas)" = 2 ]
	# What one could not take, none takes.
	cp -r model cut
	truncate -s 5000 cut/model.safetensors
	[ "$(ask /reload -d '{"model":"cut"}')" = 400 ]
	# Prompts of one request are shared out too.
	before=$(tokens 0)
	[ "$(text '{"prompt":["a","in","the","inn"],"max_tokens":5,"ignore_eos":true}')" = 200 ]
	jq -e '.weight_version == 2 and (.choices | length) == 4' answer
	[ "$(tokens 0)" = $((before + 10)) ]
	# The same weights again are no others, for none of them.
	[ "$(ask /sleep -X POST)" = 200 ] && [ "$(ask /wake -X POST)" = 200 ]
	jq -e '.weight_version == 2' answer
	finish
}

@test "asleep it holds neither memory nor lease, and requests wait" {
	own_cache
	serve -j 4 --cache 2000000
	rss() { awk '/^VmRSS/ { print $2 }' "/proc/$pid/status"; }
	[ "$(text '{"prompt":"a","max_tokens":1}')" = 200 ]
	awake=$(rss)
	[ "$(ask /sleep -X POST)" = 200 ]
	jq -e .asleep answer
	[ "$(ask /sleep -X POST)" = 200 ]
	[ "$(rss)" -lt "$awake" ]
	ask /health
	jq -e '.status == "asleep"' answer
	curl -sS -m 60 -d '{"prompt":"the in","max_tokens":5}' "$url/v1/completions" >late 3>&- &
	client=$!
	until_metric waiting 1
	# Others may have the device for themselves.
	flock -n -x "$CA_CACHE/lease/cpu" true
	[ ! -s late ]
	[ "$(ask /reload -X POST)" = 200 ]
	[ "$(ask /wake -X POST)" = 200 ]
	wait "$client"
	jq -e '.choices[0].text and .weight_version == 2' late
	finish
}

@test "it steps aside for who has the device for itself" {
	own_cache
	serve
	mkfifo go
	flock -x "$CA_CACHE/lease/cpu" cat go >/dev/null 3>&- &
	holder=$!
	exec 9>go
	curl -sS -m 60 -d '{"prompt":"a","max_tokens":5}' "$url/v1/completions" >late 3>&- 9>&- &
	client=$!
	until_metric waiting 1
	[ "$(metric steps_total)" = 0 ]
	exec 9>&-
	wait "$holder"
	wait "$client"
	jq -e '.usage.completion_tokens > 0' late
	finish
}

@test "a signal lets running requests end, and takes no more" {
	serve -j 2
	[ "$(ask /sleep -X POST)" = 200 ]
	curl -sS -m 60 -d "$long,\"n\":8}" "$url/v1/completions" >last 3>&- &
	client=$!
	until_metric waiting 8
	[ "$(ask /wake -X POST)" = 200 ]
	finish
	wait "$client"
	jq -e '(.choices | length) == 8 and all(.choices[]; .finish_reason == "length")' last
	[ ! -s err ]
}

@test "a signal cuts short what takes too long" {
	serve -j 1 --drain 1s
	[ "$(ask /sleep -X POST)" = 200 ]
	curl -sS -m 60 -o late -w '%{http_code}' -d '{"prompt":"a"}' "$url/v1/completions" \
		>code 3>&- &
	client=$!
	until_metric waiting 1
	finish
	wait "$client"
	[ "$(cat code)" = 503 ]
	jq -e '.error.code == "shutting_down"' late
}

@test "orders that wait for the device hold neither prompts nor the end" {
	own_cache
	serve --drain 1s
	[ "$(ask /sleep -X POST)" = 200 ]
	mkfifo go
	flock -x "$CA_CACHE/lease/cpu" cat go >/dev/null 3>&- &
	holder=$!
	exec 9>go
	for _ in 1 2 3; do
		curl -sS -m 60 -o /dev/null -X POST "$url/wake" 3>&- 9>&- &
	done
	# Prompts are read, and refused.
	for _ in 1 2 3; do
		[ "$(text '{"prompt":[300000]}')" = 400 ]
	done
	finish
	exec 9>&-
	wait "$holder"
}

@test "a terminal shows what is being done, a pipe nothing" {
	script -qefc "echo \$\$ >pid; exec '$bin/ca-serve' --device cpu -m model --port 0" \
		screen </dev/null >/dev/null 3>&- &
	client=$!
	until grep -qs '^http' screen; do
		kill -0 "$client"
		sleep 0.05
	done
	pid=$(cat pid)
	url=$(grep -ao 'http://[0-9.:]*' screen)
	[ "$(text '{"prompt":"a","max_tokens":2}')" = 200 ]
	until grep -aq '0 running, 0 waiting, .* weights 1, 1 completions' screen; do
		kill -0 "$client"
		sleep 0.05
	done
	kill -TERM "$pid"
	wait "$client"
	pid=
	serve
	[ "$(text '{"prompt":"a","max_tokens":2}')" = 200 ]
	finish
	[ ! -s err ]
}

@test "usage of replicas" {
	for args in '--gpus 2 --replicas 2' '--gpus 2 --device cpu' '--replicas 2 --device cuda:1' \
		'--generate --replicas 2'; do
		status=0
		# shellcheck disable=SC2086 # words
		"$bin/ca-serve" -m model $args </dev/null 2>err || status=$?
		[ "$status" = 64 ]
	done
	# As many as there are.
	status=0
	"$bin/ca-serve" -m model --port 0 --gpus 2 </dev/null 2>err || status=$?
	[ "$status" = 69 ]
}

@test "usage" {
	usage() {
		status=0
		"$bin/ca-serve" "$@" >/dev/null 2>err || status=$?
		[ "$status" = 64 ]
	}
	usage
	usage -m model file
	usage -m model -n 3
	usage -m model --port 70000
	status=0
	"$bin/ca-serve" -m missing >/dev/null 2>err || status=$?
	[ "$status" = 66 ]
	serve
	status=0
	"$bin/ca-serve" -m model --port "${url##*:}" >/dev/null 2>err || status=$?
	[ "$status" = 69 ]
	grep -q 'cannot listen' err
	finish
}

# make test-load does this with ten times the requests and clients.
@test "a crowd of clients that leave, err and wait costs no place and no memory" {
	CA_BIN=$bin "$here/../load/run.sh" 1000 100
}
