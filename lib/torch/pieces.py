# SPDX-License-Identifier: Apache-2.0
"""Pieces, of which task files are made: one operator with its arguments.

A piece is JSON: {"name": "torch.addmm", "init": null or "nn.Linear(64, 32)",
"call": "torch.addmm({0}, {1}, {2})", "chain": 0, "inputs": [{"kind", "shape", "lo", "hi"}]}.
In `call`, {m} is the module made by `init` and {K} the Kth input; `chain` is the input that
takes another piece's result.  Kinds of inputs: randn, uniform (lo to hi), randint (lo to hi, hi
excluded; `index`: hi is a size and grows with it, `numel`: it is how many elements the first
input has), bool, perm (indices below hi, none of them twice along `dim`), sign (-1 or 1),
label (0 or 1), count (0, 1, 2, ...), prob and logprob (along `dim`)."""
import math
import re

import torch

HEAD = "import torch\nimport torch.nn as nn\n\n\n"
LOOKS = {
    "sign": "torch.randint(0, 2, {shape}) * 2.0 - 1.0",
    "label": "torch.randint(0, 2, {shape}).float()",
    "count": "torch.poisson(torch.rand({shape}) * 4)",
    "prob": "torch.softmax(torch.randn({shape}), {dim})",
    "logprob": "torch.log_softmax(torch.randn({shape}), {dim})",
}
NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


def shape_text(shape):
    return ", ".join(str(n) for n in shape)


def draw_text(spec):
    """The expression that makes an input."""
    shape = shape_text(spec["shape"])
    kind = spec["kind"]
    if kind == "randn":
        return f"torch.randn({shape or '()'})"
    if kind == "bool":
        return f"torch.rand({shape or '()'}) > 0.5"
    if kind in LOOKS:
        return LOOKS[kind].format(shape=tuple(spec["shape"]), dim=spec.get("dim"))
    if kind == "perm":
        return perm_text(spec)
    lo, hi = spec["lo"], spec["hi"]
    if kind == "randint":
        return f"torch.randint({lo}, {hi}, ({shape}{',' if len(spec['shape']) == 1 else ''}))"
    if (lo, hi) == (0, 1):
        return f"torch.rand({shape or '()'})"
    offset = f" + {lo!r}" if lo > 0 else f" - {-lo!r}" if lo < 0 else ""
    return f"torch.rand({shape or '()'}) * {round(hi - lo, 6)!r}{offset}"


def perm_text(spec):
    dim, hi = spec["dim"], spec["hi"]
    n = spec["shape"][dim]
    few = f".narrow({dim}, 0, {n})" if n < hi else ""
    if len(spec["shape"]) == 1:
        return f"torch.randperm({hi}){few and f'[:{n}]'}"
    whole = [*spec["shape"][:dim], hi, *spec["shape"][dim + 1:]]
    return f"torch.rand({shape_text(whole)}).argsort({dim}){few}"


def is_float(spec):
    """Whether another piece's result may stand for it."""
    return spec["kind"] in ("randn", "uniform", "logprob")


def nbytes(spec):
    return math.prod(spec["shape"]) * {"bool": 1, "randint": 8, "perm": 8}.get(spec["kind"], 4)


def resized(spec, shape, first, size):
    """The input with another shape, given the first input's and what becomes of a size."""
    spec = {**spec, "shape": shape}
    if spec.get("numel"):
        spec["hi"] = math.prod(first)
    elif spec.get("index") or spec["kind"] == "perm":
        spec["hi"] = size(spec["hi"])
    return spec


def fill(call, module, values):
    for i, value in enumerate(values):
        call = call.replace(f"{{{i}}}", value)
    return call.replace("{m}", module)


def render(pieces):
    """A whole task file: each piece works on the result of the one before."""
    inits, lines, inputs, names = [], [], [], []
    for k, piece in enumerate(pieces):
        values = []
        for i, spec in enumerate(piece["inputs"]):
            if k and i == piece["chain"]:
                values.append("x")
                continue
            name = f"x{len(names)}"
            names.append(name)
            inputs.append(draw_text(spec))
            values.append(name)
        module = f"self.op{k}"
        if piece.get("init"):
            inits.append(f"        {module} = {piece['init']}\n")
        lines.append(f"        x = {fill(piece['call'], module, values)}\n")
    lines[-1] = lines[-1].replace("x = ", "return ", 1)
    body = "".join(f"        {text},\n" for text in inputs)
    return (HEAD + "class Model(nn.Module):\n    def __init__(self):\n"
            "        super().__init__()\n" + "".join(inits) +
            f"\n    def forward(self, {', '.join(names)}):\n" + "".join(lines) +
            f"\n\ndef get_inputs():\n    return [\n{body}    ]\n\n\n"
            "def get_init_inputs():\n    return []\n")


def load(code):
    """A model, and what makes its inputs, of a file's text."""
    space = {"__name__": "model"}
    exec(compile(code, "model.py", "exec"), space)
    return space["Model"]().eval(), space["get_inputs"]


def fitted(piece, shape):
    """The piece for a chained input of another shape; None when it does not fit.  Sizes that
    the piece's own input had are exchanged wherever they stand, also in `init`."""
    own = piece["inputs"][piece["chain"]]["shape"]
    lone = len(piece["inputs"]) == 1 and not piece.get("init")
    if len(own) != len(shape):
        if not lone:
            return None
        return {**piece, "inputs": [{**piece["inputs"][0], "shape": list(shape)}]}
    sizes = {}
    for was, now in zip(own, shape, strict=True):
        if sizes.setdefault(was, now) != now and not lone:
            return None
    init = piece.get("init")
    channels = dict(zip(own[1:], shape[1:], strict=True))
    bounds = channels if init else sizes
    shapes = [list(shape) if i == piece["chain"] else [sizes.get(n, n) for n in spec["shape"]]
              for i, spec in enumerate(piece["inputs"])]
    inputs = [resized(spec, now, shapes[0], lambda n: bounds.get(n, n))
              for spec, now in zip(piece["inputs"], shapes, strict=True)]
    if init:
        head, comma, tail = init.partition("=")
        head = NUMBER.sub(lambda m: str(channels.get(int(m[0]), m[0])), head)
        init = head + comma + tail
    return {**piece, "inputs": inputs, "init": init}


def first_tensor(value):
    """What a next piece takes, and how the call has to be written for it."""
    if isinstance(value, torch.Tensor):
        return value, ""
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], torch.Tensor):
        return value[0], "[0]"
    return None, ""


def finite(value):
    """Whether all but one in a hundred elements are: else inputs lie outside the domain."""
    if value.is_floating_point() and math.isfinite(value.sum().item()):
        return True             # of one that is not, no sum is finite
    return torch.isfinite(value).sum().item() >= 0.99 * value.numel()
