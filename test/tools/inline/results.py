# SPDX-License-Identifier: Apache-2.0
"""Prints what the functions of model_new.py's extension (the argument) give."""
import importlib.util
import sys

import torch

spec = importlib.util.spec_from_file_location("most", sys.argv[1])
m = importlib.util.module_from_spec(spec)
spec.loader.exec_module(m)


def show(value):
    if isinstance(value, torch.Tensor):
        print(value.dtype, tuple(value.shape), value.stride(), value.flatten().tolist())
    elif isinstance(value, (list, tuple)):
        for v in value:
            show(v)
    else:
        print(type(value).__name__, value)


def fails(fn, *args, **kwargs):
    try:
        print("no error", fn(*args, **kwargs))
    except Exception as exc:
        print(type(exc).__name__, str(exc).splitlines()[0].split(". The following")[0])


torch.manual_seed(0)
x = torch.rand(4, 5)
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    wide = torch.cat([x, x * 1e4, x * 1e-6, torch.tensor([[0., -0., float("inf"), 1e38, 7]])])
    show(m.scale(wide.to(dtype), 0.3))
show(m.scale(x=x, k=3))
y = torch.arange(20.).view(4, 5)
show(m.views(y))
show(m.made(y))
show(m.operators(x))
show(m.operators(b=x, x=x))
show(m.set(x, 2))
show(x)
show(m.describe(x[1:], (1, 2), True))
show([m.over(7), m.over(2.5), m.over([1, 2.5]), m.threads(100)])
fails(m.scale, x.t())
fails(m.scale, x.int())
fails(m.scale, 3)
fails(m.scale, None)
fails(m.scale, x, k="a")
fails(m.scale, x, q=1)
fails(m.scale)
fails(m.scale, x, 1, 2)
fails(m.set, x[0], 0)
fails(m.over, "a")
fails(m.describe, x, [1], 1)
fails(m.describe, x, [1.5], True)
fails(m.views, torch.rand(4, 6)[:, ::2])
fails(m.views, torch.rand(3))
before = [sys.getrefcount(x), sys.getrefcount(None)]
for _ in range(100):
    m.scale(x), m.operators(x, x)
print([a - b for a, b in zip([sys.getrefcount(x), sys.getrefcount(None)], before)])
