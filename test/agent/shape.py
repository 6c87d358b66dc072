#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a request line on standard input is none by the types of OpenAI's own client.

Prints how many there were, and the members (of requests and of their messages) that the types do
not name: extensions, which a server may not know.
"""
import json
import sys
import typing
from collections.abc import Iterator, Mapping

from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter


def walk(value):
    """The types have iterables, which pydantic checks only when somebody looks."""
    if isinstance(value, Mapping):
        for v in value.values():
            walk(v)
    elif isinstance(value, (list, tuple, Iterator)) or type(value).__name__ == "ValidatorIterator":
        for v in value:
            walk(v)


def empty(m):
    """The types allow it, servers and templates do not."""
    return m["role"] == "assistant" and m.get("content") is None and not m.get("tool_calls")


def members(types):
    return {name for t in types for name in typing.get_type_hints(t)}


def main():
    request = TypeAdapter(CompletionCreateParamsNonStreaming)
    known = members([CompletionCreateParamsNonStreaming])
    said = members(typing.get_args(ChatCompletionMessageParam))
    count, others = 0, set()
    for line in sys.stdin:
        r = json.loads(line)
        walk(request.validate_python(r, strict=True))
        if any(map(empty, r["messages"])):
            sys.exit("an assistant's message has neither content nor calls")
        others |= set(r) - known
        others |= {k for m in r["messages"] for k in m} - said
        count += 1
    print(count, *sorted(others))


main()
