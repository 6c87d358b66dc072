# SPDX-License-Identifier: Apache-2.0
"""The role `crawl` (turns.py): makes pieces (pieces.py) of torch's operators, grown until a
call takes as long as it should on the device at hand.

A draft is {"piece", "ladder": [[bytes, inputs], ...]}; of it becomes {"piece", "code", "ms"}.
Functions and their arguments come from torch's own OpInfos, modules from modules.py."""
import collections
import contextlib
import itertools
import math
import re
import sys
import types
import unittest
import warnings

import torch

from catorch import grow, live, modules, pieces
from catorch.live import No
from catorch.proto import END_BAD_REQUEST, PHASE_INPUTS
from catorch.shim import Fail
from catorch.turns import ALONE, SHARED, Maker, why

SAMPLES = 24
CANDIDATES = 12
DRAFTS = 3                      # of which the first may fail to grow
STEPS = 40
APART = 1.9                     # times as many bytes from one rung to the next
ENOUGH = 16                     # elements that tell signs
DEGREE = 5                      # of polynomials
PERM_DIMS = 3
# Names of operators that are left out, and why.
OUT = (
    (r"^_|\._|__", "private"),
    (r"_$", "works in place"),
    (r"rand|bernoulli|normal$|dropout|multinomial|uniform|exponential|cauchy|geometric|"
     r"poisson$|rrelu|fractional", "random"),
    (r"empty|^(new_)?(full|zeros|ones)|^(arange|linspace|logspace|eye|tri[lu]_indices)|_like$",
     "does not depend on values"),
    (r"cholesky|(^|\.)eig|svd$|svd_lowrank|pca_lowrank|(^|\.)qr$|(^|\.)lu$|lu_factor|lobpcg|ldl|"
     r"geqrf|ormqr|householder",
     "wants special matrices, or gives one of many results"),
    (r"ctc_loss|max_unpool", "wants arguments that fit each other"),
    (r"sparse|jiterator|^ops\.|^torch\.ops|signal\.windows|^(item|nonzero|to|cpu|cuda|type|double|"
     r"float|half|int|long|short|byte|char|bool|bfloat16|chalf|cdouble|cfloat|is_.*|equal|allclose|"
     r"resize_?.*|set_|tolist|numpy_T|rename|data|result_type|can_cast|broadcast_shapes|"
     r"unique|unique_consecutive|masked_select|argwhere|histogramdd|stft|istft|uniform)$",
     "gives no tensor of a known shape"),
)
# Those whose first two arguments torch's samples have the other way round.
SWAPPED = r"^where$|polygamma$|^einsum$|\.embedding$"
# Steps: another operator's last digits change a count, an index or a bit of their results.
JUMPS = (r"(^|\.)(histc|histogram|floor|ceil|round|trunc|fix|frac|sign|sgn|signbit|heaviside|"
         r"floor_divide|remainder|fmod|arg(max|min|sort)|bucketize|searchsorted|eq|ne|ge|gt|le|lt|"
         r"greater|greater_equal|less|less_equal|not_equal)$")
# What the tensors of an operator stand for, by position.
POSITIVE = (0.1, 3.0)
USUAL = (
    # Of values that all differ the mode is the least.
    (r"torch\.mode\(", {0: "count"}),
    (r"multilabel_soft_margin_loss", {1: "label", 2: POSITIVE}),
    (r"hinge_embedding_loss|soft_margin_loss", {1: "sign"}),
    (r"margin_ranking_loss|cosine_embedding_loss", {2: "sign"}),
    (r"poisson_nll_loss", {1: "count"}),
    (r"\.nll_loss", {0: "logprob", 2: POSITIVE}),
    (r"cross_entropy_with_logits", {1: "label", 2: POSITIVE, 3: POSITIVE}),
    (r"cross_entropy|multi_margin_loss", {2: POSITIVE}),
    (r"kl_div.*log_target=True", {0: "logprob", 1: "logprob"}),
    (r"kl_div", {0: "logprob", 1: "prob"}),
    (r"gaussian_nll_loss", {2: POSITIVE}),
    (r"igamma", {0: POSITIVE, 1: POSITIVE}),
    (r"zeta", {0: (1.1, 4.0), 1: POSITIVE}),
    (r"xlog1py", {1: (-0.9, 3.0)}),
    (r"bessel_y|bessel_k|\.entr", {0: POSITIVE}),
    (r"shifted_chebyshev", {0: (0, 1)}),
    (r"chebyshev|legendre", {0: (-1, 1)}),
    (r"laguerre", {0: POSITIVE}),
)
INFOS = {}


def prime():
    """Imports torch's own descriptions of its operators, which want a test
    package that they do not need for that."""
    if INFOS:
        return
    if "expecttest" not in sys.modules:
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase
        stub.assert_expected_inline = lambda *args, **kwargs: None
        sys.modules["expecttest"] = stub
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    for info in op_db:
        INFOS.setdefault(info.name, info)


def public(name):
    """How the function is called in a file; None when it is not public."""
    where = torch
    for part in name.split("."):
        where = getattr(where, part, None)
        if where is None:
            break
    if callable(where):
        return f"torch.{name}("
    return f"{{0}}.{name}(" if hasattr(torch.Tensor, name) else None


class Literals:
    """Arguments as text; tensors among them become inputs."""

    def __init__(self):
        self.tensors = []

    def text(self, value):
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return f"{{{len(self.tensors) - 1}}}"
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            if value != value or value in (float("inf"), float("-inf")):
                return f"float('{value}')"
            return repr(value)
        if isinstance(value, torch.Size):
            value = tuple(value)
        if isinstance(value, (list, tuple)):
            inner = ", ".join(self.text(v) for v in value)
            if isinstance(value, list):
                return f"[{inner}]"
            return f"({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, (torch.dtype, torch.memory_format)):
            return str(value)
        raise No(f"an argument of type {type(value).__name__}")


class Signs:
    """What the floats that torch gives an operator for one argument have in common: one
    sample alone may be too small to tell."""

    def __init__(self):
        self.values = set()

    def add(self, t):
        if t.is_floating_point():
            self.values.update(t.flatten()[:4 * ENOUGH].tolist())

    def spec(self, shape):
        if len(self.values) < ENOUGH or min(self.values) < 0:
            return {"kind": "randn", "shape": shape}
        lo, hi = (0, 1) if max(self.values) <= 1 else POSITIVE
        return {"kind": "uniform", "shape": shape, "lo": lo, "hi": hi}


def spec_of(t, domain, signs):
    """What inputs like t are drawn from."""
    shape = list(t.shape)
    if t.dtype is torch.bool:
        return {"kind": "bool", "shape": shape}
    if t.is_complex() or t.layout is not torch.strided:
        raise No("complex or sparse inputs")
    lo, hi = (float(t.min()), float(t.max())) if t.numel() else (0.0, 0.0)
    if not t.is_floating_point():
        if t.dtype is not torch.int64:
            raise No(f"an input of type {t.dtype}")
        return {"kind": "randint", "shape": shape, "lo": int(min(lo, 0)), "hi": int(hi) + 1}
    low, high = domain
    if low is None and high is None:
        return signs.spec(shape)
    lo = low + 0.01 if low is not None else -3.0
    hi = high - 0.01 if high is not None else max(lo, 0) + 3.0
    return {"kind": "uniform", "shape": shape, "lo": lo, "hi": hi}


def usual(call, i, spec):
    """What the operator's Kth tensor means where torch's samples do not say it."""
    kinds = next((kinds for pattern, kinds in USUAL if re.search(pattern, call)), {})
    kind = kinds.get(i)
    if isinstance(kind, str):
        return {"kind": kind, "shape": spec["shape"], "dim": min(1, len(spec["shape"]) - 1)}
    if kind is None or not pieces.is_float(spec):
        return spec
    return {"kind": "uniform", "shape": spec["shape"], "lo": kind[0], "hi": kind[1]}


def piece_of(name, info, sample, signs):
    """A piece with the shapes of one of torch's samples."""
    head = public(name)
    if head is None:
        raise No("not public")
    lit = Literals()
    first = lit.text(sample.input)
    # The order of a polynomial is a number.
    rest = [lit.text(v) for v in ((DEGREE,) if "polynomial" in name else sample.args)]
    rest += [f"{k}={lit.text(v)}" for k, v in sample.kwargs.items()]
    if re.search(SWAPPED, name):
        first, rest[0] = rest[0], first
    args = rest if head.startswith("{0}") else [first, *rest]
    call = f"{head}{', '.join(args)})"
    if "offsets=" in call:
        raise No("wants arguments that fit each other")
    domain = tuple(getattr(info, "domain", None) or (None, None))
    specs = [usual(call, i, spec_of(t, domain if i == 0 else (None, None), signs[i]))
             for i, t in enumerate(lit.tensors)]
    floats = [i for i, s in enumerate(specs) if pieces.is_float(s)]
    label = head[:-1].replace("{0}", "torch.Tensor")
    chain = floats[0] if floats and not re.search(JUMPS, name) else None
    return {"name": label, "init": None, "call": call, "chain": chain, "inputs": specs}


def tensors_of(sample):
    lit = Literals()
    lit.text([sample.input, *sample.args, *sample.kwargs.values()])
    return lit.tensors


def richness(sample):
    """Samples that say most about an operator come first."""
    tensors = tensors_of(sample)
    dims = [t.dim() for t in tensors]
    if not dims or not all(t.numel() for t in tensors) or not max(dims):
        raise No("inputs are empty")
    flat = all(t.is_contiguous() for t in tensors)
    return (flat, min(max(dims), 3), sum(d > 0 for d in dims), -len(sample.kwargs))


def samples_of(info):
    """Some of torch's samples, and the signs of each of their tensors."""
    samples, signs = [], collections.defaultdict(Signs)
    dtype = torch.float32 if torch.float32 in info.dtypes else torch.int64
    for sample in itertools.islice(info.sample_inputs("cpu", dtype), SAMPLES):
        samples.append(sample)
        with contextlib.suppress(No):
            for i, t in enumerate(tensors_of(sample)):
                signs[i].add(t)
    return samples, signs


def candidates(name):
    info = INFOS[name]
    torch.manual_seed(0)
    found, why = [], "torch gives no sample of it"
    try:
        samples, signs = samples_of(info)
        for i, sample in enumerate(samples):
            try:
                piece = piece_of(name, info, sample, signs)
                found.append((richness(sample), -i, piece))
            except No as exc:
                why = str(exc)
    except Exception as exc:
        why = f"torch's samples raise {type(exc).__name__}"
    if not found:
        raise No(why)
    found.sort(key=lambda f: f[:2], reverse=True)
    return [piece for _, _, piece in found[:CANDIDATES]]


def module_piece(row):
    name, args, specs = row
    inputs = []
    for shape, kind in specs:
        spec = {"kind": "randn", "shape": [2 if n == "B" else n for n in shape]}
        if kind.startswith("int:"):
            spec = {**spec, "kind": "randint", "lo": 0, "hi": int(kind[4:]),
                    "index": True}
        elif kind == "rand":
            spec = {**spec, "kind": "uniform", "lo": 0, "hi": 1}
        elif kind:
            spec = {**spec, "kind": kind, "dim": 1}
        inputs.append(spec)
    call = "{m}(" + ", ".join(f"{{{i}}}" for i in range(len(inputs))) + ")"
    floats = [i for i, s in enumerate(inputs) if pieces.is_float(s)]
    return {"name": f"torch.nn.{name}", "init": f"nn.{name}({args})", "call": call,
            "chain": floats[0] if floats else None, "inputs": inputs}


def takes(piece, i, index):
    """Whether the operator takes an index for its Kth input: asked on the CPU, where one that
    is too large is an exception."""
    model, make = pieces.load(pieces.render([piece]))
    args = make()
    try:
        model(*args[:i], torch.full_like(args[i], index), *args[i + 1:])
    except Exception:
        return False
    return True


def bounded(piece):
    """The piece with indices that reach all of what they point into, not only what torch's
    sample happened to name, and that follow its size."""
    inputs = list(piece["inputs"])
    for i, spec in enumerate(inputs):
        if spec["kind"] != "randint" or piece["init"]:
            continue
        numel = math.prod(inputs[0]["shape"])
        sizes = {n for k, s in enumerate(inputs) if k != i for n in s["shape"]}
        for n in sorted({*sizes, numel}):
            if takes(piece, i, n - 1) and not takes(piece, i, n):
                inputs[i] = {**spec, "lo": 0, "hi": n, "index": True}
                if n not in sizes:
                    inputs[i]["numel"] = True
                break
    return {**piece, "inputs": inputs}


def apart(piece):
    """Variants of a piece that writes to what indices name, with indices that differ.  Where
    they name all places, nothing would be left of what is written to: that is made larger,
    along the axis that they may be for, and sizes that only look the same become others."""
    for dim in range(PERM_DIMS):
        inputs = [{**s, "kind": "perm", "dim": dim} if s["kind"] == "randint" and
                  dim < len(s["shape"]) and s["shape"][dim] <= s["hi"] else s
                  for s in piece["inputs"]]
        yield {**piece, "inputs": inputs}
        for axis, was in enumerate(inputs[0]["shape"]):
            yield {**piece, "inputs": [stretched(s, i, axis, was, len(inputs[0]["shape"]))
                                       for i, s in enumerate(inputs)]}


def stretched(spec, i, axis, was, dims):
    if spec["kind"] == "perm":
        return {**spec, "hi": 2 * was + 1}
    if len(spec["shape"]) != dims:
        return spec
    shape = [n + 2 if k != axis and n == was else n for k, n in enumerate(spec["shape"])]
    if i == 0:
        shape[axis] = 2 * was + 1
    return {**spec, "shape": shape}


def ready(piece):
    """The piece as it may become a task, or an exception that says why it may not.  While it
    is small this is tried on the CPU, where a wrong index is an exception."""
    piece, device = bounded(piece), torch.device("cpu")
    why = None
    for other in [piece] if piece["init"] or not live.writes(piece) else apart(piece):
        try:
            live.check_piece(other, device, False)
            live.check_small(other)
            return other
        except live.No as exc:
            why = why or exc
    raise why


def view_only(piece):
    """Whether the result is a view of an input."""
    model, make = pieces.load(pieces.render([piece]))
    args = make()
    value, _ = pieces.first_tensor(model(*args))
    return value is not None and any(
        value.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in args)


def nbytes(piece):
    return sum(map(pieces.nbytes, piece["inputs"]))


def resized(piece, was, now):
    """Every size `was` becomes `now`; of a module's inputs only the first, the batch."""
    def size(n):
        return now if n == was else n
    shapes = [[size(n) if not piece["init"] or i == 0 else n
               for i, n in enumerate(spec["shape"])] for spec in piece["inputs"]]
    bound = (lambda n: n) if piece["init"] else size
    return {**piece, "inputs": [pieces.resized(spec, shape, shapes[0], bound)
                                for spec, shape in zip(piece["inputs"], shapes, strict=True)]}


def classes(piece):
    if piece["init"]:
        return {piece["inputs"][0]["shape"][0]}
    return {n for s in piece["inputs"] for n in s["shape"] if n > 1}


def larger(piece, was):
    """What the size `was` becomes, in the order in which it is tried."""
    for now in max(2 * was, 8) & ~7 if was > 4 else 8, was + was // 2 & ~7:
        if now > was:
            yield now + 8 if now in classes(piece) else now


def fits(piece, most):
    """Whether the piece works with its sizes and none is too large, by shapes alone; where
    those hang on values, that is found out later."""
    if nbytes(piece) > most:
        return False
    try:
        value, _ = pieces.first_tensor(live.fake_result([piece]))
    except No as exc:
        return isinstance(exc.__cause__, live.UNKNOWN)
    return value is not None and 0 < value.numel() * value.element_size() <= most


def ladder(piece, most):
    """The piece at sizes up to the largest, each about twice as large as the one before."""
    rungs, frozen = [piece], set()
    for _ in range(STEPS):
        free = sorted(classes(piece) - frozen)
        if not free:
            break
        bigger = (resized(piece, free[0], now) for now in larger(piece, free[0]))
        bigger = next((b for b in bigger if fits(b, most)), None)
        if bigger is None:
            frozen.add(free[0])
            continue
        piece = bigger
        if nbytes(piece) > APART * nbytes(rungs[-1]):
            rungs.append(piece)
    if piece is not rungs[-1]:
        rungs.append(piece)
    return [[nbytes(r), r["inputs"]] for r in rungs]


class Crawl(Maker):
    def ready(self):
        prime()

    def do_list(self, req):
        prime()
        names, skipped = [], []
        for row in modules.rows():
            if row[0] not in names:
                names.append(row[0])
        names = [f"nn.{n}" for n in names]
        for name in sorted(INFOS):
            out = next((why for pattern, why in OUT if re.search(pattern, name)), None)
            if out:
                skipped.append([name, out])
            else:
                names.append(name)
        return self.describe({"names": names, "skipped": skipped})

    def prepare(self, name, most):
        if name.startswith("nn.") and not name.startswith("nn.functional"):
            tries = [module_piece(r) for r in modules.rows() if r[0] == name[3:]]
        elif name in INFOS:
            tries = candidates(name)
        else:
            raise Fail(END_BAD_REQUEST, PHASE_INPUTS, f"unknown operator {name!r}")
        drafts, first = [], None
        for piece in tries:
            try:
                piece = ready(piece)
                if view_only(piece):
                    raise No("moves and computes nothing")
                drafts.append({"piece": piece, "ladder": ladder(piece, most)})
            except Exception as exc:
                first = first or why(exc)
            if len(drafts) == DRAFTS:
                break
        return {"drafts": drafts, "why": first}

    def grow(self, draft, ms):
        whole = [{**draft["piece"], "inputs": inputs} for _, inputs in draft["ladder"]]
        rungs = [grow.Rung(n, pieces.render([piece]))
                 for (n, _), piece in zip(draft["ladder"], whole, strict=True)]
        yield ALONE
        at, took = grow.Grower(self.device, ms).grow(rungs)
        # On the CPU others may work meanwhile; a GPU that is shared is a slow one.
        if self.device.type == "cpu":
            yield SHARED
        torch.manual_seed(0)    # whatever growing has drawn
        live.check_piece(whole[grow.checked(rungs, at)], self.device)
        return {"piece": whole[at], "code": rungs[at].code, "ms": took}
