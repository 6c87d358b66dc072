# SPDX-License-Identifier: Apache-2.0
"""torch.compile made quick in forked children.  Imports happen in the host; what
inductor otherwise finds out anew in every process is found once and kept in the cache:
hashes of torch's and triton's sources, and for the CPU vector instruction sets and
precompiled headers, which a trusted child finds (20 s on two cores), with the names of
what else a compilation imports."""
import contextlib
import functools
import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
import time

import torch

from catorch import jail, setup

# What the first compilation would import lazily in every child.
MODULES = (
    "torch._dynamo", "torch._dynamo.convert_frame", "torch._functorch.aot_autograd",
    "torch._inductor.compile_fx", "torch._inductor.cpu_vec_isa", "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.cpp_wrapper_cpu", "torch._inductor.codegen.wrapper",
    "torch._inductor.fx_passes.joint_graph", "torch._inductor.fx_passes.post_grad",
    "torch._inductor.fx_passes.pre_grad", "torch._inductor.select_algorithm",
    "torch._inductor.codecache", "torch._inductor.runtime.triton_compat",
)
ISA_FLAGS = ("_is_avx512_bf16_supported", "_is_amx_fp16_supported")
SCOUT_SECONDS = 300
KEEP_HEADERS = 3


def module(name):
    return importlib.import_module("torch._inductor." + name)


def compiler_version():
    cxx = os.environ.get("CXX") or "g++"
    try:
        done = subprocess.run([cxx, "--version"], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=20)
        return done.stdout
    except (OSError, subprocess.SubprocessError):
        return b"none"


def triton_stamp():
    """Tells one triton from another without reading its 500 MB."""
    triton = getattr(module("runtime.triton_compat"), "triton", None)
    if triton is None or not hasattr(triton, "__path__"):
        return "none"
    folder = os.path.join(triton.__path__[0], "_C")
    stamps = [os.stat(os.path.join(folder, n)) for n in sorted(os.listdir(folder))]
    return [getattr(triton, "__version__", "")] + [(s.st_size, s.st_mtime_ns) for s in stamps]


def header_key(header, command, options):
    return setup.short_hash(header, command, sorted((k, str(v)) for k, v in options.items()))


def scout(pch, path):
    """In a trusted child: lets inductor find everything out by compiling one graph of
    our own, and writes down what it found."""
    cache = module("codecache")
    isa = module("cpu_vec_isa")
    headers = {}
    before = set(sys.modules)
    original = cache._precompile_header

    def record(header, command, **options):
        headers[header_key(header, command, options)] = original(header, command, **options)
        return headers[header_key(header, command, options)]

    cache._HEADER_DIR = pch
    cache._HEADER_LOCK_DIR = os.path.join(pch, "locks")
    cache._precompile_header = record
    work, held = jail.make_room(os.path.join(os.path.dirname(path), "job"))
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = work
    try:
        with torch.no_grad():
            torch.compile(lambda x: torch.relu(x) + 1)(torch.ones(8, 64))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(held)
    keep(path, {
        "isa": {str(v): {f: getattr(v, f) for f in ISA_FLAGS if hasattr(v, f)}
                for v in isa.valid_vec_isa_list()},
        "headers": headers,
        "modules": sorted(name for name in set(sys.modules) - before
                          if name.startswith("torch.") and ".compile_tasks." not in name),
    })


def keep(path, found):
    def write(temp):
        with open(temp, "w", encoding="utf-8") as f:
            json.dump(found, f)
    setup.store(path, write)


def forget_old(cache):
    """Headers are 120 MB for each torch and compiler: the last ones used are kept."""
    found = sorted((e for e in os.scandir(cache) if e.name.startswith("headers-")),
                   key=lambda e: e.stat().st_mtime_ns)
    for entry in found[:-KEEP_HEADERS]:
        shutil.rmtree(entry.path, ignore_errors=True)
        name = entry.name.replace("headers-", "inductor-", 1) + ".json"
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(cache, name))


def send_scout(pch, path):
    """The host itself must not compute: a child does."""
    pid = os.fork()
    if not pid:
        try:
            os.umask(0o022)
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            scout(pch, path)
        finally:
            os._exit(0)
    end = time.monotonic() + SCOUT_SECONDS
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            break
        time.sleep(0.02)


def use_isa(found):
    isa = module("cpu_vec_isa")
    usable = [v for v in isa.supported_vec_isa_list if str(v) in found]
    for v in usable:
        for name, value in found[str(v)].items():
            setattr(v, name, value)
        type(v).__bool__ = lambda self: str(self) in found
        if "amx" in str(v):
            torch.cpu._init_amx()
    isa.valid_vec_isa_list = functools.cache(lambda: usable)


def find_hashes():
    compat = module("runtime.triton_compat")
    return {"torch": module("codecache").torch_key().hex(),
            "triton": compat.triton_key() if compat.HAS_TRITON else None}


def use_hashes(found):
    module("codecache").torch_key.set(bytes.fromhex(found["torch"]))
    if found["triton"]:
        key = found["triton"]
        module("runtime.triton_compat").triton_key = lambda: key
        importlib.import_module("triton.runtime.cache").triton_key = lambda: key


def use_modules(names):
    """What is not there any more is imported by whoever wants it; tables that dynamo
    fills at first use are filled."""
    logging.disable(logging.CRITICAL)       # of what they say, nothing concerns anybody
    with cuda_untouched():
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    logging.disable(logging.NOTSET)
    rules = importlib.import_module("torch._dynamo.trace_rules")
    for table in list(vars(rules).values()):
        if isinstance(table, getattr(rules, "FunctionIdSet", ())):
            table()
    torch.overrides.get_overridable_functions()
    torch.overrides.get_testing_overrides()


def use_headers(headers):
    """A header that is not there is not precompiled: once is not worth it."""
    module("codecache")._precompile_header = lambda header, command, **options: headers.get(
        header_key(header, command, options))


@contextlib.contextmanager
def cuda_untouched():
    """Modules ask when they are imported whether there is a GPU; finding out would
    start CUDA or NVML, and neither survives a fork."""
    real, torch.cuda.is_available = torch.cuda.is_available, setup.cuda_here
    try:
        yield
    finally:
        torch.cuda.is_available = real


@contextlib.contextmanager
def scratch(cache):
    """Importing some of the modules makes this folder, by default in /tmp."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(cache, "inductor")
    try:
        yield
    finally:
        del os.environ["TORCHINDUCTOR_CACHE_DIR"]


def key_of(*parts):
    with open(__file__, "rb") as f:
        return setup.short_hash(torch.__version__, torch.__file__, f.read(), *parts)


def dynamo(cache):
    """What the first dispatch mode of a process imports: 880 files, two seconds."""
    with scratch(cache), cuda_untouched():
        importlib.import_module("torch._dynamo")


def prime(cache):
    """What every device's graphs need."""
    with scratch(cache), cuda_untouched():
        for name in MODULES:
            importlib.import_module(name)
        path = os.path.join(cache, f"hashes-{key_of(triton_stamp())}.json")
        if os.path.exists(path):
            use_hashes(json.loads(setup.read(path)))
        else:                   # known to this process from now on
            keep(path, find_hashes())


def prime_cpu(cache, flags):
    """And those of the CPU."""
    with scratch(cache):
        key = key_of(compiler_version(), flags)
        path = os.path.join(cache, f"inductor-{key}.json")
        pch = os.path.join(cache, f"headers-{key}")
        if not os.path.exists(path):
            send_scout(pch, path)
            forget_old(cache)
        if not os.path.exists(path):
            return              # no compiler, say: the baseline will tell
        found = json.loads(setup.read(path))
        with contextlib.suppress(OSError):
            os.utime(pch)       # in use
        use_isa(found["isa"])
        use_headers(found["headers"])
        use_modules(found["modules"])
