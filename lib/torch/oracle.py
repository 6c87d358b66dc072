# SPDX-License-Identifier: Apache-2.0
"""The oracle: makes inputs, state and expected values from model.py."""
import copy
import ctypes
import time

import torch
from torch.overrides import TorchFunctionMode

from catorch import families, nodes, proto, state, worker
from catorch.proto import (
    END_BAD_REQUEST,
    END_CONSTRUCT,
    END_OOM,
    END_POOL,
    END_RAISED,
    END_UNSUPPORTED,
    PHASE_CONSTRUCT,
    PHASE_FORWARD,
    PHASE_INPUTS,
    PHASE_RESULT,
    PHASE_STATE,
    SLOT,
)
from catorch.shim import (
    ALIGN,
    Child,
    Fail,
    Flat,
    check_tensor,
    failing,
    is_oom,
    load_module,
    need,
    tail_of,
)

MODIFIED_INPUTS = 1
MODIFIED_STATE = 2
SLOW_S = 0.3
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def split_init(value):
    """get_init_inputs() gives a list, or [args, kwargs]."""
    if isinstance(value, dict):
        return [], value
    if not isinstance(value, (list, tuple)):
        raise Fail(END_CONSTRUCT, PHASE_CONSTRUCT, "get_init_inputs() must return a list, "
                   f"not '{type(value).__name__}'")
    if len(value) == 2 and isinstance(value[0], (list, tuple)) and isinstance(value[1], dict):
        return list(value[0]), value[1]
    return list(value), {}


def storage_bytes(storage, device):
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def keep_memory():
    """Freed blocks stay ours: large ones would be mapped, and faulted in, page by page,
    for each of hundreds of forwards."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)


class Oracle(Child):
    args = None
    native_s = 0.0
    promised = None             # the structure of the inputs, as load told it

    def warm(self):
        """A GPU's driver loads a kernel when it first runs: 0.2 s for all that inputs and
        the comparison of what a call has changed take."""
        x = torch.rand(64, 64, device=self.device)
        for name in families.NAMES:
            families.apply(name, [x], 1.0)
        same_bytes(x, x.clone())
        torch.cuda.synchronize()

    def do_load(self, req):
        self.begin(req)
        keep_memory()
        module = load_module("model", worker.source_of(self, req))
        make = need(module, "Model")
        self.get_inputs = need(module, "get_inputs")
        get_init = getattr(module, "get_init_inputs", list)
        self.phase = PHASE_CONSTRUCT
        seed = int(req.get("seed", 0))
        torch.manual_seed(seed)
        with self.device:
            args, kwargs = split_init(failing(END_CONSTRUCT, PHASE_CONSTRUCT, get_init))
            init = nodes.encode_init(args, kwargs, PHASE_CONSTRUCT)
        torch.manual_seed(seed)
        with self.building(req):
            self.model = failing(END_CONSTRUCT, PHASE_CONSTRUCT, make, *args, **kwargs)
        self.own_state = bool(req.get("own_state"))
        if isinstance(self.model, torch.nn.Module):
            failing(END_CONSTRUCT, PHASE_CONSTRUCT,
                    lambda: self.model.to(self.device).train(self.own_state))
        self.found = state.walk(self.model)
        self.entries, total = ([], 0) if self.own_state else state.describe(self.found)
        self.initial = [item.tensor.detach().clone() for item in self.found]
        self.kept = self.initial
        enc = self.make_inputs(seed, "plain", 1.0)
        self.promised = self.structure(enc)
        return self.describe({"init": init, "state": self.entries, "state_bytes": total,
                              "inputs": self.promised})

    # -- state

    def do_state(self, req):
        self.phase = PHASE_STATE
        gen = torch.Generator().manual_seed(int(req["seed"]))
        perturb = bool(req.get("perturb"))
        region = self.regions.get("params")
        kept, tied = [], {}
        for item, entry, was in zip(self.found, self.entries, self.initial, strict=True):
            t = item.tensor
            at = (entry["offset"], entry["bytes"])
            if at not in tied or not entry["bytes"]:
                now = state.perturbed(item.name, item.kind, was, gen) if perturb else was
                tied[at] = now.to(t.device)
                t.data.copy_(tied[at])
                self.write(region, entry, t)
            kept.append(tied[at])
        self.kept = kept
        return {}

    def write(self, region, entry, t):
        if not entry["bytes"]:
            return
        if region is None:
            raise Fail(END_BAD_REQUEST, PHASE_STATE, "state without the region 'params'")
        region.view(entry["offset"], t.dtype, entry["shape"]).copy_(t.detach())

    # -- inputs

    def make_inputs(self, seed, family, factor):
        self.phase = PHASE_INPUTS
        torch.manual_seed(seed)
        with self.device:
            values = failing(END_CONSTRUCT, PHASE_INPUTS, self.get_inputs)
        if not isinstance(values, (list, tuple)):
            raise Fail(END_CONSTRUCT, PHASE_INPUTS, "get_inputs() must return a list, "
                       f"not '{type(values).__name__}'")
        enc = nodes.Encoder(PHASE_INPUTS, False)
        enc.top = [enc.node(self.here(v), f"inputs[{i}]") for i, v in enumerate(values)]
        if family not in families.NAMES:
            raise Fail(END_BAD_REQUEST, PHASE_INPUTS, f"unknown family {family!r}")
        families.apply(family, [t for _, t in enc.tensors], factor)
        return enc

    def here(self, value):
        """get_inputs() may have named another device."""
        if isinstance(value, torch.Tensor) and value.device.type != self.device.type:
            return value.to(self.device)
        return value

    def structure(self, enc):
        return {"storages": enc.places, "args": enc.top, "bytes": enc.total,
                "slots": len(enc.slots)}

    def do_inputs(self, req):
        enc = self.make_inputs(int(req["seed"]), req.get("family", "plain"),
                               float(req.get("factor", 1.0)))
        structure = self.structure(enc)
        if structure != self.promised:
            raise Fail(END_CONSTRUCT, PHASE_INPUTS, "get_inputs() returns other shapes or types "
                       "for other seeds")
        head = self.describe(structure)
        if not req.get("export", True):
            return head
        region = self.regions.get("inputs")
        if enc.storages and region is None:
            raise Fail(END_BAD_REQUEST, PHASE_INPUTS, "inputs without their region")
        self.take(enc, region)
        self.write_slots(enc.slots)
        return head

    def take(self, enc, region=None):
        """Makes these the inputs of the next calls.  What the judge gets of them, which
        nobody writes to, tells later what a call has changed; else a copy does."""
        self.images = [storage_bytes(s, self.device) for s in enc.storages]
        self.places = enc.places
        self.before = [region.bytes_at(place["offset"], place["bytes"])
                       if region is not None and place["bytes"] else torch.empty_like(image)
                       for image, place in zip(self.images, enc.places, strict=True)]
        for image, before in zip(self.images, self.before, strict=True):
            before.copy_(image)
        dec = SlotDecoder(self.device, self.images, enc.slots)
        self.slots, self.top = enc.slots, enc.top
        self.args = [dec.maker(n) for n in enc.top]

    def write_slots(self, slots):
        region = self.regions.get("slots")
        if not slots:
            return
        if region is None:
            raise Fail(END_BAD_REQUEST, PHASE_INPUTS, "numbers among inputs without 'slots'")
        for i, (kind, bits) in enumerate(slots):
            SLOT.pack_into(region.keep, i * SLOT.size, kind, bits)

    # -- expected values

    def do_expect(self, req):
        self.phase = PHASE_FORWARD
        if self.args is None:
            raise Fail(END_BAD_REQUEST, PHASE_FORWARD, "expect before inputs")
        self.seed(int(req.get("forward_seed", 0)))
        precision = req.get("precision", "native")
        if precision in APART:
            result, modified = self.double(APART[precision]), 0
        elif precision in ("native", "loose"):
            result, modified = self.native(precision == "loose")
        else:
            raise Fail(END_BAD_REQUEST, PHASE_FORWARD, f"unknown precision {precision!r}")
        self.phase = PHASE_RESULT
        try:
            flat = self.export_results(result, self.told(modified))
        finally:
            del result
            self.restore(modified)
        return flat

    def native(self, loose):
        call = self.loosely if loose else self.model
        args = [make() for make in self.args]
        begin = time.monotonic()
        result = failing(END_RAISED, PHASE_FORWARD, call, *args)
        if not loose:
            self.native_s = time.monotonic() - begin
        return result, self.after()

    def loosely(self, *args):
        """The loosest math that the rules allow: TF32 on CUDA; on the CPU, which has
        none, another order of summation, where that does not take too long."""
        if self.device.type != "cuda":
            if self.native_s > SLOW_S:
                return self.model(*args)
            with torch.backends.mkldnn.flags(enabled=False):
                return self.model(*args)
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        was = matmul.allow_tf32, cudnn.allow_tf32
        matmul.allow_tf32 = cudnn.allow_tf32 = True
        try:
            return self.model(*args)
        finally:
            matmul.allow_tf32, cudnn.allow_tf32 = was

    def double(self, side):
        """The same in double precision; integers stay.  With a side equal values are told
        apart by their places."""
        try:
            model = self.model
            if isinstance(model, torch.nn.Module):
                model = copy.deepcopy(model).double()
            images = [image.clone() for image in self.images]
            dec = SlotDecoder(self.device, images, self.slots)
            args = [widen(dec.maker(n)(), side) for n in self.top]
            with Widening():
                result = model(*args)
        except BaseException as exc:
            end = END_OOM if is_oom(exc) else END_UNSUPPORTED
            raise Fail(end, PHASE_FORWARD, tail_of(exc)) from None
        return result

    def after(self):
        """Which bytes forward changed; after-images go to the judge."""
        modified = 0
        for image, before in zip(self.images, self.before, strict=True):
            if not same_bytes(image, before):
                modified |= MODIFIED_INPUTS
        state.settle([item for item in self.found if item.kind == "buffer"])
        for item, was in zip(self.found, self.kept, strict=True):
            if not same_bytes(item.tensor, was):
                modified |= MODIFIED_STATE
        if modified & MODIFIED_INPUTS:
            self.export_inputs_after()
        if modified & MODIFIED_STATE and not self.own_state:
            self.export_state_after()
        return modified

    def told(self, modified):
        """What of it concerns the judge: a state of the model's own does not."""
        return modified & MODIFIED_INPUTS if self.own_state else modified

    def export_inputs_after(self):
        region = self.regions.get("after")
        if region is not None:
            for image, place in zip(self.images, self.places, strict=True):
                if place["bytes"]:
                    region.bytes_at(place["offset"], place["bytes"]).copy_(image)

    def export_state_after(self):
        region = self.regions.get("params_after")
        if region is not None:
            for item, entry in zip(self.found, self.entries, strict=True):
                self.write(region, entry, item.tensor)

    def restore(self, modified):
        if modified & MODIFIED_INPUTS:
            for image, before in zip(self.images, self.before, strict=True):
                image.copy_(before)
        if modified & MODIFIED_STATE:
            for item, was in zip(self.found, self.kept, strict=True):
                item.tensor.data.copy_(was)

    def export_results(self, result, modified):
        """Writes results to `expect`.  Where they do not fit, the leaves alone say what
        it would take."""
        flat = Flat()
        failing(END_UNSUPPORTED, PHASE_RESULT, flat.add, result)
        head = {"structure": flat.digest(), "nleaf": len(flat.leaves), "modified": modified}
        at, places = 0, []
        for i, leaf in enumerate(flat.leaves):
            if isinstance(leaf, torch.Tensor):
                check_tensor(leaf)
                self.msg.tensor(i, leaf, at)
                places.append((leaf, at))
                at += -(-leaf.numel() * leaf.element_size() // ALIGN) * ALIGN
            else:
                self.msg.scalar(i, leaf)
        region = self.regions.get("expect")
        if at > (region.nbytes if region else 0):
            return {"end": END_POOL, "phase": PHASE_RESULT, **head}
        for leaf, offset in places:
            if leaf.numel():
                region.view(offset, leaf.dtype, leaf.shape).copy_(leaf)
        return head


def same_bytes(a, b):
    """Bit for bit, so that NaN equals NaN."""
    a, b = (t.detach().contiguous().view(-1).view(torch.uint8) for t in (a, b))
    if not (a.storage_offset() | b.storage_offset() | a.numel()) % 8:
        a, b = a.view(torch.int64), b.view(torch.int64)     # takes a tenth of the time
    return torch.equal(a, b)


def widen(value, side):
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            return value.to(torch.complex128)
        return apart(value, side) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(widen(v, side) for v in value)
    if isinstance(value, dict):
        return {k: widen(v, side) for k, v in value.items()}
    return value


def apart(x, side):
    """x in double precision; where equal values are told apart, the last (side 1) or the
    first of them is the largest, all within a quarter of a rounding."""
    wide = x.double()
    if not side or x.dtype is torch.float64 or not x.numel():
        return wide
    info = torch.finfo(x.dtype)
    rounding = torch.ldexp(torch.full_like(wide, info.eps), wide.abs().frexp().exponent - 1)
    rounding = torch.where(wide == 0, 0, rounding).clamp_(min=info.tiny * info.eps)
    place = torch.arange(1, x.numel() + 1, dtype=torch.float64, device=x.device).view(x.shape)
    return wide + side * rounding * place / (4 * x.numel())


APART = {"fp64": 0, "rising": 1, "falling": -1}
NARROW = (torch.float16, torch.bfloat16, torch.float32)
CASTS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)


class Widening(TorchFunctionMode):
    """Where forward names a narrower type, double precision takes its place."""

    def __enter__(self):
        self.was = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *exc):
        torch.set_default_dtype(self.was)
        return super().__exit__(*exc)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in CASTS:
            func = torch.Tensor.double
        kwargs = kwargs or {}
        return func(*map(wide_type, args), **{k: wide_type(v) for k, v in kwargs.items()})


def wide_type(value):
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


class SlotDecoder(nodes.Decoder):
    """Arguments over storages of this process, numbers from a list."""

    def __init__(self, device, images, slots):
        super().__init__(device)
        self.bases = images
        self.slots = slots

    def slot(self, i):
        kind, bits = self.slots[i]
        if kind == proto.LEAF_FLOAT:
            value = nodes.float_of(bits)
        elif kind == proto.LEAF_BOOL:
            value = bool(bits)
        else:
            value = bits - (1 << 64) if bits >> 63 else bits
        return lambda: value
