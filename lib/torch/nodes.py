# SPDX-License-Identifier: Apache-2.0
"""Arguments as JSON nodes (proto.h): the oracle writes them, all others read."""
import base64
import ctypes

import torch

from catorch import proto
from catorch.proto import END_BAD_REQUEST, END_UNSUPPORTED, LEAF_BOOL, LEAF_FLOAT, LEAF_INT
from catorch.shim import DTYPE, MAX_DEPTH, NAME, Fail, behind, scalar_leaf


def raw_bytes(t):
    """The bytes of a dense tensor."""
    t = t.detach().cpu().contiguous()
    return ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()) if t.numel() else b""


def dtype_of(name):
    if name not in DTYPE:
        raise Fail(END_BAD_REQUEST, 0, f"unknown dtype {name!r}")
    return DTYPE[name]


class Encoder:
    """Turns values into nodes.  Tensors go to shared storages, numbers to slots
    (inputs), or both into the JSON itself (init)."""

    def __init__(self, phase, inline):
        self.phase = phase
        self.inline = inline
        self.storages = []      # torch storages, in order
        self.places = []        # {"offset", "bytes"} of each
        self.seen = {}
        self.total = proto.GAP
        self.slots = []         # (kind, bits)
        self.tensors = []

    def unsupported(self, path, what):
        raise Fail(END_UNSUPPORTED, self.phase, f"{path}: {what}")

    def node(self, value, path, depth=0):
        if depth > MAX_DEPTH:
            self.unsupported(path, "nested too deeply")
        if isinstance(value, torch.Tensor):
            return self.data(value, path) if self.inline else self.tensor(value, path)
        if value is None or isinstance(value, str):
            return {"t": "const", "v": value}
        if isinstance(value, (bool, int, float)):
            return self.number(value, path)
        if isinstance(value, (list, tuple)):
            return {"t": "tuple" if isinstance(value, tuple) else "list",
                    "v": [self.node(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]}
        if isinstance(value, dict):
            pairs = [[self.key(k, path), self.node(v, f"{path}[{k!r}]", depth + 1)]
                     for k, v in value.items()]
            return {"t": "dict", "v": pairs}
        if isinstance(value, torch.dtype) and value in NAME:
            return {"t": "dtype", "v": NAME[value]}
        if isinstance(value, torch.device):
            return {"t": "device"}
        kind = type(value).__name__
        return self.unsupported(path, f"arguments of type '{kind}' are not supported")

    def key(self, key, path):
        if not isinstance(key, str):
            self.unsupported(path, f"dict keys must be strings, not '{type(key).__name__}'")
        return key

    def number(self, value, path):
        if not self.inline:
            if len(self.slots) >= proto.SLOTS:
                self.unsupported(path, "more than 64 numbers among the inputs")
            self.slots.append(scalar_leaf(value))
            return {"t": "slot", "i": len(self.slots) - 1}
        if isinstance(value, float):    # as a JSON number 1.0 would come back as 1
            return {"t": "float", "v": repr(value)}
        if isinstance(value, int) and abs(value) > 1 << 53:
            return {"t": "int", "v": str(value)}
        return {"t": "const", "v": value}

    def check(self, t, path):
        if t.layout is not torch.strided or t.is_quantized or t.dtype not in NAME:
            self.unsupported(path, f"tensors of layout {t.layout} and type {t.dtype}"
                                   " are not supported")
        if t.dim() > proto.NDIM:
            self.unsupported(path, f"more than {proto.NDIM} dimensions")

    def data(self, t, path):
        self.check(t, path)
        t = t.detach().resolve_conj().resolve_neg()
        return {"t": "data", "dtype": NAME[t.dtype], "shape": list(t.shape),
                "b64": base64.b64encode(raw_bytes(t)).decode()}

    def tensor(self, t, path):
        self.check(t, path)
        t = t.detach().resolve_conj().resolve_neg()
        storage = t.untyped_storage()
        at = self.seen.get(storage.data_ptr()) if storage.nbytes() else None
        if at is None:
            at = len(self.storages)
            self.seen[storage.data_ptr()] = at
            self.storages.append(storage)
            self.places.append({"offset": self.total, "bytes": storage.nbytes(),
                                "dtype": NAME[t.dtype]})
            self.total = behind(self.total, storage.nbytes())
        self.tensors.append((at, t))
        return {"t": "tensor", "storage": at, "dtype": NAME[t.dtype], "shape": list(t.shape),
                "stride": list(t.stride()), "offset": t.storage_offset()}


def encode_init(args, kwargs, phase):
    enc = Encoder(phase, True)
    return {"args": [enc.node(v, f"init[{i}]") for i, v in enumerate(args)],
            "kwargs": {k: enc.node(v, f"init[{k!r}]") for k, v in kwargs.items()}}


class Decoder:
    """Turns nodes back into values over storages of one region."""

    def __init__(self, device, region=None, storages=()):
        self.device = device
        self.bases = []
        for s in storages:
            if s["bytes"] and region is None:
                raise Fail(END_BAD_REQUEST, 0, "inputs without their region")
            self.bases.append(region.bytes_at(s["offset"], s["bytes"]) if s["bytes"] else
                              torch.empty(0, dtype=torch.uint8, device=device))

    def tensor(self, node):
        dtype = dtype_of(node["dtype"])
        base = self.bases[node["storage"]]
        whole = base[:base.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        return torch.as_strided(whole, node["shape"], node["stride"], node["offset"])

    def data(self, node):
        raw = bytearray(base64.b64decode(node["b64"]))
        dtype = dtype_of(node["dtype"])
        if not raw:
            return torch.empty(node["shape"], dtype=dtype, device=self.device)
        t = torch.frombuffer(raw, dtype=dtype).view(node["shape"])
        return t.to(self.device) if self.device.type != "cpu" else t.clone()

    def maker(self, node):
        """A function from the slots' values to the node's value.  Tensors are made
        once, but each call gets views of its own: shapes may be changed in place."""
        kind = node["t"]
        if kind == "tensor":
            return self.tensor(node).detach
        if kind == "slot":
            return self.slot(node["i"])
        if kind in ("list", "tuple"):
            parts = [self.maker(v) for v in node["v"]]
            build = tuple if kind == "tuple" else list
            return lambda: build([p() for p in parts])
        if kind == "dict":
            pairs = [(k, self.maker(v)) for k, v in node["v"]]
            return lambda: {k: p() for k, p in pairs}
        value = self.constant(kind, node)
        return lambda: value

    def constant(self, kind, node):
        if kind == "const":
            return node["v"]
        if kind == "float":
            return float(node["v"])
        if kind == "int":
            return int(node["v"])
        if kind == "dtype":
            return dtype_of(node["v"])
        if kind == "device":
            return self.device
        if kind == "data":
            return self.data(node)
        raise Fail(END_BAD_REQUEST, 0, f"unknown node {kind!r}")

    def slot(self, i):
        raise Fail(END_BAD_REQUEST, 0, "slots outside inputs")


class SetDecoder(Decoder):
    """Inputs of one address set, with its block of slots."""

    def __init__(self, device, region, storages, slots, which):
        super().__init__(device, region, storages)
        self.mem = slots.keep if slots else None
        self.first = which * proto.SLOTS * proto.SLOT.size

    def slot(self, i):
        if self.mem is None or not 0 <= i < proto.SLOTS:
            raise Fail(END_BAD_REQUEST, 0, "no such slot")
        at = self.first + i * proto.SLOT.size
        mem = self.mem

        def read():
            kind, bits = proto.SLOT.unpack_from(mem, at)
            if kind == LEAF_FLOAT:
                return float_of(bits)
            if kind == LEAF_BOOL:
                return bool(bits)
            if kind == LEAF_INT:
                return bits - (1 << 64) if bits >> 63 else bits
            raise Fail(END_BAD_REQUEST, 0, f"slot {i} holds no number")
        return read


def float_of(bits):
    return ctypes.c_double.from_buffer_copy(bits.to_bytes(8, "little")).value
