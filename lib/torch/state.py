# SPDX-License-Identifier: Apache-2.0
"""Parameters and buffers: walking, binding to shared memory, perturbing."""
from typing import NamedTuple

import torch

from catorch.proto import END_BAD_REQUEST, END_PARAM_MISMATCH, END_UNSUPPORTED, GAP, PHASE_STATE
from catorch.shim import CODE, NAME, Fail, behind


class Item(NamedTuple):
    name: str
    kind: str
    tensor: torch.Tensor
    table: dict                 # the module's, which holds it under `key`
    key: str


def walk(model):
    """Parameters and persistent buffers in the order of state_dict; tied tensors
    appear under each of their names."""
    if not isinstance(model, torch.nn.Module):
        return []
    found = []
    for prefix, module in model.named_modules(remove_duplicate=False):
        dot = prefix + "." if prefix else ""
        for name, p in module._parameters.items():
            if p is not None:
                found.append(Item(dot + name, "param", p, module._parameters, name))
        for name, b in module._buffers.items():
            if b is not None and name not in module._non_persistent_buffers_set:
                found.append(Item(dot + name, "buffer", b, module._buffers, name))
    return found


def describe(found):
    """The `state` list of proto.h, and the bytes that it takes."""
    out = []
    seen = {}
    total = GAP
    for name, kind, t, _, _ in found:
        if t.layout is not torch.strided or t.dtype not in CODE or \
                isinstance(t, torch.nn.parameter.UninitializedTensorMixin):
            raise Fail(END_UNSUPPORTED, PHASE_STATE, f"state '{name}' is of an unsupported kind")
        nbytes = t.numel() * t.element_size()
        key = (t.data_ptr(), tuple(t.shape), t.dtype) if nbytes else (name,)
        if key not in seen:
            seen[key] = total
            total = behind(total, nbytes)
        out.append({"name": name, "kind": kind, "dtype": NAME[t.dtype], "shape": list(t.shape),
                    "offset": seen[key], "bytes": nbytes})
    return out, total


def fits(entry, t):
    return list(t.shape) == entry["shape"] and NAME.get(t.dtype) == entry["dtype"]


def is_counter(entry):
    return entry["kind"] == "buffer" and not entry["shape"] and \
        entry["dtype"].startswith(("int", "uint"))


def match_names(state, have):
    """Pairs (entry, item), or None when names do not tell."""
    pairs = []
    for entry in state:
        item = have.get(entry["name"])
        if item is None:
            if is_counter(entry):
                continue
            return None
        if not fits(entry, item.tensor):
            return None
        pairs.append((entry, item))
    return pairs


def match_order(state, found):
    pairs = []
    for kind in ("param", "buffer"):
        want = [e for e in state if e["kind"] == kind]
        have = [item for item in found if item.kind == kind]
        if len(want) != len(have):
            want = [e for e in want if not is_counter(e)]
        if len(want) != len(have) or not all(map(fits, want, [i.tensor for i in have])):
            return mismatch(want, have, kind)
        pairs += zip(want, have, strict=True)
    return pairs


def mismatch(want, have, kind):
    def list_of(items):
        return ", ".join(f"{n} {d}{s}" for n, d, s in items[:8]) or "none"

    theirs = [(e["name"], e["dtype"], e["shape"]) for e in want]
    ours = [(i.name, NAME.get(i.tensor.dtype), list(i.tensor.shape)) for i in have]
    raise Fail(END_PARAM_MISMATCH, PHASE_STATE,
               f"the {kind}s of ModelNew match the reference's neither by name nor by order and"
               f" shape; reference: {list_of(theirs)}; ModelNew: {list_of(ours)}")


def bind(model, state, region):
    """Points the model's tensors at the shared parameters.  Returns the buffers, for
    settle()."""
    found = walk(model)
    pairs = match_names(state, {item.name: item for item in found})
    params = sum(item.kind == "param" for item in found)
    if pairs is None or params != sum(e["kind"] == "param" for e in state):
        pairs = match_order(state, found)
    for entry, item in pairs:
        if not entry["bytes"]:
            continue
        if region is None:
            raise Fail(END_BAD_REQUEST, PHASE_STATE, "state without the region 'params'")
        t = item.tensor
        t.data = region.view(entry["offset"], t.dtype, entry["shape"])
    return [item for _, item in pairs if item.kind == "buffer"]


def settle(buffers):
    """A forward may have replaced a buffer instead of writing to it: moves the new
    value to where the judge looks."""
    for item in buffers:
        now = item.table.get(item.key)
        if now is not item.tensor:
            if now is not None and now.shape == item.tensor.shape:
                item.tensor.copy_(now)
            item.table[item.key] = item.tensor


def perturbed(name, kind, t, gen):
    """A tensor that is like t, but has no neutral values left."""
    statistic = name.rpartition(".")[2]
    if not t.is_floating_point() and not t.is_complex():
        return t
    if kind == "buffer" and statistic not in ("running_mean", "running_var"):
        return t
    wide = torch.complex64 if t.is_complex() else torch.float32
    if t.dtype in (torch.float64, torch.complex128):
        wide = t.dtype
    real = torch.float64 if wide in (torch.float64, torch.complex128) else torch.float32
    x = t.detach().to("cpu", wide)
    size = 0.05 + 0.25 * torch.rand(x.shape, generator=gen, dtype=real)
    sign = 1 - 2.0 * torch.randint(0, 2, x.shape, generator=gen)
    x = x * (1 + size * sign).to(real)
    if statistic == "running_mean" or not bool((x != 0).any()):
        x = x + 0.1 * torch.randn(x.shape, generator=gen, dtype=real)
    return x.to(t.dtype)
