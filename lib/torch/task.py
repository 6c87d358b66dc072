# SPDX-License-Identifier: Apache-2.0
"""The role `task`: an oracle that also says what ca-filter asks of a task.

Beyond the oracle's requests:
  {"op":"graph"}              the graph under fake tensors: {"hash", "nodes", "ops"}
  {"op":"eager","seed":"N"}   a call that is recorded: {"ops", "modified", "writes"}
  {"op":"rest"}               gives memory back that others may need
  {"op":"clock","budget":S}   more of them, timed: {"us":[...], "peak"}
  {"op":"compile"}            torch.compile, up to where what it made would run
  {"op":"answers","want":N,"names":[...]}  of these precisions of `expect` those that are clearly
                              no answer for the inputs of seed N: {"out":[...]}
  {"op":"compiled","budget":S}  after an expect of precision "compiled": {"us":[...]}
and more precisions of `expect`, which answer with something else than the result for the
inputs at hand, in its shape: "compiled", "swapped" (two inputs exchanged), "scaled" (inputs
times 2), and trivial answers: "zeros", "mean", "slice:K" (mean along axis K), "copy:K"
(the Kth input), "multiple:K" (that times the best constant)."""
import hashlib
import resource
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from catorch import oracle
from catorch.clock import Clock
from catorch.proto import (
    END_BAD_REQUEST,
    END_RAISED,
    END_UNSUPPORTED,
    PHASE_FORWARD,
    PHASE_INPUTS,
    PHASE_RESULT,
)
from catorch.shim import NAME, Fail, failing, tail_of
from catorch.writes import most_writes

WARM = 2
CALLS = 25
MIN_CALLS = 5
MAX_NODES = 5000
GLANCE = 1 << 18                # elements of a result
SEEN = 8                        # inputs whose results are remembered so
CLEARLY = 3                     # times the tolerance
TOLERANCE = 1e-2
TRACE_SECONDS = 20
# Operations that make or move nothing but storage; views are known by their schemas.
STORAGE = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
    "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like",
    "new_full", "scalar_tensor", "arange", "fill", "fill_", "zero_", "copy", "copy_", "clone",
    "_to_copy", "_unsafe_view", "_reshape_copy", "lift_fresh", "lift_fresh_copy", "lift",
    "detach", "_local_scalar_dense", "set_", "resize_", "is_nonzero", "_assert_async",
    "_assert_scalar", "sym_size", "sym_stride", "sym_numel", "_has_compatible_shallow_copy_type",
}


def op_name(func):
    """Of what computes or moves data; None for the rest."""
    packet = getattr(func, "overloadpacket", None)
    if packet is None:
        return None
    namespace, _, name = packet._qualified_op_name.partition("::")
    if namespace == "prim" or name in STORAGE or getattr(func, "is_view", False):
        return None
    return name if namespace == "aten" else f"{namespace}.{name}"


class TooMuch(Exception):
    pass


class Compiled(BaseException):
    """No task's code catches it by chance."""


class Recorder(TorchDispatchMode):
    """Names of the operations that are dispatched, in order; with `writes`, also how
    many values one of them writes to one place."""

    def __init__(self, limit=None, writes=False):
        super().__init__()
        self.names = []
        self.writes = writes
        self.most = 0
        self.count = 0
        self.limit = limit
        self.end = time.monotonic() + TRACE_SECONDS

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        if self.limit and (self.count > self.limit or time.monotonic() > self.end):
            raise TooMuch
        name = op_name(func)
        if name:
            self.names.append(name)
        if self.writes:
            self.most = max(self.most, most_writes(func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def text_of(value, number):
    """A canonical text of a node's argument."""
    if isinstance(value, torch.fx.Node):
        return f"%{number[value]}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(text_of(v, number) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}={text_of(value[k], number)}" for k in sorted(value)) + "}"
    return repr(value)


def shape_text(value):
    if isinstance(value, torch.Tensor):
        return f"{NAME.get(value.dtype, value.dtype)}{list(value.shape)}{list(value.stride())}"
    return type(value).__name__


def graph_hash(module):
    """Of operations, arguments and shapes; names and values of parameters do not count."""
    lines, number = [], {}
    for i, node in enumerate(module.graph.nodes):
        number[node] = i
        what = str(node.target) if node.op == "call_function" else node.op
        shape = ""
        if node.op == "placeholder":
            shape = shape_text(node.meta.get("val"))
        elif node.op == "get_attr":
            value = module
            for part in node.target.split("."):
                value = getattr(value, part)
            shape = shape_text(value)
        lines.append(f"{what} {shape} {text_of(node.args, number)} {text_of(node.kwargs, number)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def trace(model, args):
    """The graph of a call under fake tensors: its hash, nodes and operations."""
    from torch.fx.experimental.proxy_tensor import make_fx
    leaves, spec = tree_flatten(args)
    where = [i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor)]

    def call(*tensors):
        now = list(leaves)
        for i, t in zip(where, tensors, strict=True):
            now[i] = t
        with Recorder(MAX_NODES):
            return tree_flatten(model(*tree_unflatten(now, spec)))[0]

    module = make_fx(call, tracing_mode="fake", _allow_non_fake_inputs=True)(
        *[leaves[i] for i in where])
    module.graph.eliminate_dead_code()
    constants = [repr(v) for v in leaves if not isinstance(v, torch.Tensor)]
    nodes = [n for n in module.graph.nodes if n.op == "call_function"]
    ops = [name for name in (op_name(n.target) for n in nodes) if name]
    key = hashlib.sha256((graph_hash(module) + "".join(constants)).encode()).hexdigest()[:32]
    return {"hash": key, "nodes": len(nodes), "ops": ops}


def like(value, fn):
    """fn of each tensor; numbers become zero-dimensional ones and back."""
    def one(leaf):
        if isinstance(leaf, torch.Tensor):
            return fn(leaf)
        if isinstance(leaf, (bool, int, float)):
            return type(leaf)(fn(torch.tensor(leaf)).item())
        return leaf
    return tree_map(one, value)


def as_type(wide, t):
    if wide.is_floating_point() and not (t.is_floating_point() or t.is_complex()):
        wide = wide.round()
    return wide.to(t.dtype).expand(t.shape).contiguous()


PRECISE = {torch.float32, torch.float64, torch.complex64, torch.complex128}


def wide_type(t):
    """What is summed up in: t itself in it would take twice its memory."""
    return torch.complex128 if t.is_complex() else torch.float64


def glance(result):
    """The first elements of its tensors."""
    return [t.detach().reshape(-1)[:GLANCE].clone() if isinstance(t, torch.Tensor) else None
            for t in tree_flatten(result)[0]]


def clearly_apart(got, want):
    """Whether elements that both show tell one from the other."""
    if len(got) != len(want):
        return False            # is not for a glance to say
    for a, b in zip(got, want, strict=True):
        if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
            continue
        if not (a.is_floating_point() or a.is_complex()):
            far = a != b
        else:
            a, b = (t.to(wide_type(t)) for t in (a, b))
            far = (a - b).abs() > CLEARLY * TOLERANCE * (1 + b.abs())
        if bool(far.any()):
            return True
    return False


class Task(oracle.Oracle):
    compiled = None
    drawn = None                # the seed of the inputs at hand, where they are plain

    def begin(self, req):
        super().begin(req)
        self.seen = {}          # by seed, before the state is another one
        if self.job.shop:
            self.job.shop.use()
        self.rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def do_inputs(self, req):
        plain = req.get("family", "plain") == "plain" and float(req.get("factor", 1.0)) == 1.0
        self.drawn = str(req["seed"]) if plain else None
        return super().do_inputs(req)

    def fresh(self, seed):
        """Arguments of this process's own, before anything is shared."""
        enc = self.make_inputs(seed, "plain", 1.0)
        self.take(enc)
        return [make() for make in self.args]

    def do_graph(self, req):
        args = self.fresh(1)
        self.phase = PHASE_FORWARD
        try:
            found = trace(self.model, args)
        except TooMuch:
            raise Fail(END_UNSUPPORTED, PHASE_FORWARD,
                       f"more than {MAX_NODES} operations, or {TRACE_SECONDS} s") from None
        except BaseException as exc:
            raise Fail(END_UNSUPPORTED, PHASE_FORWARD, tail_of(exc)) from None
        return self.describe(found)

    # -- eager

    def clock(self, call, budget):
        """Microseconds of some calls: of few once they have taken `budget` seconds, and of
        the first one only where it took that alone."""
        clock, used, us = Clock(self.device), 0.0, []
        for i in range(WARM + CALLS):
            took, result = clock.time(call)
            del result
            us.append(took * 1e6)
            used += took
            if used > budget and (i >= WARM + MIN_CALLS - 1 or took > budget or
                                  (i and took > budget / 3)):
                break
        return us[WARM:] or us[1:] or us

    def peak(self, base):
        """Bytes that calls took at most, beside what was there for the inputs' sake."""
        if self.device.type == "cuda":
            given = sum(t.nbytes for t in self.tensors([make() for make in self.args]))
            return torch.cuda.max_memory_allocated() - base + given
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self.rss) << 10

    def do_eager(self, req):
        self.fresh(int(req["seed"]))
        self.phase = PHASE_FORWARD

        with Recorder(writes=True) as seen:
            result = self.call()
        failing(END_UNSUPPORTED, PHASE_RESULT, self.check, result)
        del result
        self.modified = self.after()
        return self.describe({"ops": seen.names, "writes": seen.most,
                              "modified": self.modified & oracle.MODIFIED_INPUTS})

    modified = 0

    def do_rest(self, req):
        """Before it waits: what it is not using may be what others wait for."""
        torch.cuda.empty_cache()
        return self.describe({})

    def do_clock(self, req):
        self.phase = PHASE_FORWARD
        base = 0
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            base = torch.cuda.memory_allocated()
        us = self.clock(self.call, float(req["budget"]))
        peak = self.peak(base)
        self.restore(self.modified)
        return self.describe({"us": us, "peak": peak})

    def call(self):
        return failing(END_RAISED, PHASE_FORWARD, self.model, *[make() for make in self.args])

    def check(self, result):
        flat = oracle.Flat()
        flat.add(result)
        flat.digest()
        for leaf in flat.leaves:
            if isinstance(leaf, torch.Tensor):
                oracle.check_tensor(leaf)

    # -- other answers

    def native(self, loose):
        if loose or self.answer_by is None:
            result, modified = super().native(loose)
            if not loose and self.drawn and len(self.seen) < SEEN:
                self.seen.setdefault(self.drawn, glance(result))
            return result, modified
        result, modified = self.answer_by()
        return result, modified

    answer_by = None

    def do_expect(self, req):
        name, _, k = str(req.get("precision", "native")).partition(":")
        if name in ("native", "loose", "fp64"):
            return super().do_expect(req)
        method = getattr(self, "as_" + name, None)
        if method is None:
            raise Fail(END_BAD_REQUEST, PHASE_FORWARD, f"unknown precision {name!r}")
        self.answer_by = (lambda: method(int(k))) if k else method
        try:
            return super().do_expect({**req, "precision": "native"})
        finally:
            self.answer_by = None

    def do_answers(self, req):
        self.phase = PHASE_FORWARD
        want = self.seen.get(str(req["want"]))
        names = req["names"] if want else ()
        return self.describe({"out": [n for n in names if self.is_out(n, want, req)]})

    def is_out(self, text, want, req):
        name, _, k = text.partition(":")
        method, modified = getattr(self, "as_" + name), 0
        self.seed(int(req["forward_seed"]))
        try:
            result, modified = method(int(k)) if k else method()
            return clearly_apart(glance(result), want)
        except Fail as exc:     # whatever else went wrong, the judge asks again
            return exc.end == END_UNSUPPORTED
        finally:
            self.restore(modified)

    def own(self):
        """The result for these inputs, which several answers are made from."""
        if self.known is None:
            result, modified = oracle.Oracle.native(self, False)
            if modified:
                return result, modified
            self.known = result
        return self.known, 0

    known = None

    def take(self, enc, region=None):
        self.known = None
        super().take(enc, region)

    def do_state(self, req):
        self.known = None
        return super().do_state(req)

    def backend(self, graph, inputs):
        """torch.compile's own, but that it does not run while there is only compiled."""
        from torch._inductor.compile_fx import compile_fx
        run = compile_fx(graph, inputs)

        def call(*args):
            if self.only_compiles:
                raise Compiled
            return run(*args)
        return call

    only_compiles = False

    def do_compile(self, req):
        self.phase = PHASE_FORWARD
        self.compiled = torch.compile(self.model, backend=self.backend)
        self.only_compiles = True
        args = [make() for make in self.args]
        try:
            failing(END_RAISED, PHASE_FORWARD, self.until_compiled, args)
        finally:
            self.only_compiles = False
        return self.describe({})

    def until_compiled(self, args):
        try:
            self.compiled(*args)
        except Compiled:
            pass

    def do_compiled(self, req):
        if self.compiled is None:
            raise Fail(END_BAD_REQUEST, PHASE_FORWARD, "nothing is compiled")
        us = self.clock(lambda: self.compiled(*[make() for make in self.args]),
                        float(req["budget"]))
        return self.describe({"us": us})

    def as_compiled(self):
        if self.compiled is None:
            raise Fail(END_BAD_REQUEST, PHASE_FORWARD, "nothing is compiled")
        args = [make() for make in self.args]
        result = failing(END_RAISED, PHASE_FORWARD, self.compiled, *args)
        return result, self.after()

    def tensors(self, args):
        return [v for v in tree_flatten(args)[0] if isinstance(v, torch.Tensor)]

    def called_with(self, args):
        result = failing(END_RAISED, PHASE_FORWARD, self.model, *args)
        return result, self.after()

    def as_swapped(self):
        leaves, spec = tree_flatten([make() for make in self.args])
        first = {}
        for i, v in enumerate(leaves):
            if not isinstance(v, torch.Tensor):
                continue
            k = first.setdefault((v.shape, v.dtype), i)
            if k != i:
                leaves[i], leaves[k] = leaves[k], leaves[i]
                return self.called_with(tree_unflatten(leaves, spec))
        raise Fail(END_UNSUPPORTED, PHASE_INPUTS, "no two inputs are of one shape")

    def as_scaled(self):
        args = [make() for make in self.args]
        if not any(t.is_floating_point() for t in self.tensors(args)):
            raise Fail(END_UNSUPPORTED, PHASE_INPUTS, "no input is a float tensor")
        return self.called_with(tree_map(
            lambda v: v * 2 if isinstance(v, torch.Tensor) and v.is_floating_point() else v, args))

    def as_zeros(self):
        result, modified = self.own()
        return like(result, torch.zeros_like), modified

    def as_mean(self):
        result, modified = self.own()
        return like(result, lambda t: as_type(t.mean(dtype=wide_type(t)), t)), modified

    def as_slice(self, k):
        result, modified = self.own()
        if not any(t.dim() > k and t.dim() > 1 for t in self.tensors(result)):
            raise Fail(END_UNSUPPORTED, PHASE_RESULT, "no such axis")

        def one(t):
            dim = (k,) if t.dim() > k else None
            return as_type(t.mean(dim, keepdim=True, dtype=wide_type(t)), t)
        return like(result, one), modified

    def input_like(self, k, change):
        result, modified = self.own()
        given = self.tensors([make() for make in self.args])
        if k >= len(given) or not any(t.numel() == given[k].numel() for t in self.tensors(result)):
            raise Fail(END_UNSUPPORTED, PHASE_RESULT, "no such input, or of another size")

        def one(t):
            x = given[k]
            if x.numel() != t.numel() or (x.is_complex() and not t.is_complex()):
                return torch.zeros_like(t)
            return as_type(change(x.reshape(t.shape), t), t)
        return like(result, one), modified

    def as_copy(self, k):
        return self.input_like(k, lambda x, want: x)

    def as_multiple(self, k):
        def fitted(x, want):
            wide = wide_type(want)
            x, want = (v.nan_to_num(0, 0, 0) if v.dtype in PRECISE else
                       v.to(wide).nan_to_num(0, 0, 0) for v in (x, want))
            norm = (x * x).sum(dtype=wide).real.clamp_min(1e-30)
            return x * ((x * want).sum(dtype=wide) / norm)
        return self.input_like(k, fitted)
