# SPDX-License-Identifier: Apache-2.0
"""The role `combine`: stacks pieces into one task.

  {"op":"stack","pieces":[...],"bytes":B}   {"code", "pieces"}

Shapes are proven on fake tensors before anything runs.  Then it runs, and every piece has
to matter: without it the result is another one."""
import torch
import torch.nn as nn
from torch._subclasses.fake_tensor import FakeTensorMode

from catorch import pieces
from catorch.proto import END_UNSUPPORTED, PHASE_FORWARD, PHASE_INPUTS
from catorch.shim import Child, Fail

TOLERANCE = 1e-2
FEW = 64                        # one element in so many has to differ
SMALL = 256                     # elements that a further piece has to get


class No(Exception):
    """Why these pieces make no task; the same words for the same cause."""


class Chain:
    """The pieces of a rendered file, to be called one by one."""

    def __init__(self, stack, code):
        self.stack = stack
        self.model, self.get_inputs = pieces.load(code)

    def calls(self):
        """(expression, names of its inputs) of each piece, as in the file."""
        count = 0
        for k, piece in enumerate(self.stack):
            values = []
            for i in range(len(piece["inputs"])):
                if k and i == piece["chain"]:
                    values.append("x")
                else:
                    values.append(f"x{count}")
                    count += 1
            yield pieces.fill(piece["call"], f"self.op{k}", values)

    def run(self, inputs, without=None):
        """Every piece's result."""
        space = {"self": self.model, "torch": torch, "nn": nn}
        space.update((f"x{i}", t.clone()) for i, t in enumerate(inputs))
        results = []
        for k, call in enumerate(self.calls()):
            if k != without:
                space["x"] = eval(call, space)
            elif not k:
                space["x"] = inputs[self.stack[0]["chain"]]
            results.append(space["x"])
        return results


def fake_result(stack):
    with FakeTensorMode(allow_non_fake_inputs=True):
        chain = Chain(stack, pieces.render(stack))
        try:
            return chain.run(chain.get_inputs())[-1]
        except Exception:
            raise No("shapes do not fit") from None


def lone(stack, most):
    """The last piece's result as one tensor, with the piece's call changed for it."""
    value, suffix = pieces.first_tensor(fake_result(stack))
    if value is None:
        raise No("a result is no tensor")
    if value.numel() * value.element_size() > most:
        raise No("a result is too large")
    stack[-1] = {**stack[-1], "call": stack[-1]["call"] + suffix}
    return value


def build(chosen, most):
    stack = [chosen[0]]
    value = lone(stack, most)
    for piece in chosen[1:]:
        if value.dtype is not torch.float32 or piece["chain"] is None:
            raise No("a result is not of the type that the next one takes")
        if value.numel() < SMALL:
            raise No("little is left for the next one")
        piece = pieces.fitted(piece, list(value.shape))
        if piece is None:
            raise No("dimensions do not fit")
        stack.append(piece)
        value = lone(stack, most)
    return stack


def differ(a, b):
    """Whether a check at TOLERANCE tells them apart."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    a, b = a.double(), b.double()
    far = ~((a - b).abs() <= TOLERANCE + TOLERANCE * b.abs())
    far &= ~(a.isnan() & b.isnan()) & (a != b)
    return far.sum().item() * FEW >= max(a.numel(), 1)


def check(stack, device):
    code = pieces.render(stack)
    with device:
        chain = Chain(stack, code)
        inputs, others = chain.get_inputs(), chain.get_inputs()
    try:
        results, second = chain.run(inputs), chain.run(others)
        whole = results[-1]
    except Exception:
        raise No("it does not run") from None
    if not all(pieces.finite(pieces.first_tensor(r)[0]) for r in results):
        raise No("too little of a result is finite")
    # What comes out the same whatever goes in makes all before it idle.
    pairs = zip(results, second, strict=True)
    if not all(differ(*(pieces.first_tensor(r)[0] for r in pair)) for pair in pairs) or \
            not differ(whole, torch.zeros_like(whole)):
        raise No("the result hardly depends on the inputs")
    for k in range(len(stack)):
        try:
            rest = chain.run(inputs, without=k)[-1]
        except Exception:
            continue            # without it nothing fits: it matters
        if not isinstance(rest, torch.Tensor):
            continue
        if not differ(whole, rest):
            raise No("an operator changes nothing")
    return code


class Combine(Child):
    ready = False

    def do_stack(self, req):
        if not self.ready:
            self.begin(req)
            self.ready = True
        self.phase = PHASE_FORWARD
        torch.manual_seed(int(req.get("seed", 0)))
        try:
            stack = build(req["pieces"], int(req["bytes"]))
            return self.describe({"code": check(stack, self.device)})
        except No as exc:
            raise Fail(END_UNSUPPORTED, PHASE_FORWARD, str(exc)) from None
        except Exception as exc:
            raise Fail(END_UNSUPPORTED, PHASE_INPUTS,
                       f"raises {type(exc).__name__}") from None
