# SPDX-License-Identifier: Apache-2.0
"""The role `crawl`: makes pieces (pieces.py) of torch's operators, grown until a call takes
as long as it should on the device at hand.

  {"op":"list"}                    {"names": [...], "skipped": [[name, why], ...]}
  {"op":"make","name":N,"ms":M,"bytes":B}   {"piece", "code", "ms"}

Functions and their arguments come from torch's own OpInfos, modules from modules.py."""
import re
import sys
import types
import unittest
import warnings

import torch

from catorch import modules, pieces
from catorch.clock import Clock
from catorch.proto import END_BAD_REQUEST, END_UNSUPPORTED, PHASE_FORWARD, PHASE_INPUTS
from catorch.shim import Child, Fail, is_oom, tail_of

SAMPLES = 24
CANDIDATES = 5
STEPS = 40
CALLS, SURE = 3, 15
# A call on so many elements that takes no longer than this only makes a view.
IDLE_ELEMENTS, IDLE_S = 1 << 20, 30e-6
# Names of operators that are left out, and why.
OUT = (
    (r"^_|\._|__", "private"),
    (r"_$", "works in place"),
    (r"rand|bernoulli|normal$|dropout|multinomial|uniform|exponential|cauchy|geometric|"
     r"poisson$|rrelu", "random"),
    (r"empty|^(new_)?(full|zeros|ones)|^(arange|linspace|logspace|eye|tri[lu]_indices)|_like$",
     "does not depend on values"),
    (r"cholesky|(^|\.)eig|svd$|svd_lowrank|pca_lowrank|(^|\.)qr$|lobpcg|ldl|geqrf|ormqr|"
     r"householder",
     "wants special matrices, or gives one of many results"),
    (r"sparse|jiterator|^ops\.|^torch\.ops|signal\.windows|^(item|nonzero|to|cpu|cuda|type|double|"
     r"float|half|int|long|short|byte|char|bool|bfloat16|chalf|cdouble|cfloat|is_.*|equal|allclose|"
     r"resize_?.*|set_|tolist|numpy_T|rename|data|result_type|can_cast|broadcast_shapes|"
     r"unique|unique_consecutive|masked_select|argwhere|histogramdd|stft|istft|uniform)$",
     "gives no tensor of a known shape"),
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


class Skip(Exception):
    pass


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
        raise Skip(f"an argument of type {type(value).__name__}")


def spec_of(t, domain):
    """What inputs like t are drawn from."""
    shape = list(t.shape)
    if t.dtype is torch.bool:
        return {"kind": "bool", "shape": shape}
    if t.is_complex() or t.layout is not torch.strided:
        raise Skip("complex or sparse inputs")
    lo, hi = (float(t.min()), float(t.max())) if t.numel() else (0.0, 0.0)
    if not t.is_floating_point():
        if t.dtype is not torch.int64:
            raise Skip(f"an input of type {t.dtype}")
        return {"kind": "randint", "shape": shape, "lo": int(min(lo, 0)), "hi": int(hi) + 1}
    low, high = domain
    if low is not None or high is not None:
        lo = low + 0.01 if low is not None else -3.0
        hi = high - 0.01 if high is not None else max(lo, 0) + 3.0
    elif lo < 0 < hi:
        return {"kind": "randn", "shape": shape}
    elif lo >= 0 and hi <= 1:
        lo, hi = 0, 1
    elif lo >= 0:
        lo, hi = 0.1, 3.0
    else:
        lo, hi = -3.0, -0.1
    return {"kind": "uniform", "shape": shape, "lo": lo, "hi": hi}


def piece_of(name, info, sample):
    """A piece with the shapes of one of torch's samples."""
    head = public(name)
    if head is None:
        raise Skip("not public")
    lit = Literals()
    first = lit.text(sample.input)
    rest = [lit.text(v) for v in sample.args]
    rest += [f"{k}={lit.text(v)}" for k, v in sample.kwargs.items()]
    args = rest if head.startswith("{0}") else [first, *rest]
    domain = tuple(getattr(info, "domain", None) or (None, None))
    specs = [spec_of(t, domain if i == 0 else (None, None)) for i, t in enumerate(lit.tensors)]
    floats = [i for i, s in enumerate(specs) if pieces.is_float(s)]
    if not floats:
        raise Skip("no input is a float tensor")
    label = head[:-1].replace("{0}", "torch.Tensor")
    return {"name": label, "init": None, "call": f"{head}{', '.join(args)})", "chain": floats[0],
            "inputs": specs}


def richness(sample):
    """Samples that say most about an operator come first."""
    lit = Literals()
    lit.text([sample.input, *sample.args, *sample.kwargs.values()])
    dims = [t.dim() for t in lit.tensors]
    if not dims or not all(t.numel() for t in lit.tensors) or not max(dims):
        raise Skip("inputs are empty")
    flat = all(t.is_contiguous() for t in lit.tensors)
    return (flat, min(max(dims), 3), sum(d > 0 for d in dims), -len(sample.kwargs))


def candidates(name):
    info = INFOS[name]
    torch.manual_seed(0)
    found, why = [], "torch gives no sample of it"
    try:
        for i, sample in enumerate(info.sample_inputs("cpu", torch.float32)):
            if i >= SAMPLES:
                break
            try:
                found.append((richness(sample), -i, piece_of(name, info, sample)))
            except Skip as exc:
                why = str(exc)
    except Exception as exc:
        why = f"torch's samples raise {type(exc).__name__}"
    if not found:
        raise Skip(why)
    found.sort(key=lambda f: f[:2], reverse=True)
    return [piece for _, _, piece in found[:CANDIDATES]]


def module_piece(row):
    name, args, specs = row
    inputs = []
    for shape, kind in specs:
        spec = {"kind": "randn", "shape": [2 if n == "B" else n for n in shape]}
        if kind.startswith("int:"):
            spec = {**spec, "kind": "randint", "lo": 0, "hi": int(kind[4:])}
        elif kind == "rand":
            spec = {**spec, "kind": "uniform", "lo": 0, "hi": 1}
        inputs.append(spec)
    call = "{m}(" + ", ".join(f"{{{i}}}" for i in range(len(inputs))) + ")"
    floats = [i for i, s in enumerate(inputs) if pieces.is_float(s)]
    return {"name": f"torch.nn.{name}", "init": f"nn.{name}({args})", "call": call,
            "chain": floats[0] if floats else None, "inputs": inputs}


class Grower:
    """Finds sizes with which a call takes the time that is wanted."""

    def __init__(self, device, ms, most):
        self.device = device
        self.clock = Clock(device)
        self.ms = ms
        self.most = most

    def time(self, piece, calls=CALLS):
        """Milliseconds of the quickest call; raises what the call raises."""
        with self.device:
            model, make = pieces.load(pieces.render([piece]))
            args = make()
        if sum(t.numel() * t.element_size() for t in args) > self.most:
            raise Skip("its inputs would be too large")
        best = float("inf")
        for _ in range(calls):
            took, result = self.clock.time(lambda: model(*args))
            best = min(best, took)
            if best > 0.3:
                break
        value, _ = pieces.first_tensor(result)
        if value is None or not value.numel():
            raise Skip("its result is no tensor")
        if not pieces.finite(value):
            raise Skip("too little of its result is finite")
        if best < IDLE_S and sum(t.numel() for t in args) > IDLE_ELEMENTS:
            raise Skip("moves and computes nothing")
        return best * 1e3

    def resized(self, piece, was, now):
        """Every size `was` becomes `now`; of a module's inputs only the first, the batch."""
        def size(i, n):
            return now if n == was and (not piece["init"] or i == 0) else n
        inputs = []
        for spec in piece["inputs"]:
            new = {**spec, "shape": [size(i, n) for i, n in enumerate(spec["shape"])]}
            if spec["kind"] == "randint" and spec["hi"] == was and not piece["init"]:
                new["hi"] = now
            inputs.append(new)
        return {**piece, "inputs": inputs}

    def classes(self, piece):
        if piece["init"]:
            return {piece["inputs"][0]["shape"][0]}
        return {n for s in piece["inputs"] for n in s["shape"] if n > 1}

    def grow(self, piece):
        """The grown piece and its time."""
        took = self.time(piece)
        frozen = set()
        for _ in range(STEPS):
            if took >= self.ms:
                took = min(took, self.time(piece, SURE))
            if took >= self.ms:
                return piece, took
            free = sorted(self.classes(piece) - frozen)
            if not free:
                break
            was = free[0]
            now = max(2 * was, 8) & ~7 if was > 4 else 8
            if took < self.ms / 64 and was >= 64:
                now *= 4
            if now in self.classes(piece):
                now += 8
            try:
                bigger = self.resized(piece, was, now)
                took = self.time(bigger)
                piece = bigger
            except Exception as exc:
                if is_oom(exc) or (isinstance(exc, Skip) and "nothing" in str(exc)):
                    break
                frozen.add(was)
        took = min(took, self.time(piece, SURE))
        if took < self.ms / 3:
            raise Skip(f"with the largest inputs that fit it takes {took:.2g} ms")
        return piece, took


class Crawl(Child):
    ready = False

    def seal(self, req):
        if not self.ready:
            self.begin(req)
            self.ready = True

    def do_list(self, req):
        prime()
        names, skipped = [], []
        for row in modules.rows():
            if row[0] not in names:
                names.append(row[0])
        names = [f"nn.{n}" for n in names]
        for name in sorted(INFOS):
            why = next((why for pattern, why in OUT if re.search(pattern, name)), None)
            if why:
                skipped.append([name, why])
            else:
                names.append(name)
        return self.describe({"names": names, "skipped": skipped})

    def do_make(self, req):
        self.seal(req)
        self.phase = PHASE_FORWARD
        warnings.simplefilter("ignore")
        prime()
        name = req["name"]
        grower = Grower(self.device, float(req["ms"]), int(req["bytes"]))
        try:
            if name.startswith("nn.") and not name.startswith("nn.functional"):
                tries = [module_piece(r) for r in modules.rows() if r[0] == name[3:]]
            elif name in INFOS:
                tries = candidates(name)
            else:
                raise Fail(END_BAD_REQUEST, PHASE_INPUTS, f"unknown operator {name!r}")
            return self.describe(self.first_good(grower, tries))
        except Skip as exc:
            raise Fail(END_UNSUPPORTED, PHASE_FORWARD, str(exc)) from None

    def first_good(self, grower, tries):
        why = None
        for piece in tries:
            try:
                piece, took = grower.grow(piece)
            except Skip as exc:
                why = why or exc
            except Exception as exc:
                why = why or Skip(f"raises {type(exc).__name__}: "
                                  f"{tail_of(exc).strip().splitlines()[-1][:120]}")
            else:
                return {"piece": piece, "code": pieces.render([piece]), "ms": took}
        raise why or Skip("nothing to try")
