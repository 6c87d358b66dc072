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
PR_SET_CHILD_SUBREAPER = 36
SIGKILL = 9
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent(number, parent):
    """Ends this process when its parent does, which may have happened already."""
    LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent(SIGKILL, os.getppid())

import array  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import select  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import types  # noqa: E402
import warnings  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def import_package():
    """Our modules under a name of their own: -I keeps this directory off sys.path, so
    that no task's `import state` finds ours."""
    warnings.simplefilter("ignore")     # torch's own, at its import
    package = types.ModuleType("catorch")
    package.__path__ = [HERE]
    sys.modules["catorch"] = package
    # Nothing here needs NumPy, and torch does without.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")
    sys.dont_write_bytecode, was = True, sys.dont_write_bytecode
    from catorch import children, jail, setup
    sys.dont_write_bytecode = was
    return children, jail, setup


def known_children():
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as f:
        return [int(pid) for pid in f.read().split()]


def end_as(status):
    """Ends this process the way another one did."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


class Job:
    """One child: its jail and its workshop."""

    def __init__(self, host, req):
        self.req = req
        self.env = host.env
        self.jail = host.jail.Jail(host.env.child, req)
        self.shop = None
        if req["role"] == "compile":
            self.shop = host.jail.Workshop(host.env.cache, req.get("cache"), self.jail)
            self.jail.rw.append(self.shop.path)
            self.jail.ro += self.env.compiled_headers()

    def run(self, role, fd):
        """In the child."""
        channel = self.env.settle(fd)
        child = role(channel, self.env, self.req, self)
        try:
            if self.jail.level:
                self.confine(channel)
        except Exception as exc:
            child.refuse = f"{type(exc).__name__}: {exc}"
        child.serve()

    def confine(self, channel):
        """Returns in the confined process only; this one waits for it."""
        host = os.getppid()
        self.jail.leave()
        die_with_parent(SIGKILL, host)          # forgotten with the uid
        pid = os.fork()
        if not pid:
            self.jail.enter()
            return
        channel.close()
        end_as(os.waitpid(pid, 0)[1])

    def ended(self):
        """In the host."""
        try:
            self.jail.ended()
        finally:
            if self.shop:
                self.shop.end()


class Host:
    def __init__(self, channel, env, roles, jail):
        self.channel = channel
        self.env = env
        self.roles = roles
        self.jail = jail
        self.children = {}      # pidfd -> (pid, job)
        self.poll = select.poll()
        self.poll.register(channel, select.POLLIN)

    def send(self, value):
        self.channel.send(json.dumps(value, separators=(",", ":")).encode())

    def reap_orphans(self):
        """Confined processes whose intermediate process was killed come to us."""
        ours = {pid for pid, _ in self.children.values()}
        for pid in known_children():
            if pid not in ours:
                os.kill(pid, SIGKILL)
                os.waitpid(pid, 0)

    def reap(self, pidfd):
        pid, job = self.children.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self.reap_orphans()
        job.ended()
        self.send({"exit": pid, "status": status})

    def fork(self, job, fd):
        me = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            die_with_parent(SIGKILL, me)
            job.run(self.roles[job.req["role"]], fd)
        except BaseException:
            os._exit(70)
        os._exit(0)

    def spawn(self, req, fds):
        if len(fds) != 1 or req.get("role") not in self.roles:
            raise ValueError("spawn needs a role and one descriptor")
        self.env.prepare(req["role"])
        job = Job(self, req)
        pid = self.fork(job, fds[0])
        pidfd = os.pidfd_open(pid)
        self.children[pidfd] = pid, job
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
                self.env.prepare(req["role"])
                self.send({"id": req["id"]})
            else:
                raise ValueError("unknown op")
        except (ValueError, KeyError, TypeError, RecursionError, OSError) as exc:
            name = req.get("id") if isinstance(req, dict) else None
            kind = "" if isinstance(exc, ValueError) else f"{type(exc).__name__}: "
            self.send({"id": name, "error": f"{kind}{exc}"[:500]})
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
        for pid, _ in self.children.values():
            os.kill(pid, SIGKILL)
        jobs = [job for _, job in self.children.values()]
        for pid, _ in self.children.values():
            os.waitpid(pid, 0)
        self.children = {}
        self.reap_orphans()
        for job in jobs:
            job.ended()


def main():
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    try:
        children, jail, setup = import_package()
        env = setup.Env(HERE, sys.argv[2])
        hello = env.hello()
    except Exception as exc:
        channel.send(json.dumps({"error": f"{type(exc).__name__}: {exc}"[:2000]}).encode())
        return 1
    gc.collect()
    gc.freeze()
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    host = Host(channel, env, children.ROLES, jail)
    try:
        host.send(hello)
        host.run()
    except (BrokenPipeError, ConnectionResetError):
        pass                    # the tool is gone
    finally:
        host.end()
    return 0


if __name__ == "__main__":
    # Python would take a second to tear torch down, and the tool waits.
    os._exit(main())
