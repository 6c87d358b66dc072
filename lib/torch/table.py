# SPDX-License-Identifier: Apache-2.0
"""Where the time of a baseline goes, by torch's own profiler, and the bytes that its
operations take in and give out.  For trusted code and for people: never a clock."""
import functools
import json
import re

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from catorch.shim import END_RAISED, PHASE_FORWARD, failing

ITERATIONS = 1000       # of one table
MOST = 200              # rows
NAME = 240              # characters of a name
BETWEEN = "[between]"   # time outside of the operations that compute
ALLOCATES = ("aten::empty", "aten::new_empty")
OVERWRITES = ("aten::copy_", "aten::fill_", "aten::zero_")
CUDA_CALL = re.compile(r"cu(da)?[A-Z]")
SIZES = {
    "float": 4, "double": 8, "long": 8, "long int": 8, "int": 4, "short": 2, "short int": 2,
    "signed char": 1, "unsigned char": 1, "bool": 1, "c10::Half": 2, "c10::BFloat16": 2,
    "c10::complex<float>": 8, "c10::complex<double>": 16, "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1, "unsigned short": 2, "unsigned int": 4, "unsigned long": 8,
}


def tensors_of(values):
    return [v for v in _pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]


def place(t):
    return t.untyped_storage().data_ptr()


def bytes_of(tensors):
    """Each tensor once; of an expanded one what is there."""
    seen = {(t.data_ptr(), tuple(t.shape), t.stride(), t.dtype): t for t in tensors}
    return sum(min(t.numel() * t.element_size(), t.untyped_storage().nbytes())
               for t in seen.values())


def moved(func, args, kwargs, result):
    """Bytes in and out of one operation; 0 of one that only makes a view or room."""
    schema = func._schema
    if schema.name.startswith(ALLOCATES):
        return 0
    out = {a.name for a in schema.arguments if a.is_out}
    given = tensors_of((args, {k: v for k, v in kwargs.items() if k not in out}))
    made = tensors_of(result)
    if not schema.is_mutable and made:
        shared = {place(t) for t in given}
        if all(place(t) in shared for t in made):
            return 0
    if schema.name in OVERWRITES:
        given = given[1:]
    return bytes_of(given) + bytes_of(made)


class Log(TorchDispatchMode):
    """Bytes of each operation below autograd and below what is composed of others."""

    def __init__(self):
        super().__init__()
        self.bytes = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func._schema.name
        self.bytes[name] = self.bytes.get(name, 0) + moved(func, args, kwargs, result)
        return result


class Named:
    """A function of compiled code that the profiler sees under a name, with its bytes:
    each buffer once."""

    def __init__(self, log, name, function):
        self.log = log
        self.name = name
        self.function = function

    def __call__(self, *args, **kwargs):
        with torch._C._profiler._RecordFunctionFast(self.name):
            result = self.function(*args, **kwargs)
        if self.log is not None:
            n = bytes_of(tensors_of((args, kwargs, result)))
            self.log[self.name] = self.log.get(self.name, 0) + n
        return result

    def stop(self):
        self.log = None


class Externals:
    """What compiled code calls instead of code of its own: matrix products, say."""

    def __init__(self, log, space):
        self.log = log
        self.space = space
        self.made = {}

    def __getattr__(self, name):
        if name not in self.made:
            self.made[name] = Named(self.log, f"extern_kernels.{name}",
                                    getattr(self.space, name))
        return self.made[name]

    def stop(self):
        for named in self.made.values():
            named.stop()


def name_compiled(log):
    """Names the functions of all compiled graphs.  Triton's kernels have names."""
    from torch._inductor.codecache import PyCodeCache
    named = []
    for module in PyCodeCache.modules:
        for key, value in list(vars(module).items()):
            if key == "extern_kernels":
                value = Externals(log, value)
            elif key.startswith("cpp_fused") and callable(value):
                value = Named(log, key, value)
            else:
                continue
            named.append((module, key, vars(module)[key], value))
            setattr(module, key, value)
    return named


class Op:
    """One operation as the profiler saw it on the host."""

    def __init__(self, event, parent):
        self.name = event.name()
        self.start, self.end = event.start_ns(), event.end_ns()
        self.parent = parent
        self.event = event
        self.own = self.end - self.start
        if parent:
            parent.own -= self.own

    def line(self):
        op, found = self, []
        while op:
            found.append(op)
            op = op.parent
        return found[::-1]


def nest(events):
    """Operations on the host, each with the one that it ran in."""
    ops, open_ones = [], {}
    for e in sorted(events, key=lambda e: (e.start_ns(), -e.end_ns())):
        stack = open_ones.setdefault(e.start_thread_id(), [])
        while stack and stack[-1].end <= e.start_ns():
            stack.pop()
        op = Op(e, stack[-1] if stack else None)
        stack.append(op)
        ops.append(op)
    return ops


def triton_bytes(op):
    """Of the buffers among the arguments of a Triton kernel; None when one is of a
    type that is not known."""
    total = 0
    for shape, dtype in zip(op.event.shapes(), op.event.dtypes(), strict=False):
        if dtype in ("", "Scalar", "ScalarList", "TensorList") or not shape:
            continue
        if dtype not in SIZES:
            return None
        n = SIZES[dtype]
        for size in shape:
            n *= size
        total += n
    return total


@functools.cache
def computes(name):
    """Whether an operation does more than make a view or room."""
    if name.startswith(ALLOCATES):
        return False
    return not any(r.alias_info and not r.alias_info.is_write
                   for schema in torch._C._jit_get_schemas_for_operator(name)
                   for r in schema.returns)


class Rows:
    """Sums over operations and kernels."""

    def __init__(self, log, compiled, iterations):
        self.log = log
        self.compiled = compiled
        self.iterations = iterations
        self.rows = {}
        self.triton = {}

    def owner(self, op):
        """The outermost that moves bytes; None for what stands between."""
        line = op.line()
        for o in line:
            if self.log.get(o.name):
                return o
        for o in line if self.compiled else ():
            if o.name.startswith("triton_") or ("::" in o.name and computes(o.name)):
                return o
        return None

    def add(self, name, op, ns, calls, more=None):
        row = self.rows.setdefault((name, op), {"name": name[:NAME], "op": op and op[:NAME],
                                                "calls": 0, "us": 0, "bytes": None})
        row["calls"] += calls
        row["us"] += ns / 1e3
        row.update(more or {})

    def add_host(self, ops):
        for op in ops:
            owner = self.owner(op)
            self.add(owner.name if owner else BETWEEN, owner and owner.name, op.own,
                     owner is op)

    def add_device(self, ops, events):
        made = {op.event.correlation_id(): op for op in ops}
        for e in events:
            op = made.get(e.linked_correlation_id())
            owner = op and (self.owner(op) or op)
            self.add(e.name(), owner and owner.name, e.duration_ns(), 1, launch_of(e))
        for op in ops:
            if op.name.startswith("triton_"):
                n, was = triton_bytes(op), self.triton.get(op.name, 0)
                self.triton[op.name] = None if n is None or was is None else was + n

    def of(self, op):
        """Bytes of an operation in one call of forward."""
        if op in self.log:
            return self.log[op] or None
        n = self.triton.get(op)
        return n / self.iterations if n else None

    def sorted(self):
        """The longest first.  Of the kernels of one operation the longest has its
        bytes."""
        rows = sorted(self.rows.values(), key=lambda r: -r["us"])
        given = set()
        for row in rows:
            row["calls"] /= self.iterations
            row["us"] /= self.iterations
            if row["op"] is not None and row["op"] not in given:
                given.add(row["op"])
                row["bytes"] = self.of(row["op"])
        return rows


def launch_of(event):
    """Grid and block, where the profiler tells."""
    try:
        data = json.loads("{" + event.metadata_json().strip().strip("{},") + "}")
    except (AttributeError, ValueError):
        return {}
    return {k: data[k] for k in ("grid", "block") if isinstance(data.get(k), list)}


def is_kernel(e):
    return e.device_type() == torch.autograd.DeviceType.CUDA and not e.is_user_annotation()


def is_operation(e):
    """Calls of CUDA's own interface have numbers of their own, which say other things."""
    return (e.device_type() == torch.autograd.DeviceType.CPU and not e.is_async() and
            not e.linked_correlation_id() and not CUDA_CALL.match(e.name()))


def bytes_by_name(call, compiled):
    """One call that counts bytes; what has to be put back afterwards."""
    if not compiled:
        with Log() as log:
            failing(END_RAISED, PHASE_FORWARD, call)
        return log.bytes, []
    log = {}
    named = name_compiled(log)
    failing(END_RAISED, PHASE_FORWARD, call)
    for _, _, _, value in named:
        value.stop()
    return log, named


def events_of(call, iterations, cuda):
    seen = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
    told = torch.profiler._ExperimentalConfig(expose_kineto_event_metadata=True)
    with profile(activities=seen, record_shapes=True, experimental_config=told) as prof:
        for _ in range(iterations):
            failing(END_RAISED, PHASE_FORWARD, call)
        if cuda:
            torch.cuda.synchronize()
    return prof.profiler.kineto_results.events()


def table(call, iterations, cuda, compiled):
    """Rows of one call of `call`, which does nothing but call the model."""
    log, named = bytes_by_name(call, compiled)
    events_of(call, 1, cuda)            # sets the profiler up
    events = events_of(call, iterations, cuda)
    for module, key, was, _ in named:
        setattr(module, key, was)
    rows = Rows(log, compiled, iterations)
    ops = nest([e for e in events if is_operation(e)])
    if cuda:
        rows.add_device(ops, [e for e in events if is_kernel(e)])
    else:
        rows.add_host(ops)
    return {"rows": rows.sorted()[:MOST]}
