# SPDX-License-Identifier: Apache-2.0
"""What every child of the host shares: the channel, shared regions, the result
pool, the flattening of results and the loop over requests and iterations."""
import array
import contextlib
import ctypes
import gc
import hashlib
import json
import linecache
import mmap
import os
import select
import socket
import struct
import sys
import time
import traceback
import types

import torch

from catorch import parked, proto
from catorch.launch import Launcher
from catorch.proto import (
    END_BAD_REQUEST,
    END_JAIL,
    END_NO_CLASS,
    END_OK,
    END_OOM,
    END_POOL,
    END_RAISED,
    END_SYNTAX,
    END_UNSUPPORTED,
    GO_FIRST,
    GO_SYNC,
    LEAF_BOOL,
    LEAF_FLOAT,
    LEAF_INT,
    LEAF_NONE,
    LEAF_STR,
    LEAF_TENSOR,
    PHASE_FORWARD,
    PHASE_INPUTS,
    PHASE_LOAD,
    PHASE_RESULT,
)

DTYPE = {name: getattr(torch, name) for name in proto.DTYPES if name}
CODE = {DTYPE[name]: i for i, name in enumerate(proto.DTYPES) if name}
NAME = {dtype: name for name, dtype in DTYPE.items()}
MAX_DEPTH = 32
ALIGN = 64
AWAKE_NS = 3_000_000
ZEROS = (0,) * proto.NDIM
# What libraries say on a device that is full; the last two may mean other things.
NO_MEMORY = ("can't allocate memory", "out of memory", "_STATUS_ALLOC_FAILED",
             "_STATUS_NOT_INITIALIZED", "unable to find an engine")


class Fail(Exception):
    """Ends a request with a code of proto.h."""

    def __init__(self, end, phase, text):
        super().__init__(text)
        self.end = end
        self.phase = phase


def is_oom(exc):
    if isinstance(exc, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(exc, RuntimeError) and any(s in str(exc) for s in NO_MEMORY)


def legible(text):
    """What a candidate says may hold half of a surrogate pair, which no record can."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


def tail_of(exc):
    """The end of a traceback, from the first frame of the task's own code on."""
    frames = traceback.extract_tb(exc.__traceback__)
    own = [i for i, f in enumerate(frames) if f.filename in ("model.py", "model_new.py")]
    frames = frames[own[0]:] if own else frames[-1:]
    lines = traceback.format_list(frames[-6:]) + traceback.format_exception_only(exc)
    return legible("".join(lines))


def failing(end, phase, fn, *args, **kwargs):
    """Calls fn; whatever foreign code raises, SystemExit too, becomes a Fail."""
    try:
        return fn(*args, **kwargs)
    except Fail:
        raise
    except BaseException as exc:
        text = tail_of(exc)
        raise Fail(END_OOM if is_oom(exc) else end, phase, text) from None


def load_module(name, source):
    """Runs source as module `name`, with lines for tracebacks."""
    path = name + ".py"
    module = types.ModuleType(name)
    module.__file__ = path
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    sys.modules[name] = module
    code = failing(END_SYNTAX, PHASE_LOAD, compile, source, path, "exec")
    failing(END_SYNTAX, PHASE_LOAD, exec, code, module.__dict__)
    return module


def need(module, name):
    value = getattr(module, name, None)
    if value is None:
        raise Fail(END_NO_CLASS, PHASE_LOAD, f"{module.__file__} defines no '{name}'")
    return value


def read_fd(fd):
    size = os.fstat(fd).st_size
    parts = []
    at = 0
    while at < size:
        part = os.pread(fd, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def behind(at, nbytes):
    """Where in a region the next thing goes, with a zone between."""
    return -(-(at + nbytes) // proto.GAP) * proto.GAP + proto.GAP


def set_threads(n):
    """Threads of torch and of OpenMP and BLAS libraries loaded from now on."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(n)
    torch.set_num_threads(n)


class Region:
    """Shared memory as tensors.  Views are cut from a storage that begins where
    the original's storage began."""

    def __init__(self, address, nbytes, device, keep):
        self.address = address
        self.nbytes = nbytes
        self.device = device
        self.keep = keep

    def bytes_at(self, offset, n):
        if offset < 0 or n < 0 or offset + n > self.nbytes:
            raise Fail(END_BAD_REQUEST, PHASE_INPUTS, "offset outside its region")
        if not n:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        if self.device.type == "cpu":
            return torch.frombuffer(self.keep, dtype=torch.uint8, count=n, offset=offset)
        return self.keep.bytes_at(self.address + offset, n)

    def view(self, offset, dtype, shape):
        n = dtype.itemsize
        for size in shape:
            n *= size
        return self.bytes_at(offset, n).view(dtype).view(shape)


def map_host(fd, nbytes):
    mem = mmap.mmap(fd, nbytes, mmap.MAP_SHARED | mmap.MAP_POPULATE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mem))
    return Region(address, nbytes, torch.device("cpu"), mem)


class Ops:
    """Counts of ATen operations, and the canary that shows they still count."""

    def __init__(self, lib):
        lib.ca_ops_install()
        self.compute = ctypes.c_uint64.in_dll(lib, "ca_op_compute")
        self.other = ctypes.c_uint64.in_dll(lib, "ca_op_other")
        self.first = ctypes.c_char_p.in_dll(lib, "ca_op_first")
        self.last = (self.compute.value, self.other.value)
        self.bird = None

    def canary(self):
        """Counts one operation of our own; how many the hook saw."""
        if self.bird is None:
            self.bird = torch.zeros(1)
        before = self.compute.value
        self.bird.neg_()
        return self.compute.value - before

    def take(self):
        now = (self.compute.value, self.other.value)
        got = (now[0] - self.last[0], now[1] - self.last[1])
        self.last = now
        self.first.value = None
        return got

    def computed(self):
        """What computed first since the last take(), for people."""
        return (self.first.value or b"").decode("ascii", "replace")


def blocks_of(lib):
    """A function from an address to the block of the pool that holds it, which the judge
    looks at both sides of; (0, 0) where none does."""
    find = lib.ca_pool_block
    find.argtypes = (ctypes.c_uint64, ctypes.c_void_p)
    find.restype = None
    at = (ctypes.c_uint64 * 2)()

    def block(address):
        find(address, at)
        return at[0], at[1]

    return block


class HostPool:
    """The result pool behind c10's CPU allocator."""

    def __init__(self, lib, region):
        self.start = region.address
        self.nbytes = region.nbytes
        self.switch = lib.ca_pool_switch
        lib.ca_pool_install(ctypes.c_void_p(region.address), ctypes.c_size_t(region.nbytes))
        self.block = blocks_of(lib)

    def room(self, shape, dtype):
        return None

    def on(self):
        self.switch(1)

    def off(self):
        self.switch(0)


def digest(data):
    """By a function of Python's own: the witness takes OpenSSL for a stranger's library."""
    return hashlib.blake2b(data, digest_size=32).digest()


class Flat:
    """Results of a forward: leaves in canonical order and the container's text."""

    def __init__(self):
        self.leaves = []
        self.text = []

    def add(self, value, path="result", depth=0):
        if depth > MAX_DEPTH or len(self.leaves) > proto.LEAVES:
            raise Fail(END_UNSUPPORTED, PHASE_RESULT, "result is too deep or has too many parts")
        if isinstance(value, torch.Tensor):
            self.leaf("t", value)
        elif value is None or isinstance(value, (bool, int, float, str)):
            self.leaf("n" if value is None else
                      "b" if isinstance(value, bool) else
                      "i" if isinstance(value, int) else
                      "f" if isinstance(value, float) else "s", value)
        elif isinstance(value, (tuple, list)):
            self.text.append("(" if isinstance(value, tuple) else "[")
            for i, v in enumerate(value):
                self.add(v, f"{path}[{i}]", depth + 1)
            self.text.append(")" if isinstance(value, tuple) else "]")
        elif isinstance(value, dict):
            self.add_dict(value, path, depth)
        else:
            raise Fail(END_UNSUPPORTED, PHASE_RESULT,
                       f"{path} is of type '{type(value).__name__}', which cannot be compared")

    def add_dict(self, value, path, depth):
        keys = []
        for key in value:
            if not isinstance(key, (str, int, bool)) and key is not None:
                raise Fail(END_UNSUPPORTED, PHASE_RESULT,
                           f"{path} has a key of type '{type(key).__name__}'")
            keys.append((f"{type(key).__name__}:{len(str(key))}:{key}", key))
        self.text.append("{")
        for name, key in sorted(keys, key=lambda pair: pair[0]):
            self.text.append(name + "=")
            self.add(value[key], f"{path}[{key!r}]", depth + 1)
        self.text.append("}")

    def leaf(self, letter, value):
        self.text.append(letter)
        self.leaves.append(value)

    def digest(self):
        if len(self.leaves) > proto.LEAVES:
            raise Fail(END_UNSUPPORTED, PHASE_RESULT, "result has more than 64 parts")
        return digest("".join(self.text).encode("utf-8", "surrogatepass"))


LONE_TENSOR = digest(b"t")


def check_tensor(t):
    if t.layout is not torch.strided or t.is_quantized:
        raise Fail(END_UNSUPPORTED, PHASE_RESULT, "a result is sparse or quantized")
    if t.dtype not in CODE:
        raise Fail(END_UNSUPPORTED, PHASE_RESULT, f"a result is of type {t.dtype}")
    if t.dim() > proto.NDIM:
        raise Fail(END_UNSUPPORTED, PHASE_RESULT, f"a result has {t.dim()} dimensions")


def scalar_leaf(value):
    if value is None:
        return LEAF_NONE, 0
    if isinstance(value, bool):
        return LEAF_BOOL, int(value)
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise Fail(END_UNSUPPORTED, PHASE_RESULT, "an integer result exceeds 64 bits")
        return LEAF_INT, value & 0xFFFFFFFFFFFFFFFF
    if isinstance(value, float):
        return LEAF_FLOAT, struct.unpack("<Q", struct.pack("<d", value))[0]
    text = str(value).encode("utf-8", "surrogatepass")
    return LEAF_STR, int.from_bytes(digest(text)[:8], "little")


class Message:
    """One struct ca_msg, written in place."""

    def __init__(self):
        self.buf = bytearray(proto.MSG_SIZE)
        self.has_text = False

    def text(self, text):
        raw = text.encode("utf-8", "replace").replace(b"\0", b"?")
        if len(raw) >= proto.TEXT:
            raw = b"..." + raw[len(raw) - proto.TEXT + 4:].decode("utf-8", "ignore").encode()
        end = proto.TEXT_AT + proto.TEXT
        self.buf[proto.TEXT_AT:end] = raw.ljust(proto.TEXT, b"\0")
        self.has_text = bool(raw)

    def head(self, end=END_OK, seq=0, own=0, ops=(0, 0), canary=0, desc=0, modified=0,
             launches=0, nleaf=0, phase=0, structure=b"", text=""):
        proto.HEAD.pack_into(self.buf, 0, proto.MAGIC_MSG, end, seq, own, ops[0], ops[1], canary,
                             desc, modified, launches & 0xFFFFFFFF, nleaf, phase, structure)
        if end == END_OK and (text or self.has_text):
            self.text(text)

    def tensor(self, i, t, offset, block=(0, 0)):
        shape = tuple(t.shape)
        proto.LEAF.pack_into(self.buf, proto.HEAD.size + i * proto.LEAF.size, LEAF_TENSOR,
                             CODE[t.dtype], len(shape), 0, offset, 0, *block, *shape,
                             *ZEROS[len(shape):])

    def scalar(self, i, value):
        kind, bits = scalar_leaf(value)
        proto.LEAF.pack_into(self.buf, proto.HEAD.size + i * proto.LEAF.size, kind, 0, 0, 0, 0,
                             bits, 0, 0, *ZEROS)


class Child:
    """A child's life: requests by name go to methods do_NAME, iterations to run()."""

    foreign = True              # code of others will be loaded

    def __init__(self, channel, env, spawn, job):
        self.channel = channel
        self.env = env
        self.job = job
        self.role = spawn["role"]
        name = spawn.get("device", "cpu")
        self.device = torch.device("cpu") if name == "cpu" else \
            env.cuda().select(name, spawn.get("gpu"), spawn.get("queues"))
        self.refuse = None      # why there is no jail: nothing else is done then
        self.regions = {}
        self.pending = []       # regions that wait for the jail
        self.sealed = False
        self.msg = Message()
        self.pool = None
        self.ops = None
        self.trace = None
        # Called first of all: a kernel that keeps the stream's copies from running before
        # the GPU has turned to this process, when the inputs are there.
        self.nudge = None
        self.fds = []
        self.waiting = select.poll()
        self.waiting.register(channel, select.POLLIN)
        self.phase = PHASE_LOAD
        self.placed = []  # copies of results, alive until the answer

    # -- the channel

    def stay_awake(self):
        """On CUDA the next iteration often comes within a millisecond.  Waking up would
        take part of its time, a different one each time."""
        end = time.perf_counter_ns() + AWAKE_NS
        while time.perf_counter_ns() < end and not self.waiting.poll(0):
            pass

    def receive(self):
        space = socket.CMSG_SPACE(64 * 4)
        data, anc, flags, _ = self.channel.recvmsg(proto.REQ_MAX + 1, space)
        for level, kind, payload in anc:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                got = array.array("i")
                got.frombytes(payload[:len(payload) - len(payload) % 4])
                self.fds.extend(got)
        if flags & socket.MSG_CTRUNC:
            raise Fail(END_BAD_REQUEST, 0, "too many descriptors")
        return data

    def answer(self, **head):
        self.msg.head(**head)
        self.channel.send(self.msg.buf)

    def fail(self, exc, seq=0):
        self.msg.text(str(exc))
        ops = self.ops.take() if self.ops else (0, 0)
        self.answer(end=exc.end, phase=exc.phase, seq=seq, ops=ops)

    def close_fds(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def serve(self):
        while True:
            data = self.receive()
            if not data:
                return
            if data == proto.TAKEN:
                continue
            if len(data) == proto.GO.size and data[:4] == b"cago":
                self.iteration(data)
                self.rest()
                continue
            try:
                head = self.request(data)
            except Fail as exc:
                self.fail(exc)
            else:
                if head is None:
                    return
                if self.ops:
                    head.setdefault("ops", self.ops.take())
                self.answer(**head)
            self.close_fds()

    def request(self, data):
        try:
            req = json.loads(data)
            op = req["op"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Fail(END_BAD_REQUEST, 0, "a request is no JSON object with 'op'") from None
        if op == "quit":
            return None
        if self.refuse:
            raise Fail(END_JAIL, 0, self.refuse)
        method = getattr(self, "do_" + op, None) if isinstance(op, str) else None
        if not method:
            raise Fail(END_BAD_REQUEST, 0, f"unknown request {op!r} for role {self.role}")
        self.phase = PHASE_LOAD
        try:
            head = method(req) or {}
            self.settle()
            return head
        except Fail:
            raise
        except BaseException as exc:
            end = END_OOM if is_oom(exc) else END_BAD_REQUEST
            raise Fail(end, self.phase, f"{op}: {tail_of(exc)}") from None

    def fd(self, index):
        if not isinstance(index, int) or not 0 <= index < len(self.fds):
            raise Fail(END_BAD_REQUEST, 0, "request names a descriptor that did not come with it")
        return self.fds[index]

    # -- requests that all roles have

    def do_jail(self, req):
        return {}

    def do_map(self, req):
        regions = req["regions"]
        if len(regions) > len(self.fds):
            raise Fail(END_BAD_REQUEST, 0, "fewer descriptors than regions")
        for i, r in enumerate(regions):
            name, nbytes = r["name"], r["bytes"]
            if not nbytes:
                continue
            if name != "trace" and (self.device.type == "cpu" or r.get("host")):
                self.regions[name] = map_host(self.fds[i], nbytes)
            else:
                self.pending.append((name, nbytes, os.dup(self.fds[i])))
        if self.sealed:
            self.map_pending()
        return {}

    def do_begin(self, req):
        """Instead of `jail`: also what comes before code is loaded, so that nobody has to
        wait for it later."""
        self.do_map({"regions": [], **req})
        self.close_jail()
        if self.device.type == "cuda":
            self.env.cuda().start()
        return {}

    def do_warm(self, req):
        """`begin`, and what is slow for the first time."""
        if "after" in req:
            first = req["after"]
            self.fd(first)
            parked.wait(self.channel, *self.fds[first:first + 4])
        self.do_begin(req)
        if self.device.type == "cuda":
            self.warm()
            if "after" in req and self.role in ("oracle", "eager"):
                self.env.cuda().exercise()
        return {}

    def warm(self):
        self.env.cuda().nudge()

    def close_jail(self):
        if self.foreign and not self.sealed:
            self.job.jail.seal()
        self.sealed = True
        self.map_pending()

    def map_pending(self):
        """CUDA starts threads, and those must start inside the jail.  The trace begins
        before anything else uses CUDA."""
        for name, nbytes, fd in sorted(self.pending, key=lambda p: p[0] != "trace"):
            if name == "trace":
                self.trace = self.env.cuda().Trace(fd)
            else:
                self.regions[name] = self.env.cuda().map(fd, nbytes, self.device)
            os.close(fd)
        self.pending = []

    def begin(self, req):
        """The start of load: from here on foreign code may run."""
        self.close_jail()
        if req.get("threads"):
            set_threads(int(req["threads"]))
        torch.set_grad_enabled(False)

    def building(self, req):
        """Where a constructor makes what it names no device for.  A model that keeps its own
        state is made on the CPU and moved, as KernelBench does: the draws are those of
        another generator on a GPU, and what torch.Tensor() gives is never there."""
        return contextlib.nullcontext() if req.get("own_state") else self.device

    def describe(self, value):
        """Writes JSON to the region `desc`; the answer's head."""
        raw = json.dumps(value, separators=(",", ":")).encode()
        region = self.regions.get("desc")
        if region is None or len(raw) > region.nbytes:
            raise Fail(END_UNSUPPORTED, self.phase,
                       f"the description takes {len(raw)} bytes, more than there is room for")
        region.keep[:len(raw)] = raw
        return {"desc": len(raw)}

    def do_trace(self, req):
        """Completes the trace."""
        if self.trace:
            self.trace.flush()
        return {}

    def settle(self):
        """What an answer speaks of must be in memory when the judge reads it."""
        if self.device.type == "cuda" and torch.cuda.is_initialized():
            failing(END_RAISED, self.phase, torch.cuda.synchronize)

    # -- iterations

    def start_ops(self):
        """After construction and binding, before the first iteration."""
        lib = self.env.alloc
        gc.collect()
        gc.freeze()     # else a later collection walks all of torch within some iteration
        if self.ops is None:
            self.ops = Ops(lib)
        if self.pool is None and "pool" in self.regions:
            if self.device.type == "cpu":
                self.pool = HostPool(lib, self.regions["pool"])
            else:
                self.nudge = self.env.cuda().nudge
                self.nudge()    # the first one loads it
                self.pool = self.env.cuda().pool(self.regions["pool"])

    def seed(self, seed):
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.default_generators[self.device.index or 0].manual_seed(seed)

    def iteration(self, data):
        if self.nudge:
            self.nudge()
        _, which, seq, seed, flags, idle = proto.GO.unpack(data)
        if self.trace:
            self.trace.mark(seq)
        try:
            if self.pool is None:
                raise Fail(END_BAD_REQUEST, 0, "an iteration before load, or without a pool")
            self.one(which, seq, seed, flags, idle)
        except Fail as exc:
            if self.pool:
                self.pool.off()
            self.placed.clear()
            self.fail(exc, seq)

    def one(self, which, seq, seed, flags, idle):
        self.seed(seed)
        args = self.arguments(which)
        if not flags & GO_FIRST:
            self.pool.on()
        launched = Launcher.calls
        begin = time.perf_counter_ns()
        result = failing(END_RAISED, PHASE_FORWARD, self.call, args, which, idle)
        own = time.perf_counter_ns() - begin
        self.pool.on()
        nleaf, structure = failing(END_RAISED, PHASE_RESULT, self.results, result)
        self.pool.off()
        del result, args
        self.placed.clear()
        launched = Launcher.calls - launched
        computed = self.ops.computed() if self.role == "worker" else ""
        canary = self.ops.canary()
        if flags & GO_SYNC and self.device.type == "cuda":
            failing(END_RAISED, PHASE_FORWARD, torch.cuda.synchronize)
        self.answer(seq=seq, own=self.own_ns(own), ops=self.ops.take(), canary=canary,
                    launches=launched, nleaf=nleaf, structure=structure, text=computed)

    def own_ns(self, host_ns):
        return host_ns

    def rest(self):
        """Between iterations, when no clock runs."""
        if self.device.type == "cuda":
            self.stay_awake()

    def results(self, result):
        """Describes results in the message; what is not dense in the pool moves there, and
        the block that it was made in is told all the same."""
        if type(result) is torch.Tensor:
            self.msg.tensor(0, *self.place(result))
            return 1, LONE_TENSOR
        flat = Flat()
        flat.add(result)
        structure = flat.digest()
        for i, leaf in enumerate(flat.leaves):
            if isinstance(leaf, torch.Tensor):
                self.msg.tensor(i, *self.place(leaf))
            else:
                self.msg.scalar(i, leaf)
        return len(flat.leaves), structure

    def place(self, t):
        check_tensor(t)
        start, size = self.pool.start, self.pool.nbytes
        known = (type(t) in (torch.Tensor, torch.nn.Parameter) and
                 t.device.type == self.device.type)
        plain = known and t.is_contiguous() and not t.is_conj() and not t.is_neg()
        block = self.pool.block(t.data_ptr()) if known else (0, 0)
        if plain:
            offset = t.data_ptr() - start
            if 0 <= offset < size:
                return t, offset, block
        if not t.numel():
            return t, 0
        dense = self.pool.room(t.shape, t.dtype)
        if dense is None:
            dense = torch.empty(t.shape, dtype=t.dtype, device=self.device)
        offset = dense.data_ptr() - start
        if not 0 <= offset < size:
            raise Fail(END_POOL, PHASE_RESULT, "results do not fit in the pool")
        if plain and self.device.type == "cpu":
            # By the C library: the witness would charge torch's copy to the candidate.
            ctypes.memmove(dense.data_ptr(), t.data_ptr(), t.nbytes)
        else:
            dense.copy_(t)
        self.placed.append(dense)
        return dense, offset, block

    def arguments(self, which):
        raise NotImplementedError

    def call(self, args, which, idle):
        raise NotImplementedError
