# SPDX-License-Identifier: Apache-2.0
"""The PyTorch host: imports torch once and forks a fresh child for every job.

    python3 -I host.py FD CACHE

FD is the tool's end of a SOCK_SEQPACKET channel, CACHE a directory for what is
built at first use.  proto.h and ca-torch(5) describe the protocol.  No tensor
operation and no parallel region may ever run here: a child's first parallel
operation would hang.
"""
import ctypes
import os
import sys

os.dup2(2, 1)                   # nothing but us writes to the tool's stdout
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

PR_SET_PDEATHSIG = 1
SIGTERM, SIGKILL = 15, 9
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent(signal, parent):
    """Ends this process when its parent does, which may have happened already."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent(SIGKILL, os.getppid())

import array                    # noqa: E402
import gc                       # noqa: E402
import json                     # noqa: E402
import select                   # noqa: E402
import socket                   # noqa: E402
import types                    # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def import_package():
    """Our modules under a name of their own: -I keeps this directory off sys.path, so
    that no task's `import state` finds ours."""
    package = types.ModuleType("catorch")
    package.__path__ = [HERE]
    sys.modules["catorch"] = package
    sys.dont_write_bytecode, was = True, sys.dont_write_bytecode
    from catorch import children, setup
    sys.dont_write_bytecode = was
    return children, setup


class Host:
    def __init__(self, channel, env, roles):
        self.channel = channel
        self.env = env
        self.roles = roles
        self.children = {}      # pidfd -> pid
        self.poll = select.poll()
        self.poll.register(channel, select.POLLIN)

    def send(self, value):
        self.channel.send(json.dumps(value, separators=(",", ":")).encode())

    def reap(self, pidfd):
        pid = self.children.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self.env.after_child(pid)
        self.send({"exit": pid, "status": status})

    def fork(self, req, fd):
        me = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            die_with_parent(SIGKILL, me)
            self.env.become_child(req, fd, self.roles[req["role"]])
        except BaseException:
            os._exit(70)
        os._exit(0)

    def spawn(self, req, fds):
        if len(fds) != 1 or req.get("role") not in self.roles:
            raise ValueError("spawn needs a role and one descriptor")
        self.env.before_fork(req)
        pid = self.fork(req, fds[0])
        pidfd = os.pidfd_open(pid)
        self.children[pidfd] = pid
        self.poll.register(pidfd, select.POLLIN)
        self.send({"id": req["id"], "pid": pid})

    def receive(self):
        """One request; False at EOF."""
        data, anc, _, _ = self.channel.recvmsg(65536, socket.CMSG_SPACE(4 * 8))
        fds = array.array("i")
        for level, kind, payload in anc:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[:len(payload) // 4 * 4])
        if not data:
            return False
        req = None
        try:
            req = json.loads(data)
            if req["op"] == "spawn":
                self.spawn(req, fds)
            elif req["op"] == "prepare":
                self.env.before_fork({"role": "compile"})
                self.send({"id": req["id"]})
            else:
                raise ValueError("unknown op")
        except (ValueError, KeyError, TypeError, RecursionError, OSError) as exc:
            name = req.get("id") if isinstance(req, dict) else None
            self.send({"id": name, "error": f"{type(exc).__name__}: {exc}"[:500]})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def run(self):
        while True:
            for fd, _ in self.poll.poll():
                if fd != self.channel.fileno():
                    self.reap(fd)
                elif not self.receive():
                    return

    def end(self):
        for pid in self.children.values():
            os.kill(pid, SIGKILL)
        for pid in self.children.values():
            os.waitpid(pid, 0)
            self.env.after_child(pid)


def main():
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    try:
        children, setup = import_package()
        env = setup.Env(HERE, sys.argv[2])
        hello = env.hello()
    except Exception as exc:
        channel.send(json.dumps({"error": f"{type(exc).__name__}: {exc}"[:2000]}).encode())
        return 1
    gc.collect()
    gc.freeze()
    host = Host(channel, env, children.ROLES)
    host.send(hello)
    try:
        host.run()
    except (BrokenPipeError, ConnectionResetError):
        pass                    # the tool is gone
    finally:
        host.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
