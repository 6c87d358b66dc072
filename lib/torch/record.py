# SPDX-License-Identifier: Apache-2.0
"""The dry run of a candidate that builds its kernels itself: model_new.py is loaded,
constructed and called once on fake tensors, which have shapes and no values, and
what it asks load_inline and load for is recorded.  Nothing here is trusted: the tool
checks what was recorded, and the judge runs the candidate in full."""
import contextlib
import types

import torch
from torch._subclasses import fake_tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from catorch import inline
from catorch.shim import Child, Fail, legible, load_module, read_fd, tail_of

REQUESTS = 16
GPU = torch.device("cuda", 0)


class Placeholder(types.ModuleType):
    """In place of an extension: its functions return their first tensor, or None."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.call

    @staticmethod
    def call(*args, **kwargs):
        for value in [*args, *kwargs.values()]:
            if isinstance(value, torch.Tensor):
                return value.clone()
        return None


class Guess(TorchFunctionMode):
    """Values that fake tensors do not have are 1."""

    guesses = {
        torch.Tensor.item: 1, torch.Tensor.__int__: 1, torch.Tensor.__index__: 1,
        torch.Tensor.__float__: 1.0, torch.Tensor.__bool__: True,
    }

    def __torch_function__(self, func, types, args=(), kwargs=None):
        try:
            return func(*args, **kwargs or {})
        except fake_tensor.DataDependentOutputException:
            if func not in self.guesses:
                raise
            return self.guesses[func]


class Nothing:
    """A stream, an event or a graph of a GPU that is not there."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


def pretend(capability):
    """As if there were a GPU, on any machine."""
    properties = types.SimpleNamespace(
        name="GPU", major=capability[0], minor=capability[1], multi_processor_count=132,
        total_memory=80 << 30, max_threads_per_multi_processor=2048, warp_size=32,
        shared_memory_per_block=48 << 10, shared_memory_per_block_optin=227 << 10,
        shared_memory_per_multiprocessor=228 << 10, regs_per_multiprocessor=65536)
    cuda = torch.cuda
    for name in ("init", "_lazy_init", "synchronize", "empty_cache", "set_device", "set_stream"):
        setattr(cuda, name, lambda *args, **kwargs: None)
    for name in ("Stream", "Event", "CUDAGraph", "graph", "stream", "device", "current_stream",
                 "default_stream"):
        setattr(cuda, name, Nothing)
    cuda.is_available = cuda.is_initialized = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.get_device_name = lambda *args: properties.name
    cuda.get_device_capability = lambda *args: capability
    cuda.get_device_properties = lambda *args: properties
    own = fake_tensor.FakeTensor.device
    fake_tensor.FakeTensor.device = property(
        lambda self: GPU if isinstance(_get_current_function_mode(), OnGpu) else own.fget(self),
        own.fset)


def off_gpu(value):
    if isinstance(value, str) and value.startswith("cuda"):
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


class OnGpu(TorchFunctionMode):
    """Tensors lie on the CPU and say that they are on the GPU."""

    answers = {
        torch.Tensor.is_cuda.__get__: lambda self: True,
        torch.Tensor.is_cpu.__get__: lambda self: False,
        torch.Tensor.device.__get__: lambda self: self.device if self.is_meta else GPU,
        torch.Tensor.get_device: lambda self: 0,
        torch.Tensor.cuda: lambda self, *args, **kwargs: self,
        torch.Tensor.pin_memory: lambda self, *args, **kwargs: self,
    }

    def __torch_function__(self, func, types, args=(), kwargs=None):
        answer = self.answers.get(func)
        kwargs = kwargs or {}
        if answer:
            return answer(*args, **kwargs)
        return func(*[off_gpu(a) for a in args], **{k: off_gpu(v) for k, v in kwargs.items()})


class Recorder(Child):
    def take(self, req):
        if len(self.requests) == REQUESTS:
            raise inline.RefusedError(f"more than {REQUESTS} extensions")
        if req not in self.requests:
            self.requests.append(req)
        return Placeholder(req["name"])

    def note(self, exc):
        self.refused = self.refused or legible(exc)

    def do_load(self, req):
        self.requests = []
        self.refused = None
        task, code = (read_fd(self.fd(req[k])).decode() for k in ("task", "code"))
        self.begin(req)
        gpu = req["target"] == "cuda"
        if gpu:
            pretend(tuple(req["capability"]))
        inline.install(self.take, inline.settle_down(), self.note)
        error = None
        try:
            self.dry_run(task, code, gpu)
        except Fail as exc:             # model_new.py itself does not load
            error = str(exc)
            if not self.requests and not self.refused:
                self.refused = error.strip().rsplit("\n", 1)[-1]
        except BaseException as exc:
            error = tail_of(exc)
        return self.describe({"requests": self.requests, "refused": self.refused,
                              "error": error})

    def dry_run(self, task, code, gpu):
        torch.set_grad_enabled(False)
        mode = OnGpu() if gpu else contextlib.nullcontext()
        with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True), Guess(), mode:
            new = load_module("model_new", code)
            model = load_module("model", task)
            args = model.get_init_inputs()
            kwargs = {}
            if len(args) == 2 and isinstance(args[0], (list, tuple)) and isinstance(args[1], dict):
                args, kwargs = args
            module = new.ModelNew(*args, **kwargs)
            if isinstance(module, torch.nn.Module):
                module.eval()
            module(*model.get_inputs())
