# SPDX-License-Identifier: Apache-2.0
"""The module `cuda_extension` that a candidate imports: launchers of a shared
object (light), kernels of a cubin (kernel), or a Python extension (paper).

Packages that `ca-workdir export` makes carry a copy of this file, so it needs
torch only."""
import ctypes
import importlib.machinery
import importlib.util
import sys
import types

import torch

INTS = {
    "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
}
FLOATS = {"f32": ctypes.c_float, "f64": ctypes.c_double}
RESULTS = {"void": None, "bool": ctypes.c_bool, **INTS, **FLOATS}
NUMBERS = (bool, int, float)


def stream_of(device):
    if device.type != "cuda":
        return None
    # As compiled code asks for it: current_stream() takes ten times as long.
    return torch._C._cuda_getCurrentRawStream(device.index or 0)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


class Argument:
    """Converts one argument of one launcher, or says what is wrong with it."""

    def __init__(self, launcher, index, spec, device):
        self.launcher = launcher
        self.index = index
        self.kind = spec["type"]
        self.dtype = getattr(torch, spec["dtype"]) if spec.get("dtype") else None
        self.device = device
        self.label = spec.get("name")
        if self.kind == "ptr" or self.kind == "stream":
            self.ctype = ctypes.c_void_p
            self.convert = self.pointer
        elif self.kind in INTS:
            self.ctype = INTS[self.kind]
            bits = 8 * ctypes.sizeof(self.ctype)
            signed = self.kind[0] == "i"
            self.low = -(1 << bits - 1) if signed else 0
            self.high = (1 << bits - (1 if signed else 0)) - 1
            self.convert = self.integer
        elif self.kind in FLOATS:
            self.ctype = FLOATS[self.kind]
            self.convert = self.number
        elif self.kind == "bool":
            self.ctype = ctypes.c_bool
            self.convert = self.boolean
        else:
            raise TypeError(f"launcher '{launcher}' has an argument of type '{self.kind}'")

    def wrong(self, expected, value):
        if isinstance(value, torch.Tensor):
            got = f"a tensor of {name_of(value.dtype)} on {value.device}"
        else:
            got = f"{type(value).__name__} {value!r:.60}"
        name = f" ('{self.label}')" if self.label else ""
        return TypeError(f"{self.launcher}: argument {self.index + 1}{name}: expected {expected}, "
                         f"got {got}")

    def pointer(self, value):
        if isinstance(value, torch.Tensor):
            if (self.dtype is None or value.dtype is self.dtype) and \
                    value.device.type == self.device.type:
                return value.data_ptr()
        elif value is None:
            return None
        what = name_of(self.dtype) if self.dtype else "any type"
        raise self.wrong(f"a tensor of {what} on {self.device.type}", value)

    def integer(self, value):
        if isinstance(value, bool) or not isinstance(value, int):
            if not hasattr(value, "__index__") or isinstance(value, torch.Tensor):
                raise self.wrong(f"an integer ({self.kind})", value)
            value = value.__index__()
        if not self.low <= value <= self.high:
            raise self.wrong(f"an integer that fits {self.kind}", value)
        return value

    def number(self, value):
        if isinstance(value, NUMBERS):
            return value
        raise self.wrong(f"a number ({self.kind})", value)

    def boolean(self, value):
        if isinstance(value, (bool, int)):
            return bool(value)
        raise self.wrong("a bool", value)


class Launcher:
    """One extern "C" function as a Python callable."""

    calls = 0                   # of all launchers and kernels

    def __init__(self, fn, spec, device):
        self.name = spec["name"]
        self.fn = fn
        self.device = device
        args = spec["args"]
        self.stream = bool(args) and args[-1]["type"] == "stream"
        self.args = [Argument(self.name, i, a, device) for i, a in enumerate(args)]
        fn.argtypes = [a.ctype for a in self.args]
        fn.restype = RESULTS[spec.get("ret", "void")]
        self.status = spec.get("ret") == "i32"
        if self.stream:
            self.args.pop()
        self.converts = [a.convert for a in self.args]
        self.__name__ = self.name

    def __call__(self, *values):
        if len(values) != len(self.converts):
            raise TypeError(f"{self.name}: expected {len(self.converts)} arguments, "
                            f"got {len(values)}")
        raw = [c(v) for c, v in zip(self.converts, values, strict=True)]
        if self.stream:
            raw.append(stream_of(self.device))
        Launcher.calls += 1
        got = self.fn(*raw)
        if not self.status:
            return got
        if got:
            raise RuntimeError(f"{self.name} returned {got}")
        return None

    def __repr__(self):
        return f"<launcher {self.name}>"


def check_driver(rc, what):
    if rc:
        raise RuntimeError(f"{what} failed with CUDA driver error {rc}")


def three(value, what):
    sizes = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise TypeError(f"{what} must be a positive int or up to three of them, got {value!r:.60}")
    return sizes + (1,) * (3 - len(sizes))


class Kernel:
    """One __global__ function: cuda_extension.NAME[grid, block, smem](...)."""

    MAX_DYNAMIC_SHARED = 8      # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

    def __init__(self, driver, function, spec, device):
        self.driver = driver
        self.function = function
        self.name = spec["name"]
        self.device = device
        self.args = [Argument(self.name, i, a, device) for i, a in enumerate(spec["args"])]
        self.shared = 48 << 10

    def __getitem__(self, config):
        config = config if isinstance(config, tuple) else (config,)
        if not 2 <= len(config) <= 3:
            raise TypeError(f"{self.name}: expected [grid, block] or [grid, block, smem]")
        grid, block = three(config[0], "grid"), three(config[1], "block")
        smem = config[2] if len(config) == 3 else 0
        if not isinstance(smem, int) or smem < 0:
            raise TypeError(f"{self.name}: smem must be a number of bytes")
        return lambda *values: self.launch(grid, block, smem, values)

    def __call__(self, *values):
        raise TypeError(f"{self.name} is a kernel: call it as {self.name}[grid, block](...)")

    def launch(self, grid, block, smem, values):
        if len(values) != len(self.args):
            raise TypeError(f"{self.name}: expected {len(self.args)} arguments, got {len(values)}")
        raw = [a.ctype(a.convert(v)) for a, v in zip(self.args, values, strict=True)]
        params = (ctypes.c_void_p * max(len(raw), 1))(*[ctypes.addressof(r) for r in raw])
        if smem > self.shared:
            check_driver(self.driver.cuFuncSetAttribute(
                self.function, self.MAX_DYNAMIC_SHARED, smem), f"{self.name}: {smem} bytes smem")
            self.shared = smem
        Launcher.calls += 1
        check_driver(self.driver.cuLaunchKernel(
            self.function, *grid, *block, smem, ctypes.c_void_p(stream_of(self.device)), params,
            None), f"launch of {self.name}")


def light(module, path, launchers, device):
    lib = ctypes.CDLL(path)
    for spec in launchers:
        setattr(module, spec["name"], Launcher(getattr(lib, spec["name"]), spec, device))
    module.__lib__ = lib


def kernels(module, path, launchers, device):
    torch.cuda.current_stream()         # the primary context, current in this thread
    torch.zeros(1, device=device)
    driver = ctypes.CDLL("libcuda.so.1")
    with open(path, "rb") as f:
        image = f.read()
    handle = ctypes.c_void_p()
    check_driver(driver.cuModuleLoadData(ctypes.byref(handle), image), "loading the cubin")
    for spec in launchers:
        function = ctypes.c_void_p()
        check_driver(driver.cuModuleGetFunction(ctypes.byref(function), handle,
                                                spec["name"].encode()),
                     f"kernel '{spec['name']}'")
        setattr(module, spec["name"], Kernel(driver, function, spec, device))


def paper(path):
    loader = importlib.machinery.ExtensionFileLoader("cuda_extension", path)
    spec = importlib.util.spec_from_file_location("cuda_extension", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def make(form, path, launchers, device):
    """The module for an object of that form."""
    if form == "paper":
        return paper(path)
    module = types.ModuleType("cuda_extension")
    if form == "kernel" and device.type == "cuda":
        kernels(module, path, launchers, device)
    else:
        light(module, path, launchers, device)
    names = ", ".join(spec["name"] for spec in launchers) or "none"

    def unknown(name):
        raise AttributeError(f"cuda_extension has no launcher '{name}' (there are: {names})")
    module.__getattr__ = unknown
    return module


def install(form, fd, launchers, device):
    """Makes `import cuda_extension` work."""
    sys.modules["cuda_extension"] = make(form, f"/proc/self/fd/{fd}", launchers, device)
