# SPDX-License-Identifier: Apache-2.0
"""The door of a host that several tools share: who may come in, and when it closes.

The folder that holds the socket is its owner's alone, and no jail shows it.  Who
connects sends a descriptor of the folder's lock file along: a secret would be worth
less, since children inherit the host's memory."""
import contextlib
import fcntl
import os
import socket
import stat
import struct
import time

GREET_SECONDS = 10              # to say hello
MEMORY_BYTES = 3 << 30          # an idle host that holds more leaves


def stamp(path):
    """Changes when a file does; of a folder only whether it is another one."""
    try:
        st = os.stat(path)
    except OSError:
        return None
    if stat.S_ISDIR(st.st_mode):
        return st.st_dev, st.st_ino
    return st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns


def detach():
    """Leaves the tool that starts this host: it stays when that ends, and holds nothing
    that somebody may wait for."""
    null = os.open(os.devnull, os.O_RDWR)
    for i in range(3):
        os.dup2(null, i)
    os.close(null)
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        os.read(told, 1)        # the new session is there: our group may be killed
        os._exit(0)
    os.setsid()
    os.close(told)
    os.close(tell)
    os.chdir("/")


class Door:
    greet_s = GREET_SECONDS

    def __init__(self, fd, folder, key, idle):
        self.listener = socket.socket(fileno=fd)
        self.listener.set_inheritable(False)
        self.listener.setblocking(False)
        self.path = os.path.join(folder, key)
        self.lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CLOEXEC)
        self.mine = stamp(self.path)
        self.idle = float(idle)
        self.since = time.monotonic()   # when the last tool left
        self.relies = {}        # path -> stamp

    def rely(self, paths):
        """What this host has loaded: one that finds any of it changed is outdated."""
        for path in paths:
            self.relies.setdefault(path, stamp(path))

    def outdated(self):
        return any(stamp(path) != was for path, was in self.relies.items())

    @staticmethod
    def memory_bytes():
        """What would be free without this process: its own pages, not libraries' ones."""
        with open("/proc/self/statm", encoding="ascii") as f:
            _, resident, shared = f.read().split()[:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")

    def ends(self):
        """When a host without tools leaves, if none comes."""
        return self.since + (0 if self.memory_bytes() > MEMORY_BYTES else self.idle)

    def accept(self):
        """A new channel, or None."""
        try:
            channel, _ = self.listener.accept()
        except OSError:
            return None
        cred = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("iII", cred)[1] != os.geteuid():
            channel.close()
            return None
        channel.setblocking(False)
        return channel

    def knows(self, fds):
        """Whether the descriptors that came with a greeting are the lock file's."""
        if len(fds) != 1:
            return False
        return os.path.samestat(os.fstat(fds[0]), os.fstat(self.lock))

    def close(self):
        """Takes nobody any more; the next tool starts another host."""
        if self.listener is None:
            return
        with contextlib.suppress(OSError):
            # Whoever holds the lock finds a socket without a listener, and removes it.
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stamp(self.path) == self.mine:
                os.unlink(self.path)
        self.listener.close()
        self.listener = None
        fcntl.flock(self.lock, fcntl.LOCK_UN)

    def refuse_all(self, why):
        """Tells those who wait why there will be no host."""
        while (channel := self.accept()) is not None:
            with contextlib.suppress(OSError):
                channel.send(why)
            channel.close()
        self.close()
