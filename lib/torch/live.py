# SPDX-License-Identifier: Apache-2.0
"""What a stack of pieces has to show before it is a task: it runs, its operators and inputs
matter, and the same goes in and out whenever it is called."""
import torch
import torch.nn as nn
from torch._subclasses import fake_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from catorch import pieces
from catorch.task import Recorder, op_name

TOLERANCE = 1e-2
FEW = 64                        # one element in so many has to differ
ROUNDING = 1e-6                 # of a result, relatively
SHAKES = 3                      # else a step that few elements are near may go unseen
STEPS = 1000                    # of so many elements one may be near a step of its input
UNUSED = 4                      # of so much that is computed, one part may go nowhere
LONG = 8                        # axes along which all has to be read
PART = 1 << 18                  # elements that are compared at once; on a GPU, which wants many
PART_CUDA = 1 << 26
PART_FIRST = 1 << 24
NOISE = {}                      # by device and type: some, to be taken from where chance says


# By what shapes alone do not tell.
UNKNOWN = (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException,
           fake_tensor.UnsupportedOperatorException, fake_tensor.UnsupportedFakeTensorException)


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

    def first_user(self, i):
        """The piece that takes the Kth input."""
        for k, piece in enumerate(self.stack):
            i -= len(piece["inputs"]) - (k > 0)
            if i < 0:
                return k
        return len(self.stack)

    def run(self, inputs, without=None, shaken=False, known=()):
        """Every piece's result; shaken, each works on what the one before might as well have
        given.  Those of the first pieces may be known."""
        space = {"self": self.model, "torch": torch, "nn": nn}
        space.update((f"x{i}", t) for i, t in enumerate(inputs))
        results = []
        for k, call in enumerate(self.calls()):
            if k < len(known):
                space["x"] = known[k]
            elif k != without:
                space["x"] = eval(call, space)
            elif not k:
                space["x"] = inputs[self.stack[0]["chain"]]
            results.append(space["x"])
            if shaken:
                space["x"] = shake(space["x"])
        return results


def fake_result(stack):
    """The last piece's result on fake tensors: shapes are proven before anything runs."""
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        chain = Chain(stack, pieces.render(stack))
        try:
            return chain.run(chain.get_inputs())[-1]
        except Exception as exc:
            raise No("shapes do not fit") from exc


def wide(t):
    if t.is_complex():
        return t.to(torch.complex128)
    return t if t.dtype is torch.float32 else t.double()


def apart(a, b):
    """How many elements a check at TOLERANCE tells apart; a number that stays on the device."""
    a, b = wide(a), wide(b)
    told = ~((a - b).abs() <= TOLERANCE + TOLERANCE * b.abs())
    return (told & ~(a.isnan() & b.isnan()) & (a != b)).sum()


def differ(a, b, least=None):
    """Whether they differ in some elements, one in FEW unless it is said how many."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    least = max(a.numel() / FEW, 1) if least is None else least
    a, b = a.reshape(-1), b.reshape(-1)
    # A part shows it, mostly.  On a GPU a second look is one at all the rest: waiting takes
    # longer than counting.
    count, at, part = 0, 0, PART_FIRST if a.is_cuda else PART
    while at < a.numel():
        rest = zip(a[at:at + part].split(PART_CUDA), b[at:at + part].split(PART_CUDA), strict=True)
        count += int(sum(apart(*pair) for pair in rest))
        if count >= least:
            return True
        at, part = at + part, a.numel() if a.is_cuda else PART
    return False


def shake(value):
    """The same but for a few last digits."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    key = value.device, value.dtype
    if key not in NOISE:
        NOISE[key] = ROUNDING * torch.randn(2 * PART, dtype=key[1], device=key[0])
    shaken = value.clone(memory_format=torch.contiguous_format).view(-1)
    # What is left of a sum is rounded as its terms are; a zero is one for everybody.
    usual = shaken[:PART].abs().nan_to_num(0, 0, 0).mean()
    start = int(torch.randint(PART, ()))
    for part in shaken.split(PART if key[0].type == "cpu" else PART_CUDA):
        noise = noise_like(part, NOISE[key][start:start + PART])
        part.addcmul_(noise, part.abs().add_(usual).mul_(part != 0))
    return shaken.view(value.shape)


def noise_like(part, noise):
    n = part.numel()
    return noise.repeat(-(-n // noise.numel()))[:n] if n > noise.numel() else noise[:n]


def first(result):
    value, _ = pieces.first_tensor(result)
    if value is None:
        raise No("a result is no tensor")
    return value


def check_calls(chain, inputs, others):
    """The results, if the last hangs on the inputs and on nothing else."""
    given = [t.clone() for t in inputs]
    try:
        with Recorder(writes=True) as seen:
            results = chain.run(given)
        second = chain.run(others)
    except torch.OutOfMemoryError:
        raise
    except Exception:
        raise No("it does not run") from None
    if not all(map(torch.equal, given, inputs)):
        raise No("it changes its inputs")
    if seen.most > 1:
        raise No("it writes to one place twice, in no order")
    pairs = [tuple(map(first, pair)) for pair in zip(results, second, strict=True)]
    if not all(pieces.finite(a) for a, _ in pairs):
        raise No("too little of a result is finite")
    if any(a.shape != b.shape for a, b in pairs):
        raise No("a result's shape depends on values")
    # What comes out the same whatever goes in makes all before it idle.
    if not all(differ(*pair) for pair in pairs) or \
            not differ(pairs[-1][0], torch.zeros_like(pairs[-1][0])):
        raise No("the result hardly depends on the inputs")
    return results


def check_pieces(chain, inputs, results):
    """Every piece matters: without it the result is another one."""
    whole = first(results[-1])
    for k in range(len(chain.stack)):
        try:
            rest = chain.run(inputs, without=k, known=results[:k])[-1]
        except torch.OutOfMemoryError:
            raise
        except Exception:
            continue            # without it nothing fits: it matters
        if isinstance(rest, torch.Tensor) and not differ(whole, rest):
            raise No("an operator changes nothing")


def check_rounding(chain, inputs, results):
    """No operator makes a step, or a wreck, of another's last digits: who rounds otherwise
    would be wrong."""
    whole = first(results[-1])
    for _ in range(SHAKES if len(chain.stack) > 1 else 0):
        if differ(whole, first(chain.run(inputs, shaken=True, known=results[:1])[-1]), 1):
            raise No("rounding changes the result")


def check_inputs(chain, inputs, others, results):
    whole = first(results[-1])
    for i, other in enumerate(others):
        try:
            rest = first(chain.run([*inputs[:i], other, *inputs[i + 1:]],
                                   known=results[:chain.first_user(i)])[-1])
        except torch.OutOfMemoryError:
            raise
        except Exception:
            continue            # it does not fit to the others: it matters
        if not differ(whole, rest, 1):
            raise No("an input changes nothing")


def writes(piece):
    """Whether the piece alone writes to places that indices name."""
    chain = Chain([piece], pieces.render([piece]))
    with Recorder(writes=True) as seen:
        chain.run(chain.get_inputs())
    return seen.most > 0


def places(value):
    """Where its tensors lie."""
    return {t.untyped_storage().data_ptr() for t in tree_leaves(value)
            if isinstance(t, torch.Tensor) and t.numel()}


class Flow(TorchDispatchMode):
    """What every operation takes from where, and puts where.  Results are kept, so that no
    place is used again: for small ones."""

    def __init__(self):
        super().__init__()
        self.calls, self.kept = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        written = [value for arg, value in zip(func._schema.arguments, args, strict=False)
                   if arg.alias_info and arg.alias_info.is_write]
        size = sum(t.numel() for t in tree_leaves(result) if isinstance(t, torch.Tensor))
        self.calls.append((places([args, kwargs]), places([result, written]),
                           size if op_name(func) else 0))
        self.kept.append(result)
        return result


def check_used(chain, inputs):
    """What an operator computes goes into its first result, all that the next one gets."""
    with Flow() as flow:
        needed = places(first(chain.run(inputs)[-1]))
    used = unused = 0
    for taken, put, size in reversed(flow.calls):
        if put & needed:
            needed |= taken
            used += size
        else:
            unused += size
    if unused * UNUSED > used + unused:
        raise No("much of what it computes is not in its first result")


def check_small(piece):
    """What shows while a piece is small, on the CPU."""
    draw = Draw([piece], torch.device("cpu"))
    whole, again = (first(draw.chain.run(draw.inputs)[-1]) for _ in range(2))
    if differ(whole, again, 1):
        raise No("two calls on the same inputs differ")
    check_used(draw.chain, draw.inputs)


class Draw:
    """A stack as a file, and two draws of its inputs."""

    def __init__(self, stack, device):
        self.code = pieces.render(stack)
        with device:
            self.chain = Chain(stack, self.code)
            self.inputs, self.others = self.chain.get_inputs(), self.chain.get_inputs()


def check_draw(draw):
    """The results, or No."""
    chain, inputs, others = draw.chain, draw.inputs, draw.others
    results = check_calls(chain, inputs, others)
    check_pieces(chain, inputs, results)
    check_inputs(chain, inputs, others, results)
    check_rounding(chain, inputs, results)
    return results


def check(stack, device):
    """The code of the stack, or No."""
    draw = Draw(stack, device)
    check_draw(draw)
    return draw.code


def check_piece(piece, device, large=True):
    """What a stack has to show, and what a piece alone has to."""
    draw = Draw([piece], device)
    results = check_draw(draw)
    check_whole(draw, first(results[-1]), large)


def other_part(t, other, axis):
    """t with a part along the axis from the other: so little of a long one that whoever reads
    a few places only does not see it."""
    n = t.shape[axis]
    few = n // 16 if n >= 8 * LONG else n - n // 2
    mixed = t.clone()
    mixed.narrow(axis, n // 2, few).copy_(other.narrow(axis, n // 2, few))
    return mixed


def check_idle(whole, inputs):
    for t in inputs:
        if t.numel() == whole.numel() and not differ(whole, t.reshape(whole.shape)):
            raise No("it gives back an input")


def check_alone(piece, device, large):
    """That a piece alone does more than give back what it got, in whatever shape, and, when
    it is large, reads all parts of it."""
    draw = Draw([piece], device)
    check_whole(draw, first(draw.chain.run(draw.inputs)[-1]), large)


def check_steady(chain, inputs, specs, whole):
    """Who sums up in another order gets what other last digits of the inputs give: where that
    is another result, as of a matrix that is nearly singular, right ones cannot be told."""
    shaken = [shake(t) if pieces.is_float(s) else t for t, s in zip(inputs, specs, strict=True)]
    if whole.is_floating_point() and differ(whole, first(chain.run(shaken)[-1]),
                                            max(whole.numel() / STEPS, 1)):
        raise No("rounding of its inputs changes the result")


def check_whole(draw, whole, large):
    chain, inputs, others = draw.chain, draw.inputs, draw.others
    check_idle(whole, inputs)
    specs = chain.stack[0]["inputs"]
    if large:
        check_steady(chain, inputs, specs, whole)
    for i, t in enumerate(inputs if large else ()):
        for axis, n in enumerate(t.shape if pieces.is_float(specs[i]) else ()):
            if n < LONG:
                continue
            mixed = other_part(t, others[i], axis)
            rest = first(chain.run([*inputs[:i], mixed, *inputs[i + 1:]])[-1])
            if not differ(whole, rest, 1):
                raise No("a part of an input changes nothing")
