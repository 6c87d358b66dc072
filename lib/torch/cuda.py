# SPDX-License-Identifier: Apache-2.0
"""CUDA in a child: its one GPU, the judge's memory, its result pool and CUPTI,
through libca-child.so.  Nothing here runs in the host, which must never touch CUDA."""
import ctypes
import os

import torch

from catorch.proto import END_BAD_REQUEST, END_OOM
from catorch.shim import Fail, Region, blocks_of

DEVICE = torch.device("cuda", 0)
OUT_OF_MEMORY = 2               # CUDA_ERROR_OUT_OF_MEMORY


class Library:
    """The functions of libca-child.so that are for CUDA."""

    def __init__(self, lib):
        # The name under which the host has loaded it: the jail may hide the file.
        self.path = lib._name
        u64 = ctypes.c_uint64
        self.bring = lib.ca_child_import
        self.bring.argtypes = (ctypes.c_int, ctypes.c_int, u64, ctypes.POINTER(u64))
        self.nudge = lib.ca_child_nudge
        self.nudge.argtypes = (u64,)
        self.pool_set = lib.ca_pool_set
        self.pool_set.argtypes = (u64, u64)
        self.pool_set.restype = None
        self.block = blocks_of(lib)
        self.trace_start = lib.ca_trace_start
        self.mark = lib.ca_trace_mark
        self.mark.argtypes = (u64,)
        self.mark.restype = None
        self.flush = lib.ca_trace_flush
        self.flush.argtypes = ()
        self.flush.restype = None


class Loaded:
    library = None


def use(lib):
    """Takes the library that the host has loaded."""
    if lib is None:
        raise Fail(END_BAD_REQUEST, 0, "there is no libca-child.so, which CUDA needs")
    if Loaded.library is None:
        Loaded.library = Library(lib)


def library():
    return Loaded.library


def select(name, uuid=None, queues=None):
    """Makes the judge's "cuda:N" the only GPU of this process, as device 0.

    A jail shows one card's node alone: there the second GPU's number is of none.  With
    fewer queues to the GPU than usual a context is made and ended in half the time."""
    if queues:
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", str(queues))
    if uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid
        return DEVICE
    index = int(name.partition(":")[2] or 0)
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    listed = [s.strip() for s in seen.split(",")] if seen is not None else None
    if listed is not None and index >= len(listed):
        raise Fail(END_BAD_REQUEST, 0, f"no device {name}")
    os.environ["CUDA_VISIBLE_DEVICES"] = listed[index] if listed is not None else str(index)
    return DEVICE


class Span:
    """Device memory as torch takes it over without copying."""

    def __init__(self, address, nbytes):
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3,
        }


class Memory:
    def bytes_at(self, address, n):
        return torch.as_tensor(Span(address, n), device=DEVICE)


def start():
    """The context exists from here on, and does nothing."""
    torch.cuda.init()
    torch.cuda.current_stream()
    torch.zeros(1, device=DEVICE)


def exercise():
    """What most references begin with, where nobody waits for it: the driver loads a kernel
    when it first runs, and cuBLAS takes a tenth of a second to begin."""
    x = torch.rand(64, 64, device=DEVICE)
    y = torch.nn.functional.linear(x * 2.0 + x, x, x[0]).relu_()
    (x @ y - y / 2.0).sum()
    torch.cuda.synchronize()


def map(fd, nbytes, device):
    """Device memory of the judge's behind a descriptor."""
    start()
    address = ctypes.c_uint64()
    rc = library().bring(0, fd, nbytes, ctypes.byref(address))
    if rc:
        raise Fail(END_OOM if rc == OUT_OF_MEMORY else END_BAD_REQUEST, 0,
                   f"cannot map the judge's memory: CUDA driver error {rc}")
    return Region(address.value, nbytes, device, Memory())


class Pool:
    """The result pool behind torch's caching allocator, but for its last eighth, where
    copies of results go: what a forward has taken torch keeps, all of the pool perhaps."""

    ALIGN = 512

    def __init__(self, region):
        self.start = region.address
        self.nbytes = region.nbytes
        self.copies = region.nbytes - region.nbytes // 8 // self.ALIGN * self.ALIGN
        self.taken = self.copies
        lib = library()
        lib.pool_set(region.address, self.copies)
        self.block = lib.block
        self.allocator = torch.cuda.memory.CUDAPluggableAllocator(
            lib.path, "ca_pool_malloc", "ca_pool_free")
        self.pool = torch.cuda.MemPool(self.allocator.allocator())
        self.active = False

    # What torch.cuda.use_mem_pool() does, without its detours.
    def on(self):
        if not self.active:
            torch._C._cuda_beginAllocateCurrentThreadToPool(0, self.pool.id)
            self.active = True

    def room(self, shape, dtype):
        """A tensor for a copy, until off(); None when there is no more room."""
        n = shape.numel() * dtype.itemsize
        at = self.taken
        if at + n > self.nbytes:
            return None
        self.taken += -(-n // self.ALIGN) * self.ALIGN
        return Memory().bytes_at(self.start + at, n).view(dtype).view(shape)

    def off(self):
        self.taken = self.copies
        if self.active:
            self.active = False
            torch._C._cuda_endAllocateToPool(0, self.pool.id)
            torch._C._cuda_releasePool(0, self.pool.id)


def pool(region):
    return Pool(region)


def nudge():
    """The first kernel of an iteration, in the stream that the model will use."""
    rc = library().nudge(torch.cuda.current_stream().cuda_stream)
    if rc:
        raise Fail(END_BAD_REQUEST, 0, f"cannot launch a kernel: CUDA driver error {rc}")


class Trace:
    """CUPTI's records into a region of the judge's: evidence, never the clock.  To be
    started before the first CUDA call of the process."""

    def __init__(self, fd):
        lib = library()
        self.on = lib.trace_start(fd) == 0
        self.mark = lib.mark
        self.flush = lib.flush


class Timer:
    """What the calibration process works, by the GPU's own clock."""

    def __init__(self):
        self.begin = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)
        self.khz = torch.cuda.get_device_properties(0).clock_rate

    def __enter__(self):
        self.begin.record()

    def __exit__(self, *exc):
        self.end.record()
        return False

    def ns(self):
        """Waits for the work of the last `with`."""
        self.end.synchronize()
        return int(self.begin.elapsed_time(self.end) * 1e6)

    def work(self, idle_us):
        """Keeps the GPU busy for about so long; how long is measured."""
        torch.cuda._sleep(int(idle_us * self.khz / 1000))
