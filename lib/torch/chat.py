# SPDX-License-Identifier: Apache-2.0
"""Renders chat templates: chat.py FD.

FD is a socket of lines.  The first is {"template", "bos_token", "eos_token"};
then every {"messages", "tools", "add_generation_prompt"} is answered by
{"text"} or {"error"}.  Templates come with models from strangers, so they run
in Jinja's sandbox, with the filters and globals that transformers gives them."""

import datetime
import json
import socket
import sys


def refuse(message):
    import jinja2

    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def compile_template(text):
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %}: what the model itself says; here only a scope."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("whole"), [], [], body).set_lineno(line)

        def whole(self, caller):
            return caller()

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[loopcontrols, Generation])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda fmt: datetime.datetime.now().strftime(fmt)
    return env.from_string(text)


def answer(template, tokens, request):
    text = template.render(messages=request["messages"], tools=request.get("tools"),
                           documents=None,
                           add_generation_prompt=request.get("add_generation_prompt", True),
                           **tokens)
    return {"text": text}


def main():
    lines = socket.socket(fileno=int(sys.argv[1])).makefile("rw", encoding="utf-8", newline="\n")
    template = None
    failed = "no template"
    tokens = {}
    for line in lines:
        request = json.loads(line)
        try:
            if template is None and "template" in request:
                tokens = {k: v for k, v in request.items() if k != "template"}
                template = compile_template(request["template"])
                continue
            reply = answer(template, tokens, request) if template else {"error": failed}
        except Exception as e:
            reply = {"error": f"{type(e).__name__}: {e}"}
            if template is None:
                failed = reply["error"]
                continue
        lines.write(json.dumps(reply, ensure_ascii=True) + "\n")
        lines.flush()


if __name__ == "__main__":
    main()
