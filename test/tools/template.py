# SPDX-License-Identifier: Apache-2.0
"""template.py NN [--all] TEMPLATE...: chat templates as ca-serve renders them without Python
against transformers (jinja2 where there is none), byte for byte, over a matrix of conversations.
With --all none may be left to Python that it can render.  Without templates: small ones, each for
a corner of the language."""

import functools
import importlib.util
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from transformers.utils.chat_template_utils import render_jinja_template
except ImportError:
    render_jinja_template = None

spec = importlib.util.spec_from_file_location(
    "chat", Path(__file__).resolve().parents[2] / "lib/torch/chat.py")
chat = importlib.util.module_from_spec(spec)
spec.loader.exec_module(chat)

CITY = {"type": "object", "required": ["city"], "properties": {
    "city": {"type": "string", "description": "Where? \"Genève\", 東京 … <b>&amp;</b>"},
    "days": {"type": ["integer", "null"], "default": None, "minimum": -3, "maximum": 1e20},
    "share": {"type": "number", "default": 0.1, "enum": [1.5e-07, 123456789.125, -2.5]},
    "items": {"type": "array", "items": {"enum": ["a\tb", "c\\d", "\x1f\x7f"]}, "extra": {},
              "none": []}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "How it is there.",
                                           "parameters": CITY, "strict": True}},
         {"type": "function", "function": {"name": "now", "description": "multi\nline",
                                           "parameters": {"type": "object", "properties": {}}}}]


def call(name, arguments, **more):
    return {"id": "call00001", "type": "function",
            "function": {"name": name, "arguments": arguments}, **more}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


ASK = said("user", "What is 2 + 2? \n")
ONE = call("weather", {"city": "Genève", "days": 2, "share": 0.1, "on": True, "x": None,
                       "more": {"list": [1, 2.5, "…"], "empty": {}}})
TWO = call("now", {})
PLAIN = [
    [],
    [ASK],
    [ASK, said("assistant", "4"), said("user", "  and then?\u3000")],
    [ASK, said("assistant", "\n\n4\n"), ASK, said("assistant", "")],
    [said("user", "тест 漢字 👩‍👩‍👧 \u00a0<|im_end|> </s> {{ x }} {% raw %} \\n \"q\" 'q'"),
     said("assistant", "<|im_start|>user\nI am you<|eot_id|>"), ASK],
    [ASK, said("assistant", None, tool_calls=[ONE]), said("tool", "rain", tool_call_id="call00001"),
     said("assistant", "It rains."), said("user", "Thanks")],
    [ASK, said("assistant", "Let me see.", tool_calls=[ONE, TWO]),
     said("tool", '{"rain": 1}', name="weather"), said("tool", "12:00 <tool_response>"), ASK],
    [ASK, said("assistant", "", tool_calls=[ONE]), said("tool", "a"),
     said("assistant", "", tool_calls=[TWO]), said("tool", "b\n")],
    [ASK, said("assistant", "<think>\nhm, 漢\n</think>\n\n4"), ASK, said("assistant", "5")],
    [ASK, said("assistant", "4", reasoning_content="\nI add.\n"),
     said("user", "<tool_response>\nnot me\n</tool_response>"),
     said("assistant", "x</think>y", reasoning_content="two", tool_calls=[TWO]), said("tool", "t")],
    [said("tool", "who asked?"), ASK],
    [said("assistant", "I begin."), ASK],
    [said("user", "one"), said("user", "two"), said("assistant", "a"), said("assistant", "b")],
    [said("narrator", "Once"), ASK],
    [ASK, {"role": "assistant"}, ASK],
    [ASK, said("assistant", "text", tool_calls=[]), ASK],
    [ASK, said("assistant", None, tool_calls=[call("weather", '{"city": "as text"}')]), ASK],
]
ODD = [        # whose spelling may be Python's own
    [ASK, said("ipython", {"temperature": 3.0625, "unit": "°"})],
    [said("user", [{"type": "text", "text": "part one"}, {"type": "text", "text": "two"}])],
]
SYSTEMS = [[], [said("system", " Be brief. \n")], [said("system", "")],
           [said("developer", "Use C.")]]


CORNER = {
    "messages": [said("user", " a b\u3000"), said("tool", {"k": [1, {"z": None}], "items": 2}),
                 said("assistant", "x,y,,z"), {"role": "none", "content": None, "n": -7}],
    "tools": TOOLS, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
KNOWN = [      # what has to be rendered here, or fails there
    '',
    '\n',
    'a\n',
    'a\n\n',
    ' {% if true %} \n x {% endif %} \n y\n',
    'a {%- if 1 %} b{% endif -%}  c',
    'a\n  {%+ if 1 %}b{% endif +%}\nc',
    '  {# c #}\n d {#- e -#} f',
    '{{ 1 }}\n{{ 2 -}}\n 3',
    "\r\nx\r{{ '\\r' }}",
    '{{ \'}}\' ~ "%}" }}',
    "{{ {'a': {'b': 1}}.a.b }}",
    '\u2003{{- 1 -}}\u2003x',
    "{{ 'a\\tb\\x41\\u00e9\\q\\\\' }}",
    "{{ 'a' 'b' }}",
    '{%if 1%}{{-1}}{%endif%}',
    '{{ -1|string }}',
    '{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 * 3 + 1 }} {{ 2 + 3 * -1 }}',
    '{{ 1 ~ 2 + 3 }}',
    '{{ none ~ true ~ [][0] }}',
    "{{ 'b' > 'a' and 2 or 3 }}",
    '{{ 1 if false }}|{{ 1 if 0 else 2 if 0 else 3 }}|{{ not 1 == 2 }}|{{ not not 3 }}',
    "{{ 'a' in 'abc' }} {{ 1 in [1] }} {{ 'k' not in messages[1].content }} {{ true == 1 }}",
    '{{ [1, [2]] == [1, [2]] }} {{ (1,) == [1] }} {{ none == nothing }} {{ nothing == nobody }}',
    '{{ messages[-1].role }} {{ messages[9].role is defined }} {{ messages[9] is defined }}',
    '{{ messages[9].role }}',
    '{{ none.x is defined }}',
    "{{ messages[1].content['items'] }} {{ messages[1].content.k[1].z }}",
    '{% for k, v in messages[1].content.items() %}{{ k }}={{ v | tojson }};{% endfor %}',
    '{% for k, v in messages[1].content | items %}{{ k }}'
    '{% endfor %}{{ messages[1].content.keys() | list | tojson }}',
    '{% for k in messages[1].content %}{{ k }}{% endfor %}{{ messages[1].content | length }}',
    "{{ messages[1].content.get('no') }} {{ messages[1].content.get('no', 5) }}",
    '{% for x in [1, 2, 3] if x != 2 %}{{ loop.index }}{{ loop.last }}'
    '{{ x }}{{ loop.revindex0 }}{% endfor %}',
    '{% for x in [] %}{% else %}none{% endfor %}{% for x in nothing %}{% else %}none{% endfor %}',
    '{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}',
    "{% for i in [1, 2] %}{% if loop.first %}{% set messages = 'm' %}"
    '{% endif %}{{ messages is string }}{% endfor %}',
    '{% set n = namespace(a=1) %}{% for i in [1, 2] %}'
    '{% set n.a = n.a + i %}{% endfor %}{{ n.a }}{{ n.b }}',
    '{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}'
    '{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}',
    '{% for i in [[1, 2], [3, 4]] %}'
    '{% for j in i %}{{ loop.index0 }}{{ j }}{% endfor %}{{ loop.length }}{% endfor %}',
    '{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}|{{ x }}',
    '{% for i in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}',
    '{% set x %}a{{ 1 }}{% set y = 2 %}{% endset %}{{ x }}{{ y }}{{ x | length }}',
    '{{ messages[::-1][0].n }}{{ messages[1:3] | length }}'
    '{{ messages[:-1] | length }}{{ messages[5:] | length }}',
    '{% for i in range(6)[4:0:-2] %}{{ i }}{% endfor %}',
    '{% for i in [0, 1, 2, 3][-3::2] %}{{ i }}{% endfor %}',
    "{{ messages[2].content.split(',') | join('|') }} "
    "{{ messages[2].content.split(',') | length }}",
    ''
    "{{ ' x '.strip() ~ 'xxax'.strip('x') ~ 'xa'.lstrip('x') ~ 'ax'.rstrip('x') }}",
    "{{ ' q'.strip('') ~ '\u3000é\u00a0'.strip() ~ 'éaé'.strip('è') ~ 'éaé'.strip('xé') }}",
    "{{ 'abab'.replace('ab', 'c') }} {{ 'ab' | replace('b', '') }} "
    "{{ 'aB' | upper }} {{ 'aB'.lower() }}",
    '{{ messages[0].content | trim }}|{{ 5 | trim }}|'
    "{{ nothing | trim }}|{{ none | string }}|{{ 'xax' | trim('x') }}",
    "{{ nothing | default('d') }}{{ '' | d('e') }}"
    "{{ '' | default('f', true) }}{{ 0 | default(boolean=true) }}",
    '{{ [3, 4] | first }}{{ [3, 4] | last }}{{ [] | first is defined }}{{ nothing | length }}',
    "{{ 'é漢' | length }} {{ [1, 'a', none, true] | join }} {{ [1, 2] | join(', ') }}",
    '{{ tools | tojson }}',
    '{{ tools | tojson(indent=2) }}',
    '{{ {} | tojson(indent=4) }}{{ [] | tojson }}',
    '{{ {\'a\': 1, \'b\': [true, none, \'x"\']} | tojson }}',
    '{{ nothing | tojson }}',
    '{{ (1, 2) | tojson }}',
    '{{ x is defined }} {{ x is undefined }} {{ none is none }} '
    '{{ 1 is number }} {{ true is integer }}',
    "{{ 'a' is string }} {{ {} is mapping }} {{ [] is iterable }} "
    '{{ nothing is sequence }} {{ 1 is iterable }}',
    '{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 1 is boolean }}',
    "{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 'a' is in ['a'] }} {{ 1 is not none and 2 }}",
    "{{ raise_exception('no') }}",
    '{{ raise_exception(1) }}',
    '{{ strftime_now is defined }}',
    "{{ namespace is defined }}{{ strftime_now('%Y %b %%') }}",
    '{{ loop }}',
    "{{ 1 + 'a' }}",
    "{{ nothing + 'a' }}",
    '{{ nothing.x }}',
    "{{ 'a' | nosuch }}",
    "{{ 'a' is nosuch }}",
    '{% bogus %}',
    '{{ 1',
    '{% if 1 %}',
    '{% endif %}',
    '{{ (1 }}',
    '{{ }}',
    '{{ 1 2 }}',
    '{# open',
    "{{ 'a }}",
    '{% set true = 1 %}',
    '{{ 99 * 99 }}',
    '{% break %}',
]
LEFT = [      # what has to be left to Python
    "{{ [1, 'a'] }}",
    '{{ messages[1].content }}',
    "{{ 'ÄÖ' | lower }}",
    '{{ 1 / 2 }}',
    '{{ 2 ** 3 }}',
    '{{ 1 < 2 < 3 }}',
    '{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1) }}',
    "{{ 'abc'[1] }}",
    "{% if 0 %}{{ 'a' | nosuch }}{% endif %}",
    '{{ messages.x }}',
    '{{ messages[0].content[0] }}',
    "{{ 'abc'[::-1] }}",
    "{{ messages | selectattr('role', 'eq', 'user') | list | length }}",
    "{{ 'a b'.split() | length }}",
    "{{ '%s' | format(1) }}",
    "{{ messages[1].content['keys'] is defined }}",
    "{{ 'a'.title() }}",
    '{% raw %}{{ x }}{% endraw %}',
    '{{ 9223372036854775807 + 1 }}',
    '{{ 1.5 }}',
    '{{ 1.5 is float }}',
    '{% set i = messages[1].content | items %}{% for k in i %}1'
    '{% endfor %}{% for k in i %}2{% endfor %}',
    '{{ dict(a=1).a }}',
    "{{ ''.__class__ }}",
    '{{ messages.append(1) }}',
    '{{ 0x10 }}',
    "{{ strftime_now('%s') | length > 0 }}",
    "{{ [1, 2] | tojson(separators=(',', ':')) }}",
    '{% set a, b = 1, 2 %}{{ a }}',
    '{{ 1, 2 }}',
    "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
    "{{ '\\N{BULLET}' }}",
]


def requests(talks):
    for talk, system, tools, more in itertools.product(
            talks, SYSTEMS, (None, TOOLS), (True, False)):
        yield {"messages": system + talk, "tools": tools, "add_generation_prompt": more,
               "bos_token": "<s>", "eos_token": "</s>"}


compiled = functools.lru_cache(1)(chat.compile_template)


def there(template, r):
    try:
        return ["text", chat.answer(compiled(template),
                                    {k: r[k] for k in ("bos_token", "eos_token")}, r)["text"]]
    except Exception as e:  # a template may fail in any way
        return ["error", f"{type(e).__name__}: {e}"]


def by_transformers(template, r):
    try:
        rendered = render_jinja_template(conversations=[r["messages"]], tools=r["tools"],
                                         chat_template=template, **{k: r[k] for k in (
                                             "add_generation_prompt", "bos_token", "eos_token")})
        return ["text", rendered[0][0]]
    except Exception as e:
        return ["error", f"{type(e).__name__}: {e}"]


def expected(template, r):
    """What transformers makes of it, which has to be what our own Python does."""
    want = there(template, r)
    if render_jinja_template:
        assert by_transformers(template, r) == want, (template, r)
    return want


def here(nn, template, asked):
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(template)
        f.flush()
        got = subprocess.run([nn, "template", f.name], text=True, check=True,
                             stdout=subprocess.PIPE,
                             input="".join(json.dumps(r) + "\n" for r in asked)).stdout
    return [list(json.loads(line).items())[0] for line in got.splitlines()]


def compare(nn, path, need_all):
    template = path.read_text()
    asked = list(requests(PLAIN if need_all else PLAIN + ODD))
    known = 0
    for r, (kind, text) in zip(asked, here(nn, template, asked), strict=True):
        want, wanted = expected(template, r)
        if kind == "unknown" and (want == "error" or not need_all):
            continue
        known += 1
        if (kind, text) != (want, wanted):
            sys.exit(f"{path}: {json.dumps(r)}\n{want} {wanted!r}\n{kind} {text!r}")
    print(f"{path.name}: {known} of {len(asked)}")


def corners(nn):
    wrong = 0
    for may, templates in ((False, KNOWN), (True, LEFT)):
        for template in templates:
            want, wanted = expected(template, CORNER)
            (kind, text), = here(nn, template, [CORNER])
            if kind == "unknown" and (may or want == "error"):
                continue
            if may or (kind, text) != (want, wanted):
                print(f"{template}\n{want} {wanted!r}\n{kind} {text!r}")
                wrong += 1
    sys.exit(wrong > 0)


def main():
    nn, *paths = sys.argv[1:]
    need_all = "--all" in paths
    if not paths:
        corners(nn)
    for path in paths[need_all:]:
        compare(nn, Path(path), need_all)


main()
