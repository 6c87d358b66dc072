# SPDX-License-Identifier: Apache-2.0
"""The role `combine`: stacks pieces into one task, or says what a given one is made of.

  {"op":"stack","pieces":[...],"bytes":B}              {"code"}
  {"op":"compose","code":C,"count":N,"bytes":B}        {"parts", "ops", "hash"}

Shapes are proven on fake tensors before anything runs.  Then it runs, and everything in it has
to matter (live.py)."""
import torch

from catorch import compose, pieces
from catorch.live import No, check, fake_result
from catorch.proto import END_OOM, END_UNSUPPORTED, PHASE_FORWARD, PHASE_INPUTS
from catorch.shim import Child, Fail, is_oom
from catorch.turns import give_back

SMALL = 256                     # elements that a further piece has to get


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


class Combine(Child):
    ready = False

    def answer_of(self, req, make):
        if not self.ready:
            self.begin(req)
            self.ready = True
        self.phase = PHASE_FORWARD
        torch.manual_seed(int(req.get("seed", 0)))
        try:
            return self.describe(make())
        except No as exc:
            raise Fail(END_UNSUPPORTED, PHASE_FORWARD, str(exc)) from None
        except Fail:
            raise
        except BaseException as exc:
            raise Fail(END_OOM if is_oom(exc) else END_UNSUPPORTED, PHASE_INPUTS,
                       f"raises {type(exc).__name__}") from None
        finally:
            give_back()

    def do_stack(self, req):
        def make():
            stack = build(req["pieces"], int(req["bytes"]))
            return {"code": check(stack, self.device)}
        return self.answer_of(req, make)

    def do_compose(self, req):
        return self.answer_of(req, lambda: compose.check(
            req["code"], int(req["count"]), int(req["bytes"]), self.device))
