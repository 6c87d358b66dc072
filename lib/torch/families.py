# SPDX-License-Identifier: Apache-2.0
"""Distributions other than get_inputs()'s own, made from what it returned."""
import torch

NAMES = ("plain", "scale", "sign", "tied", "cluster", "spike", "permute")


def overlaps(t):
    """Whether elements may share memory (expanded views)."""
    reach = 0
    for stride, size in sorted((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def scale(x, factor):
    x.mul_(factor)


def sign(x, factor):
    x.copysign_(torch.rand(x.shape, device=x.device).sub_(0.5).to(x.dtype))


def tied(x, factor):
    """The maximum of each slice stands at about a quarter of its places."""
    top = x.amax(-1, keepdim=True)
    x.copy_(torch.where(torch.rand(x.shape, device=x.device) < 0.25, top, x))


def cluster(x, factor):
    """A quarter of each slice lies a hair below its maximum."""
    top = x.amax(-1, keepdim=True)
    near = top - torch.rand(x.shape, device=x.device) * 1e-3 * (top.abs() + 1e-3)
    x.copy_(torch.where(torch.rand(x.shape, device=x.device) < 0.25, near.to(x.dtype), x))


def spike(x, factor):
    at = torch.randint(0, x.shape[-1], x.shape[:-1] + (1,), device=x.device)
    top = x.abs().amax().clamp_min(1.0)
    side = torch.randint(0, 2, at.shape, device=x.device).mul_(2).sub_(1)
    x.scatter_(-1, at, (50 * top * side).to(x.dtype))


def permute(x, factor):
    x.copy_(x.reshape(-1)[torch.randperm(x.numel(), device=x.device)].view(x.shape))


def apply(name, tensors, factor):
    """Changes tensors in place, each storage once.  `permute` is for integers,
    the others for floating-point tensors."""
    change = globals()[name] if name != "plain" else None
    done = set()
    for t in tensors:
        key = t.untyped_storage().data_ptr()
        wanted = t.is_floating_point() != (name == "permute") and \
            t.dtype is not torch.bool and not t.is_complex()
        if not change or not wanted or not t.numel() or key in done:
            continue
        done.add(key)
        x = t
        if overlaps(t):
            step = t.element_size()
            whole = t.untyped_storage().nbytes() // step
            x = torch.as_strided(t, (whole,), (1,), 0)
        if not x.dim():
            x = x.view(1)
        if x.element_size() == 1 and x.is_floating_point():
            wide = x.float()
            change(wide, factor)
            x.copy_(wide)
        else:
            change(x, factor)
