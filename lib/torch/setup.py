# SPDX-License-Identifier: Apache-2.0
"""What the host prepares for its children, and how a child begins."""
import ctypes
import errno
import fcntl
import hashlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile

import torch

from catorch import proto

CHANNEL = 3
DISPATCH = {"crawl", "hf", "combine", "task"}    # roles that record what is dispatched


def cpu_flags():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            for line in f:
                if line.startswith(("flags", "Features")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def short_hash(*parts):
    h = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        h.update(len(raw).to_bytes(8, "little") + raw)
    return h.hexdigest()[:32]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def lock(file, how=fcntl.LOCK_EX):
    """flock; False where the storage has no locks.  What is kept there appears by
    renames, which then have to do."""
    try:
        fcntl.flock(file, how)
    except OSError as exc:
        if exc.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        return False
    return True


def store(path, write):
    """Makes a file by `write(temporary name)` and a rename, once."""
    folder = os.path.dirname(path)
    os.makedirs(folder, 0o755, exist_ok=True)
    with open(os.path.join(folder, "lock"), "wb") as held:
        lock(held)
        if os.path.exists(path):
            return
        fd, temp = tempfile.mkstemp(dir=folder)
        os.close(fd)
        try:
            write(temp)
            os.chmod(temp, 0o755)
            os.rename(temp, path)
        except BaseException:
            if os.path.exists(temp):
                os.unlink(temp)
            raise


def build_alloc(source, cache):
    """The C++ part, built against the torch at hand; the path of the object."""
    text = b"".join(read(os.path.join(os.path.dirname(source), name))
                    for name in (os.path.basename(source), "movers.inc", "zone.h"))
    root = os.path.dirname(torch.__file__)
    path = os.path.join(cache, f"alloc-{short_hash(text, torch.__version__, root)}.so")

    def compile_to(temp):
        cxx = os.environ.get("CXX") or "g++"
        if not shutil.which(cxx):
            raise RuntimeError(f"no C++ compiler '{cxx}', which the torch host needs once")
        cmd = [cxx, "-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-w",
               f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
               f"-I{root}/include", "-o", temp, source, f"-L{root}/lib", "-lc10", "-ltorch_cpu"]
        done = subprocess.run(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=300)
        if done.returncode:
            raise RuntimeError("cannot build the allocator: " +
                               done.stderr.decode("utf-8", "replace")[:1500])

    if not os.path.exists(path):
        store(path, compile_to)
    return path


def load_child(here):
    """libca-child.so of a checkout or of an installation; None without."""
    for path in ("../../bin/libca-child.so", "../libca-child.so"):
        path = os.environ.get("CA_CHILD_LIB") or os.path.join(here, path)
        if os.path.exists(path):
            return ctypes.CDLL(path)
    return None


def load_openmp():
    """torch's OpenMP runtime, to be told when its threads have nothing to do."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as f:
        for line in f:
            path = line.split(None, 5)[-1].strip()
            if re.search(r"/lib(gomp|omp|iomp5)[^/]*$", path):
                return ctypes.CDLL(path)
    return None


def cuda_here():
    return os.path.exists("/dev/nvidiactl")


class Env:
    """Made in the host before any fork; what children inherit."""

    def __init__(self, here, cache):
        self.here = here
        self.cache = cache
        alloc = build_alloc(os.path.join(here, "alloc.cpp"), cache)
        self.alloc = ctypes.CDLL(alloc)
        self.child = load_child(here)
        self.openmp = load_openmp()
        self.ready = set()      # devices whose graphs compile quickly
        root = os.path.dirname(torch.__file__)
        self.sources = [os.path.join(here, n) for n in sorted(os.listdir(here))
                        if n.endswith((".py", ".cpp"))]
        # What children get from here: should it change, this host is outdated.
        self.files = self.sources + [
            cache, alloc, sys.executable, "/dev/nvidiactl", os.path.join(root, "version.py"),
            os.path.join(root, "lib", "libtorch_cpu.so")]
        if self.child:
            self.files.append(self.child._name)

    def hello(self):
        sources = [read(path) for path in self.sources]
        # Not torch.__config__.show(), which starts CUDA.
        digest = short_hash(torch.__version__, torch.version.git_version, torch.version.cuda,
                            sys.version, cpu_flags(), *sources)
        return {"hello": proto.PROTO, "pid": os.getpid(), "torch": torch.__version__,
                "python": platform.python_version(),
                "cuda": torch.backends.cuda.is_built() and cuda_here(), "digest": digest}

    # -- in the host

    def prepare(self, role, device=None):
        """Before a child of this role on a device; unless told, on what the tools take
        when they are not told.  Whether there was something to do."""
        if role == "record" and "catorch.record" not in sys.modules:
            from catorch import record  # noqa: F401
            return True
        if role in DISPATCH and "torch._dynamo" not in sys.modules:
            from catorch import inductor
            inductor.dynamo(self.cache)
            return True
        kind = (device or ("cuda" if cuda_here() else "cpu")).partition(":")[0]
        if role != "compile" or kind in self.ready:
            return False
        from catorch import inductor
        if not self.ready:
            inductor.prime(self.cache)
        if kind == "cpu":
            inductor.prime_cpu(self.cache, cpu_flags())
            self.files += self.compiled_headers()
        self.ready.add(kind)
        return True

    def compiled_headers(self):
        return [os.path.join(self.cache, name) for name in os.listdir(self.cache)
                if name.startswith("headers-")]

    # -- in a child

    def settle(self, channel_fd):
        """Nothing but the channel stays open, as descriptor 3; output goes nowhere."""
        null = os.open(os.devnull, os.O_RDWR)
        for i in (0, 1) if os.environ.get("CA_TORCH_STDERR") else (0, 1, 2):
            os.dup2(null, i)
        if channel_fd != CHANNEL:
            os.dup2(channel_fd, CHANNEL)
        os.closerange(CHANNEL + 1, 1 << 20)
        return socket.socket(fileno=CHANNEL)

    def rest(self):
        """Ends OpenMP's idle threads.  They would wait for work in a busy loop for some
        milliseconds, on cores where somebody else's clock runs."""
        pause = getattr(self.openmp, "omp_pause_resource_all", None)
        if pause:
            pause(1)

    def cuda(self):
        from catorch import cuda
        cuda.use(self.child)
        return cuda
