# SPDX-License-Identifier: Apache-2.0
"""Distributions other than get_inputs()'s own, made from what it returned."""
import math

import torch

NAMES = ("plain", "scale", "sign", "tied", "cluster", "spike", "permute", "blocks", "tilt", "part")
LN2 = math.log(2)
TILT_TOP = math.log(100)


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


def exponents(x):
    """For each element the sum of random weights of the bits of its indices, and the
    least and largest of these sums.  A bit's weight is between a factor of 2 and one of
    4, up or down, so every part of the tensor that some bits single out (a half, every
    16th row, the odd columns) stands out by at least a third of its sum: who leaves such
    a part out, or takes it for the whole, is wrong."""
    total, low, high = torch.zeros((), device=x.device), 0.0, 0.0
    for axis, size in enumerate(x.shape):
        along = torch.zeros(size, device=x.device)
        for bit in range((size - 1).bit_length()):
            weight = LN2 * (1 + float(torch.rand(()))) * (1 if float(torch.rand(())) < 0.5 else -1)
            # Indices with this bit set, up to the next one, follow those without.
            half = 1 << bit
            upper = along[half:2 * half]
            torch.add(along[:upper.numel()], weight, out=upper)
        low, high = low + float(along.min()), high + float(along.max())
        total = total + along.view(-1, *[1] * (x.dim() - axis - 1))
    return total, low, high


def blocks(x, factor):
    """Parts of different size, none larger than before."""
    total, _, high = exponents(x)
    x.mul_((total - high).exp_().to(x.dtype))


def tilt(x, factor):
    """Parts of different size and sign, for functions that level large values."""
    total, low, high = exponents(x)
    total = total - (low + high) / 2
    size = total.clamp(-TILT_TOP, TILT_TOP).exp_().copysign_(total)
    x.abs_().mul_(size.to(x.dtype))


def part(x, factor):
    """The first half along the longest axis stands for the second too."""
    axis = max(range(x.dim()), key=lambda i: x.shape[i])
    half = x.shape[axis] // 2
    if half:
        x.narrow(axis, x.shape[axis] - half, half).copy_(x.narrow(axis, 0, half).clone())


def suits(name, t):
    if name == "part":
        return True
    if t.dtype is torch.bool or t.is_complex():
        return False
    return t.is_floating_point() != (name == "permute")


def apply(name, tensors, factor):
    """Changes tensors in place, each storage once.  `permute` is for integers, `part`
    for all, the others for floating-point tensors."""
    change = globals()[name] if name != "plain" else None
    done = set()
    for t in tensors:
        key = t.untyped_storage().data_ptr()
        if not change or not suits(name, t) or not t.numel() or key in done:
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
