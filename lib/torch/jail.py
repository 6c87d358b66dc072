# SPDX-License-Identifier: Apache-2.0
"""The jail of lib/jail/self.h, called through ctypes, and the private folders that
jailed compilers write."""
import ctypes
import fcntl
import functools
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile

import torch

from catorch.proto import END_JAIL
from catorch.setup import lock
from catorch.shim import Fail

LEVELS = {"none": 0, "weak": 1, "uid": 2, "full": 3}
WORKER_CPU, WORKER_CUDA, BASELINE, ORACLE = range(4)
USE_CUDA = 1
MESSAGE = 512
TMP_BYTES = 1 << 30
# Nothing that a worker on the CPU needs; filling more than this takes seconds.
WORKER_TMP_BYTES = 64 << 20
# Descriptors, and bytes of each file: a file in memory counts as nobody's address space,
# so that their product is what a process can fill beside its limit.
FILES = {WORKER_CPU: (128, 16 << 20), WORKER_CUDA: (256, 64 << 20), ORACLE: (256, 64 << 20)}
STORE_FILES = 2000
STORE_BYTES = 256 << 20
STORE_ENTRIES = 4000
MARK = "complete"
SUMS = "sums.json"


class Seal(ctypes.Structure):
    _fields_ = [
        ("level", ctypes.c_int), ("profile", ctypes.c_int), ("flags", ctypes.c_uint),
        ("nofile", ctypes.c_int), ("ro", ctypes.c_void_p), ("rw", ctypes.c_void_p),
        ("dev", ctypes.c_void_p), ("mem_bytes", ctypes.c_int64), ("file_bytes", ctypes.c_int64),
        ("procs", ctypes.c_int64),
    ]


def strings(paths):
    """A NULL-terminated list for C."""
    return (ctypes.c_char_p * (len(paths) + 1))(*[os.fsencode(p) for p in paths], None)


def compilers():
    """Where inductor and triton find compilers that are not below /usr."""
    names = [os.environ.get("CC"), os.environ.get("CXX"), "gcc", "g++", "cc", "c++", "clang"]
    found = {shutil.which(n) for n in names if n} - {None}
    found |= {os.path.realpath(p) for p in found}
    folders = {os.path.dirname(p) for p in found if not p.startswith("/usr/")}
    # With its libraries beside it, unless that would be somebody's home.
    wide = {"/", "/opt", "/home", os.path.expanduser("~")}
    return {f if os.path.dirname(f) in wide else os.path.dirname(f) for f in folders}


def readable(*more):
    """What Python and torch are loaded from."""
    paths = {sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(torch.__file__)),
             os.path.dirname(os.path.realpath(sys.executable))}
    paths.update(p for p in sys.path if os.path.isdir(p))
    paths.update(more)
    paths.update(compilers())
    paths.update(p for p in ("/usr/local/cuda", os.environ.get("CUDA_HOME", "")) if p)
    return sorted({os.path.realpath(p) for p in paths if os.path.exists(p)} - {"/"})


@functools.cache
def closed_to_others():
    """The first folder that code of another uid could not load Python or torch from."""
    for path in readable():
        while path != "/":
            mode = os.stat(path).st_mode
            if stat.S_ISDIR(mode) and not mode & stat.S_IXOTH:
                return path
            path = os.path.dirname(path)
    return None


def default_memory():
    """Three quarters of what is free now, but no less than 2 GiB."""
    free = 0
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) << 10
    return max(free // 4 * 3, 2 << 30)


class Jail:
    """One job's jail: made in the host, entered in the child."""

    def __init__(self, lib, req):
        name = req.get("jail", "full")
        if name not in LEVELS:
            raise ValueError(f"unknown jail level {name!r}")
        self.lib = lib
        self.level = LEVELS[name]
        self.role = req["role"]
        self.may_exec = bool(req.get("may_exec"))
        self.cuda = req.get("device", "cpu") != "cpu"
        self.node = req.get("node")
        self.mem_bytes = int(req.get("mem_bytes") or 0) or default_memory()
        self.ro = []
        self.rw = []
        self.uid = 0
        if self.level:
            if lib is None:
                raise ValueError("there is no libca-child.so, which the jail needs")
            self.uid = lib.jail_self_uid()
        if self.level >= LEVELS["uid"] and os.geteuid() == 0 and closed_to_others():
            raise ValueError(f"'{closed_to_others()}' is closed to other users, as which jailed "
                             "code runs: Python or torch cannot be loaded from it")

    def call(self, name, *args):
        text = ctypes.create_string_buffer(MESSAGE)
        rc = getattr(self.lib, name)(*args, text, ctypes.c_size_t(MESSAGE))
        if rc:
            raise Fail(END_JAIL, 0, f"jail: {text.value.decode('utf-8', 'replace')}")

    def leave(self):
        """Step 1, in the intermediate process."""
        self.call("jail_self_unshare", self.level, ctypes.c_uint(self.uid))

    def enter(self):
        """Step 2, in the process that will be confined."""
        self.call("jail_self_mount", self.level, strings(readable(*self.ro)), strings(self.rw),
                  ctypes.c_int64(WORKER_TMP_BYTES if self.profile() == WORKER_CPU else TMP_BYTES))

    def profile(self):
        if self.role == "oracle":
            return ORACLE
        if self.may_exec:
            return BASELINE
        return WORKER_CUDA if self.cuda else WORKER_CPU

    def devices(self):
        if not self.cuda:
            return []
        shared = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
        cards = [self.node] if self.node else [
            f"/dev/{n}" for n in sorted(os.listdir("/dev")) if n.startswith("nvidia") and
            n[6:].isdigit()]
        return cards + [f"/dev/{n}" for n in shared if os.path.exists(f"/dev/{n}")]

    def seal(self):
        """Step 3, right before foreign code.  There is no way back."""
        if not self.level:
            return
        lists = strings(readable(*self.ro)), strings(self.rw), strings(self.devices())
        at = [ctypes.addressof(x) for x in lists]
        nofile, file_bytes = FILES.get(self.profile(), (0, 0))
        seal = Seal(self.level, self.profile(), USE_CUDA if self.cuda else 0, nofile, *at,
                    0 if self.cuda else self.mem_bytes, file_bytes, 0)
        self.call("jail_self_seal", ctypes.byref(seal))

    def ended(self):
        """In the host, after the child: nothing of that uid may be left."""
        if self.level == LEVELS["uid"]:
            self.call("jail_self_kill", ctypes.c_uint(self.uid))


def copy_file(source, target, budget):
    """A regular file, never through a link; its size."""
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as f:
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode) or st.st_size > budget:
            return 0
        temp_fd, temp = tempfile.mkstemp(dir=os.path.dirname(target))
        try:
            with open(temp_fd, "wb") as out:
                shutil.copyfileobj(f, out)
            os.chmod(temp, 0o755 if st.st_mode & 0o100 else 0o644)
            os.rename(temp, target)
        except OSError:
            os.unlink(temp)
            raise
    return st.st_size


def copy_new(source, target):
    """Copies the files that target lacks; never follows links.  The names of what is
    copied, relative."""
    budget, count = STORE_BYTES, 0
    for folder, folders, files in os.walk(source, followlinks=False):
        into = os.path.join(target, os.path.relpath(folder, source))
        os.makedirs(into, 0o755, exist_ok=True)
        folders[:] = [d for d in folders if not os.path.islink(os.path.join(folder, d))]
        for name in files:
            there = os.path.join(into, name)
            if name in (MARK, SUMS) or name.endswith(".lock") or os.path.exists(there):
                continue
            count += 1
            if count > STORE_FILES:
                return
            try:
                budget -= copy_file(os.path.join(folder, name), there, budget)
            except OSError:
                continue


def sums_of(folder):
    """What the files there hold, by their names."""
    found = {}
    for where, _, files in os.walk(folder, followlinks=False):
        for name in files:
            path = os.path.join(where, name)
            if name != SUMS and os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as f:
                    found[os.path.relpath(path, folder)] = hashlib.sha256(f.read()).hexdigest()
    return found


def write_sums(folder):
    found = sums_of(folder)
    fd, temp = tempfile.mkstemp(dir=folder)
    with open(fd, "w", encoding="utf-8") as f:
        json.dump(found, f)
    os.rename(temp, os.path.join(folder, SUMS))


def is_intact(folder):
    try:
        with open(os.path.join(folder, SUMS), encoding="utf-8") as f:
            return json.load(f) == sums_of(folder)
    except (OSError, ValueError):
        return False


def hold(path):
    """A descriptor that locks a folder, or None when another process has it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def make_room(parent):
    """A new folder, locked for as long as this process lives; those that killed hosts
    have left are removed, where locks tell them from others."""
    os.makedirs(parent, 0o755, exist_ok=True)
    with open(os.path.join(parent, "lock"), "wb") as held:
        locks = lock(held)
        for entry in os.scandir(parent):
            if locks and entry.is_dir(follow_symlinks=False):
                fd = hold(entry.path)
                if fd is not None:
                    shutil.rmtree(entry.path, ignore_errors=True)
                    os.close(fd)
        path = tempfile.mkdtemp(prefix="", dir=parent)
        return path, hold(path)


def forget_old(parent):
    """Keeps the newest entries of a folder that has grown too large."""
    found = sorted(os.scandir(parent), key=lambda e: e.stat(follow_symlinks=False).st_mtime_ns)
    if len(found) > STORE_ENTRIES:
        for entry in found[:len(found) // 4]:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


class Workshop:
    """A private folder for one compiling child.  Compiled code that earlier children
    of the same name made is copied in, what this one adds is copied back: no child
    can write what another one reads.  Only where /tmp is private as well, see use()."""

    def __init__(self, cache, name, jail):
        uid = jail.uid
        self.private_tmp = jail.level == LEVELS["full"]
        if name is not None and not (isinstance(name, str) and name.isalnum() and
                                     name.isascii() and len(name) <= 128):
            raise ValueError("the name of a cache must be letters and digits")
        self.store = os.path.join(cache, "code", name) if name and self.private_tmp else None
        self.path, self.held = make_room(os.path.join(cache, "job"))
        os.mkdir(os.path.join(self.path, "tmp"))
        self.note = None
        if self.store and os.path.isdir(self.store):
            with self.lock():
                self.fill()
        if os.geteuid() == 0 and uid:
            for folder, _, files in os.walk(self.path):
                os.chown(folder, uid, uid)
                for f in files:
                    os.chown(os.path.join(folder, f), uid, uid)

    def lock(self):
        os.makedirs(self.store, 0o755, exist_ok=True)
        f = open(self.store + ".lock", "wb")    # noqa: SIM115
        lock(f)
        return f

    def fill(self):
        if is_intact(self.store):
            copy_new(self.store, self.path)
            return
        # torch.compile would fail on it again and again.
        if os.path.exists(os.path.join(self.store, SUMS)):  # else an older version's
            self.note = f"'{self.store}' is damaged: compiled again"
        shutil.rmtree(self.store, ignore_errors=True)

    def use(self):
        """In the child, before anything is compiled."""
        path = self.path
        if self.private_tmp:
            # Compiled code holds paths of the cache it was made in (those of autotuning's
            # results, for one): every child must find its own under the same name.
            path = "/tmp/compiled"
            os.symlink(self.path, path)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = path
        os.environ["TRITON_CACHE_DIR"] = os.path.join(path, "triton")
        os.environ["TMPDIR"] = os.path.join(path, "tmp")
        os.environ["HOME"] = path
        tempfile.tempdir = None

    def complete(self):
        """In the child, once everything has been compiled."""
        open(os.path.join(self.path, MARK), "wb").close()

    def end(self):
        """In the host, after the child."""
        shutil.rmtree(os.path.join(self.path, "tmp"), ignore_errors=True)
        if self.store and os.path.exists(os.path.join(self.path, MARK)):
            try:
                with self.lock():
                    copy_new(self.path, self.store)
                    write_sums(self.store)
                forget_old(os.path.dirname(self.store))
            except OSError:
                pass            # a full disk: the next child compiles again
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.held)
