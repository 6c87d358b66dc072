# SPDX-License-Identifier: Apache-2.0
"""torch.compile made quick in forked children: imports and the probe of the vector
instruction set happen in the host."""
import functools
import importlib
import json
import os

import torch

from catorch import setup

# What the first compilation would import lazily in every child.
MODULES = (
    "torch._dynamo", "torch._dynamo.convert_frame", "torch._functorch.aot_autograd",
    "torch._inductor.compile_fx", "torch._inductor.cpu_vec_isa", "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.cpp_wrapper_cpu", "torch._inductor.codegen.wrapper",
    "torch._inductor.fx_passes.joint_graph", "torch._inductor.fx_passes.post_grad",
    "torch._inductor.fx_passes.pre_grad", "torch._inductor.select_algorithm",
)


FLAGS = ("_is_avx512_bf16_supported", "_is_amx_fp16_supported")


def probe(isa, path):
    """Lets inductor find the instruction sets that work, and keeps its answer."""
    found = {str(v): {f: getattr(v, f) for f in FLAGS if hasattr(v, f)}
             for v in isa.valid_vec_isa_list()}

    def write(temp):
        with open(temp, "w", encoding="utf-8") as f:
            json.dump(found, f)
    setup.store(path, write)


def prime(cache, flags):
    for name in MODULES:
        importlib.import_module(name)
    isa = importlib.import_module("torch._inductor.cpu_vec_isa")
    path = os.path.join(cache, f"isa-{setup.short_hash(torch.__version__, flags)}.json")
    if not os.path.exists(path):
        probe(isa, path)
        return
    found = json.loads(setup.read(path))
    usable = [v for v in isa.supported_vec_isa_list if str(v) in found]
    for v in usable:
        for name, value in found[str(v)].items():
            setattr(v, name, value)
        # Asking it would compile and start Python: 10 s a process.
        type(v).__bool__ = lambda self: str(self) in found
        if "amx" in str(v):
            torch.cpu._init_amx()
    isa.valid_vec_isa_list = functools.cache(lambda: usable)


def use_cache(cache, req):
    """Where this child keeps compiled code, before anything is compiled."""
    folder = req.get("cache")
    if folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
