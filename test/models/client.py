# SPDX-License-Identifier: Apache-2.0
"""client.py URL SAYS_URL: what OpenAI's own client makes of ca-serve's answers: a model
without sense at URL, and one at SAYS_URL that calls the tool `weather` in any chat."""

import json
import sys
import threading

import openai

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "how it is there",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"]}}}]
ASK = [{"role": "user", "content": "in the"}]


def check_chat(c):
    a = c.chat.completions.create(model="sense", messages=ASK, n=3, seed=4, max_tokens=20,
                                  logprobs=True, top_logprobs=5,
                                  extra_body={"return_token_ids": True, "top_k": 50, "min_p": .001})
    assert len(a.choices) == 3 and a.usage.total_tokens == a.usage.prompt_tokens + \
        a.usage.completion_tokens, a
    for choice in a.choices:
        content = choice.logprobs.content
        assert len(content) == len(choice.token_ids) and choice.finish_reason in ("stop", "length")
        assert choice.message.content in "".join(t.token for t in content)
        assert all(len(t.top_logprobs) == 5 and t.bytes for t in content)
    assert len({tuple(x.token_ids) for x in a.choices}) > 1
    assert a.weight_version == 1 and len(a.prompt_token_ids) == a.usage.prompt_tokens


def check_stream(c):
    more = {"model": "sense", "messages": ASK, "seed": 6, "max_tokens": 40,
            "extra_body": {"ignore_eos": True}}
    whole = c.chat.completions.create(**more)
    parts, usage = [], None
    with c.chat.completions.create(**more, stream=True,
                                   stream_options={"include_usage": True}) as stream:
        for event in stream:
            parts += [x.delta.content or "" for x in event.choices]
            usage = event.usage or usage
    assert "".join(parts) == whole.choices[0].message.content and len(parts) >= 3
    assert usage == whole.usage, (usage, whole.usage)


def check_text(c):
    a = c.completions.create(model="sense", prompt=["in the", "the in"], max_tokens=7, n=2,
                             logprobs=3, temperature=0)
    assert [x.index for x in a.choices] == [0, 1, 2, 3] and a.choices[0].text == a.choices[1].text
    assert all(len(x.logprobs.tokens) == len(x.logprobs.token_logprobs) for x in a.choices)
    b = c.completions.create(model="sense", prompt=[[260, 258, 32, 257]], max_tokens=7,
                             temperature=0)
    assert b.choices[0].text == a.choices[2].text
    assert [m.id for m in c.models.list()] == ["sense"] and c.models.retrieve("sense").id == "sense"


def check_tools(c):
    a = c.chat.completions.create(model="says", messages=ASK, tools=TOOLS, temperature=0)
    call = a.choices[0].message.tool_calls[0]
    assert a.choices[0].finish_reason == "tool_calls" and call.function.name == "weather"
    assert a.choices[0].message.content == "Let me see."
    told, parts = None, []
    for event in c.chat.completions.create(model="says", messages=ASK, tools=TOOLS, temperature=0,
                                           stream=True):
        for x in event.choices:
            parts += x.delta.tool_calls or []
            told = x.finish_reason or told
    # The name first, then the arguments as they are drawn.
    assert told == "tool_calls" and len(parts) > 1 and {x.index for x in parts} == {0}, parts
    assert parts[0].id and not any(x.id for x in parts[1:]), parts
    assert parts[0].function.name == "weather" and parts[0].function.arguments == ""
    spelt = "".join(x.function.arguments for x in parts)
    assert spelt == call.function.arguments and json.loads(spelt) == {"city": "Paris"}, spelt
    more = [*ASK, a.choices[0].message,
            {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    assert c.chat.completions.create(model="says", messages=more, tools=TOOLS).choices
    plain = c.chat.completions.create(model="says", messages=ASK, temperature=0)
    assert plain.choices[0].message.tool_calls is None
    assert "<tool_call>" in plain.choices[0].message.content


def check_errors(c):
    for kind, more in ((openai.NotFoundError, {"model": "other"}),
                       (openai.BadRequestError, {"temperature": -1}),
                       (openai.BadRequestError, {"messages": []}),
                       (openai.BadRequestError, {"messages": [{"role": "user",
                                                               "content": "x" * 400}]}),
                       (openai.AuthenticationError, None)):
        try:
            if more is None:
                bad = openai.OpenAI(base_url=c.base_url, api_key="wrong", max_retries=0)
                bad.models.list()
            else:
                c.chat.completions.create(**{"model": "sense", "messages": ASK, **more})
        except kind as e:
            assert e.body["message"], e
        else:
            raise AssertionError(f"{more} was taken")


def check_many(c):
    """Each of many at once gets what it gets alone."""
    def text(i):
        return c.completions.create(model="sense", prompt=f"in the {i % 5}", seed=i,
                                    max_tokens=30).choices[0].text

    alone, got = [text(i) for i in range(16)], {}
    threads = [threading.Thread(target=lambda i=i: got.update({i: text(i)})) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [got[i] for i in range(16)] == alone


def main():
    sense, says = (openai.OpenAI(base_url=u, api_key="sesame", max_retries=0, timeout=60)
                   for u in sys.argv[1:])
    for check in (check_chat, check_stream, check_text, check_errors, check_many):
        check(sense)
    check_tools(says)


main()
